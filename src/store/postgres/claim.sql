-- $1 scope  $2 keys  $3 owners  $4 fingerprints (NULL: none)  $5 lease ms  $6 skew margin ms
-- $7 ttl ms = max(retention, lease + margin + 1)  $8 may take over  $9 v  $10 newest known v
-- $11 now in ms, or NULL for the server's clock  $12 operations  $13 labels (NULL: none)  $14 sequences (NULL: none)
-- Returns the grants. select.sql, sent right behind it, shows the rest.
-- Rows are locked in the order of the keys, as settle.sql and release.sql do, so that batches cannot deadlock.
WITH clock AS MATERIALIZED (
  SELECT coalesce($11::bigint, floor(extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now
)
INSERT INTO once_records AS r (scope, key_hash, status, owner, attempt, lease_until, expiration, validation, v,
  operation, label, sequence, claimed_at)
SELECT $1::text, k, 0, o, 1, now + $5::bigint, (now + $7::bigint + 999) / 1000, f, $9::integer, operation, label, sequence, now
FROM clock, unnest($2::bytea[], $3::bytea[], $4::bytea[], $12::text[], $13::text[], $14::text[])
  AS w (k, o, f, operation, label, sequence)
ORDER BY k
ON CONFLICT (scope, key_hash) DO UPDATE SET
  status = 0, owner = EXCLUDED.owner, attempt = r.attempt + 1,
  -- A claim that has expired is not taken over, because its payload was not compared.
  prior_status = CASE WHEN r.status <> 0 OR r.expiration > (SELECT now / 1000 FROM clock) THEN r.status END,
  lease_until = EXCLUDED.lease_until, expiration = EXCLUDED.expiration, validation = EXCLUDED.validation,
  data = NULL, encoding = NULL, v = EXCLUDED.v, operation = EXCLUDED.operation, label = EXCLUDED.label,
  sequence = EXCLUDED.sequence, claimed_at = EXCLUDED.claimed_at, settled_at = NULL
WHERE r.expiration <= (SELECT now / 1000 FROM clock)
   OR (($8::boolean OR r.released = r.attempt) AND r.status = 0 AND r.v <= $10::integer
       AND r.lease_until < (SELECT greatest(now - $6::bigint, 0) FROM clock)
       -- Of the same payload, or of one of another version: that follows the hashes, unless it is 1.
       AND (r.validation IS NULL OR EXCLUDED.validation IS NULL
            OR substring(r.validation FOR 16) = substring(EXCLUDED.validation FOR 16)
            OR substring(r.validation FROM 33) <> substring(EXCLUDED.validation FROM 33)))
RETURNING r.key_hash, r.lease_until, r.attempt, r.prior_status

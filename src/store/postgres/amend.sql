-- $1 scope  $2 keys  $3 owners as read, or NULL  $4 statuses as read  $5 attempts as read
-- $6 what: 1 complete, 2 fail, 3 forget, 4 redact, 5 release  $7 skew margins ms  $8 retentions ms  $9 data  $10 encodings
-- $11 now in ms, or NULL for the server's clock  $12 newest known version  $13 sequences as read, or NULL
WITH w AS MATERIALIZED (
  SELECT *, coalesce($11::bigint, floor(extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now
  FROM unnest($2::bytea[], $3::bytea[], $4::smallint[], $5::bigint[], $6::smallint[], $7::bigint[], $8::bigint[], $9::bytea[], $10::smallint[],
    $13::text[])
    AS u (k, o, was, a, what, margin, retention, data, encoding, sequence)
), held AS MATERIALIZED (
  SELECT w.*
  FROM once_records r JOIN w ON k = r.key_hash
  WHERE r.scope = $1::text AND r.status = was AND r.owner IS NOT DISTINCT FROM o AND r.attempt = a
    AND r.expiration > now / 1000 AND r.v <= $12::integer
    AND (was <> 0 OR r.lease_until < greatest(now - margin, 0) OR what = 3 AND r.lease_until IS NULL)
    AND r.sequence IS NOT DISTINCT FROM w.sequence
  ORDER BY r.key_hash  -- in the order of claims, so that the two cannot deadlock
  FOR UPDATE OF r
), forgotten AS (
  DELETE FROM once_records r USING held
  WHERE r.scope = $1::text AND r.key_hash = k AND what = 3
  RETURNING r.key_hash
), changed AS (
  UPDATE once_records r SET
    status = CASE WHEN what < 3 THEN what ELSE r.status END,
    owner = CASE WHEN what > 3 THEN r.owner END,
    expiration = CASE WHEN what < 3 THEN (now + retention + 999) / 1000 ELSE r.expiration END,
    settled_at = CASE WHEN what < 3 THEN now ELSE r.settled_at END,
    label = CASE WHEN what <> 4 THEN r.label END,
    released = CASE WHEN what = 5 THEN r.attempt ELSE r.released END,
    data = held.data,
    encoding = CASE WHEN what < 3 THEN held.encoding WHEN what = 4 AND r.encoding IS DISTINCT FROM 3 THEN 2 ELSE r.encoding END
  FROM held
  WHERE r.scope = $1::text AND r.key_hash = k AND what <> 3
  RETURNING r.key_hash
)
SELECT key_hash FROM forgotten UNION ALL SELECT key_hash FROM changed

-- $1 scope  $2 keys  $3 owners  $4 what: 1 complete, 2 fail, 3 renew, 4 hand back  $5 retentions ms
-- $6 leases ms (renew)  $7 skew margins ms (renew)  $8 data  $9 encodings  $10 now in ms, or NULL for the server's clock
-- $11 the transaction, if the settle is to be applied in that one alone: its handler may have ended it, and each statement
-- would then be committed by itself
WITH w AS MATERIALIZED (
  SELECT *, coalesce($10::bigint, floor(extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now
  FROM unnest($2::bytea[], $3::bytea[], $4::smallint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bytea[], $9::smallint[])
    AS u (k, o, what, retention, lease, margin, data, encoding)
), held AS MATERIALIZED (
  SELECT w.*
  FROM once_records r JOIN w ON k = r.key_hash
  WHERE r.scope = $1::text AND r.owner = o AND r.status = 0
    AND ($11::text IS NULL OR pg_current_xact_id_if_assigned()::text = $11::text)
    AND (what <> 3 OR r.lease_until >= greatest(now - margin, 0))  -- a late renewal would revive a claim whose holder has stopped
  ORDER BY r.key_hash  -- in the order of claims, so that the two cannot deadlock
  FOR UPDATE OF r
)
UPDATE once_records r SET
  status = CASE WHEN what < 3 THEN what ELSE 0 END,
  owner = CASE WHEN what < 4 THEN r.owner END,
  lease_until = CASE what WHEN 3 THEN greatest(r.lease_until, now + lease) WHEN 4 THEN 0 ELSE r.lease_until END,
  expiration = CASE what
    WHEN 3 THEN greatest(r.expiration, (greatest(now + retention, greatest(r.lease_until, now + lease) + margin + 1) + 999) / 1000)
    WHEN 4 THEN r.expiration
    ELSE (now + retention + 999) / 1000
  END,
  data = held.data, encoding = held.encoding,
  settled_at = CASE WHEN what <> 3 THEN now END,
  -- The claim that a release was for passes it on when it is handed back.
  released = CASE WHEN what = 4 AND r.released = r.attempt - 1 THEN r.attempt ELSE r.released END
FROM held
WHERE r.scope = $1::text AND r.key_hash = k
RETURNING r.key_hash, r.lease_until

-- $1 scope  $2 for how long at the least, ms  $3 most rows  $4 now in ms, or NULL for the server's clock
-- $5 first page  $6 the page after the last one
-- Reads these pages of the table: an index that finds claims would keep every settle from being a HOT update.
WITH clock AS MATERIALIZED (
  SELECT coalesce($4::bigint, floor(extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now
)
SELECT key_hash, lease_until, attempt
FROM once_records
WHERE ctid >= format('(%s,0)', $5::bigint)::tid AND ctid < format('(%s,0)', $6::bigint)::tid
  AND scope = $1::text AND status = 0
  AND lease_until < (SELECT now FROM clock) - $2::bigint AND expiration > (SELECT now FROM clock) / 1000
ORDER BY lease_until
LIMIT $3::bigint

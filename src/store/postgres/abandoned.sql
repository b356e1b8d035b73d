-- $1 scope  $2 for how long at the least, ms  $3 most rows  $4 now in ms, or NULL for the server's clock
WITH clock AS MATERIALIZED (
  SELECT coalesce($4::bigint, floor(extract(epoch FROM statement_timestamp()) * 1000)::bigint) AS now
)
SELECT key_hash, lease_until, attempt
FROM once_records, clock
WHERE scope = $1::text AND status = 0 AND lease_until < now - $2::bigint AND expiration > now / 1000
ORDER BY lease_until
LIMIT $3::bigint

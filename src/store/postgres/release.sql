-- $1 scope  $2 keys  $3 owners
-- Deletes claims that replaced no other. One that took over is handed back by settle.sql.
WITH held AS MATERIALIZED (
  SELECT r.key_hash
  FROM once_records r JOIN unnest($2::bytea[], $3::bytea[]) AS w (k, o) ON k = r.key_hash
  WHERE r.scope = $1::text AND r.owner = o AND r.status = 0 AND r.prior_status IS DISTINCT FROM 0
  ORDER BY r.key_hash  -- in the order of claims, so that the two cannot deadlock
  FOR UPDATE OF r
)
DELETE FROM once_records r USING held
WHERE r.scope = $1::text AND r.key_hash = held.key_hash
RETURNING r.key_hash

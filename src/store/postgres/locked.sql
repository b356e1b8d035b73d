-- $1 scope  $2 keys
-- Returns the keys of rows that another transaction has locked. It waits for none of them.
WITH free AS MATERIALIZED (
  SELECT key_hash FROM once_records WHERE scope = $1::text AND key_hash = ANY ($2::bytea[]) FOR UPDATE SKIP LOCKED
)
SELECT key_hash
FROM once_records
WHERE scope = $1::text AND key_hash = ANY ($2::bytea[]) AND key_hash NOT IN (SELECT key_hash FROM free)

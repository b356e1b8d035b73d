-- $1 scope  $2 entity  $3 newest  $4 owner  $5 key  $6 sequence  $7 lease_until  $8 keys in doubt  $9 their sequences
-- $10 expiration  $11 key and $12 owner of the request (NULL: handed back)  $13 v
-- Sent while the record is in progress under the request's owner: right after a claim's write, right before a settle's.
UPDATE once_marks SET
  newest = $3, owner = $4, key_hash = $5, sequence = $6, lease_until = $7, doubt_keys = $8, doubt_sequences = $9,
  expiration = $10, v = $13
WHERE scope = $1::text AND entity = $2::bytea
  AND EXISTS (
    SELECT FROM once_records WHERE scope = $1::text AND key_hash = $11::bytea AND owner IS NOT DISTINCT FROM $12::bytea AND status = 0
  )

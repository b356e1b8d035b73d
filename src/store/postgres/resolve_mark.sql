-- $1 scope  $2 entity  $3 newest  $4 owner  $5 key  $6 sequence  $7 lease_until  $8 keys in doubt  $9 their sequences
-- $10 expiration
-- Sent while the mark is locked and is as an operator has read it.
UPDATE once_marks SET
  newest = $3, owner = $4, key_hash = $5, sequence = $6, lease_until = $7, doubt_keys = $8, doubt_sequences = $9,
  expiration = $10
WHERE scope = $1::text AND entity = $2::bytea

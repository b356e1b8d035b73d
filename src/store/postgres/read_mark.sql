-- $1 scope  $2 entity
-- Returns one row, even if there is no mark.
SELECT newest, owner, key_hash, sequence, lease_until, doubt_keys, doubt_sequences, expiration, v, now
FROM (SELECT floor(extract(epoch FROM statement_timestamp()) * 1000)::bigint AS now) AS clock
LEFT JOIN once_marks ON scope = $1::text AND entity = $2::bytea

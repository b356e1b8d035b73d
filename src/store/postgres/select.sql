-- $1 scope  $2 keys  $3 whether data is wanted
SELECT key_hash, status, owner, attempt, prior_status, lease_until, expiration, validation,
       CASE WHEN $3::boolean THEN data END AS data, encoding, v,
       operation, label, sequence, claimed_at, settled_at, released,
       floor(extract(epoch FROM statement_timestamp()) * 1000)::bigint AS now
FROM once_records
WHERE scope = $1::text AND key_hash = ANY ($2::bytea[])

-- $1 scope  $2 the key after which to begin, or an empty one  $3 most rows  $4 status  $5 operation, or NULL for all
-- Returns one row at least, which has no record if there is none to list: `read` and `last` are those of all rows that were read.
WITH page AS MATERIALIZED (
  SELECT key_hash, status, owner, attempt, prior_status, lease_until, expiration, validation, encoding, v, operation, label, sequence,
         claimed_at, settled_at, released
  FROM once_records
  WHERE scope = $1::text AND key_hash > $2::bytea
  ORDER BY key_hash
  LIMIT $3::bigint
)
SELECT page.*, NULL::bytea AS data, all_read.read, all_read.last, NULL::bigint AS last_claimed_at,
       floor(extract(epoch FROM statement_timestamp()) * 1000)::bigint AS now
FROM (SELECT count(*) AS read, (SELECT key_hash FROM page ORDER BY key_hash DESC LIMIT 1) AS last FROM page) AS all_read
LEFT JOIN page ON status = $4::smallint AND ($5::text IS NULL OR operation = $5::text)

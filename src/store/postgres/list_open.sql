-- $1 scope  $2 claimed_at and $3 key after which to begin  $4 most rows  $5 status  $6 operation, or NULL for all
-- As list.sql, by the index of records that have no success: the oldest claim first.
WITH page AS MATERIALIZED (
  SELECT key_hash, status, owner, attempt, prior_status, lease_until, expiration, validation, encoding, v, operation, label, sequence,
         claimed_at, settled_at, released
  FROM once_records
  WHERE scope = $1::text AND status <> 1 AND (claimed_at, key_hash) > ($2::bigint, $3::bytea)
  ORDER BY claimed_at, key_hash
  LIMIT $4::bigint
)
SELECT page.*, NULL::bytea AS data, all_read.read, last.key_hash AS last, last.claimed_at AS last_claimed_at,
       floor(extract(epoch FROM statement_timestamp()) * 1000)::bigint AS now
FROM (SELECT count(*) AS read FROM page) AS all_read
LEFT JOIN (SELECT key_hash, claimed_at FROM page ORDER BY claimed_at DESC, key_hash DESC LIMIT 1) AS last ON true
LEFT JOIN page ON status = $5::smallint AND ($6::text IS NULL OR operation = $6::text)

-- $1 most rows  $2 now in ms, or NULL for the server's clock
-- Repeat until it deletes fewer. It skips locked rows, so it waits for nobody.
-- Whole days that are over: of the current day the index would find every row that has yet to expire, in each call.
WITH clock AS MATERIALIZED (
  SELECT (coalesce($2::bigint, floor(extract(epoch FROM statement_timestamp()) * 1000)::bigint) / 86400000)::integer AS today
), expired AS MATERIALIZED (
  SELECT scope, key_hash
  FROM once_records
  WHERE purge_day < (SELECT today FROM clock)
  ORDER BY purge_day
  LIMIT $1::bigint
  FOR UPDATE SKIP LOCKED
)
DELETE FROM once_records r USING expired
WHERE r.scope = expired.scope AND r.key_hash = expired.key_hash

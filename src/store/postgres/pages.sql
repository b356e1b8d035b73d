-- $1 table, quoted
-- Returns how many pages it has, or the largest of its partitions.
SELECT coalesce(max(pg_relation_size(relid)), pg_relation_size($1::text::regclass)) / current_setting('block_size')::bigint AS pages
FROM pg_partition_tree($1::text::regclass)

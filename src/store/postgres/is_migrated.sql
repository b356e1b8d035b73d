-- $1 table, quoted  $2 its index
-- Returns a row where both exist. CREATE INDEX locks the table against writes, even if there is nothing to create.
SELECT 1
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE i.indrelid = to_regclass($1::text) AND c.relname = $2::text

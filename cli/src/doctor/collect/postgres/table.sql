-- $1 table, quoted  $2 columns of its primary key, in order
-- Returns a row if there is such a table, also in a schema that the role may not use. `to_regclass` would fail there.
WITH named AS (SELECT parse_ident($1) AS path),
     found AS (SELECT to_regclass($1)::oid AS id FROM named WHERE cardinality(path) = 1
               UNION ALL SELECT t.oid FROM named JOIN pg_namespace n ON n.nspname = path[1]
                         JOIN pg_class t ON t.relnamespace = n.oid AND t.relname = path[2] WHERE cardinality(path) = 2)
SELECT CASE WHEN NOT has_schema_privilege(c.relnamespace, 'USAGE') THEN c.relnamespace::regnamespace::text END AS denied_schema,
       ARRAY(SELECT attname::text FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped) AS columns,
       EXISTS (SELECT 1 FROM pg_index i WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid AND i.indpred IS NULL
               AND ARRAY(SELECT a.attname::text FROM unnest(i.indkey) WITH ORDINALITY k(number, place)
                         JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.number ORDER BY place) = $2) AS has_primary_key,
       EXISTS (SELECT 1 FROM pg_index i JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[0]
               WHERE i.indrelid = c.oid AND i.indisvalid AND a.attname = 'purge_day') AS has_purge_index,
       EXISTS (SELECT 1 FROM pg_index i JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[0]
               WHERE i.indrelid = c.oid AND i.indisvalid AND a.attname = 'claimed_at'
               AND (i.indpred IS NULL OR pg_get_expr(i.indpred, c.oid) = '(status <> 1)')) AS has_listing_index,
       NOT EXISTS (SELECT 1 FROM pg_options_to_table(c.reloptions)
                   WHERE option_name = 'autovacuum_enabled' AND NOT option_value::boolean) AS has_autovacuum,
       ARRAY(SELECT p FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) p
             WHERE NOT has_table_privilege(c.oid, p)) AS denied
FROM pg_class c JOIN found ON found.id = c.oid

-- $1 table, quoted  $2 columns of its primary key, in order
-- Returns a row if there is such a table.
SELECT ARRAY(SELECT attname::text FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped) AS columns,
       EXISTS (SELECT 1 FROM pg_index i WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid AND i.indpred IS NULL
               AND ARRAY(SELECT a.attname::text FROM unnest(i.indkey) WITH ORDINALITY k(number, place)
                         JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.number ORDER BY place) = $2) AS has_primary_key,
       EXISTS (SELECT 1 FROM pg_index i JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[0]
               WHERE i.indrelid = c.oid AND i.indisvalid AND a.attname = 'purge_day') AS has_purge_index,
       NOT coalesce(c.reloptions, '{}') && ARRAY['autovacuum_enabled=false', 'autovacuum_enabled=off'] AS has_autovacuum,
       ARRAY(SELECT p FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) p
             WHERE NOT has_table_privilege(c.oid, p)) AS denied
FROM pg_class c WHERE c.oid = to_regclass($1::text)

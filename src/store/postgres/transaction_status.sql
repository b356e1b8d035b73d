-- Returns whether a transaction is "in progress", "committed" or "aborted"; NULL if it is too old to be known.
SELECT pg_xact_status($1::text::xid8) AS status

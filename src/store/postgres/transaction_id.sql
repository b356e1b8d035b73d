-- Returns the transaction in which this is sent, or NULL outside of one and where nothing has been written in it.
SELECT pg_current_xact_id_if_assigned()::text AS id

-- Returns what rules know of the server and of this session.
SELECT current_setting('server_version_num')::integer AS version, current_user::text AS role,
       pg_is_in_recovery() AS is_standby, inet_server_port() AS port,
       current_setting('lock_timeout') AS lock_timeout,
       current_setting('client_connection_check_interval', true) AS client_connection_check_interval,
       current_setting('synchronous_commit') AS synchronous_commit,
       current_setting('default_transaction_isolation') AS default_transaction_isolation,
       current_setting('autovacuum') AS autovacuum

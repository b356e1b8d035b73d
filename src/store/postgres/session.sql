-- Returns the settings that warm() warns of.
SELECT current_setting('lock_timeout') AS lock_timeout,
       current_setting('client_connection_check_interval') AS client_connection_check_interval,
       current_setting('synchronous_commit') AS synchronous_commit,
       current_setting('default_transaction_isolation') AS default_transaction_isolation

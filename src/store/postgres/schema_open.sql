CREATE INDEX IF NOT EXISTS once_records_open ON once_records (scope, claimed_at, key_hash) WHERE status <> 1;

CREATE INDEX IF NOT EXISTS once_records_open ON once_records (claimed_at, key_hash, scope) WHERE status <> 1;

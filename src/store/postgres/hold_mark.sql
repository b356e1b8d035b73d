-- $1 scope  $2 entity
-- Locks the mark until the transaction ends. If there is none, an expired one represents it.
-- DO NOTHING would lock nothing, and a purge could delete the row before a SELECT … FOR UPDATE locks it.
INSERT INTO once_marks AS m (scope, entity, expiration)
VALUES ($1::text, $2::bytea, 0)
ON CONFLICT (scope, entity) DO UPDATE SET expiration = m.expiration WHERE false

-- Moves an entry from the group's pending list to the dead-letter stream. Another consumer may have moved it already.
-- KEYS: stream, dead-letter stream. ARGV: group, entry, reason.
if #redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[2], ARGV[2], 1) == 0 then
    return
end
local entry = redis.call('XRANGE', KEYS[1], ARGV[2], ARGV[2])[1]
redis.call('XADD', KEYS[2], '*', 'entry', ARGV[2], 'reason', ARGV[3], unpack(entry and entry[2] or {}))
-- Last: errors do not undo a script.
redis.call('XACK', KEYS[1], ARGV[1], ARGV[2])

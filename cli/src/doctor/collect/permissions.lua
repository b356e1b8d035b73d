-- Returns the commands that the user may not call, as ACL rules spell them. ARGV[1] is the prefix of keys, ARGV[2] whether the
-- index for lists is used, ARGV[3] whether the store is for a cluster.
local key, denied = ARGV[1] .. '{00000000000000000000000000000000}00000000000000000000000000000000', {}
local commands = {
  { 'evalsha', 'sha', '1', key }, { 'hmget', key, 'f' }, { 'hset', key, 'f', 'v' }, { 'hdel', key, 'f' }, { 'del', key },
  { 'pexpireat', key, '1' }, { 'time' }, { 'ping' },
}
if ARGV[2] == 'true' then
  local index = ARGV[1] .. 'open'
  table.insert(commands, { 'zadd', index, '1', 'm' })
  table.insert(commands, { 'zrem', index, 'm' })
  table.insert(commands, { 'zrange', index, '0', '1' })
end
if ARGV[3] == 'true' then
  table.insert(commands, { 'cluster', 'slots', rule = 'cluster|slots' })
  table.insert(commands, { 'asking' })
end
for _, command in ipairs(commands) do
  local is_known, is_allowed = pcall(redis.acl_check_cmd, unpack(command))
  -- A managed server whose slots never move may lack ASKING.
  if not is_known and command[1] ~= 'asking' then error(is_allowed) end
  if is_known and not is_allowed then
    table.insert(denied, command.rule or command[1])
  end
end
return denied

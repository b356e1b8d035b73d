-- Reads a mark for an operator, or replaces it. KEYS[1]: the mark. ARGV: 1 now in ms (nothing for the server's clock)
-- 2–9 the fields as they were read, in the order of NAMES, and 10–17 those to write, each '' if it is absent.
-- With ARGV[1] alone: {now, fields}. Otherwise 1 if the mark was replaced, or 0 if it is not as it was read.
-- The first line, in scripts.rs, has a replica, whose copy may be older, refuse it.
local NAMES = {'newest', 'owner', 'holder', 'sequence', 'in_progress_expiration', 'doubt', 'v', 'expiration'}
local found = redis.call('HMGET', KEYS[1], unpack(NAMES))
if #ARGV == 1 then return {text(time(ARGV[1])), found} end

local values, set, unset = {}, {}, {}
for place, name in ipairs(NAMES) do
  if (found[place] or '') ~= ARGV[1 + place] then return 0 end
  values[name] = ARGV[1 + #NAMES + place]
end
sort_out(NAMES, values, set, unset)
redis.call('HSET', KEYS[1], unpack(set))
if #unset > 0 then redis.call('HDEL', KEYS[1], unpack(unset)) end
redis.call('PEXPIREAT', KEYS[1], text(tonumber(values.expiration) * 1000))
return 1

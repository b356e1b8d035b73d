-- Amends one record on behalf of an operator, if it is as it was read. KEYS[1]: the record. Times are in ms.
-- For the settle of an ordered operation mark.lua stands before this text; it adds KEYS[2] and two arguments. With an index for
-- lists, index.lua adds the last of KEYS.
-- ARGV: 1 the owner that was read, or ''  2 the terms, divided by spaces: COMPLETED|FAILED|forget|redact|release, the status and the
--       attempt that were read, skew margin, retention, newest known version, field of the result
--       (data|deflated|encoded|result_dropped|superseded, or -), the sequence that was read or -, now (nothing for the server's
--       clock)  3 the result's value
-- The first line, in scripts.rs, has it run without free memory too, and has a replica, whose copy may be older, refuse it.
-- Applied: 1. Refused: {now, the record's fields}, explained by the client. Nothing is written beside a mark of another version: the
-- answer then is its version, as text.
local key, owner = KEYS[1], ARGV[1]
local what, status, attempt, margin, retention, newest_version, field, sequence, given =
  string.match(ARGV[2], '^(%S+) (%S+) (%d+) (%d+) (%d+) (%d+) (%S+) (%S+) (%d*)$')
local now = time(given)

local found = redis.call('HMGET', key, 'status', 'owner', 'attempt', 'in_progress_expiration', 'expiration', 'v', 'sequence', 'superseded')
local lease = number(found[4])
local is_as_read = found[1] == status and (found[2] or '') == owner and (found[3] or '0') == attempt
  and (found[7] or '-') == sequence
  and (number(found[5]) or math.huge) * 1000 > now
  and (number(found[6] or '0') or math.huge) <= tonumber(newest_version)
local has_lapsed = lease and lease < math.max(now - tonumber(margin), 0) or not found[4] and what == 'forget'
if not is_as_read or status == 'INPROGRESS' and not has_lapsed then
  return {text(now), redis.call('HMGET', key, 'status', 'owner', 'attempt', 'prior_status', 'in_progress_expiration', 'expiration',
    'validation', 'v', 'result_dropped', 'superseded', 'operation', 'label', 'sequence', 'claimed_at', 'settled_at', 'released', 'data',
    'deflated', 'encoded')}
end

if mark then
  mark.read(now)
  if mark.is_live and mark.is_newer() then return mark.version end
  mark.settle(what, owner, 0, 0, now)
end
if what == 'forget' then
  redis.call('DEL', key)
  if index then index.settle(key, what) end
elseif what == 'release' then
  redis.call('HSET', key, 'released', attempt)
elseif what == 'redact' then
  redis.call('HDEL', key, 'data', 'deflated', 'encoded', 'label')
  if not found[8] then redis.call('HSET', key, 'result_dropped', 1) end
else
  local expiration = math.ceil((now + tonumber(retention)) / 1000)
  redis.call('HDEL', key, 'owner')
  redis.call('HSET', key, 'status', what, 'expiration', expiration, 'settled_at', now)
  if field ~= '-' then redis.call('HSET', key, field, ARGV[3]) end
  if index then index.settle(key, what, expiration) end
  -- PEXPIREAT comes last: a time that has passed deletes the record, and a write after it would make one without a time to live.
  redis.call('PEXPIREAT', key, expiration * 1000)
end
return 1

-- Ends or renews one claim, if the record is still in progress under its owner. KEYS[1]: the record. Times are in ms.
-- For ordered operations mark.lua stands before this text; it adds KEYS[2] and two arguments. With an index for lists, index.lua
-- adds the last of KEYS.
-- ARGV: 1 owner  2 the terms, divided by spaces: COMPLETED|FAILED|release|hand_back|renew, retention, lease, skew margin,
--       field of the result (data|deflated|encoded|result_dropped|superseded, or -), now (nothing for the server's clock)
--       3 the result's value
-- The first line, in scripts.rs, has it run without free memory too, so that outcomes of work that is done are recorded while
-- claims are refused, and has a replica, whose copy may be older, refuse it.
-- Applied: lease_until of a renewal, 1 otherwise. Refused: the record's fields, explained by the client. Nothing is written to a
-- mark of another version: the answer then is its version, as text.
local key, owner = KEYS[1], ARGV[1]
local what, retention, lease_ms, margin, field, given = string.match(ARGV[2], '^(%S+) (%d+) (%d+) (%d+) (%S+) (%d*)$')
local now = time(given)
margin = tonumber(margin)
if mark then mark.read(now) end

local found = redis.call('HMGET', key, 'status', 'owner', 'prior_status', 'in_progress_expiration', 'expiration',
  'attempt', 'released')
local lease = tonumber(found[4] or '')
-- A renewal that arrives when others may take over would revive a claim whose holder has stopped.
local is_over = what == 'renew' and not (lease and lease >= math.max(now - margin, 0))
local is_displaced = what == 'renew' and mark and not mark.is_held_by(owner)
-- A late release may meet a late copy of its claim, which has taken over.
local forgets = what == 'release' and found[3] == 'INPROGRESS'
if found[1] ~= 'INPROGRESS' or found[2] ~= owner or is_over or is_displaced or forgets then
  local fields = {'status', 'owner', 'attempt', 'prior_status', 'in_progress_expiration', 'expiration', 'validation', 'v', 'result_dropped', 'superseded', 'operation', 'label', 'sequence',
    'claimed_at', 'settled_at', 'released'}
  -- A release has no use for a result, nor has a settle that was applied before.
  if what ~= 'release' and what ~= 'hand_back' and not (found[1] == what and found[2] == owner) then
    table.insert(fields, 'data')
    table.insert(fields, 'deflated')
    table.insert(fields, 'encoded')
  end
  return redis.call('HMGET', key, unpack(fields))
end

if mark and mark.is_live and mark.is_newer() then return mark.version end
if mark then mark.settle(what, owner, tonumber(lease_ms), margin, now) end
if what == 'release' then
  redis.call('DEL', key)
  if index then index.settle(key, what) end
  return 1
end
if what == 'hand_back' then
  redis.call('HDEL', key, 'owner')
  redis.call('HSET', key, 'in_progress_expiration', 0, 'settled_at', now)
  -- The claim that a release was for passes it on.
  local attempt, released = number(found[6]), number(found[7])
  if attempt and released and released + 1 == attempt then redis.call('HSET', key, 'released', found[6]) end
  return 1
end
local ends = now + tonumber(retention)
if what == 'renew' then
  -- A late copy of an older renewal may follow a newer one: nothing is lowered.
  lease = math.max(now + tonumber(lease_ms), lease)
  ends = math.max(ends, lease + margin + 1, (tonumber(found[5] or '') or 0) * 1000)
end
local expiration = math.ceil(ends / 1000)
if what == 'renew' then
  redis.call('HSET', key, 'expiration', expiration, 'in_progress_expiration', lease)
elseif field == '-' then
  redis.call('HSET', key, 'expiration', expiration, 'status', what, 'settled_at', now)
else
  redis.call('HSET', key, 'expiration', expiration, 'status', what, 'settled_at', now, field, ARGV[3])
end
if index then index.settle(key, what, expiration) end
-- PEXPIREAT comes last: a time that has passed deletes the record, and a write after it would make one without a time to live.
redis.call('PEXPIREAT', key, expiration * 1000)
return what == 'renew' and lease or 1

-- Claims one key by the rules of the protocol. KEYS[1]: the record. Times are in ms, `expiration` is in s.
-- For ordered operations mark.lua precedes this text; it adds KEYS[2] and two arguments. With an index for lists, index.lua
-- adds the last of KEYS.
-- ARGV: 1 owner  2 fingerprint or ''  3 the terms, divided by spaces: lease, skew margin, time to live (max(retention,
--       lease + margin + 1)), whether it may take over (1|0), version of the format, newest known version, whether a refusal
--       has the data of the result (1|0), now (nothing for the server's clock)  4 operation  5 label or ''
-- Granted: lease_until if there was no record, else 'lease_until attempt prior_status'; both are quicker to parse than an
-- array. ' merged' is appended if mark.claim returns true. Refused: {now, the record's fields} and, of an ordered operation, the mark's fields, explained by the client.
-- Older servers compile this script and not the one that settles: work would run, and its outcome never be recorded.
if not redis.REDIS_VERSION_NUM then return redis.error_reply('UNSUPPORTED use Redis 7.0, Valkey 7.2, or later') end
-- Whether two fingerprints are of different payloads: they have the same version ('v2:' before the hashes, nothing for 1), and
-- other first halves. Payloads of different versions are not compared.
local function differ(stored, given)
  local version = string.match(given, '^v%d+:') or ''
  return given ~= '' and (string.match(stored, '^v%d+:') or '') == version
    and string.sub(stored, 1, #version + 32) ~= string.sub(given, 1, #version + 32)
end

local key, owner, fingerprint, label = KEYS[1], ARGV[1], ARGV[2], ARGV[5]
local lease_ms, margin, ttl, may_take_over, version, newest_version, with_data, given =
  string.match(ARGV[3], '^(%d+) (%d+) (%d+) ([01]) (%d+) (%d+) ([01]) (%d*)$')
local now = time(given)
margin = tonumber(margin)
if mark then mark.read(now) end

local found = redis.call('HMGET', key, 'status', 'expiration', 'v', 'validation', 'in_progress_expiration', 'attempt',
  'released')
local status, lease, attempt = found[1], number(found[5]), number(found[6] or '0')
local is_live = status and (number(found[2]) or math.huge) * 1000 > now
-- An operator may release an attempt, whatever the policy.
local is_released = attempt and attempt > 0 and number(found[7]) == attempt
local is_lapsed = (may_take_over == '1' or is_released) and status == 'INPROGRESS' and attempt
  and (number(found[3] or '0') or math.huge) <= tonumber(newest_version)
  and not (found[4] and differ(found[4], fingerprint))
  and lease and lease < math.max(now - margin, 0)
if is_live and not is_lapsed or mark and mark.refuses(owner, margin, now) then
  local fields = {'status', 'owner', 'attempt', 'prior_status', 'in_progress_expiration', 'expiration', 'validation', 'v', 'result_dropped', 'superseded', 'operation', 'label', 'sequence',
    'claimed_at', 'settled_at', 'released'}
  if with_data == '1' then
    table.insert(fields, 'data')
    table.insert(fields, 'deflated')
    table.insert(fields, 'encoded')
  end
  return {text(now), redis.call('HMGET', key, unpack(fields)), mark and mark.stored}
end

local ends, expiration = now + tonumber(lease_ms), math.ceil((now + tonumber(ttl)) / 1000)
attempt = (attempt or 0) + 1
-- A claim that has expired is not taken over, because its payload was not compared.
local prior = status and (is_live or status ~= 'INPROGRESS') and status or 'NONE'
if index then index.claim(key, expiration, now) end
-- HSET comes first because a server without free memory refuses it. After a first write that needs no memory it would let it pass.
local set = {'status', 'INPROGRESS', 'owner', owner, 'attempt', attempt, 'prior_status', prior,
  'in_progress_expiration', ends, 'expiration', expiration, 'v', version, 'operation', ARGV[4], 'claimed_at', now}
-- Fields that the claim lacks, or that an earlier claim left. Fields of other versions stay.
local unset = {'data', 'deflated', 'encoded', 'result_dropped', 'superseded', 'settled_at'}
sort_out({'validation', 'label', 'sequence'}, {validation = fingerprint, label = label, sequence = mark and mark.sequence}, set, unset)
redis.call('HSET', key, unpack(set))
-- No settle removes the fields of an earlier outcome.
if status then
  redis.call('HDEL', key, unpack(unset))
end
redis.call('PEXPIREAT', key, expiration * 1000)
local begins_to_merge = mark and mark.claim(owner, ends, margin, now)
if not status and attempt == 1 and not begins_to_merge then return ends end
return text(ends) .. ' ' .. text(attempt) .. ' ' .. prior .. (begins_to_merge and ' merged' or '')

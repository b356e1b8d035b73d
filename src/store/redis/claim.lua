-- Claims one key by the rules of the protocol. KEYS[1]: the record. Times are in ms, `expiration` is in s.
-- For ordered operations mark.lua stands before this text; it adds KEYS[2] and two arguments.
-- ARGV: 1 owner  2 fingerprint or ''  3 lease  4 skew margin  5 time to live: max(retention, lease + margin + 1)
--       6 whether it may take over: 1|0  7 version of the format  8 newest known version  9 now, or '' for the server's clock
--       10 whether a refusal has the data of the result: 1|0
-- Granted: 'lease_until attempt prior_status', which is quicker to parse than an array. Refused: {now, the record's fields}
-- and, of an ordered operation, the mark's fields, explained by the client.
local key, owner, fingerprint, margin, now = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[4]), time(ARGV[9])
if mark then mark.read(now) end

local found = redis.call('HMGET', key, 'status', 'expiration', 'v', 'validation', 'in_progress_expiration', 'attempt')
local status, lease, attempt = found[1], number(found[5]), number(found[6] or '0')
local is_live = status and (number(found[2]) or math.huge) * 1000 > now
local is_lapsed = ARGV[6] == '1' and status == 'INPROGRESS' and attempt
  and (number(found[3] or '0') or math.huge) <= tonumber(ARGV[8])
  and (fingerprint == '' or not found[4] or found[4] == fingerprint)
  and lease and lease < math.max(now - margin, 0)
if is_live and not is_lapsed or mark and mark.refuses(owner, margin, now) then
  local fields = {'status', 'owner', 'attempt', 'prior_status', 'in_progress_expiration', 'expiration', 'validation', 'v', 'result_dropped', 'superseded'}
  if ARGV[10] == '1' then
    table.insert(fields, 'data')
    table.insert(fields, 'deflated')
  end
  return {text(now), redis.call('HMGET', key, unpack(fields)), mark and mark.stored}
end

local ends = now + tonumber(ARGV[3])
lease, attempt = text(ends), text((attempt or 0) + 1)
local prior, expiration = status or 'NONE', math.ceil((now + tonumber(ARGV[5])) / 1000)
-- HSET comes first because a server without free memory refuses it. After a first write that needs no memory it would let it pass.
redis.call('HSET', key, 'status', 'INPROGRESS', 'owner', owner, 'attempt', attempt, 'prior_status', prior,
  'in_progress_expiration', lease, 'expiration', text(expiration), 'v', ARGV[7])
if fingerprint ~= '' then redis.call('HSET', key, 'validation', fingerprint) end
redis.call('HDEL', key, 'data', 'deflated', 'result_dropped', 'superseded', fingerprint == '' and 'validation' or 'data')
redis.call('PEXPIREAT', key, text(expiration * 1000))
if mark then mark.claim(owner, ends, margin, now) end
return lease .. ' ' .. attempt .. ' ' .. prior

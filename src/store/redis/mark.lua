-- Keeps the operations of an entity in order, by the rules of `store::ordering`. KEYS[2]: the entity's mark. Times are in ms.
-- The last two of ARGV: the sequence of the operation, and how long the mark stays.
-- Sequences have 64 digits, so they compare as text. An operation is named by the second half of its key. `doubt` has
-- 'sequence operation,' for each operation in doubt, and 'sequence ,' for those that have merged.
-- The line before this text, in scripts.rs, has the versions of the format: VERSION, and NEWEST_KNOWN_VERSION.
mark = {}
do
  local NAMES = {'newest', 'owner', 'holder', 'sequence', 'in_progress_expiration', 'doubt', 'v', 'expiration'}
  local MAX_DOUBT = 64
  local operation, sequence, retention = string.sub(KEYS[1], -32), ARGV[#ARGV - 1], tonumber(ARGV[#ARGV])
  local fields = {doubt = ''}
  mark.sequence = sequence

  -- The fields are those of a mark that is absent or expired, unless it is live.
  function mark.read(now)
    mark.stored = redis.call('HMGET', KEYS[2], unpack(NAMES))
    local expiration = mark.stored[#NAMES]
    mark.is_live = expiration and (number(expiration) or math.huge) * 1000 > now
    if not mark.is_live then return end
    for place, name in ipairs(NAMES) do fields[name] = mark.stored[place] or fields[name] end
    mark.version = fields.v
  end

  -- Whether the mark has a newer version.
  function mark.is_newer() return (number(fields.v or '0') or math.huge) > NEWEST_KNOWN_VERSION end

  local function is_sequence(text) return text and #text == 64 and number(text) end

  -- Whether the mark has contents that this version cannot read. The client explains it.
  local function is_unknown()
    local is_known = not mark.is_newer() and number(fields.expiration) and (not fields.newest or is_sequence(fields.newest))
      and (not fields.owner or is_sequence(fields.sequence) and number(fields.in_progress_expiration) and fields.holder)
    return not is_known or string.gsub(fields.doubt, '%d+ %x*,', '') ~= ''
  end

  -- Takes the lowest entry out of the list, and returns its sequence; of equal ones the first.
  local function take_lowest()
    local lowest
    for doubted in string.gmatch(fields.doubt, '(%d+) %x*,') do
      if not lowest or doubted < lowest then lowest = doubted end
    end
    fields.doubt = string.gsub(fields.doubt, lowest .. ' %x*,', '', 1)
    return lowest
  end

  -- Whether a claim is superseded or has to wait.
  function mark.refuses(owner, margin, now)
    if not mark.is_live then return false end
    if is_unknown() or fields.newest and fields.newest >= sequence then return true end
    if fields.owner then
      local is_held = fields.owner ~= owner and number(fields.in_progress_expiration) >= math.max(now - margin, 0)
      if is_held or sequence < fields.sequence then return true end
    end
    for doubted in string.gmatch(fields.doubt, '(%d+) %x*,') do
      if sequence < doubted then return true end
    end
    return false
  end

  -- Whether the claim of this owner holds the entity.
  function mark.is_held_by(owner) return mark.is_live and fields.owner == owner end

  -- A mark lives until `ends`, or longer if it did before.
  local function write(ends)
    local expiration = math.max(math.ceil(ends / 1000), number(fields.expiration) or 0)
    fields.expiration = text(expiration)
    local set, unset = {}, {}
    sort_out(NAMES, fields, set, unset)
    redis.call('HSET', KEYS[2], unpack(set))
    if #unset > 0 then redis.call('HDEL', KEYS[2], unpack(unset)) end
    redis.call('PEXPIREAT', KEYS[2], text(expiration * 1000))
  end

  -- Writes a claim that is granted until `lease`. Returns whether it is the first to merge operations in doubt.
  function mark.claim(owner, lease, margin, now)
    local begins_to_merge = false
    local lapsed = fields.owner and ' ' .. fields.holder .. ','
    local listed = lapsed and string.match(fields.doubt, '(%d+)' .. lapsed)
    if listed and listed < fields.sequence then
      fields.doubt = string.gsub(fields.doubt, listed .. lapsed, fields.sequence .. lapsed)
    elseif lapsed and not listed and not (fields.newest and fields.newest >= fields.sequence) then
      local _, count = string.gsub(fields.doubt, ',', ',')
      begins_to_merge = count >= MAX_DOUBT and not string.find(fields.doubt, ' ,', 1, true)
      -- Once, unless another version has listed more.
      while count >= MAX_DOUBT do
        take_lowest()
        fields.doubt = take_lowest() .. ' ,' .. fields.doubt
        count = count - 1
      end
      fields.doubt = fields.doubt .. fields.sequence .. lapsed
    end
    fields.owner, fields.holder, fields.sequence, fields.in_progress_expiration = owner, operation, sequence, text(lease)
    fields.v = VERSION
    write(math.max(now + retention, lease + margin + 1))
    return begins_to_merge
  end

  -- Writes a settle, which its record allows. A live mark keeps its version.
  function mark.settle(what, owner, lease, margin, now)
    if not mark.is_live and what ~= 'COMPLETED' then return end
    if not mark.is_live then fields.v = VERSION end
    local ends = now + retention
    if what == 'COMPLETED' then
      if not (fields.newest and fields.newest >= sequence) then fields.newest = sequence end
      fields.doubt = string.gsub(fields.doubt, '(%d+) %x*,', function(doubted) return doubted <= sequence and '' or nil end)
    elseif what == 'FAILED' then
      fields.doubt = string.gsub(fields.doubt, '%d+ ' .. operation .. ',', '')
    elseif what == 'renew' then
      lease = math.max(now + lease, number(fields.in_progress_expiration) or 0)
      fields.in_progress_expiration = text(lease)
      ends = math.max(ends, lease + margin + 1)
    end
    if what ~= 'renew' and fields.owner == owner then
      fields.owner, fields.holder, fields.sequence, fields.in_progress_expiration = nil, nil, nil, nil
    end
    write(ends)
  end
end

-- The sorted set of the operations without a success, if lists use one: the last of KEYS. Members are the names of records, and
-- scores the time at which each expires, in s. It is a hint, which lists check against the records.
index = {}
local INDEX = KEYS[#KEYS]
-- The most entries that one claim removes because their records have expired.
local TRIMMED = 10

-- Before a claim writes its record, so that nothing is claimed if the user may not write the index. ZADD comes first: a server without
-- free memory refuses it, and the key's own entry is no longer an expired one. The score does not fall: if the server then refuses the
-- HSET, the entry still belongs to the earlier claim of this key.
function index.claim(key, expiration, now)
  redis.call('ZADD', INDEX, 'GT', expiration, key)
  local expired = redis.call('ZRANGE', INDEX, '-inf', math.floor(now / 1000), 'BYSCORE', 'LIMIT', 0, TRIMMED)
  redis.call('ZREM', INDEX, '', unpack(expired))
end

-- After a settle has written the record. An outcome does not fail because of the index.
function index.settle(key, what, expiration)
  if what == 'COMPLETED' or what == 'release' or what == 'forget' then
    redis.pcall('ZREM', INDEX, key)
  else
    redis.pcall('ZADD', INDEX, expiration, key)
  end
end

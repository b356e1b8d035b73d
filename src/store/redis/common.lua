-- Stands first in every script.
-- The mark of the operation's entity. Only in scripts for ordered operations, by mark.lua.
local mark

local function text(number) return string.format('%d', number) end

local function number(text) return text and string.match(text, '^%d+$') and tonumber(text) end

-- The time in ms: the given one, or the server's.
local function time(given)
  local now = tonumber(given)
  if now then return now end
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Stands first in every script.
-- The mark of the operation's entity. Only in scripts for ordered operations, by mark.lua.
local mark
-- The index for lists. Only in scripts of a store that has one, by index.lua.
local index

-- For texts that scripts build: Lua's own conversion rounds, and an integer of C may have 32 bits. What commands are given
-- stays a number, which the server converts exactly up to 2^53.
local function text(number) return string.format('%.0f', number) end

local function number(text) return text and string.match(text, '^%d+$') and tonumber(text) end

-- Adds the named values to the fields to set, and the names of empty or absent ones to the fields to delete.
local function sort_out(names, values, set, unset)
  for _, name in ipairs(names) do
    local value = values[name] or ''
    if value ~= '' then
      table.insert(set, name)
      table.insert(set, value)
    else
      table.insert(unset, name)
    end
  end
end

-- The time in ms: the given one, or the server's.
local function time(given)
  local now = tonumber(given)
  if now then return now end
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

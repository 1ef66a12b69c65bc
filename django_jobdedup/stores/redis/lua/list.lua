-- Show records by rising moment of attention. Writes nothing.
-- KEYS: index, events, counters. ARGV: after, limit.

local rows = {}
local found = call('ZRANGEBYSCORE', index, tonumber(ARGV[1]), '+inf', 'WITHSCORES', 'LIMIT', 0, tonumber(ARGV[2]))
for i = 1, #found, 2 do
  local record = load(prefix .. 'lock:' .. found[i])
  if record.found then
    table.insert(rows, { found[i], tonumber(found[i + 1]), record.name, record.holders })
  end
end
return { now, rows }

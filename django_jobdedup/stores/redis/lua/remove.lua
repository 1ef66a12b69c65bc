-- Remove a holder if it is still the one that was shown.
-- KEYS: index, events, counters, lock, marker. ARGV: state, since, until, merged.
-- Answers: W refused | G.

local record = load(KEYS[4])
local marker = marker_of(call('GET', KEYS[5]))
local holder, place = holder_of(record, tail(KEYS[5]))
local closed = is_final(marker) or is_superseded(marker)
if not holder then
  return marker and not closed and marker[4] and say('W', marker[4]) or 'G'
elseif holder[STATE] ~= ARGV[1] or holder[SINCE] ~= tonumber(ARGV[2]) or holder[UNTIL] ~= tonumber(ARGV[3]) then
  return 'G'
elseif holder[MERGED] ~= tonumber(ARGV[4]) then  -- a call that joins moves no deadline, and would be lost
  return 'G'
end
table.remove(record.holders, place)
event('removed', record, holder)
save(record)
if not closed then
  -- Ends nothing more than before: it keeps the answer for a caller whose reply was lost, and for the next
  -- renewal of a run.
  local life = max(now + MINUTE, holder[LEASE], marker and marker[1] or 0)
  write_marker(KEYS[5], { life, marker and marker[2] or WITHDRAWN, '', holder[REFUSED] })
end
return say('W', holder[REFUSED])

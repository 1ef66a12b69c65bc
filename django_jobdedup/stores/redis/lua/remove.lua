-- Remove a holder if it is still the one that was shown.
-- KEYS: index, events, counters, lock, marker. ARGV: state, since, until, merged.
-- Answers: W refused | G.

local record = load(KEYS[4])
local holder, place = holder_of(record, tail(KEYS[5]))
if not holder then
  local marker = marker_of(call('GET', KEYS[5]))
  return marker and marker[2] == WITHDRAWN and say('W', marker[4]) or 'G'
elseif holder[STATE] ~= ARGV[1] or holder[SINCE] ~= tonumber(ARGV[2]) or holder[UNTIL] ~= tonumber(ARGV[3]) then
  return 'G'
elseif holder[MERGED] ~= tonumber(ARGV[4]) then  -- a call that joins moves no deadline, and would be lost
  return 'G'
end
table.remove(record.holders, place)
event('removed', record, holder)
save(record)
if not marker_of(call('GET', KEYS[5])) then
  -- Ends nothing: it keeps the answer for a caller whose reply was lost, and for the next renewal of a run.
  write_marker(KEYS[5], { max(now + MINUTE, holder[LEASE]), WITHDRAWN, '', holder[REFUSED] })
end
return say('W', holder[REFUSED])

-- Show one record as it is, the dead included, and the marker of one id. Writes nothing.
-- KEYS: index, events, counters, lock, marker.

local record = load(KEYS[4])
local marker = marker_of(call('GET', KEYS[5]))
return { now, record.name, record.holders, marker or {} }

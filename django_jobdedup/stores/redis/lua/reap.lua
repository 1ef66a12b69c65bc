-- Look at the records whose moment of attention has passed, and at no others.
-- KEYS: index, events, counters. ARGV: limit, pending.

local pending = tonumber(ARGV[2])
local lapses, overdue, doubtful, waiters = {}, {}, {}, {}

local function look(record)
  for _, holder in ipairs(sweep(record) or {}) do
    table.insert(lapses, { LAPSES[holder[STATE]], record.fingerprint, holder[ID], record.name, holder[BY] })
    if holder[STATE] == 'R' then
      local line = line_of(record)
      line.take_off(holder[ID])
      local id, entry = line.wake(holder[NONCE])
      if id then
        table.insert(waiters, { record.fingerprint, id, entry[N], entry[CALL], record.name })
      end
    end
  end
  -- Behind a live run a worker may be holding a job whose message is acked, until the gate opens.
  local shut = false
  for _, holder in ipairs(record.holders) do
    shut = shut or runs(holder)
  end
  for _, holder in ipairs(record.holders) do
    if intent(holder) and holder[UNTIL] <= now then
      -- Reported once in a while, by whichever reaper comes first, until it is confirmed or claimed.
      -- It is W, not P, so that a reaper whose publish fails cannot withdraw it.
      local marker = marker_of(call('GET', prefix .. 'mark:' .. holder[ID]))
      holder[STATE], holder[UNTIL] = 'W', now + pending
      table.insert(overdue, { record.fingerprint, holder[ID], ended(marker) + 1, holder[ARGS], record.name })
    elseif not shut and lingers(holder) and max(holder[SINCE], holder[LEASE]) + LOOK <= now then
      table.insert(doubtful, { record.fingerprint, record.name, holder })
    end
  end
  save(record)
end

for _, fingerprint in ipairs(call('ZRANGEBYSCORE', index, '-inf', now, 'LIMIT', 0, tonumber(ARGV[1]))) do
  local record = load(prefix .. 'lock:' .. fingerprint)
  if record.found then
    look(record)
  else
    call('ZREM', index, fingerprint)
  end
end
return { lapses, overdue, doubtful, waiters }

-- Say that messages exist. Converts own pending seats, creates nothing.
-- KEYS: index, events, counters; then the lock of each seat. ARGV: the id of each seat.

local answers = {}
for i, id in ipairs(ARGV) do
  local record = load(KEYS[i + 3])
  local holder = holder_of(record, id)
  if holder then
    if holder[STATE] == 'P' or holder[OVER] then
      to_waiting(record, holder)
      save(record)
    elseif intent(holder) then
      -- An overdue one was published again.
      holder[UNTIL] = max(holder[UNTIL], max(holder[DUE], now) + holder[TTL])
      save(record)
    end
    answers[i] = 1
  else
    answers[i] = 0
  end
end
return answers

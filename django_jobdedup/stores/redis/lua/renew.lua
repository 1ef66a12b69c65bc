-- Move the leases of running deliveries, lapsed ones too if nobody took the seat; see overtake() in claim.
-- KEYS: index, events, counters; then the lock of each token. ARGV: id, nonce, lease of each.

local answers = {}
for i = 1, #KEYS - 3 do
  local id, nonce, lease = ARGV[3 * i - 2], ARGV[3 * i - 1], tonumber(ARGV[3 * i])
  local record = load(KEYS[i + 3])
  local holder = holder_of(record, id)
  if holder and holder[STATE] == 'R' and holder[LEASE] > 0 and holder[NONCE] == nonce then
    holder[LEASE] = now + lease
    save(record)
    answers[i] = 1
  else
    answers[i] = 0
  end
end
return answers

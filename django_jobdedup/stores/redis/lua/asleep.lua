-- Let a job that was put off stand in the line of its lock, unless the gate has opened since.
-- KEYS: index, events, counters, lock, marker. ARGV: words: n gate life woken (0 or 1); then the call, if kept.
-- Answers: S | O.

local id, kept = tail(KEYS[5]), ARGV[2]
local n, gate, life, was_woken = string.match(ARGV[1], '^(%d+) (%d+) (%d+) (%d)$')
n, gate, life = tonumber(n), tonumber(gate), tonumber(life)
local record = load(KEYS[4])
local line = line_of(record)

local function tidy()
  for _, other in ipairs(call('ZRANGEBYSCORE', line.ids, -now, '(0')) do
    line.take_off(other)  -- woken in vain
  end
  if call('ZCARD', line.ids) >= PLACES then
    line.head()
  end
end

local function lie_down()
  tidy()
  local before = line.sleeper(id)
  if not before and call('ZCARD', line.ids) >= PLACES then
    return
  elseif before and before[WAKER] ~= '' and before[N] >= n and was_woken == '0' then
    return  -- its second message is still to come
  end
  line.keep(id, { before and before[N] == n and before[FROM] or now, now + life, n, kept, '' })
  for _, key in ipairs({ line.ids, line.calls }) do
    if call('PTTL', key) < life then
      call('PEXPIRE', key, life)
    end
  end
end

local number, own = 0, nil
for _, other in ipairs(record.holders) do
  if other[ID] == id then
    own = other
  elseif runs(other) then
    number = number + 1
  end
end
if number < gate then
  return 'O'
elseif kept and not (own and own[ARGS] and #own[ARGS] > 0) then  -- else a release finds its call there
  lie_down()
end
return 'S'

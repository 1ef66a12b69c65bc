-- Ask for a running seat.
-- KEYS: index, events, counters, lock, marker, fence.
-- ARGV: nonce; words: n lease ttl late gate max_starts counted (0 or 1), then by and name.
-- Answers: C fence at starts with_args args | S by | D | B own retry_in by | E retry_in | X starts.

local WORDS = '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d)\31([^\31]*)\31(.*)$'
local id, nonce = tail(KEYS[5]), ARGV[1]
local n, lease, ttl, late, gate, max_starts, counted, by, name = string.match(ARGV[2], WORDS)
n, lease, ttl, late = tonumber(n), tonumber(lease), tonumber(ttl), tonumber(late)
gate, max_starts = tonumber(gate), tonumber(max_starts)
local record = load(KEYS[4])
local marker = marker_of(call('GET', KEYS[5]))

local function next_fence()
  local fence = max(tonumber(call('GET', KEYS[6]) or 0) + 1, micros)
  call('SET', KEYS[6], string.format('%.0f', fence), 'PX', GRACE)
  return fence
end

local function claimed(holder)
  return say('C', holder[FENCE], holder[SINCE], holder[STARTS], holder[ARGS] and 1 or 0, holder[ARGS] or '')
end

local function exhaust(holder, place)
  table.remove(record.holders, place)
  event('exhausted', record, holder)
  save(record)
  -- Not for a shorter time than an attempt that has ended before is remembered.
  local life = max(now + max(late, MINUTE), marker and marker[1] or 0)
  write_marker(KEYS[5], { life, FINAL, nonce, holder[STARTS] })
  return say('X', holder[STARTS])
end

-- A run whose lease lapsed while its message may come again keeps its seat. Another one takes its place at
-- the gate: it must learn that, even if it wakes up after the other has ended.
local function overtake()
  local number = 0
  for _, other in ipairs(record.holders) do
    number = number + ((other[ID] ~= id and other[STATE] == 'R') and 1 or 0)
  end
  for _, other in ipairs(record.holders) do
    if gate > 0 and number >= gate and other[ID] ~= id and other[STATE] == 'R' and not runs(other) then
      other[LEASE] = 0
    end
  end
end

local function start(holder)
  overtake()
  if not holder then
    holder = new_holder(id, 'R', by)
    table.insert(record.holders, holder)
  end
  supersede(record, holder)
  holder[STATE], holder[NONCE], holder[LEASE] = 'R', nonce, now + lease
  holder[UNTIL] = late > 0 and now + max(ttl, late) or 0
  holder[FIRST], holder[SINCE], holder[TTL], holder[BY] = 0, now, ttl, by
  holder[STARTS] = holder[STARTS] + 1
  holder[FENCE] = next_fence()
  if name ~= '' then
    record.name = name
  end
  save(record)
  return claimed(holder)
end

-- When the gate is shut: the live runs of others, and the end of the first lease among them.
local function others()
  local number, soonest, who = 0, math.huge, ''
  for _, other in ipairs(record.holders) do
    if other[ID] ~= id and runs(other) then
      number = number + 1
      if other[LEASE] < soonest then
        soonest, who = other[LEASE], other[ID]
      end
    end
  end
  return number, soonest, who
end

local function follow(newer)
  local holder, place = holder_of(record, id)
  if holder and waits(holder) then  -- of a version that gave seats to superseded ids
    table.remove(record.holders, place)
    event('superseded', record, holder, newer)
    save(record)
  end
  return say('S', newer)
end

local function decide()
  if is_superseded(marker) then
    return 'superseded', follow(marker[3])
  elseif is_final(marker) and marker[4] and marker[3] == nonce then
    return nil, say('X', marker[4])
  elseif is_final(marker) or ended(marker) >= n then
    return 'done', 'D'
  end
  local holder = holder_of(record, id)
  -- Another process with this nonce: Celery's pool hands a job on when a process died before it said that
  -- it had begun. That is a start of its own.
  if holder and holder[STATE] == 'R' and holder[NONCE] == nonce and holder[BY] == by then
    return nil, claimed(holder)
  elseif holder and runs(holder) then
    return 'busy', say('B', 1, holder[LEASE] - now, id)
  elseif holder and holder[STATE] == 'K' and not dead(holder) then
    return 'done', 'D'
  end
  local swept = sweep(record, id)
  local place
  holder, place = holder_of(record, id)
  local number, soonest, who = others()
  local what, answer
  if holder and holder[FIRST] > 0 and holder[DUE] > now then
    what, answer = 'early', say('E', holder[DUE] - now)
  elseif gate > 0 and number >= gate then
    what, answer = 'busy', say('B', 0, soonest - now, who)
  elseif holder and max_starts > 0 and holder[STARTS] >= max_starts then
    return 'exhausted', exhaust(holder, place)
  else
    return 'claimed', start(holder)
  end
  if swept then
    save(record)
  end
  return what, answer
end

local what, answer = decide()
if what and counted == '1' then
  count(name, what)
end
return answer

-- Ask for waiting seats.
-- KEYS: index, events, counters; then lock and marker of each request.
-- ARGV: the words of each request, behind them its arguments if the flags say so.
-- words: counts limit on_waiting due ttl pending wait max_wait flags, then by and name;
-- max_wait -1 is none; flags: 1 again, 2 received, 4 counted, 8 with arguments, 16 with a merge rule.
-- Answers, one as it is, many as a list: A at | H id state since until by | M id n publish ahead due_in call | O.
-- M has numbers 0 and no call unless a copy is to be published; the call may be any bytes, so it comes last.

local WORDS = '^(%a*) (%d+) (%a+) (%d+) (%d+) (%d+) (%d+) (-?%d+) (%d+)\31([^\31]*)\31(.*)$'

local function flag(flags, bit)
  return flags % (2 * bit) >= bit
end

local function request_of(id, words, args)
  local counts, limit, on_waiting, due, ttl, pending, wait, max_wait, flags, by, name = string.match(words, WORDS)
  flags = tonumber(flags)
  return {
    id = id, by = by, name = name, args = flag(flags, 8) and args,
    counts = counts, limit = tonumber(limit), on_waiting = on_waiting, due = now + tonumber(due),
    ttl = tonumber(ttl), pending = tonumber(pending), wait = tonumber(wait), max_wait = tonumber(max_wait),
    again = flag(flags, 1), received = flag(flags, 2), counted = flag(flags, 4), merges = flag(flags, 16),
  }
end

local function due_of(request, first)
  if not (request.merges and request.wait > 0) then
    return request.due
  end
  local due = now + request.wait
  return request.max_wait >= 0 and min(due, first + request.max_wait) or due
end

local function own(record, holder, request, swept)
  if holder[STATE] == 'P' then
    holder[UNTIL] = now + request.pending
    if request.received then
      to_waiting(record, holder)
    end
  elseif holder[STATE] == 'R' and request.again then
    -- A message of this id is about to exist: from now on a lapsed lease does not free the seat.
    holder[DUE] = request.due
    holder[UNTIL] = max(holder[UNTIL], request.due + request.ttl)
    holder[ARGS] = request.args or holder[ARGS]
  elseif not swept then
    return say('A', holder[SINCE])
  end
  save(record)
  return say('A', holder[SINCE])
end

local function add(record, request, over)
  local holder = new_holder(request.id, 'P', request.by)
  if request.merges and request.wait > 0 then
    holder[FIRST] = now
  end
  holder[DUE] = due_of(request, now)
  holder[TTL] = request.ttl
  holder[UNTIL] = now + request.pending
  holder[ARGS] = request.args
  holder[OVER] = over
  table.insert(record.holders, holder)
  record.name = request.name ~= '' and request.name or record.name
  if request.received then
    to_waiting(record, holder)
  end
  save(record)
  return say('A', now)
end

local function refuse(record, holder, swept)
  holder[REFUSED] = holder[REFUSED] + 1
  if swept then
    save(record)
  else
    save_quietly(record)
  end
  return refused_by(holder)
end

-- How long the message that is out may be ahead, whatever was brought forward since it was sent.
local function ahead_of(holder)
  local sent = holder[STATE] == 'W' and holder[UNTIL] - holder[TTL] or holder[DUE]
  return max(0, holder[DUE] - now, sent - now)
end

-- A stored call is two parts behind the length of the first: what it was sent with, its arguments. One that
-- joins gives its arguments and nothing else; a job of which no call is stored is lent the whole.
local function with_newest(stored, newest)
  local length, from = string.match(stored or '', '^(%d+)\n()')
  local other, behind = string.match(newest, '^(%d+)\n()')
  if not (length and other) then
    return newest
  end
  return string.sub(stored, 1, from + length - 1) .. string.sub(newest, behind + other)
end

local function joined(holder, request)
  local marker = marker_of(call('GET', prefix .. 'mark:' .. holder[ID]))
  local n, ahead = ended(marker) + 1, string.sub(holder[LAST], #request.id + 3)
  if ahead == '' then
    return say('M', holder[ID], n, 0, 0, 0, '')
  end
  return say('M', holder[ID], n, 1, ahead, max(0, holder[DUE] - now), holder[ARGS] or '')
end

local function merge(record, holder, request)
  local asked, before = 'm' .. request.id, holder[LAST] or ''
  if before ~= asked and string.sub(before, 1, #asked + 1) ~= asked .. '!' then
    local overdue, due, ahead = holder[UNTIL] <= now, holder[DUE], ahead_of(holder)
    holder[MERGED] = holder[MERGED] + 1
    if request.merges and request.wait > 0 then
      holder[FIRST] = holder[FIRST] > 0 and holder[FIRST] or now
      holder[DUE] = due_of(request, holder[FIRST])
      if holder[STATE] == 'W' then
        holder[UNTIL] = holder[DUE] + holder[TTL]
      end
    else
      holder[DUE] = min(due, request.due)
    end
    if overdue then
      holder[STATE] = 'P'
      holder[UNTIL] = now + request.pending
    end
    -- The answer is kept with the id, so that a lost reply can be asked for again.
    local sooner = overdue or holder[DUE] < due
    holder[LAST] = sooner and string.format('%s!%.0f', asked, ahead) or asked
    if overdue then  -- its new message waits from now on
      holder[DUE] = max(holder[DUE], now)
    end
  end
  holder[ARGS] = request.args and with_newest(holder[ARGS], request.args) or holder[ARGS]
  save(record)
  return joined(holder, request)
end

local function conflict(record, request, counted, waiting, swept)
  local on_waiting, by = request.on_waiting, counted[1]
  if on_waiting == 'soonest' and #waiting > 0 then
    -- Not the first: one that is due sooner may be about to take its place.
    by = waiting[1]
    for _, holder in ipairs(waiting) do
      by = holder[DUE] < by[DUE] and holder or by
    end
    on_waiting = by[DUE] <= request.due and 'keep' or 'over'
  end
  if #waiting == 0 or on_waiting == 'keep' then
    return 'held', refuse(record, by, swept)
  elseif on_waiting == 'merge' then
    return 'merged', merge(record, waiting[#waiting], request)
  end
  local over = {}
  for i, holder in ipairs(waiting) do
    over[i] = holder[ID]
  end
  return 'acquired', add(record, request, over)
end

local function decide(record, marker, request)
  if is_final(marker) then
    return 'outside', 'O'
  elseif is_superseded(marker) then
    -- A seat would stay: the claim of this id starts nothing, so nothing gives it back.
    return 'outside', 'O'
  end
  local swept = sweep(record, request.id)
  local holder = holder_of(record, request.id)
  if holder then
    return nil, own(record, holder, request, swept)
  end
  local counted, waiting = {}, {}
  for _, other in ipairs(record.holders) do
    if string.find(request.counts, other[STATE], 1, true) then
      counted[#counted + 1] = other
      if waits(other) then
        waiting[#waiting + 1] = other
      end
    end
  end
  if #counted < request.limit then
    return 'acquired', add(record, request, false)
  elseif request.again then
    if swept then
      save(record)
    end
    return 'outside', 'O'
  end
  return conflict(record, request, counted, waiting, swept)
end

local answers, at = {}, 1
for i = 4, #KEYS, 2 do
  local request = request_of(tail(KEYS[i + 1]), ARGV[at], ARGV[at + 1])
  local raw = call('MGET', KEYS[i], KEYS[i + 1])
  local what, answer = decide(record_of(KEYS[i], raw[1]), marker_of(raw[2]), request)
  if what and request.counted then
    count(request.name, what)
  end
  answers[#answers + 1] = answer
  at = at + (request.args and 2 or 1)
end
trim()
return #answers == 1 and answers[1] or answers

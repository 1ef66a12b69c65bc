-- Give a running seat back, and remember the ended id in the same step.
-- KEYS: index, events, counters, lock, marker.
-- ARGV: nonce; words: n how (release, keep, handover, requeue) marker_ttl counted (0 or 1), then name.
-- Answers: released, kept, handed_over or not_mine; the first two with id n name args of the oldest waiter.
-- Beside the keys: markers and the line of the same lock, in the same slot.

local id, nonce = tail(KEYS[5]), ARGV[1]
local n, how, marker_ttl, counted, name = string.match(ARGV[2], '^(%d+) (%a+) (%d+) (%d)\31(.*)$')
n, marker_ttl = tonumber(n), tonumber(marker_ttl)
local record = load(KEYS[4])
record.name = record.name ~= '' and record.name or name
local marker = marker_of(call('GET', KEYS[5]))
local line = has_line(record) and line_of(record)
local final = how == 'release' or how == 'keep'

-- A lost reply is asked for again, or a second process saw the same ending: the same answer.
local function repeated(holder)
  if is_final(marker) and marker[3] == nonce and not marker[4] then
    return holder and holder[STATE] == 'K' and 'kept' or 'released'
  elseif holder and holder[STATE] ~= 'R' and holder[LAST] == 'n' .. nonce then
    return 'handed_over'
  end
end

-- Only the owner's own end closes the id; anybody else can only close the attempt he ran.
local function mark(owner)
  if marker and (marker[2] == SUPERSEDED or marker[2] == FINAL) then
    return
  end
  local life = max(now + marker_ttl, marker and marker[1] or 0)
  write_marker(KEYS[5], owner and { life, FINAL, nonce } or { life, max(n, ended(marker)) })
end

local function give_back(holder, place)
  if how == 'release' then
    table.remove(record.holders, place)
    return 'released'
  end
  holder[NONCE], holder[LEASE], holder[SINCE] = '', 0, now
  if how == 'keep' then
    holder[STATE], holder[ARGS] = 'K', false
    holder[UNTIL] = holder[DUE] + holder[TTL]
    return 'kept'
  end
  -- The next message of this id waits from now, or from its eta.
  holder[STATE], holder[LAST] = 'W', 'n' .. nonce
  holder[DUE] = max(holder[DUE], now)
  holder[UNTIL] = holder[DUE] + holder[TTL]
  return 'handed_over'
end

local holder, place = holder_of(record, id)

local function decide()
  local mine = holder and holder[STATE] == 'R' and holder[NONCE] == nonce
  if how ~= 'requeue' then
    mark(mine and final)
  end
  local swept = sweep(record, id)
  if mine then
    holder, place = holder_of(record, id)
    if line then
      line.take_off(id)
    end
    local what = give_back(holder, place)
    save(record)
    return what
  elseif swept then
    save(record)
  end
  event('lock_lost', record, { id, [BY] = '' }, nonce)
  return 'not_mine'
end

-- The oldest job that could start now: its message sleeps, so its stored call is to be published.
local function told(what, find)
  if what == 'handed_over' or what == 'not_mine' then
    return what
  end
  for _, other in ipairs(record.holders) do
    if other[STATE] == 'W' and other[ARGS] and #other[ARGS] > 0 and other[DUE] <= now then
      local n = ended(marker_of(call('GET', prefix .. 'mark:' .. other[ID]))) + 1
      return say(what, other[ID], n, record.name, other[ARGS])
    end
  end
  local sleeper, entry
  if line then
    sleeper, entry = line[find](nonce)
  end
  return sleeper and say(what, sleeper, entry[N], record.name, entry[CALL]) or what
end

local before = repeated(holder)
if before then
  return told(before, 'woken')
end
local what = decide()
if counted == '1' then
  count(name, what)
end
return told(what, 'wake')

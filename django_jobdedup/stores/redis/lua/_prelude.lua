-- Shared by every verb: the clock, the record, the sweep, the index, markers, events, counters.
--
-- KEYS[1..3] of every script are the index, the event stream and the counters of one shard; all keys of
-- a script carry the hash tag of that shard. Instants and durations are whole milliseconds.
-- A record is {name, {holder, ...}} in order of acceptance; a holder is positional, without holes.

local ID, STATE, NONCE, LEASE, UNTIL, DUE, FIRST, SINCE = 1, 2, 3, 4, 5, 6, 7, 8
local TTL, OVER, ARGS, MERGED, STARTS, REFUSED, FENCE, BY, LAST = 9, 10, 11, 12, 13, 14, 15, 16, 17

-- Lines of constants are folded into numbers before the script is loaded (scripts.py).

-- A marker is {deadline, n, ...}: n >= 0 is the highest ended attempt, else one of these.
local FINAL, WITHDRAWN, SUPERSEDED = -1, -2, -3

local MINUTE, MONTH = 60000, 2592000000
-- The age at which a seat without news is looked at for the first time.
local LOOK = 300000
local GRACE = @GRACE@

local index, events, counters = KEYS[1], KEYS[2], KEYS[3]
local prefix = string.sub(index, 1, -6)
local call, max, min = redis.call, math.max, math.min
local pack, unpack = cmsgpack.pack, cmsgpack.unpack

-- Microseconds since the epoch; tests put another clock here.
local function clock()
  @CLOCK@
end

local micros = clock()
local now = math.floor(micros / 1000)

-- One short text is answered, not a table: reading a table costs the client more than the round trip.
local function say(...)
  local words = { ... }
  for i, word in ipairs(words) do
    if type(word) == 'number' then
      words[i] = string.format('%.0f', word)
    end
  end
  return table.concat(words, '\31')
end

-- What is behind 'lock:' or 'mark:' in the name of a key.
local function tail(key)
  return string.sub(key, #prefix + 6)
end

local function count(name, what)
  -- 30 days after the last refresh; refreshed by the first and then every 64th hit of a field.
  if call('HINCRBY', counters, name .. '\31' .. what, 1) % 64 == 1 then
    call('PEXPIRE', counters, MONTH)
  end
end

local function new_holder(id, state, by)
  return { id, state, '', 0, 0, now, 0, now, 0, false, false, 0, 0, 0, 0, by, '' }
end

local function waits(holder)
  return holder[STATE] == 'P' or holder[STATE] == 'W'
end

local function deadline(holder)
  return holder[STATE] == 'R' and max(holder[LEASE], holder[UNTIL]) or holder[UNTIL]
end

local function refused_by(holder)
  return say('H', holder[ID], holder[STATE], holder[SINCE], deadline(holder), holder[BY])
end

-- Keys may outlive their use under a clock that jumps, never the other way round.
local function keep_index(life)
  if call('PTTL', index) < life then
    call('PEXPIRE', index, life + 60 * MINUTE)
  end
end

local function write(key, stored, first, life)
  call('SET', key, pack(stored), 'PX', life)
  call('ZADD', index, first, tail(key))
  keep_index(life)
end

-- Here stand the plain cases of a verb (_plain_<verb>.lua), if it has some. A script makes its functions anew
-- at each call: what is decided here does not pay for those below.
@PLAIN@

local function event(what, record, holder, other)
  call('XADD', events, 'MAXLEN', '~', 10000, '*', 'what', what, 'at', now, 'fingerprint', record.fingerprint,
    'name', record.name, 'id', holder[ID], 'by', holder[BY], 'other', other or '')
  call('PEXPIRE', events, GRACE)
end

-- Records -------------------------------------------------------------------------------------------

local function record_of(key, raw)
  local record = { fingerprint = tail(key), key = key, name = '', holders = {}, found = raw and true }
  if raw then
    local stored = unpack(raw)
    record.name, record.holders = stored[1], stored[2]
  end
  return record
end

local function load(key)
  return record_of(key, call('GET', key))
end

local function holder_of(record, id)
  for i, holder in ipairs(record.holders) do
    if holder[ID] == id then
      return holder, i
    end
  end
end

-- A waiting holder with arguments is an intent: time makes it overdue, never dead.
local function intent(holder)
  return holder[ARGS] and waits(holder)
end

local function runs(holder)
  return holder[STATE] == 'R' and holder[LEASE] > now
end

local function dead(holder)
  return deadline(holder) <= now and not intent(holder)
end

-- Whether only a message keeps a holder: one that waits, or comes again after a late-acked run has vanished.
local function lingers(holder)
  return holder[STATE] == 'W' and not holder[ARGS] or holder[STATE] == 'R' and not runs(holder)
end

-- The moment at which somebody should look at a holder: a lapsed lease is one even if the seat stays. A
-- message may have vanished, so what lingers is looked at at an age of 5, 10, 20, ... minutes as well.
local function attention(holder)
  if runs(holder) then
    return holder[LEASE]
  elseif not lingers(holder) then
    return holder[UNTIL]
  end
  local news, age = max(holder[SINCE], holder[LEASE]), LOOK
  while news + age <= now do
    age = 2 * age
  end
  return min(holder[UNTIL], news + age)
end

local function save(record)
  if #record.holders == 0 then
    if record.found then
      call('DEL', record.key)
      call('ZREM', index, record.fingerprint)
    end
    return
  end
  local first, last = math.huge, now
  for _, holder in ipairs(record.holders) do
    first = min(first, attention(holder))
    last = max(last, deadline(holder))
    if intent(holder) then
      -- Renewed by the reaper, which gives an overdue intent a new deadline at each pass.
      last = max(last, max(holder[UNTIL], now) + MONTH)
    end
  end
  write(record.key, { record.name, record.holders }, first, last - now + GRACE)
end

-- For changes that move no deadline.
local function save_quietly(record)
  call('SET', record.key, pack({ record.name, record.holders }), 'KEEPTTL')
end

local function marker_of(raw)
  local marker = raw and unpack(raw)
  return marker and marker[1] > now and marker or nil
end

local function ended(marker)
  return marker and max(marker[2], -1) or -1
end

-- Of a lost run: the last attempt of its id that had ended before. So whoever reads of the loss can tell the
-- marker of that one from an end that came later.
local function ended_before(holder)
  local last = holder[STATE] == 'R' and ended(marker_of(call('GET', prefix .. 'mark:' .. holder[ID]))) or -1
  return last >= 0 and string.format('%.0f', last) or ''
end

local LAPSES = { P = 'abandoned', W = 'lapsed', K = 'lapsed', R = 'lost' }

-- Remove the dead, except the caller's own id; give what was removed, or nil.
local function sweep(record, own)
  local swept
  for i = #record.holders, 1, -1 do
    local holder = record.holders[i]
    if holder[ID] ~= own and dead(holder) then
      table.remove(record.holders, i)
      swept = swept or {}
      table.insert(swept, 1, holder)
    end
  end
  for _, holder in ipairs(swept or {}) do
    event(LAPSES[holder[STATE]], record, holder, ended_before(holder))
    count(record.name, LAPSES[holder[STATE]])
  end
  return swept
end

-- Remove members whose keys are gone by now: at most 100 a call, so the index shrinks without a reaper.
local function trim()
  local old = call('ZRANGEBYSCORE', index, '-inf', now - GRACE, 'LIMIT', 0, 100)
  for _, fingerprint in ipairs(old) do
    if call('EXISTS', prefix .. 'lock:' .. fingerprint) == 0 then
      call('ZREM', index, fingerprint)
    else
      -- An intent that no reaper has seen for long.
      call('ZADD', index, now, fingerprint)
    end
  end
end

-- Markers -------------------------------------------------------------------------------------------

local function is_final(marker)
  return marker and marker[2] == FINAL
end

local function is_superseded(marker)
  return marker and marker[2] == SUPERSEDED
end

local function write_marker(key, marker)
  call('SET', key, pack(marker), 'PX', max(marker[1] - now, 1))
end

-- The waiting holders in holder[OVER] end here: their messages, when they come, follow this one.
local function supersede(record, holder)
  for _, id in ipairs(holder[OVER] or {}) do
    local older, i = holder_of(record, id)
    if older and waits(older) then
      table.remove(record.holders, i)
      write_marker(prefix .. 'mark:' .. id, { max(older[DUE] + older[TTL], now + MINUTE), SUPERSEDED, holder[ID] })
      event('superseded', record, older, holder[ID])
    end
  end
  holder[OVER] = false
end

local function to_waiting(record, holder)
  supersede(record, holder)
  if holder[STATE] == 'P' then
    holder[STATE] = 'W'
    holder[UNTIL] = holder[DUE] + holder[TTL]
  end
end

-- The line of a lock: who was put off and sleeps, see stores/inprocess/sleeping.py. Only these verbs know it.
-- 'asleep:' is a sorted set of ids: the first put-off of a sleeper, minus the deadline of one that was woken.
-- 'calls:' is a hash of the same ids, each a sleeper {first, until, n, call, by}.

local FROM, TILL, N, CALL, WAKER = 1, 2, 3, 4, 5
local PLACES = 100

-- Its functions are made where there is a line: most locks have none.
local function line_of(record)
  local line = { ids = prefix .. 'asleep:' .. record.fingerprint, calls = prefix .. 'calls:' .. record.fingerprint }

  function line.take_off(id)
    call('ZREM', line.ids, id)
    call('HDEL', line.calls, id)
  end

  function line.sleeper(id)
    local raw = call('HGET', line.calls, id)
    return raw and unpack(raw)
  end

  function line.keep(id, sleeper)
    call('ZADD', line.ids, sleeper[WAKER] == '' and sleeper[FROM] or -sleeper[TILL], id)
    call('HSET', line.calls, id, pack(sleeper))
  end

  local function sleeps(id, sleeper)
    local marker = marker_of(call('GET', prefix .. 'mark:' .. id))
    if sleeper[TILL] <= now or is_final(marker) or is_superseded(marker) or ended(marker) >= sleeper[N] then
      return false
    end
    local holder = holder_of(record, id)
    return not holder or holder[STATE] ~= 'K' and not runs(holder)
  end

  -- The oldest that sleeps; whoever is found not to leaves the line.
  function line.head()
    while true do
      local id = call('ZRANGEBYSCORE', line.ids, 0, '+inf', 'LIMIT', 0, 1)[1]
      if not id then
        return
      end
      local sleeper = line.sleeper(id)
      if sleeper and sleeps(id, sleeper) then
        return id, sleeper
      end
      line.take_off(id)
    end
  end

  function line.wake(by)
    local id, sleeper = line.head()
    if id then
      sleeper[WAKER] = by
      line.keep(id, sleeper)
    end
    return id, sleeper
  end

  -- Whom this release has woken, for a reply that was lost.
  function line.woken(by)
    for _, id in ipairs(call('ZRANGEBYSCORE', line.ids, '-inf', '(0')) do
      local sleeper = line.sleeper(id)
      if sleeper and sleeper[WAKER] == by then
        return id, sleeper
      end
    end
  end

  return line
end

local function has_line(record)
  return call('EXISTS', prefix .. 'asleep:' .. record.fingerprint) == 1
end

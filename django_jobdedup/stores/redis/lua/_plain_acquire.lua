-- Nobody holds the lock, or one live holder refuses: nearly every dispatch.
-- Whatever else it is falls through to acquire.lua, which would answer these two in the same way.

local PLAIN = '^(%a*) 1 (%a+) (%d+) (%d+) (%d+) 0 %-1 ([04])\31([^\31]*)\31(.*)$'

local counts, on_waiting, due, ttl, pending, counted, by, name = string.match(ARGV[1], PLAIN)
if counts and #KEYS == 5 and call('ZCOUNT', index, '-inf', now - GRACE) == 0 then
  local id, found = tail(KEYS[5]), call('MGET', KEYS[4], KEYS[5])
  local stored, marker = found[1] and unpack(found[1]), found[2]
  local holder = stored and #stored[2] == 1 and stored[2][1]
  local what, answer
  if not stored and not marker then
    holder = new_holder(id, 'P', by)
    holder[DUE], holder[TTL], holder[UNTIL] = now + due, tonumber(ttl), now + pending
    write(KEYS[4], { name, { holder } }, holder[UNTIL], pending + GRACE)
    what, answer = 'acquired', say('A', now)
  elseif
    holder
    and not marker
    and holder[ID] ~= id
    and deadline(holder) > now
    and string.find(counts, holder[STATE], 1, true)
    and (on_waiting == 'keep' or not waits(holder))
  then
    holder[REFUSED] = holder[REFUSED] + 1
    call('SET', KEYS[4], pack(stored), 'KEEPTTL')
    what, answer = 'held', refused_by(holder)
  end
  if what and counted == '4' then
    count(name, what)
  end
  if what then
    return answer
  end
end

-- Give a waiting seat back.
-- KEYS: index, events, counters, lock, marker. ARGV: n, waiting (0 or 1), marker_ttl, by (who covers it).
-- Answers: W refused | O | G.

local id, n, waiting, marker_ttl = tail(KEYS[5]), tonumber(ARGV[1]), ARGV[2] == '1', tonumber(ARGV[3])
local by = ARGV[4]
local record = load(KEYS[4])
local marker = marker_of(call('GET', KEYS[5]))
local swept = sweep(record, id)
local holder, place = holder_of(record, id)

local function leave(answer)
  if swept then
    save(record)
  end
  return answer
end

local function remove(kind)
  local refused = holder and holder[REFUSED] or 0
  line_of(record).take_off(id)
  if holder then
    table.remove(record.holders, place)
    if refused + holder[MERGED] > 0 then
      event('withdrawn', record, holder, string.format('%.0f', refused + holder[MERGED]))
    end
  end
  save(record)
  -- The marker keeps the answer for a caller whose reply was lost, and which attempt has ended before.
  local what = kind == WITHDRAWN and ended(marker) >= 0 and marker[2] or kind
  write_marker(KEYS[5], { max(now + marker_ttl, marker and marker[1] or 0), what, by, refused })
  return say('W', refused)
end

if waiting then
  if is_final(marker) and marker[3] == '' and marker[4] and not holder then
    return leave(say('W', marker[4]))
  elseif by ~= '' and is_superseded(marker) and marker[3] == by and marker[4] and not holder then
    return leave(say('W', marker[4]))
  elseif marker and (marker[2] == SUPERSEDED or marker[2] == FINAL or marker[2] >= n) then
    return leave('G')
  elseif holder and not waits(holder) then
    return leave('G')
  end
  return remove(by ~= '' and SUPERSEDED or FINAL)
end

if not holder and marker and marker[4] and not is_final(marker) and not is_superseded(marker) then
  return leave(say('W', marker[4]))
elseif not holder or holder[STATE] ~= 'P' then
  return leave('G')
elseif holder[MERGED] > 0 then
  -- Others have merged into it: it stays, overdue, for somebody to publish.
  holder[UNTIL] = min(holder[UNTIL], now)
  save(record)
  return 'O'
end
return remove(WITHDRAWN)

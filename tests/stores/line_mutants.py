"""Known mistakes about the line of those that sleep, planted in the Lua scripts and in the shared steps."""

from __future__ import annotations

from django_jobdedup.stores.inprocess import sleeping

from .mutants import Mutant
from .step_mutants import StepMutant

PUT_OFF = ("until_and_while_executing", "while_executing", "while_executing, two at once")
"""Lock types under which a start meets a shut gate in the ordinary course of things."""
TWO = ("while_executing, two at once",)

LINE_MUTANTS = (
    Mutant("the newest sleeper is woken", (("_line", "'ZRANGEBYSCORE', line.ids, 0, '+inf', 'LIMIT', 0, 1)",
           "'ZREVRANGEBYSCORE', line.ids, '+inf', 0, 'LIMIT', 0, 1)"),), PUT_OFF),
    Mutant("one is woken by each release", (("_line", "      line.keep(id, sleeper)\n    end\n    return id",
           "    end\n    return id"), ("_line", "sleeper[WAKER] = by", "line.keep(id, sleeper)")), PUT_OFF),
    Mutant("one that was woken lies down as well", (("asleep", "elseif before and before[WAKER] ~= ''",
           "elseif false and before[WAKER] ~= ''"),), PUT_OFF),
    Mutant("one that was woken is never woken again", (("asleep", " and was_woken == '0' then", " then"),),
           PUT_OFF),
    Mutant("each put-off goes to the end of the line", (("asleep",
           "before and before[N] == n and before[FROM] or now", "now"),), PUT_OFF),
    Mutant("one sleeps before an open gate",
           (("asleep", "if number < gate then", "if false then"),), PUT_OFF),
    Mutant("one that runs is woken", (("_line", "or holder[STATE] ~= 'K' and not runs(holder)",
           "or holder[STATE] ~= 'K'"),), TWO),
    Mutant("one is woken after its time", (("_line", "sleeper[TILL] <= now or ", ""),), PUT_OFF),
    Mutant("who was called off stays in the line", (("withdraw", "  line_of(record).take_off(id)\n", ""),
           ("_line", "is_final(marker) or is_superseded(marker)", "is_superseded(marker)")), PUT_OFF),
    Mutant("the end of a lost run wakes nobody", (("reap", "local id, entry = line.wake(holder[NONCE])",
           "local id, entry"),), PUT_OFF, (False,)),
)  # fmt: skip

LINE_STEP_MUTANTS = (
    StepMutant("the newest sleeper is woken", sleeping._head, "key=lambda id: (line[id].since, id)",
               "key=lambda id: (-line[id].since, id)", PUT_OFF),
    StepMutant("one is woken by each release", sleeping.wake, "line[id] = replace(line[id], by=by)", "pass",
               PUT_OFF),
    StepMutant("one that was woken lies down as well", sleeping.asleep, "before.by and before.n",
               "not before.by and before.n", PUT_OFF),
    StepMutant("one that was woken is never woken again", sleeping.asleep, " and not request.woken", "",
               PUT_OFF),
    StepMutant("each put-off goes to the end of the line", sleeping.asleep,
               "before.since if before is not None and before.n == request.n else step.now", "step.now",
               PUT_OFF),
    StepMutant("one sleeps before an open gate", sleeping.asleep, "if len(others) < request.gate:",
               "if False:", PUT_OFF),
    StepMutant("one that runs is woken", sleeping._sleeps, " or seat.runs(step.now)", "", TWO),
    StepMutant("one is woken after its time", sleeping._sleeps, "sleeper.until > step.now and ", "", PUT_OFF),
)  # fmt: skip

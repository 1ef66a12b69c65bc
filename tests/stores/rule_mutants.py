"""Mistakes in the rules of replace, rerun, hand-over, several holders, and the hands that meddle: in Lua."""

from __future__ import annotations

from .mutants import EXCLUSIVE, Mutant

OVER = ("replace", "keep_soonest")
MERGES = ("rerun", "rerun that counts runs", "debounce")
KEPT = ("until_expired", "until_expired, two seats")
SEATS = ("until_executed, two seats", "until_executed, three seats")
STARTS = ("until_executed, one start", "rerun, two starts")

REPLACE = (
    Mutant(
        "one that is superseded keeps its seat",
        (("_prelude", "ipairs(holder[OVER] or {})", "ipairs({})"),),
        policies=OVER,
    ),
    Mutant(
        "who was superseded is known for a minute",
        (("_prelude", "max(older[DUE] + older[TTL], now + MINUTE), SUPERSEDED", "now + MINUTE, SUPERSEDED"),),
        policies=("replace",),
    ),
    Mutant(
        "a start comes over nobody",
        (("claim", "  supersede(record, holder)\n", "  holder[OVER] = false\n"),),
        policies=("replace",),
    ),
    Mutant(
        "as soon is sooner", (("acquire", "by[DUE] <= request.due", "by[DUE] < request.due"),),
        policies=("keep_soonest",),
    ),
    Mutant(
        "sooner than the oldest",
        (("acquire", "by = holder[DUE] < by[DUE] and holder or by", "by = waiting[1]"),),
        policies=("keep_soonest",),
    ),
)  # fmt: skip

RERUN = (
    Mutant(
        "the oldest arguments win",
        (
            (
                "acquire",
                "request.args and with_newest(holder[ARGS], request.args) or holder[ARGS]",
                "holder[ARGS] or request.args",
            ),
        ),
        policies=MERGES,
    ),
    Mutant(
        "an overdue job is not published",
        (("acquire", "local sooner = overdue or holder[DUE] < due", "local sooner = holder[DUE] < due"),),
        policies=MERGES,
    ),
    Mutant(
        "a retry goes on with the old arguments",
        (("acquire", "holder[ARGS] = request.args or holder[ARGS]\n  elseif",
          "holder[DUE] = holder[DUE]\n  elseif"),),
        policies=MERGES,
    ),
    Mutant(
        "a hand-over drops the arguments",
        (("finish", "  holder[STATE], holder[LAST] = 'W', 'n' .. nonce\n",
          "  holder[STATE], holder[LAST], holder[ARGS] = 'W', 'n' .. nonce, false\n"),),
        policies=MERGES,
    ),
    Mutant(
        "the end of a run wakes nobody",
        (("finish", "if other[STATE] == 'W' and", "if false and"),),
        policies=("rerun",),
    ),
    Mutant(
        "one is woken before its time",
        (("finish", "#other[ARGS] > 0 and other[DUE] <= now", "#other[ARGS] > 0"),),
        policies=("rerun", "debounce"),
    ),
    Mutant(
        "an overdue attempt is one that has ended",
        (("reap", "ended(marker) + 1, holder[ARGS]", "0, holder[ARGS]"),),
        policies=("rerun",),
    ),
    Mutant(
        "every reaper publishes it",
        (("reap", "holder[STATE], holder[UNTIL] = 'W', now + pending", "holder[STATE] = 'W'"),),
        policies=MERGES,
    ),
    Mutant(
        "calls put a start off for ever",
        (("acquire", "request.max_wait >= 0 and min(due, first + request.max_wait) or due", "due"),),
        policies=("debounce",),
    ),
    Mutant(
        "a start comes too early",
        (("claim", "holder[FIRST] > 0 and holder[DUE] > now", "false"),),
        policies=("debounce",),
    ),
)  # fmt: skip

HAND_OVER = (
    Mutant(
        "a requeue ends the attempt", (("finish", "if how ~= 'requeue' then", "if true then"),), late=(True,)
    ),
    Mutant(
        "a hand-over closes the id",
        (("finish", "local final = how == 'release' or how == 'keep'", "local final = how ~= 'requeue'"),),
    ),
    Mutant(
        "a retry takes a seat beside another",
        (("acquire", "if #counted < request.limit then",
          "if #counted < request.limit or request.again then"),),
        policies=EXCLUSIVE,
        late=(False,),
    ),
    Mutant(
        "what was handed over lapses at once",
        (("finish", "= holder[DUE] + holder[TTL]\n  return 'handed_over'", "= now\n  return 'handed_over'"),),
        policies=EXCLUSIVE,
    ),
)  # fmt: skip

HOLDERS = (
    Mutant(
        "one run too many",
        (("claim", "gate > 0 and number >= gate then\n    what",
          "gate > 0 and number > gate then\n    what"),),
        policies=(*SEATS, "while_executing, two at once"),
    ),
    Mutant(
        "the first holder goes, not one's own",
        (("finish", "table.remove(record.holders, place)\n    return 'released'",
          "table.remove(record.holders, 1)\n    return 'released'"),),
        policies=SEATS,
    ),
    Mutant(
        "who is kept does not count",
        (("acquire", "if string.find(request.counts, other[STATE], 1, true) then",
          "if other[STATE] ~= 'K' and string.find(request.counts, other[STATE], 1, true) then"),),
        policies=KEPT,
    ),
    Mutant(
        "a place is taken where one was free",
        (("claim", "gate > 0 and number >= gate and", "gate > 0 and number > 0 and"),),
        policies=SEATS,
        late=(True,),
    ),
    Mutant(
        "whose place was taken does not learn it",
        (("claim", "      other[LEASE] = 0\n", "      number = number\n"),),
        policies=("while_executing",),
        late=(True,),
    ),
    Mutant(
        "starts are not counted over hand-overs",
        (("claim", "holder[STARTS] = holder[STARTS] + 1", "holder[STARTS] = 1"),),
        policies=STARTS,
    ),
    Mutant(
        "one start too many", (("claim", "holder[STARTS] >= max_starts", "holder[STARTS] > max_starts"),),
        policies=STARTS,
        late=(True,),
    ),
    Mutant(
        "who is exhausted keeps the seat",
        (("claim", "  table.remove(record.holders, place)\n  event('exhausted'", "  event('exhausted'"),),
        policies=STARTS,
        late=(True,),
    ),
)  # fmt: skip

HANDS = (
    Mutant(
        "whatever was shown is removed",
        (("remove", "elseif holder[STATE] ~= ARGV[1] or",
          "elseif false and holder[STATE] ~= ARGV[1] or false and"),
         ("remove", "holder[SINCE] ~= tonumber(ARGV[2]) or",
          "holder[SINCE] ~= tonumber(ARGV[2]) or false and")),
    ),
    Mutant(
        "a removal forgets which attempt has ended",
        (("remove", "marker and marker[2] or WITHDRAWN", "WITHDRAWN"),),
        policies=("until_executed", "until_executing"),
    ),
    Mutant(
        "an old message calls the next one off",
        (("withdraw", "marker[2] == FINAL or marker[2] >= n) then", "marker[2] == FINAL) then"),),
        policies=("until_executed", "until_executing"),
    ),
    Mutant(
        "a running job is called off",
        (("withdraw", "elseif holder and not waits(holder) then", "elseif false then"),),
        policies=EXCLUSIVE,
    ),
    Mutant(
        "a message without a header is not known to exist",
        (("acquire", "  if request.received then\n    to_waiting(record, holder)\n  end\n"
          "  save(record)\n  return say('A', now)",
          "  save(record)\n  return say('A', now)"),),
        policies=("until_and_while_executing",),
    ),
)  # fmt: skip

RULE_MUTANTS = (*REPLACE, *RERUN, *HAND_OVER, *HOLDERS, *HANDS)

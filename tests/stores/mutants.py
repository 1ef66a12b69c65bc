"""Known mistakes, planted in the Lua scripts by hand: what to replace by what, and where it shows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """One planted mistake.

    ``edits`` are (file, old, new): each old text must be there exactly once. ``policies`` and ``late``
    narrow the walk to where the mistake can show at all; empty is everywhere.
    """

    name: str
    edits: tuple[tuple[str, str, str], ...]
    policies: tuple[str, ...] = ()
    late: tuple[bool, ...] = (False, True)

    def edit(self, file: str, text: str) -> str:
        """Return the text of a script with the mistake in it."""
        for where, old, new in self.edits:
            if where == file:
                assert text.count(old) == 1, f"{self.name}: {file}.lua no longer has {old!r} once"
                text = text.replace(old, new)
        return text


MINE = "local mine = holder and holder[STATE] == 'R' and holder[NONCE] == nonce"
EXCLUSIVE = ("until_executed", "until_executed, two seats")

MUTANTS = (
    Mutant(
        "release without token",
        (
            ("finish", MINE, "local mine = how == 'release' or holder and holder[NONCE] == nonce"),
            ("finish", "    table.remove(record.holders, place)\n", "    record.holders = {}\n"),
        ),
    ),
    Mutant("release by id only", (("finish", MINE, "local mine = holder and holder[STATE] == 'R'"),)),
    Mutant(
        "claim without nonce",
        (
            (
                "claim",
                "elseif holder and runs(holder) then\n    return 'busy'",
                "elseif false then\n    return 'busy'",
            ),
        ),
    ),
    Mutant("claim of any process", (("claim", " and holder[BY] == by then", " then"),)),
    Mutant("no hand-over", (("finish", "if how == 'release' then", "if how ~= 'keep' then"),)),
    Mutant("renew by id", (("renew", " and holder[NONCE] == nonce then", " then"),), late=(True,)),
    Mutant(
        "confirm creates",
        (
            (
                "confirm",
                "    answers[i] = 0\n",
                "    local new = new_holder(id, 'W', '')\n    new[UNTIL] = now + 100000\n"
                "    table.insert(record.holders, new)\n    save(record)\n    answers[i] = 1\n",
            ),
        ),
    ),
    Mutant(
        "NX acquire",
        (
            (
                "acquire",
                "return nil, own(record, holder, request, swept)",
                "return 'held', refuse(record, holder, swept)",
            ),
        ),
    ),
    Mutant(
        "merge into running",
        (
            (
                "acquire",
                "      if waits(other) then\n        waiting[",
                "      if waits(other) or other[STATE] == 'R' then\n        waiting[",
            ),
        ),
        policies=("rerun that counts runs",),
    ),
    Mutant(
        "supersede at acquire",
        (
            (
                "acquire",
                "  if request.received then\n    to_waiting(record, holder)\n  end\n  save(record)\n"
                "  return say('A', now)",
                "  supersede(record, holder)\n  save(record)\n  return say('A', now)",
            ),
        ),
        policies=("replace", "keep_soonest"),
    ),
    Mutant("no marker", (("finish", "if how ~= 'requeue' then", "if false then"),)),
    Mutant(
        "late lapse frees",
        (("claim", "late > 0 and now + max(ttl, late) or 0", "0"),),
        policies=EXCLUSIVE,
        late=(True,),
    ),
    Mutant(
        "marker always final",
        (("finish", "mark(mine and final)", "mark(final)"),),
        late=(True,),
    ),
    Mutant("marker per attempt", (("finish", "mark(mine and final)", "mark(false)"),)),
    Mutant(
        "again refused",
        (("acquire", "elseif request.again then", "elseif false then"),),
        policies=(*EXCLUSIVE, "until_and_while_executing"),
    ),
    Mutant(
        "retry not armed",
        (("acquire", "elseif holder[STATE] == 'R' and request.again then", "elseif false then"),),
        policies=EXCLUSIVE,
        late=(False,),
    ),
    Mutant("acquire after final", (("acquire", "if is_final(marker) then", "if false then"),), late=(True,)),
    Mutant(
        "a withdrawal drops the merged",
        (("withdraw", "elseif holder[MERGED] > 0 then", "elseif false then"),),
        policies=("rerun", "rerun that counts runs", "debounce"),
    ),
    Mutant(
        "a claim drops the newest arguments",
        (
            (
                "claim",
                "  holder[STARTS] = holder[STARTS] + 1\n",
                "  holder[STARTS] = holder[STARTS] + 1\n"
                "  local args = holder[ARGS]\n  holder[ARGS] = false\n",
            ),
            (
                "claim",
                "  save(record)\n  return claimed(holder)",
                "  save(record)\n  holder[ARGS] = args\n  return claimed(holder)",
            ),
        ),
        policies=("rerun", "rerun that counts runs", "debounce"),
    ),
    Mutant(
        "an intent lapses",
        (
            (
                "_prelude",
                "return deadline(holder) <= now and not intent(holder)",
                "return deadline(holder) <= now",
            ),
        ),
        policies=("rerun", "rerun that counts runs", "debounce"),
    ),
    Mutant(
        "a fence per record",
        (("claim", "holder[FENCE] = next_fence()", "holder[FENCE] = holder[FENCE] + 1"),),
    ),
    Mutant("the sweep takes the living", (("_prelude", "deadline(holder) <= now and", "true and"),)),
    Mutant("the sweep takes nobody", (("_prelude", "holder[ID] ~= own and dead(holder)", "false"),)),
    Mutant("the gate is open", (("claim", "elseif gate > 0 and number >= gate then", "elseif false then"),)),
    Mutant("limit is one more", (("acquire", "#counted < request.limit", "#counted <= request.limit"),)),
    Mutant(
        "a superseded message starts",
        (("claim", "if is_superseded(marker)", "if false"),),
        policies=("replace", "keep_soonest"),
    ),
    Mutant("a revoked id starts", (("withdraw", "SUPERSEDED or FINAL)", "SUPERSEDED or WITHDRAWN)"),)),
)

PLAIN = "_plain_acquire"
#: Mistakes on the short way of a plain acquire alone.
PLAIN_MUTANTS = (
    Mutant("a marker is overlooked", ((PLAIN, "if not stored and not marker then", "if not stored then"),)),
    Mutant("a marker of a held lock is overlooked", ((PLAIN, "    and not marker\n", ""),)),
    Mutant("refused by itself", ((PLAIN, "    and holder[ID] ~= id\n", ""),)),
    Mutant("refused by the dead", ((PLAIN, "    and deadline(holder) > now\n", ""),)),
    Mutant("refused by every state", ((PLAIN, "    and string.find(counts, holder[STATE], 1, true)\n", ""),)),
    Mutant("never over", ((PLAIN, "    and (on_waiting == 'keep' or not waits(holder))\n", ""),)),
    Mutant("one seat is two", ((PLAIN, "(%a*) 1 (%a+)", "(%a*) %d (%a+)"),)),
    Mutant("always counted", ((PLAIN, "if what and counted == '4' then", "if what then"),)),
    Mutant("nothing is trimmed", ((PLAIN, "'ZCOUNT', index, '-inf', now - GRACE", "'ZCOUNT', index, 1, 0"),)),
)

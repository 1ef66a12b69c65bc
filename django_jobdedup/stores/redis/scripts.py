"""The Lua scripts: one file a verb behind a shared prelude, called by hash, loaded when missing."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from redis.exceptions import NoScriptError

from django_jobdedup.stores.redis.client import RAW, Client, RedisClient

DIRECTORY: Final = Path(__file__).parent / "lua"
VERBS: Final = tuple(sorted(path.stem for path in DIRECTORY.glob("[!_]*.lua")))
#: Verbs whose plain cases are decided before most functions exist.
PLAIN: Final = ("acquire",)
#: Verbs that look at the line of a lock.
LINES: Final = ("asleep", "finish", "reap", "withdraw")
#: Microseconds since the epoch, by the server's clock.
SERVER_CLOCK: Final = "local t = redis.call('TIME')\n  return t[1] * 1000000 + t[2]"

#: A line of constants, as ``local FINAL, WITHDRAWN = -1, -2``.
CONSTANTS: Final = re.compile(r"^local ([A-Z]+(?:, [A-Z]+)*) = (-?\d+(?:, -?\d+)*)$", re.MULTILINE)

#: What a script is given.
Word = str | bytes | int
#: One call of a script: number of keys, then keys and arguments.
Call = tuple[int, Sequence[Word]]


class Scripts:
    """The scripts of one store, with its grace time and clock in them.

    ``clock`` is the body of a Lua function that returns microseconds. ``edit`` may change the text of a
    script before it is used: ``edit(file name, text)``; the tests plant mistakes with it.
    """

    def __init__(
        self, grace: float, clock: str = SERVER_CLOCK, edit: Callable[[str, str], str] | None = None
    ) -> None:
        def text(name: str) -> str:
            found = (DIRECTORY / f"{name}.lua").read_text(encoding="utf-8")
            return edit(name, found) if edit else found

        prelude = text("_prelude").replace("@GRACE@", str(round(grace * 1000))).replace("@CLOCK@", clock)
        plain = {verb: text(f"_plain_{verb}") if verb in PLAIN else "" for verb in VERBS}
        line = {verb: text("_line") if verb in LINES else "" for verb in VERBS}
        self.text: dict[str, str] = {
            verb: fold(f"{prelude.replace('@PLAIN@', plain[verb])}\n{line[verb]}\n{text(verb)}")
            for verb in VERBS
        }
        self.sha: dict[str, str] = {verb: _sha(source) for verb, source in self.text.items()}

    def run(self, client: Client, verb: str, count: int, words: Sequence[Word]) -> Any:
        """Run one script in one round trip; raises redis.RedisError."""
        try:
            return client.ask("EVALSHA", self.sha[verb], count, *words)
        except NoScriptError:
            # EVAL runs it and leaves it loaded: one more round trip, once after a restart or a flush.
            return client.ask("EVAL", self.text[verb], count, *words)

    def run_many(self, client: RedisClient, verb: str, calls: Sequence[Call]) -> list[Any]:
        """Run one script many times in one round trip; a call that failed gives its exception.

        Raises redis.RedisError when the round trip itself fails.
        """
        answers = self._pipeline(client, "EVALSHA", self.sha[verb], calls)
        missing = [place for place, answer in enumerate(answers) if isinstance(answer, NoScriptError)]
        if missing:
            again = self._pipeline(client, "EVAL", self.text[verb], [calls[place] for place in missing])
            for place, answer in zip(missing, again, strict=True):
                answers[place] = answer
        return answers

    def _pipeline(self, client: RedisClient, command: str, script: str, calls: Sequence[Call]) -> list[Any]:
        with client.pipeline(transaction=False) as pipeline:
            for count, words in calls:
                pipeline.execute_command(command, script, count, *words, **RAW)
            return list(pipeline.execute(raise_on_error=False))


def fold(source: str) -> str:
    """Put numbers in the place of the script's constants.

    In Lua 5.1 every function pays for each local around it, and a script makes all its functions anew at
    each call: folded, a refused acquire takes a tenth less time on the server.
    """
    numbers: dict[str, str] = {}
    for names, values in CONSTANTS.findall(source):
        numbers.update(zip(names.split(", "), values.split(", "), strict=True))
    return re.sub(
        "|".join(rf"\b{name}\b" for name in numbers), lambda m: numbers[m[0]], CONSTANTS.sub("", source)
    )


def _sha(source: str) -> str:
    # Redis names scripts by SHA-1.
    return hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()

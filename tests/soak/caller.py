"""One process that calls: ``python -m tests.soak.caller <number> <calls> <seconds> <seed> <file>``.

Some calls are made one by one, the others many at once; each is written down with what it became.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

BULK: Final = 40
"""Calls of one ``dispatch_many``."""
STAMPS: Final = 10_000_000
"""Stamps of one process."""
LENGTHS: Final = ((70, 0.004, 0.03), (22, 0.05, 0.3), (7, 0.4, 1.2), (1, 3.3, 4.2))
"""Of a hundred bodies so many take between so many seconds; the last outlive the visibility timeout."""
LATER: Final = (0.05, 0.8)
"""Seconds by which some calls are put off."""


@dataclass(frozen=True, slots=True)
class Called:
    """One call, and what it became: the task id that the caller holds, the outcome, the time around it."""

    kind: str
    key: str
    stamp: int
    id: str
    outcome: str
    before: float
    after: float

    @property
    def lock(self) -> tuple[str, str]:
        """What its lock is on."""
        return self.kind, self.key


@dataclass(frozen=True, slots=True)
class Wanted:
    """One call to make."""

    kind: str
    key: str
    stamp: int
    how: str
    seconds: float
    countdown: float | None

    def signature(self, tasks: Any) -> Any:
        """Return the signature to call."""
        return tasks[self.kind].s(self.key, self.stamp, self.how, self.seconds).set(countdown=self.countdown)


def wanted(number: int, calls: int, seed: int) -> Iterator[Wanted]:
    """Make up the calls of one process."""
    from .kinds import KINDS
    from .tasks import FAIL, RETRY, RETURN

    chosen = random.Random(seed * 1000 + number)
    shares, lengths = [kind.share for kind in KINDS], [length[0] for length in LENGTHS]
    for stamp in range(number * STAMPS, number * STAMPS + calls):
        (kind,) = chosen.choices(KINDS, shares)
        ((_, shortest, longest),) = chosen.choices(LENGTHS, lengths)
        (how,) = chosen.choices((RETURN, FAIL, RETRY), (93, 3, 4))
        key = f"{kind.name}-{chosen.randrange(kind.keys)}"
        countdown = chosen.uniform(*LATER) if chosen.random() < 0.03 else None
        yield Wanted(kind.name, key, stamp, how, round(chosen.uniform(shortest, longest), 3), countdown)


def call_all(calls: list[Wanted], seconds: float, seed: int, tasks: Any) -> Iterator[Called]:
    """Make all calls, spread over some seconds at least."""
    from django_jobdedup import dispatch_many

    chosen, begun, done = random.Random(seed), time.monotonic(), 0
    while done < len(calls):
        number = BULK if chosen.random() < 0.02 else 1
        some = calls[done : done + number]
        time.sleep(max(0.0, begun + seconds * done / len(calls) - time.monotonic()))
        signatures = [each.signature(tasks) for each in some]
        before = time.monotonic()
        results = dispatch_many(signatures) if number > 1 else [signatures[0].apply_async()]
        after = time.monotonic()
        for each, result in zip(some, results, strict=True):
            yield Called(each.kind, each.key, each.stamp, result.id, str(result.outcome), before, after)
        done += len(some)


def main() -> None:
    """Call."""
    number, calls, seconds, seed, path = sys.argv[1:]
    from testproject.celery import app

    app.loader.import_default_modules()
    from .tasks import TASKS

    every = list(wanted(int(number), int(calls), int(seed)))
    with open(path, "w") as file:
        for called in call_all(every, float(seconds), int(seed) + int(number), TASKS):
            file.write(json.dumps([getattr(called, name) for name in Called.__slots__]) + "\n")


def read(path: Path) -> list[Called]:
    """Give what a process has written."""
    return [Called(*json.loads(line)) for line in path.read_text().splitlines()]


if __name__ == "__main__":
    main()

"""Case U19: five hundred interleavings of writers and workers on one document, under each mode.

Each step of a writer (write, ask, confirm) and of a worker (claim, read, note, finish) is followed by a step
of whoever chance chooses. ``tests/executing/test_changes.py`` plays it with real workers.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from django_jobdedup.stores.results import Acquired, Busy, Claimed, Held, Merged, Released

from .bench import Bench

INTERLEAVINGS = 500
WRITERS, WORKERS = 4, 2


@dataclass(frozen=True, slots=True)
class Mode:
    """What a lock and its strategy ask of the store; ``ungated``: free as soon as the body starts."""

    ask: Callable[[Bench, str], Any]
    ungated: bool = False


MODES = {
    "until_executed, rerun": Mode(lambda bench, id: bench.merge(id, b"newest")),
    "until_executing": Mode(lambda bench, id: bench.acquire(id, counts="PW"), ungated=True),
    "until_and_while_executing": Mode(lambda bench, id: bench.acquire(id, counts="PW")),
}


@dataclass(slots=True)
class Document:
    """What was written and processed, the messages under way, and the bodies that run."""

    bench: Bench
    mode: Mode
    word: str
    written: int = 0
    processed: int = 0
    runs: int = 0
    inside: int = 0
    messages: deque[str] = field(default_factory=deque)
    writing: int = WRITERS

    def write(self, number: int) -> Iterator[None]:
        """Change it and ask for a run, as a dispatch does."""
        id = f"{self.word}-{number}"
        self.written += 1
        yield
        answer = self.mode.ask(self.bench, id)
        assert isinstance(answer, Acquired | Held | Merged), answer
        yield
        if isinstance(answer, Acquired):
            self.messages.append(id)
            yield
            self.bench.confirm(id)
        self.writing -= 1

    def work(self, name: str) -> Iterator[None]:
        """Take message after message until no more can come."""
        while self.writing or self.messages or self.inside:
            if self.messages:
                yield from self.run(self.messages.popleft(), name)
            yield

    def run(self, id: str, name: str) -> Iterator[None]:
        """Read what is there at the start, and note it at the end."""
        answer = self.bench.claim(id, name, gate=0 if self.mode.ungated else 1)
        if isinstance(answer, Busy):
            self.messages.append(id)
            return
        assert isinstance(answer, Claimed), answer
        if self.mode.ungated:
            assert isinstance(self.bench.finish(id, name), Released)
        self.inside += 1
        assert self.inside == 1 or self.mode.ungated
        seen = self.written
        yield
        self.processed = max(self.processed, seen)
        self.runs += 1
        self.inside -= 1
        if not self.mode.ungated:
            assert isinstance(self.bench.finish(id, name), Released)


def play(bench: Bench, mode: Mode, seed: int) -> Document:
    """Have all writers and workers of a document take their steps, in an order of chance."""
    chance, document = random.Random(seed), Document(bench, mode, str(seed))
    actors = [document.write(number) for number in range(WRITERS)]
    actors += [document.work(f"worker-{number}") for number in range(WORKERS)]
    while actors:
        actor = chance.choice(actors)
        if next(actor, actors) is actors:
            actors.remove(actor)
    assert document.written == WRITERS
    assert bench.holders() == ()
    return document


@pytest.mark.parametrize("bench", ["memory", "redis"], indirect=True)
@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_the_last_change_is_processed_by_a_run_that_started_after_it(bench: Bench, mode: Mode) -> None:
    told = [play(bench, mode, seed) for seed in range(INTERLEAVINGS)]
    assert [seed for seed, document in enumerate(told) if document.processed != WRITERS] == []
    numbers = {document.runs for document in told}
    assert numbers <= {*range(1, WRITERS + 1)}
    assert len(numbers) > 2, "chance has brought calls before, in and after a run"


def test_under_skip_a_change_during_a_run_is_lost(memory_bench: Bench) -> None:
    """What the pages say of ``skip``; and the test above could fail."""
    skip = Mode(lambda bench, id: bench.acquire(id))
    told = [play(memory_bench, skip, seed) for seed in range(INTERLEAVINGS)]
    assert any(document.processed < WRITERS for document in told)

"""The judge: compares the calls with the runs, and finds overlaps, losses and calls that no run followed.

Pure: lists in, sentences out. The lock store is not asked what it holds; ``state_of`` gives what a caller
reads of a job, and ``noted`` are the jobs that were lost in a run, as anybody can read in the store's events.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Final, TypeVar

from .caller import Called
from .kinds import BY_NAME
from .pen import Run

T = TypeVar("T", Called, Run)
StateOf = Callable[[str], str]
"""Gives the state of the result of a task id."""
COLD: Final = "cut off by a cold shutdown"
"""What stands for the state of a job with early ack whose worker was told to drop it: Celery says RETRY."""
TOLD: Final = ("FAILURE", COLD)
"""The states of jobs whose loss is known."""


def judge(
    calls: Sequence[Called], runs: Sequence[Run], state_of: StateOf, noted: Collection[str] = ()
) -> list[str]:
    """Find all that is wrong; right is an empty list."""
    return [
        *overlaps(runs),
        *strangers(calls, runs),
        *lost(calls, runs, state_of),
        *unfollowed(calls, runs, lambda id: id in noted or state_of(id) in TOLD),
    ]


def overlaps(runs: Iterable[Run]) -> Iterator[str]:
    """Find runs of one lock that were alive at one moment; a cut-off one until its last sign of life."""
    for (_, key), some in _by_lock(runs).items():
        longest: Run | None = None
        for run in sorted(some, key=lambda each: each.started):
            if longest is not None and run.started < longest.seen:
                together = min(longest.seen, run.seen) - run.started
                yield f"{key} ran twice at a time, for {together:.3f} s: {longest} and {run}"
            longest = run if longest is None or run.seen > longest.seen else longest


def strangers(calls: Sequence[Called], runs: Iterable[Run]) -> Iterator[str]:
    """Find runs, and calls that were refused, with the id of a job that no call has started."""
    accepted = {call.id for call in calls if call.outcome == "accepted"}
    for run in runs:
        if run.id not in accepted:
            yield f"{run.key} ran as a job that nobody started: {run}"
    for call in calls:
        if call.id not in accepted:
            yield f"{call.key} was refused in favour of a job that nobody started: {call}"


def lost(calls: Sequence[Called], runs: Sequence[Run], state_of: StateOf) -> Iterator[str]:
    """Find accepted calls whose job never came to an end, was not replaced, and is not told of."""
    ended, started = {run.id for run in runs if run.whole}, {run.id for run in runs}
    for call in calls:
        kind = BY_NAME[call.kind]
        if call.outcome != "accepted" or call.id in ended or kind.replaces:
            continue  # what was replaced is judged by the run that followed it
        if kind.unseen and call.id not in started:
            continue
        if kind.late or state_of(call.id) not in TOLD:
            yield f"{call.key} was lost: {state_of(call.id)}, {call}"


def unfollowed(
    calls: Sequence[Called], runs: Sequence[Run], is_known: Callable[[str], bool]
) -> Iterator[str]:
    """Find calls under ``rerun`` and ``replace`` after which no run started, with arguments as new.

    With early ack such a run may be known to be lost. A copy of its message may have run after that, with the
    arguments that it was sent with, and have left its result in the place of the loss.
    """
    fresh = [call for call in calls if BY_NAME[call.kind].fresh]
    by_stamp = {call.stamp: call for call in fresh}
    runs_of, calls_of = _by_lock(run for run in runs if run.whole), _by_lock(fresh)
    for call in fresh:
        later = [run for run in runs_of[call.lock] if run.started >= call.before]
        if any(by_stamp[run.stamp].after >= call.before for run in later):
            continue
        newer = (each for each in calls_of[call.lock] if each.after >= call.before)
        if not BY_NAME[call.kind].late and any(is_known(id) for id in {each.id for each in newer}):
            continue
        what = "a run with older arguments" if later else "no run"
        yield f"{call.key} was followed by {what}: {call}"


def _by_lock(items: Iterable[T]) -> dict[tuple[str, str], list[T]]:
    found: dict[tuple[str, str], list[T]] = defaultdict(list)
    for item in items:
        found[item.lock].append(item)
    return found

"""The judge: compares what was asked with what ran, and finds duplicates and lost jobs.

Pure: two lists and the moment of the kill in, sentences out. The counters of django_jobdedup are not asked.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from .facts import Asked, Ran

T = TypeVar("T", Asked, Ran)

LAST_MOMENT = 0.3
"""Seconds around the kill in which a body may have ended and its ack not: late ack then runs it again."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the judge found; both lists hold sentences, empty is right."""

    duplicates: tuple[str, ...]
    lost: tuple[str, ...]

    @property
    def good(self) -> bool:
        """Whether nothing ran twice and nothing was lost."""
        return not self.duplicates and not self.lost


def judge(asked: Sequence[Asked], ran: Sequence[Ran], killed_at: float | None) -> Verdict:
    """Judge a finished demo. One with duplicates is cut short, so what is missing then says nothing."""
    found = tuple(duplicates(asked, ran, killed_at))
    return Verdict(found, () if found else tuple(lost(asked, ran)))


def lost(asked: Iterable[Asked], ran: Iterable[Ran]) -> list[str]:
    """Find the jobs that somebody holds an id of and that never ran to the end."""
    ended = {run.job for run in ran if run.ended is not None}
    missing = {each.job: each.call for each in asked if each.job not in ended}
    return [f"{call} was lost: job {job} never ran to its end." for job, call in missing.items()]


def duplicates(asked: Sequence[Asked], ran: Sequence[Ran], killed_at: float | None) -> list[str]:
    """Find equal jobs in flight together, equal runs at one time, jobs run twice, runs nobody asked for."""
    return [
        *accepted_twice(asked, ran),
        *_ran_together(ran, killed_at),
        *_ran_again(ran, killed_at),
        *_unasked(asked, ran),
    ]


def accepted_twice(asked: Iterable[Asked], ran: Iterable[Ran]) -> Iterable[str]:
    """Find calls that were queued while an equal job was in flight: from its acceptance to its last end."""
    ended = _ends(ran)
    for call, accepted in _by_call(each for each in asked if not each.duplicate).items():
        accepted.sort(key=lambda each: each.after)
        for older, newer in pairwise(accepted):
            # Only what is certain: the newer call began when the older was accepted, and was over in time.
            if newer.before > older.after and newer.after < ended.get(older.job, 0.0):
                yield f"{call} was queued twice: job {newer.job} while job {older.job} was in flight."


def _ran_together(ran: Sequence[Ran], killed_at: float | None) -> Iterable[str]:
    for call, runs in _by_call(ran).items():
        runs.sort(key=lambda run: run.started)
        for first, second in pairwise(runs):
            if second.started < _end(first, killed_at):
                yield f"{call} ran twice at the same time: jobs {first.job} and {second.job}."


def _end(run: Ran, killed_at: float | None) -> float:
    """When a body stopped: at its end, else at the kill, else not yet."""
    if run.ended is not None:
        return run.ended
    return killed_at if killed_at is not None and run.started <= killed_at else float("inf")


def _ran_again(ran: Sequence[Ran], killed_at: float | None) -> Iterable[str]:
    seen: dict[str, Ran] = {}
    for run in ran:
        if run.ended is None:
            continue
        before = seen.get(run.job)
        if before is not None and not _cut_before_its_ack(before, killed_at):
            yield f"{run.call} ran twice to its end as job {run.job}."
        seen[run.job] = run


def _cut_before_its_ack(run: Ran, killed_at: float | None) -> bool:
    return killed_at is not None and run.ended is not None and abs(killed_at - run.ended) < LAST_MOMENT


def _unasked(asked: Iterable[Asked], ran: Iterable[Ran]) -> Iterable[str]:
    accepted = {each.job for each in asked if not each.duplicate}
    return (
        f"{run.call} ran as job {run.job}, which no call started." for run in ran if run.job not in accepted
    )


def _ends(ran: Iterable[Ran]) -> dict[str, float]:
    ends: dict[str, float] = {}
    for run in ran:
        if run.ended is not None:
            ends[run.job] = max(run.ended, ends.get(run.job, 0.0))
    return ends


def _by_call(items: Iterable[T]) -> dict[str, list[T]]:
    found: dict[str, list[T]] = defaultdict(list)
    for item in items:
        found[item.call].append(item)
    return found

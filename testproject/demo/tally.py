"""The numbers of the demo at one moment: what was asked, and what the database says ran."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .facts import Asked, Ran, kind

KINDS = {"recompute_tenant": "equal recomputations", "build_report": "distinct reports"}
"""The tasks of the storm, and what the screen calls their jobs."""


@dataclass(frozen=True, slots=True)
class Tally:
    """One line of the table.

    ``run`` counts bodies that ran to their end, ``cut`` those that the kill cut off. ``recovered`` is the
    time in seconds from the kill until every job that was cut off ran again; None while one has not.
    """

    asked: int
    accepted: int
    suppressed: int
    run: int
    cut: int
    recovered: float | None

    @classmethod
    def of(cls, asked: Iterable[Asked], ran: Iterable[Ran], killed_at: float | None, task: str = "") -> Tally:
        """Count everything, or what belongs to one task."""
        calls = [each.duplicate for each in asked if not task or kind(each.call) == task]
        runs = [run for run in ran if not task or kind(run.call) == task]
        cut = cut_runs(runs, killed_at)
        return cls(
            asked=len(calls),
            accepted=calls.count(False),
            suppressed=calls.count(True),
            run=sum(run.ended is not None for run in runs),
            cut=len(cut),
            recovered=_recovered_after(cut, runs, killed_at),
        )


def cut_runs(ran: Iterable[Ran], killed_at: float | None) -> list[Ran]:
    """Give the runs that the kill cut off; none before it."""
    if killed_at is None:
        return []
    return [run for run in ran if run.ended is None and run.started <= killed_at]


def _recovered_after(cut: Iterable[Ran], ran: Sequence[Ran], killed_at: float | None) -> float | None:
    moments = []
    for job in {run.job for run in cut}:
        starts = [run.started for run in ran if run.job == job and run.started > (killed_at or 0.0)]
        if not starts:
            return None
        moments.append(min(starts) - (killed_at or 0.0))
    return max(moments, default=None)


def finished(asked: Iterable[Asked], ran: Iterable[Ran]) -> bool:
    """Whether every job that somebody holds an id of has run to its end."""
    return {each.job for each in asked} <= {run.job for run in ran if run.ended is not None}

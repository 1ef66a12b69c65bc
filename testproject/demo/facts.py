"""What the demo knows for sure: what it asked for, and what the shop's own log says ran."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Asked:
    """One call of ``delay()``.

    ``job`` is the id that the caller got, ``duplicate`` whether it is somebody else's. ``before`` and
    ``after`` are the moments around the call. All moments are epoch seconds; one machine, one clock.
    """

    call: str
    job: str
    duplicate: bool
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class Ran:
    """One start of a body, from the database; ``ended`` is None for one that was cut off or runs."""

    call: str
    job: str
    started: float
    ended: float | None


def read_runs() -> list[Ran]:
    """Read the log of what ran, in order of the starts."""
    from testproject.shop.models import Run

    rows = Run.objects.order_by("started", "pk").values_list("call", "job", "started", "ended")
    return [
        Ran(call, job, started.timestamp(), ended.timestamp() if ended else None)
        for call, job, started, ended in rows
    ]


def kind(call: str) -> str:
    """Give the task of a call: "recompute_tenant" of "recompute_tenant(3)"."""
    return call.partition("(")[0]

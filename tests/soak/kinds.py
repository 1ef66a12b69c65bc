"""The kinds of jobs in the mix: lock, strategy, ack, and how many keys and calls each has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

LEASE: Final = 3
"""Seconds; renewed every second."""
TTL: Final = 3600
SHORT_TTL: Final = 12
"""Seconds after which a job that others have joined, and whose message is gone, is published again."""
DISPATCH: Final = "dispatch"
EXECUTION: Final = "execution"


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of job.

    ``keys`` is the number of its keys, ``share`` that of its calls in a hundred. ``fresh``: every call, also
    a refused one, is followed by a run. ``replaces``: that run is not always one of the same job.
    ``unseen``: nobody knows of a job before its start, so that one whose message is lost is not told of.
    """

    name: str
    late: bool
    keys: int
    share: float
    policy: dict[str, Any]
    fresh: bool = False
    replaces: bool = False
    unseen: bool = False

    @property
    def task(self) -> str:
        """The name of its task."""
        return f"soak.{self.name}"


def _kind(
    name: str, late: bool, keys: int, share: float, lock: str, ttl: float = TTL, **options: Any
) -> Kind:
    strategy = options.get("on_conflict")
    unseen = lock == "while_executing" and not late
    policy = {"lock": lock, "key": "key", "lease": LEASE, "ttl": ttl, **options}
    return Kind(
        name, late, keys, share, policy, strategy in ("rerun", "replace"), strategy == "replace", unseen
    )


_TWICE: Final = "until_and_while_executing"

KINDS: Final[tuple[Kind, ...]] = (
    _kind("once_late", True, 110, 28, "until_executed"),
    _kind("once_early", False, 90, 21, "until_executed"),
    _kind("twice_late", True, 70, 15, _TWICE),
    _kind("twice_early", False, 50, 9, _TWICE, on_conflict={DISPATCH: "skip", EXECUTION: "reschedule"}),
    _kind("rerun_late", True, 70, 15, "until_executed", on_conflict="rerun"),
    _kind("rerun_early", False, 40, 9, "until_executed", SHORT_TTL, on_conflict="rerun"),
    _kind("replace_late", True, 30, 1.5, "until_executed", on_conflict="replace"),
    _kind("replace_early", False, 10, 0.5, "until_executed", on_conflict="replace"),
    _kind("while_late", True, 20, 0.6, "while_executing"),
    _kind("while_early", False, 10, 0.4, "while_executing"),
)
"""Five hundred keys, a hundred percent of the calls."""
BY_NAME: Final = {kind.name: kind for kind in KINDS}

"""A lock type: when a lock is taken, when it is freed, where it can conflict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class LockType:
    """The knobs of one lock type (table of ``PROTOCOL.md``, section 1).

    ``counts``: states of other holders that refuse a dispatch, letters of ``P W R K``.
    ``gated``: a start waits while ``limit`` other runs live. ``keeps``: the lock outlives a good end.
    ``at_dispatch``: a dispatch takes a waiting seat. ``conflicts``: the sides on which the user's
    strategy is asked; a start put off by the gate of another type is the protocol's, not the user's.
    """

    name: str
    counts: str
    gated: bool
    keeps: bool
    at_dispatch: bool
    conflicts: tuple[Literal["dispatch", "execution"], ...]

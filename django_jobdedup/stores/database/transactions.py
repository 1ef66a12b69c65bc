"""The transaction that this thread has open, for who must know whether two calls share their fate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, eq=False)
class Mark:
    """A transaction and its innermost savepoint.

    Django keeps the actions of a transaction in a list, and takes a new one at every commit and rollback;
    no two savepoints of a connection have one id.
    """

    actions: list[Any]
    savepoints: tuple[str | None, ...]

    @classmethod
    def of(cls, connection: Any) -> Mark:
        """Return the mark of what is open now."""
        return cls(connection.run_on_commit, tuple(connection.savepoint_ids))

    def __eq__(self, other: object) -> bool:
        same = isinstance(other, Mark) and self.actions is other.actions
        return same and isinstance(other, Mark) and self.savepoints == other.savepoints

    def __hash__(self) -> int:
        return hash((id(self.actions), self.savepoints))

"""A row of ``JobIntent`` and its working forms: the columns of a seat, the columns of a marker."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from django_jobdedup.stores.inprocess.seat import Mark, Seat, Sleeper

#: Columns that are what a seat says, by the same names.
SEAT: Final = (
    "nonce", "lease", "until", "due", "first", "since", "ttl", "over", "args", "merged", "starts",
    "refused", "fence", "by", "last",
)  # fmt: skip
MARK: Final = ("mark_until", "mark_n", "mark_final", "mark_by", "mark_nonce", "mark_number")
#: Columns that the store derives.
DERIVED: Final = (
    "name", "state", "reason", "counts", "wait_key", "run_key", "attention", "publish_at", "ended_at",
    "place", "attempts", "seat", "asleep",
)  # fmt: skip
#: What a verb reads of a row; ``kept`` says whether there is a call, which may be large.
COLUMNS: Final = ("id", "version", "token", *DERIVED, *SEAT, *MARK)

Columns = dict[str, Any]

#: A row before its first writing.
FRESH: Final[Mapping[str, Any]] = {
    "version": 0, "name": "", "state": "pending", "reason": "", "counts": "", "wait_key": None,
    "run_key": None, "attention": None, "publish_at": None, "ended_at": None, "place": 0, "attempts": 0,
    "seat": "", "nonce": "", "lease": 0, "until": 0, "due": 0, "first": 0, "since": 0, "ttl": 0, "over": "",
    "args": None, "merged": 0, "starts": 0, "refused": 0, "fence": 0, "by": "", "last": "",
    "mark_until": 0, "mark_n": -1, "mark_final": 0, "mark_by": "", "mark_nonce": "", "mark_number": None,
    "relay": "", "copies": 0, "asleep": "",
}  # fmt: skip
#: What a row loses with its seat; the rest stays for people, and the fence for the next claim.
UNSEATED: Final[Mapping[str, Any]] = {
    "seat": "", "wait_key": None, "run_key": None, "attention": None, "publish_at": None, "over": "",
    "args": None, "asleep": "",
}  # fmt: skip


@dataclass(slots=True)
class Row:
    """A row as it was read; ``id`` 0: there is none yet."""

    token: str
    id: int = 0
    kept: bool = False
    was: Columns = field(default_factory=lambda: dict(FRESH))

    @property
    def version(self) -> int:
        """Return how often it was written."""
        return int(self.was["version"])

    def seat(self) -> Seat | None:
        """Return its seat."""
        was = self.was
        if not was["seat"]:
            return None
        values = {name: was[name] for name in SEAT if name not in ("over", "args")}
        if not was["starts"]:  # the fence is that of an earlier seat: for the next claim
            values["fence"] = 0
        over = tuple(json.loads(was["over"])) if was["over"] else ()
        return Seat(id=self.token, state=was["seat"], over=over, args=was["args"], kept=self.kept, **values)

    def sleeper(self) -> Sleeper | None:
        """Return its place in the line of its lock, without the call, which may be large."""
        if not self.was["asleep"]:
            return None
        since, until, n, by = json.loads(self.was["asleep"])
        return Sleeper(since, until, n, by=by)

    def mark(self) -> Mark | None:
        """Return its marker, whether its time has passed or not."""
        was = self.was
        if not was["mark_until"]:
            return None
        return Mark(
            was["mark_until"],
            was["mark_n"],
            bool(was["mark_final"]),
            was["mark_by"],
            was["mark_nonce"],
            was["mark_number"],
        )


def row_of(values: tuple[Any, ...]) -> Row:
    """Return a row from what was selected: COLUMNS, then whether there is a call."""
    was = dict(zip(COLUMNS, values, strict=False))
    if was["args"] is not None:
        was["args"] = bytes(was["args"])
    return Row(was["token"], was["id"], bool(values[len(COLUMNS)]), was)


def seat_columns(seat: Seat) -> Columns:
    """Return the columns of a seat."""
    columns = {name: getattr(seat, name) for name in SEAT}
    columns["over"] = json.dumps(seat.over) if seat.over else ""
    columns["seat"] = seat.state
    return columns


def asleep_column(sleeper: Sleeper | None) -> str:
    """Return the column of a place in a line."""
    if sleeper is None:
        return ""
    return json.dumps([sleeper.since, sleeper.until, sleeper.n, sleeper.by], separators=(",", ":"))


def mark_columns(mark: Mark) -> Columns:
    """Return the columns of a marker."""
    return {
        "mark_until": mark.deadline,
        "mark_n": mark.n,
        "mark_final": int(mark.final),
        "mark_by": mark.by,
        "mark_nonce": mark.nonce,
        "mark_number": mark.number,
    }


@lru_cache(4096)
def key_of(token: str) -> str:
    """Return the digest under which a token is found: tokens may be long."""
    return hashlib.sha256(token.encode()).hexdigest()


def seat_key(fingerprint: str, number: int) -> str:
    """Return what a unique column holds for one seat of a lock."""
    return f"{fingerprint}:{number}"


def seat_number(key: str | None) -> int:
    """Return the number of a seat, -1 for none."""
    return int(key.rpartition(":")[2]) if key else -1

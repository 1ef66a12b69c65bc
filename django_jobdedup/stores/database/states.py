"""The state of a row, for people: what a change of its seat makes of it, and why."""

from __future__ import annotations

from typing import Final

from django_jobdedup.stores.database.purpose import Purpose
from django_jobdedup.stores.database.rows import Columns, Row
from django_jobdedup.stores.inprocess.seat import Mark, Seat

#: Reasons of an ending after which the job has done what it should, or chose not to.
WELL: Final = ("", "success", "ignore", "skipped")
#: What an event about a holder makes of its row.
BY_EVENT: Final = {
    "lost": "lost",
    "lapsed": "lost",
    "abandoned": "lost",
    "superseded": "superseded",
    "exhausted": "dead",
    "withdrawn": "failed",
    "removed": "failed",
}
REASONS: Final = {
    "lost": "the worker vanished during the run",
    "lapsed": "nothing was heard of it for its TTL",
    "abandoned": "its publish was never confirmed",
    "superseded": "a newer call took its place",
    "exhausted": "started too often",
    "withdrawn": "withdrawn before it ran",
    "removed": "its lock was released by hand",
}
SEATED: Final = {"P": "pending", "W": "published", "R": "running"}


def ended(reason: str) -> tuple[str, str]:
    """Return state and reason of a job whose body has ended."""
    if reason in WELL:
        return "done", reason
    return ("lost", REASONS["lost"]) if reason == "lost" else ("failed", reason)


def state_of(row: Row, seat: Seat | None, mark: Mark | None, event: str, purpose: Purpose) -> Columns:
    """Return the columns ``state`` and ``reason``."""
    if seat is not None:
        state, reason = _seated(row, seat, purpose)
    elif row.was["seat"] or not row.id or mark != row.mark():
        state, reason = _unseated(row, event, purpose)
    else:
        state, reason = row.was["state"], row.was["reason"]
    return {"state": state, "reason": reason}


def _seated(row: Row, seat: Seat, purpose: Purpose) -> tuple[str, str]:
    told = purpose.verb == "confirm" and purpose.token == row.token
    if seat.state == row.was["seat"] and not told:
        # A waiting one in the hands of a relay is still pending: nobody has told of its message.
        return row.was["state"], row.was["reason"]
    if seat.state == "W" and purpose.verb == "handover" and purpose.token == row.token and purpose.renewed:
        return "pending", ""  # its retry could not be published
    return ended(purpose.reason) if seat.state == "K" else (SEATED[seat.state], "")


def _unseated(row: Row, event: str, purpose: Purpose) -> tuple[str, str]:
    if row.was["seat"] == "K":
        return row.was["state"], row.was["reason"]  # it had ended; only its lock is free now
    if row.was["state"] == "dead" and not row.was["seat"]:
        return "dead", row.was["reason"]  # only a person takes it off the list
    if purpose.by and row.token == purpose.token:
        return "superseded", ""
    if event in BY_EVENT:
        if event == "withdrawn" and purpose.reason:
            return ended(purpose.reason)
        return BY_EVENT[event], REASONS[event]
    if purpose.verb == "handover":
        return row.was["state"], row.was["reason"]
    if purpose.verb == "finish":
        return ended(purpose.reason)
    # Withdrawn with the reason of a body: it ran without a claim, because the store did not answer then.
    return ended(purpose.reason) if purpose.reason else ("failed", REASONS["withdrawn"])

"""Settling: what a publish became; a failed one is tried again, then its seat is given back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from kombu.exceptions import OperationalError

from django_jobdedup.call import Call
from django_jobdedup.middleware.base import Dispatch
from django_jobdedup.middleware.verdict import Verdict
from django_jobdedup.stores.handler import stores
from django_jobdedup.stores.record import Ref
from django_jobdedup.stores.requests import Withdraw
from django_jobdedup.stores.results import Withdrawn

Publish = Callable[[Sequence[Call]], list[Dispatch]]


def settle(verdict: Verdict, sent: Dispatch, publish: Publish) -> Dispatch:
    """Join the verdict with what the publish answered."""
    if isinstance(sent.error, OperationalError | OSError):
        # Perhaps the message went out: only the same id is safe to send again, and always is.
        sent = publish([verdict.call])[0]
    if sent.error is not None:
        _give_back(verdict, sent.error)
        return replace(sent, outcome=verdict.outcome, fingerprint=verdict.fingerprint)
    return replace(sent, outcome=verdict.outcome, fingerprint=verdict.fingerprint, seat=verdict.seat)


def _give_back(verdict: Verdict, error: BaseException) -> None:
    seat = verdict.seat
    if seat is None or verdict.call.again is not None:
        return  # a seat that runs, or that an earlier message holds, is not the publish's to free
    answer = stores[seat.store].withdraw(Withdraw(Ref(seat.shard, seat.fingerprint), seat.id))
    if isinstance(answer, Withdrawn) and answer.refused:
        error.add_note(
            f"django_jobdedup: {answer.refused} equal calls were refused in favour of this one "
            "while it was being published; they hold an id that will not run."
        )

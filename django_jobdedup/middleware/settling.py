"""Settling: what a publish became; a failed one is tried again, then its seat is given back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from kombu.exceptions import OperationalError

from django_jobdedup.call import Call
from django_jobdedup.middleware.base import Dispatch
from django_jobdedup.middleware.verdict import Verdict
from django_jobdedup.outcomes import Outcome
from django_jobdedup.stores.handler import stores
from django_jobdedup.stores.record import Ref
from django_jobdedup.stores.requests import Withdraw
from django_jobdedup.stores.results import Withdrawn

Publish = Callable[[Sequence[Call]], list[Dispatch]]


def settle(verdict: Verdict, sent: Dispatch, publish: Publish) -> Dispatch:
    """Join the verdict with what the publish answered."""
    if isinstance(sent.error, OperationalError | OSError) and _is_claimed(verdict):
        # Perhaps the message went out. With a lock the same id is safe to send again: each copy is
        # claimed, one runs. Without one nobody would notice the second copy.
        sent = _again(verdict, publish)
    if sent.error is not None:
        _give_back(verdict, sent.error)
        return replace(sent, outcome=Outcome.UNKNOWN, fingerprint=verdict.fingerprint)
    if sent.result is None:  # another middleware has decided not to publish
        _give_back(verdict, None)
        return sent
    return Dispatch(sent.call, verdict.outcome, sent.id, verdict.fingerprint, sent.result)


def _is_claimed(verdict: Verdict) -> bool:
    return bool(verdict.fingerprint) and verdict.outcome is not Outcome.OBSERVED


def _again(verdict: Verdict, publish: Publish) -> Dispatch:
    try:
        return publish([verdict.call])[0]
    except BaseException as error:
        _give_back(verdict, error)
        raise


def give_up(verdicts: Sequence[Verdict], error: BaseException) -> None:
    """Give every seat back: a middleware further in has raised instead of answering."""
    for verdict in verdicts:
        _give_back(verdict, error)


def _give_back(verdict: Verdict, error: BaseException | None) -> None:
    seat = verdict.seat
    if seat is None or verdict.call.again is not None:
        return  # a seat that runs, or that an earlier message holds, is not the publish's to free
    answer = stores[seat.store].withdraw(Withdraw(Ref(seat.shard, seat.fingerprint), seat.id))
    if isinstance(answer, Withdrawn) and answer.refused and error is not None:
        error.add_note(
            f"django_jobdedup: {answer.refused} equal calls were refused in favour of this one "
            "while it was being published; they hold an id that will not run."
        )

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


def settled(verdicts: Sequence[Verdict], publish: Publish) -> list[Dispatch]:
    """Publish what was accepted, and join each verdict with what its publish answered."""
    going = [verdict for verdict in verdicts if verdict.publish]
    try:
        sent = iter(_sent(going, publish) if going else ())
    except BaseException as error:
        for verdict in verdicts:  # a middleware further in has raised instead of answering
            _give_back(verdict, error)
        raise
    return [_settle(each, next(sent)) if each.publish else each.refused() for each in verdicts]


def _sent(going: Sequence[Verdict], publish: Publish) -> list[Dispatch]:
    sent = publish([verdict.call for verdict in going])
    # Perhaps the message went out. With a lock the same id is safe to send again: each copy is claimed,
    # one runs. Without one nobody would notice the second copy.
    lost = [
        place
        for place, (verdict, each) in enumerate(zip(going, sent, strict=True))
        if isinstance(each.error, OperationalError | OSError) and _is_claimed(verdict)
    ]
    if not lost:
        return sent
    again = dict(zip(lost, publish([going[place].call for place in lost]), strict=True))
    return [again.get(place, each) for place, each in enumerate(sent)]


def _is_claimed(verdict: Verdict) -> bool:
    return bool(verdict.fingerprint) and verdict.outcome not in (Outcome.OBSERVED, Outcome.FOLLOWED)


def _settle(verdict: Verdict, sent: Dispatch) -> Dispatch:
    if sent.error is not None:
        _give_back(verdict, sent.error)
        return replace(sent, outcome=Outcome.UNKNOWN, fingerprint=verdict.fingerprint)
    if sent.result is None:  # another middleware has decided not to publish
        _give_back(verdict, None)
        return sent
    return Dispatch(
        sent.call, verdict.outcome, sent.id, verdict.fingerprint, sent.result, would=verdict.would
    )


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

"""Reserving: the stores are asked, one round trip a store, and each call gets its verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from django_jobdedup.call import Call
from django_jobdedup.exceptions import StoreUnavailable
from django_jobdedup.header import Header, life_of
from django_jobdedup.middleware import mistake
from django_jobdedup.middleware.base import Seat
from django_jobdedup.middleware.merging import join
from django_jobdedup.middleware.observing import outcome_of_seat
from django_jobdedup.middleware.out_of_time import let_pass
from django_jobdedup.middleware.planning import Plan, with_header
from django_jobdedup.middleware.refusing import observed, refuse
from django_jobdedup.middleware.verdict import Verdict
from django_jobdedup.outcomes import Outcome
from django_jobdedup.stores.handler import stores
from django_jobdedup.stores.record import Ref
from django_jobdedup.stores.requests import Acquire
from django_jobdedup.stores.results import Acquired, AcquireResult, Held, Merged, Outside, Unavailable


def reserve(plans: Sequence[Plan]) -> list[Verdict]:
    """Ask the stores and decide every call."""
    if len(plans) == 1:
        return [_reserve_one(plans[0])]
    answers = _ask(plans)
    return [
        _decide(item, answers[place]) if place in answers else _unasked(item)
        for place, item in enumerate(plans)
    ]


def _reserve_one(item: Plan) -> Verdict:
    """The way of a plain ``delay()``, which has to be short."""
    if item.request is None or item.header is None:
        return _unasked(item)
    try:
        answer = stores[item.header.knobs.store].acquire(item.request)
    except Exception as error:  # a store that is not configured; one that does not answer raises nothing
        answer = _unusable(error, [item.call])
    return _decide(item, answer)


def _ask(plans: Sequence[Plan]) -> dict[int, AcquireResult]:
    by_store: dict[str, list[tuple[int, Acquire]]] = {}
    for place, item in enumerate(plans):
        if item.request is not None and item.header is not None:
            by_store.setdefault(item.header.knobs.store, []).append((place, item.request))
    answers: dict[int, AcquireResult] = {}
    unusable = _open(plans, by_store)
    for alias, every in by_store.items():
        asked, folded = fold(every)
        results: Sequence[AcquireResult]
        try:
            refused = unusable.get(alias)
            requests = [request for _, request in asked]
            results = [refused] * len(asked) if refused else stores[alias].acquire_many(requests)
        except Exception as error:
            results = [_unusable(error, [plans[place].call for place, _ in asked])] * len(asked)
        answers.update(zip((place for place, _ in asked), results, strict=True))
        answers.update((place, for_equal(answers[first], plans[first])) for place, first in folded.items())
    return answers


def _open(plans: Sequence[Plan], by_store: Mapping[str, list[tuple[int, Acquire]]]) -> dict[str, Unavailable]:
    """Open every store before the first is asked: an error is raised while no call has its seat yet."""
    unusable = {}
    for alias, every in by_store.items():
        try:
            stores[alias]
        except Exception as error:
            unusable[alias] = _unusable(error, [plans[place].call for place, _ in every])
    return unusable


def fold(
    asked: Sequence[tuple[int, Acquire]],
) -> tuple[list[tuple[int, Acquire]], dict[int, int]]:
    """Return what the store has to be asked, and the rest: its place to the place of an equal one before.

    Only where the store's answer to the first tells the answer to the others: it would refuse them.
    """
    first: dict[tuple[Ref, str], int] = {}
    left: list[tuple[int, Acquire]] = []
    folded: dict[int, int] = {}
    for place, request in asked:
        if request.again or request.on_waiting != "keep" or request.limit > 1 or "P" not in request.counts:
            left.append((place, request))
        elif (same := (request.ref, request.counts)) in first:
            folded[place] = first[same]
        else:
            left.append((place, request))
            if not life_of(request.id):  # an id given by its caller may have ended, and then holds nothing
                first[same] = place
    return left, folded


def for_equal(answer: AcquireResult, item: Plan) -> AcquireResult:
    """Return the answer to a call that is equal to one that was answered."""
    if isinstance(answer, Acquired) and item.request is not None:
        return Held(item.request.id, "P", answer.at, answer.at + item.request.pending, item.request.by)
    return answer


def _unusable(error: Exception, calls: Sequence[Call]) -> Unavailable:
    """Raise what a store raised, but not to a publish that Celery makes itself."""
    if not all(call.by_celery for call in calls):
        raise error
    mistake.report("reserving", calls[0].task, error)
    return Unavailable(repr(error))


def _unasked(item: Plan) -> Verdict:
    if item.header is None:
        return Verdict(item.call, item.outcome)
    return Verdict(with_header(item.call, item.header), item.outcome, fingerprint=item.header.fingerprint)


def _decide(item: Plan, answer: AcquireResult) -> Verdict:
    """Keep an error to its own call: others have their seats by now, and need their messages."""
    try:
        return _decided(item, answer)
    except Exception as error:
        let_pass(error)
        fingerprint = item.header.fingerprint if item.header is not None else ""
        return Verdict(item.call, Outcome.UNKNOWN, False, fingerprint=fingerprint, error=error)


def _decided(item: Plan, answer: AcquireResult) -> Verdict:
    call, header = item.call, item.header
    assert header is not None  # noqa: S101 - only calls with a header are asked for
    if isinstance(answer, Held) and header.knobs.observe:
        return observed(call, header, answer)
    if isinstance(answer, Held):
        return refuse(call, header, answer)
    if isinstance(answer, Acquired):
        header = header.accepted(answer.at)
        fingerprint, knobs = header.locks[0]
        seat = Seat(knobs.store, header.shard, fingerprint, header.token)
        call = with_header(call, header, reserved=True)
        return Verdict(call, outcome_of_seat(header), True, seat, "", fingerprint)
    if isinstance(answer, Merged):
        return join(call, header, answer)
    if isinstance(answer, Outside):
        return Verdict(with_header(call, header), outcome_of_seat(header), fingerprint=header.fingerprint)
    if isinstance(answer, Unavailable) and header.knobs.observe:
        return Verdict(with_header(call, Header(call.id)), Outcome.OBSERVED)
    if isinstance(answer, Unavailable):
        return _without_store(call, header, answer)
    raise TypeError(f"a store answered {answer!r} to acquire")


def _without_store(call: Call, header: Header, answer: Unavailable) -> Verdict:
    if header.knobs.on_store_error == "raise" and not call.by_celery and call.again is None:
        error = StoreUnavailable(
            f"{call.task} was not queued: its lock store does not answer ({answer.error}). "
            'Try again later, or give the policy on_store_error="proceed".'
        )
        return Verdict(call, Outcome.UNKNOWN, False, fingerprint=header.fingerprint, error=error)
    return Verdict(with_header(call, header), Outcome.UNPROTECTED, fingerprint=header.fingerprint)

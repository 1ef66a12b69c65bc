"""The outbox: what a durable store keeps is decided and published, after a commit or by the relay."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

from celery import _state
from celery.app import app_or_default
from kombu.exceptions import OperationalError

from django_jobdedup import signals
from django_jobdedup.call import Call
from django_jobdedup.dispatching.announcing import announce
from django_jobdedup.dispatching.broker import DOWN, blame, breaker_of, is_down, publish
from django_jobdedup.dispatching.giving_up import tell
from django_jobdedup.header import task_id_of
from django_jobdedup.middleware import stack
from django_jobdedup.middleware.base import Dispatch
from django_jobdedup.middleware.deciding import Decided, Restored, decide, restore
from django_jobdedup.middleware.out_of_time import let_pass
from django_jobdedup.middleware.verdict import Verdict
from django_jobdedup.outcomes import Outcome
from django_jobdedup.stores.durable import DurableStore, Intent
from django_jobdedup.stores.record import Ref
from django_jobdedup.stores.results import Unavailable
from django_jobdedup.stores.words import storable

logger = logging.getLogger("django_jobdedup")

#: Intents that are decided and confirmed together.
BATCH: Final = 100

#: How long a caller waits after his commit for what its transaction has called, seconds: when it is over, no
#: further batch is begun, and the relay does the rest.
PATIENCE: Final = 2.0

What = Literal["published", "settled", "broker down", "store down", "failed", "left"]


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of one intent.

    ``published``: its message is out. ``settled``: it needs none, refused or ended before. ``broker down``
    and ``store down``: not its fault, try again later. ``failed``: its own error, with ``reason``. ``left``:
    its caller has waited long enough, so the relay will do it.
    ``outcome`` is the decision on its call, None where none fell here; ``by`` the token of the holder
    that refused it.
    """

    intent: Intent
    what: What
    reason: str = ""
    outcome: Outcome | None = None
    by: str = ""


@dataclass(frozen=True, slots=True)
class Going:
    """An intent on its way to the broker.

    ``by`` is the token of the waiting job that has taken the call in: then it is that job's message, and
    its seat.
    """

    item: Restored
    verdict: Verdict
    by: str

    @property
    def rows(self) -> list[tuple[Ref, str]]:
        """Return what is somebody else's affair if the message cannot go: its intent, and its seat."""
        intent = self.item.intent
        return [*dict.fromkeys([(intent.ref, intent.id), *self.seats])]

    @property
    def seats(self) -> list[tuple[Ref, str]]:
        """Return the seat that the message is for, if it has one: the record and the token."""
        seat = self.verdict.seat
        return [] if seat is None else [(Ref(seat.shard, seat.fingerprint), seat.id)]


def send(
    store: DurableStore, intents: Sequence[Intent], *, app: Any = None, inline: bool = False
) -> list[Sent]:
    """Decide and publish intents in order, and tell the store; one answer an intent, in order.

    ``inline``: a caller waits after his commit. So what a relay has taken by then is the relay's, a broker
    that has just failed is not asked, and after ``PATIENCE`` the rest is left.
    Raises a soft time limit, nothing else: what is left is the relay's. Killed between the publish and the
    note of it, the next one publishes the same id again, and the claim makes it one run.
    """
    app = app_or_default(app)
    sent: list[Sent] = []
    until = time.monotonic() + PATIENCE
    with _orphaned(keep=inline):
        for start in range(0, len(intents), BATCH):
            some = intents[start : start + BATCH]
            if inline and start and time.monotonic() > until:
                sent += [Sent(intent, "left") for intent in some]
            else:
                sent += _send_inline(app, store, some) if inline else _send(app, store, some, inline)
    return sent


def _send_inline(app: Any, store: DurableStore, intents: Sequence[Intent]) -> list[Sent]:
    """Send those that are still nobody's: a long transaction may have made a relay faster."""
    taken = _tell(partial(store.take, [(intent.ref, intent.id) for intent in intents]))
    if isinstance(taken, Unavailable):
        return [Sent(intent, "store down", taken.error) for intent in intents]
    own = [intent for intent, mine in zip(intents, taken, strict=True) if mine]
    sent = iter(_send(app, store, own, inline=True))
    return [
        next(sent) if mine else Sent(intent, "settled") for intent, mine in zip(intents, taken, strict=True)
    ]


@contextmanager
def _orphaned(*, keep: bool) -> Iterator[None]:
    """Let Celery not take the task that relays for the parent of what it sends."""
    stack_of_tasks: Any = _state._task_stack  # type: ignore[attr-defined]
    held = [] if keep else list(stack_of_tasks.stack or ())
    for _ in held:
        stack_of_tasks.pop()
    try:
        yield
    finally:
        for task in held:
            stack_of_tasks.push(task)


def _send(app: Any, store: DurableStore, intents: Sequence[Intent], inline: bool) -> list[Sent]:
    sent: dict[str, Sent] = {}
    news: dict[str, Dispatch] = {}
    readable: list[Restored] = []
    for intent in intents:
        try:
            readable.append(restore(app, store.alias, intent))
        except Exception as error:
            let_pass(error)
            sent[intent.id] = Sent(intent, "failed", _words(error))
    going: list[Going] = []
    refused: list[tuple[Restored, Decided]] = []
    for item, answer in zip(readable, _decided(store, readable), strict=True):
        if isinstance(answer, Unavailable):
            sent[item.intent.id] = Sent(item.intent, "store down", answer.error)
        elif answer.verdict is None:
            sent[item.intent.id] = Sent(item.intent, "settled")
        elif answer.verdict.publish:
            by = answer.by if answer.verdict.outcome is Outcome.RERUN else ""
            going.append(Going(item, answer.verdict, by))
        else:
            refused.append((item, answer))
    sent.update((each.intent.id, each) for each in _refuse(store, refused, news))
    sent.update((each.intent.id, each) for each in _publish_all(app, store, going, inline, news))
    for intent in intents:
        if intent.id in news:
            announce(news[intent.id])
    return [sent[intent.id] for intent in intents]


def _decided(store: DurableStore, items: Sequence[Restored]) -> Sequence[Decided | Unavailable]:
    try:
        return decide(store, items)
    except Exception as error:
        let_pass(error)
        signals.report("outbox.decide", error)
        return [Unavailable(_words(error))] * len(items)


def _refuse(
    store: DurableStore, refused: Sequence[tuple[Restored, Decided]], news: dict[str, Dispatch]
) -> list[Sent]:
    """Settle what needs no message of its own, together."""
    sent: list[Sent] = []
    told = None
    # A dead one has been settled with its reason.
    rows = [
        (item.intent, answer.by) for item, answer in refused if answer.verdict and not answer.verdict.dead
    ]
    if rows:
        told = _tell(partial(store.supersede, [(intent.ref, intent.id, by) for intent, by in rows]))
    for item, answer in refused:
        intent, verdict = item.intent, answer.verdict
        assert verdict is not None  # noqa: S101 - the caller has looked
        if isinstance(told, Unavailable) and not verdict.dead:
            sent.append(Sent(intent, "store down", told.error))
            continue
        news[intent.id] = Dispatch(item.call, verdict.outcome, verdict.holder_id, verdict.fingerprint)
        sent.append(Sent(intent, "settled", "", verdict.outcome, answer.by))
    return sent


def _publish_all(
    app: Any, store: DurableStore, going: Sequence[Going], inline: bool, news: dict[str, Dispatch]
) -> list[Sent]:
    done = _dispatched(app, [each.verdict.call for each in going], inline)
    found = [_judged(each, one) for each, one in zip(going, done, strict=True)]
    out = [each for each, one in zip(going, found, strict=True) if one.what == "published"]
    down = [each for each, one in zip(going, found, strict=True) if one.what == "broker down"]
    if down and store.durable:  # the reaper brings overdue intents of any store here
        _tell(partial(store.give_back, [row for each in down for row in each.rows]))
    if seats := [seat for each in out for seat in each.seats]:
        _tell(partial(store.confirm, seats))
    if joined := [(each.item.intent.ref, each.item.intent.id, each.by) for each in out if each.by]:
        _tell(partial(store.supersede, joined))
    for each in out:
        if not each.by and not each.seats:
            intent = each.item.intent
            _tell(partial(store.resolve, intent.ref, intent.id, "published"))
    for each, one in zip(going, found, strict=True):
        if one.what == "settled":
            reason = "a middleware has not published it"
            if _tell(partial(store.resolve, one.intent.ref, one.intent.id, "dead", reason=reason)) is None:
                tell(app, store, one.intent, reason)
        if not one.intent.decided:
            call, verdict = each.verdict.call, each.verdict
            news[one.intent.id] = Dispatch(call, verdict.outcome, call.id, verdict.fingerprint)
    return found


def _dispatched(app: Any, calls: Sequence[Call], inline: bool) -> list[Dispatch]:
    """Pass calls through the inner layers to the broker; one that makes a layer raise fails alone."""
    if not calls:
        return []
    publisher = Publisher(app, inline)
    try:
        return stack.dispatch_inside(calls, publisher)
    except Exception as error:
        let_pass(error)
        blame(error)  # a layer's: what the publisher raises stands in its answers
        if len(calls) == 1:
            return [Dispatch(calls[0], Outcome.UNKNOWN, calls[0].id, error=error)]
    return [_dispatched(app, [call], inline)[0] for call in calls]


class Publisher:
    """Publishes calls in order, until the broker does not answer: then the rest waits for the relay."""

    def __init__(self, app: Any, inline: bool) -> None:
        self._app = app
        breaker = breaker_of(app)
        self._down: BaseException | None = None
        if inline and breaker.refuses():
            self._down = OperationalError(f"the broker did not answer a moment ago: {breaker.error}")

    def __call__(self, calls: Sequence[Call]) -> list[Dispatch]:
        """Publish; the error of each stands in its answer."""
        return [self._publish(call) for call in calls]

    def _publish(self, call: Call) -> Dispatch:
        if self._down is not None:
            return Dispatch(call, Outcome.UNKNOWN, call.id, error=self._down)
        try:
            return Dispatch(call, Outcome.UNKNOWN, call.id, result=publish(self._app, call))
        except DOWN as error:
            self._down = error if is_down(error) else None
            return Dispatch(call, Outcome.UNKNOWN, call.id, error=error)
        except Exception as error:
            let_pass(error)
            return Dispatch(call, Outcome.UNKNOWN, call.id, error=error)


def _judged(each: Going, done: Dispatch) -> Sent:
    intent, outcome = each.item.intent, None if each.item.intent.decided else each.verdict.outcome
    if done.error is not None and is_down(done.error):
        return Sent(intent, "broker down", _words(done.error), outcome, each.by)
    if done.error is not None:
        return Sent(intent, "failed", _words(done.error), outcome, each.by)
    return Sent(intent, "published" if done.result is not None else "settled", "", outcome, each.by)


def _tell(verb: Callable[[], Any]) -> Any:
    """Write down what became of intents; what cannot be written is found again by the relay."""
    try:
        return verb()
    except Exception as error:
        let_pass(error)
        signals.report("outbox.tell", error)
        return Unavailable(_words(error))


def _words(error: BaseException) -> str:
    return storable(f"{type(error).__name__}: {error}")


def task_id(sent: Sent) -> str:
    """Return the Celery task id of the job that covers the call."""
    return task_id_of(sent.by or sent.intent.id)

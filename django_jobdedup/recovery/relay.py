"""The relay: what was committed and has not left, leaves.

A call that a durable store keeps is published by its caller after the commit. Whatever stops that (a
broker that is down, a process that is killed) leaves a row behind, and the relay does the same with it a
little later: it decides, publishes, confirms. Killed in between it publishes the same id again, and the
claim at the start of the body makes it one run.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Final, cast

from celery import current_app

from django_jobdedup import signals
from django_jobdedup.conf import conf
from django_jobdedup.dispatching import by_app, outbox
from django_jobdedup.dispatching.broker import DOWN
from django_jobdedup.dispatching.giving_up import tell
from django_jobdedup.header import task_id_of
from django_jobdedup.middleware import stack
from django_jobdedup.middleware.apps import app_of_stored
from django_jobdedup.recovery.duty import UNAVAILABLE, Stop, Tally, reachable
from django_jobdedup.stores.durable import DurableStore, Intent
from django_jobdedup.stores.results import Unavailable
from django_jobdedup.stores.words import plain

logger = logging.getLogger("django_jobdedup")

#: Intents in one step.
BATCH: Final = 100
#: How often an intent may fail by its own fault before it is parked as dead.
TRIES: Final = 5
#: Pause before an intent that failed is tried again, seconds; doubled each time.
PAUSE: Final = 5.0
#: How often a job of which nothing is heard is published again before it is parked as dead: a worker that
#: runs bodies without our claim (without this app, or without this store) would run it for ever.
COPIES: Final = 5
#: Why a job is parked that nobody has claimed.
UNHEARD: Final = (
    "published {} times, and no worker has claimed it within its TTL: is django_jobdedup installed, and the "
    "store configured, in the workers of its queue?"
)
#: Why a job that was published lapses while the mode is ``off``.
LAPSED: Final = "nothing was heard of it for its TTL, while JOBDEDUP_MODE was off"
#: How long a broker that is down is left alone, seconds: at first, and at most.
SHORTEST, LONGEST = 1.0, 8.0


class BackOff:
    """When a broker that is down may be asked again; ``clock`` is monotonic."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.over()

    def over(self) -> None:
        """Note that the broker has answered."""
        self._pause, self._until, self.failing = SHORTEST, 0.0, False

    def down(self) -> None:
        """Note that it has not: each time in a row doubles the pause."""
        self.failing = True
        self._until = self._clock() + self._pause
        self._pause = min(2 * self._pause, LONGEST)

    def __bool__(self) -> bool:
        return self._clock() < self._until


#: Of this process: its Celery app has one broker.
back_off: Final = BackOff()


def relay(stop: Stop) -> Tally:
    """Decide and publish what is due in every durable store.

    Counts what was ``published``, ``settled`` without a message, ``failed`` by its own fault and parked as
    ``dead``. Raises ImproperlyConfigured.
    """
    tally = Tally()
    _check_settings()
    for store in reachable("relay", tally):
        if store.durable:
            _drain(cast(DurableStore, store), stop, tally)
    return tally


def _check_settings() -> None:
    """Raise ImproperlyConfigured before a row is taken: wrong settings are the fault of none."""
    stack.middleware()
    _ = conf.MODE


def _drain(store: DurableStore, stop: Stop, tally: Tally) -> None:
    """Go on until nothing is due, the broker is down or it is time to stop."""
    while not stop():
        if back_off.failing and not _is_back():
            tally[UNAVAILABLE] += 1
            return
        intents = store.due(BATCH)
        if isinstance(intents, Unavailable):
            tally[UNAVAILABLE] += 1
            return
        if not intents:
            return
        sent = by_app.send(store, _without_unheard(store, _without_lapsed(store, intents, tally), tally))
        for one in sent:
            _note(store, one, tally)
        if any(one.what == "broker down" for one in sent):
            back_off.down()
        if any(one.what == "store down" for one in sent):
            tally[UNAVAILABLE] += 1
            return


def _without_lapsed(store: DurableStore, intents: list[Intent], tally: Tally) -> list[Intent]:
    """Let jobs lapse that were published before, while the mode is ``off``; return the others.

    Workers ignore locks then, so nobody says that a job has run: published again each TTL, it would run for
    ever. A message that still waits runs when its turn comes. A job that calls have joined stays for the time
    after: their arguments are nowhere else.
    """
    if conf.MODE != "off":
        return intents
    for intent in intents:
        lapsed = intent.published and not intent.joined
        if lapsed and store.resolve(intent.ref, intent.id, "lost", reason=LAPSED) is None:
            tally["settled"] += 1
    return [intent for intent in intents if not intent.published]


def _without_unheard(store: DurableStore, intents: list[Intent], tally: Tally) -> list[Intent]:
    """Park jobs that were published again and again and never claimed; return the others."""
    for intent in intents:
        if intent.copies > COPIES:
            _park(store, intent, UNHEARD.format(intent.copies), tally)
    return [intent for intent in intents if intent.copies <= COPIES]


def _is_back() -> bool:
    """Ask a broker that was down, when it is time, before any row is taken out of others' reach."""
    if back_off:
        return False
    app: Any = current_app
    try:
        with app.connection_for_write() as connection:
            connection.ensure_connection(max_retries=1, interval_start=0, interval_step=0, interval_max=0)
    except DOWN:
        back_off.down()
        return False
    back_off.over()
    return True


def _note(store: DurableStore, sent: outbox.Sent, tally: Tally) -> None:
    """Count what became of an intent; one that failed by its own fault is tried again, then parked."""
    if sent.what in ("published", "settled"):
        tally[sent.what] += 1
    elif sent.what == "failed":
        intent = sent.intent
        retry_in = PAUSE * 2**intent.attempts
        tally["failed"] += 1
        tries = _written(sent.reason, lambda reason: store.missed(intent.ref, intent.id, reason, retry_in))
        if isinstance(tries, int) and tries >= TRIES:
            _park(store, intent, sent.reason, tally)


def _park(store: DurableStore, intent: Intent, why: str, tally: Tally) -> None:
    parked = _written(why, lambda reason: store.resolve(intent.ref, intent.id, "dead", reason=reason))
    if parked is not None:
        return  # somebody has started it, or the store does not answer: it comes again
    tell(app_of_stored(intent.call), store, intent, why)
    tally["dead"] += 1
    logger.error(
        "job %s of lock %s is parked as dead: %s",
        task_id_of(intent.id),
        intent.name,
        why,
        extra={"action": "dead", "task_id": task_id_of(intent.id), "fingerprint": intent.ref.fingerprint},
    )


def _written(words: str, verb: Callable[[str], Any]) -> Any:
    """Write down why, as far as the database takes the words; one row must not stop those behind it."""
    for text in (words, plain(words)):
        try:
            return verb(text)
        except Exception as error:
            signals.report("relay.words", error)
    return Unavailable("its words cannot be written")

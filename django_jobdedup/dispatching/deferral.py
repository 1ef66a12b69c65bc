"""Deferral: calls that were written in a transaction are decided and published after its commit.

One action per transaction decides them all, in order; one per savepoint where savepoints lie between,
because each may be rolled back by itself. An exception there never reaches the request, unless it is the
soft time limit of the body that waits: the rows are safe, and the relay does what was not done.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, cast

from django_jobdedup import signals
from django_jobdedup.dispatching import outbox
from django_jobdedup.dispatching.awaited import Awaited, awaiting
from django_jobdedup.middleware.base import Dispatch
from django_jobdedup.middleware.out_of_time import let_pass
from django_jobdedup.stores.durable import DurableStore, Intent
from django_jobdedup.stores.handler import stores


@dataclass(frozen=True, slots=True)
class Waiting:
    """One call that waits for the commit: the app that publishes it, its intent, what its caller looks at."""

    app: Any
    intent: Intent
    awaited: Awaited


class Batch:
    """The calls of one transaction, or of one of its savepoints."""

    def __init__(self, store: DurableStore, mark: object) -> None:
        self.mark: object = mark
        self._store = store
        self._waiting: list[Waiting] = []

    def add(self, waiting: Waiting) -> None:
        """Decide this one too, after those before."""
        self._waiting.append(waiting)

    def decide(self) -> None:
        """Decide all, once."""
        waiting, self._waiting, self.mark = self._waiting, [], None
        try:
            for app, group in groupby(waiting, attrgetter("app")):
                some = list(group)
                done = outbox.send(self._store, [each.intent for each in some], app=app, inline=True)
                for each, sent in zip(some, done, strict=True):
                    _note(each.awaited, sent)
        except Exception as error:
            let_pass(error)
            signals.report("deferral.decide", error)


def _note(awaited: Awaited, sent: outbox.Sent) -> None:
    if sent.outcome is not None:
        awaited.decided(sent.outcome, outbox.task_id(sent) if sent.by else "")


class _Open(threading.local):
    """The batches that may still grow, by store alias; connections are a thread's own as well."""

    def __init__(self) -> None:
        self.batches: dict[str, Batch] = {}


_open: Final = _Open()


def after_commit(app: Any, done: Dispatch) -> Any:
    """Have a deferred call decided after the commit; return the result for its caller."""
    kept = done.call.kept
    assert kept is not None  # noqa: S101 - only kept calls are deferred
    store = cast(DurableStore, stores[kept.store])
    awaited = Awaited(store, kept.intent.ref, kept.intent.id, kept.plain)
    _batch(store).add(Waiting(app, kept.intent, awaited))
    return awaiting(app, done, awaited)


def _batch(store: DurableStore) -> Batch:
    mark = store.transaction()
    batch = _open.batches.get(store.alias)
    if batch is None or batch.mark is None or batch.mark != mark:
        batch = _open.batches[store.alias] = Batch(store, mark)
        store.after_commit(batch.decide)
    return batch

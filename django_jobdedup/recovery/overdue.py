"""Overdue calls: a waiting job that others have merged into, whose message did not come in time.

Its newest arguments, with the whole call, lie in the store; they are published again under the same id.
Of several messages of one id one is claimed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from django_jobdedup.dispatching import by_app
from django_jobdedup.recovery.duty import UNAVAILABLE, Tally
from django_jobdedup.stores.base import Store
from django_jobdedup.stores.durable import DurableStore, Intent
from django_jobdedup.stores.results import Overdue


def publish_overdue(store: Store, overdue: Sequence[Overdue]) -> Tally:
    """Publish these again; what fails is reported by the store again in a while.

    Counts ``overdue`` ones that went out.
    """
    tally = Tally()
    intents = [Intent(each.ref, each.id, each.n, each.name, each.args, decided=True) for each in overdue]
    # A decided intent asks its store for nothing but the confirm, which every store has.
    for sent in by_app.send(cast(DurableStore, store), intents):
        if sent.what == "published":
            tally["overdue"] += 1
        elif sent.what == "failed":
            tally["failed"] += 1
        else:
            tally[UNAVAILABLE] += 1
    return tally

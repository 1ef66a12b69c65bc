"""A duty: a piece of upkeep that anybody may do at any time, in small steps.

Many processes may do the same duty at once. Each step is one batch, and between two batches a duty asks
whether it shall stop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from django.db import DatabaseError

from django_jobdedup import signals
from django_jobdedup.stores.base import Store
from django_jobdedup.stores.database.dialect import explained
from django_jobdedup.stores.handler import stores

#: Says whether to stop: asked between two batches.
Stop = Callable[[], bool]
#: What a duty has done, in words and numbers: ``{"published": 3}``.
Tally = Counter[str]

#: The word for a store, database or broker that did not answer.
UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True)
class Duty:
    """One duty. ``work`` does all there is to do, ``every`` is the pause between two times, seconds."""

    name: str
    every: float
    work: Callable[[Stop], Tally]


def never() -> bool:
    """Do not stop."""
    return False


def reachable(where: str, tally: Tally) -> Iterator[Store]:
    """Give every store that can be made; one that cannot does not keep the others from their upkeep."""
    for alias in stores:
        try:
            store = stores[alias]
        except Exception as error:
            signals.report(where, error)
            tally[UNAVAILABLE] += 1
            continue
        yield store


@contextmanager
def answering(verb: str, store: str, alias: str, tally: Tally) -> Iterator[None]:
    """Leave what a database does not answer to the next pass, and say so; ``alias`` names the database."""
    try:
        yield
    except DatabaseError as error:
        words = explained(error, alias)
        signals.send(signals.store_unavailable, None, store=store, verb=verb, error=words)
        tally[UNAVAILABLE] += 1

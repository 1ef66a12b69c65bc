"""What a store keeps is published through the Celery app that was called, each with its own broker."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from django_jobdedup.dispatching import outbox
from django_jobdedup.middleware.apps import app_of_stored
from django_jobdedup.stores.durable import DurableStore, Intent


def send(store: DurableStore, intents: Sequence[Intent]) -> list[outbox.Sent]:
    """Decide and publish intents in order, as ``outbox.send`` does, whatever their apps are."""
    sent: list[outbox.Sent] = []
    for app, some in groupby(intents, lambda intent: app_of_stored(intent.call)):
        sent += outbox.send(store, list(some), app=app)
    return sent

"""The event: something abnormal that a verb has met."""

from __future__ import annotations

from typing import ClassVar, Self

from django.db import models

from django_jobdedup.models.fields import AsciiField


class EventQuerySet(models.QuerySet["LockEvent"]):
    """Events in the order in which they were written."""

    def before(self, instant: int) -> Self:
        """Give the events older than ``instant``, milliseconds since the epoch."""
        return self.filter(at__lt=instant)

    def of_store(self, alias: str) -> Self:
        """Give the events of a store that is no database; empty: those that a database store has written."""
        return self.filter(store=alias)


class LockEvent(models.Model):
    """One event; the field ``what`` is a word of ``stores.results.Event``. ``at`` in milliseconds.

    ``store`` and ``key`` say from which other store it was copied, and its place in the stream there: empty
    and null for one that a database store has written itself.
    """

    id = models.BigAutoField(primary_key=True)
    at = models.BigIntegerField()
    what = AsciiField(max_length=20)
    shard = models.SmallIntegerField()
    fingerprint = AsciiField(max_length=64)
    token = models.TextField()
    name = models.TextField(blank=True)
    by = models.TextField(blank=True)
    other = models.TextField(blank=True)
    store = AsciiField(max_length=100, blank=True, default="")
    key = AsciiField(max_length=50, null=True)

    objects = EventQuerySet.as_manager()

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["store", "shard", "id"], name="jobdedup_event_stream"),
            models.Index(fields=["at"], name="jobdedup_event_at"),
        ]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["store", "shard", "key"], name="jobdedup_event_once"),
        ]

    def __str__(self) -> str:
        return f"{self.what} {self.token}"

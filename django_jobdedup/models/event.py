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


class LockEvent(models.Model):
    """One event; the field ``what`` is a word of ``stores.results.Event``. ``at`` in milliseconds."""

    id = models.BigAutoField(primary_key=True)
    at = models.BigIntegerField()
    what = AsciiField(max_length=20)
    shard = models.SmallIntegerField()
    fingerprint = AsciiField(max_length=64)
    token = models.TextField()
    name = models.TextField(blank=True)
    by = models.TextField(blank=True)
    other = models.TextField(blank=True)

    objects = EventQuerySet.as_manager()

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["shard", "id"], name="jobdedup_event_stream"),
            models.Index(fields=["at"], name="jobdedup_event_at"),
        ]

    def __str__(self) -> str:
        return f"{self.what} {self.token}"

"""The presence of a worker with this app on a queue."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from django_jobdedup.models.fields import AsciiField


class WorkerPresence(models.Model):
    """One queue. ``key`` is the SHA-256 of its name; ``until`` in milliseconds since the epoch."""

    id = models.BigAutoField(primary_key=True)
    key = AsciiField(max_length=64)
    queue = models.TextField()
    until = models.BigIntegerField()

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["key"], name="jobdedup_presence_key")]

    def __str__(self) -> str:
        return self.queue

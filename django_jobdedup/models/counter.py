"""The counter: how often what has happened to a lock name, over all processes."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from django_jobdedup.models.fields import AsciiField


class Counter(models.Model):
    """One number. ``key`` is the SHA-256 of name and word, since a name may be long."""

    id = models.BigAutoField(primary_key=True)
    key = AsciiField(max_length=64)
    name = models.TextField(blank=True)
    what = AsciiField(max_length=20)
    number = models.BigIntegerField(default=0)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["key"], name="jobdedup_counter_key")]

    def __str__(self) -> str:
        return f"{self.name} {self.what} {self.number}"

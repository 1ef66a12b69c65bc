"""The intent: one row says that a job must run, who holds its lock, and what has become of it."""

from __future__ import annotations

from typing import ClassVar, Self

from django.db import models

from django_jobdedup.models.fields import AsciiField


class State(models.TextChoices):
    """What a row is, for people; see ``docs/reference/intents.md``."""

    PENDING = "pending"
    PUBLISHED = "published"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    LOST = "lost"
    DEAD = "dead"
    SUPERSEDED = "superseded"


class IntentQuerySet(models.QuerySet["JobIntent"]):
    """The rows by what they are to the protocol. Instants are milliseconds since the epoch."""

    def held(self) -> Self:
        """Give the rows with a seat: locks that somebody holds."""
        return self.filter(attention__gte=0)

    def of(self, fingerprint: str) -> Self:
        """Give every row of one lock, in order of acceptance."""
        return self.filter(fingerprint=fingerprint).order_by("id")

    def overdue(self, instant: int) -> Self:
        """Give the rows that wait for somebody to decide or publish them."""
        return self.filter(publish_at__lte=instant)

    def ended_before(self, instant: int, now: int | None = None) -> Self:
        """Give the rows that ended before ``instant`` and whose marker nobody needs at ``now``, or then."""
        marked = instant if now is None else now
        return self.filter(ended_at__lt=instant, mark_until__lt=marked, attention__isnull=True)


class JobIntent(models.Model):
    """One job under one lock: intent, holder and marker in one row.

    Instants are milliseconds since the epoch by the database's own clock, 0 where they do not apply.
    Only the store writes here: each of its steps rests on ``version`` and on the unique columns.
    """

    id = models.BigAutoField(primary_key=True)
    shard = models.SmallIntegerField()
    fingerprint = AsciiField(max_length=64)
    key = AsciiField(max_length=64, help_text="SHA-256 of the token.")
    job_key = AsciiField(max_length=64, help_text="SHA-256 of the Celery task id.")
    token = models.TextField(help_text="The Celery task id, with its life where the caller gave the id.")
    name = models.TextField(blank=True, help_text="The lock name.")
    version = models.BigIntegerField(default=0, help_text="How often the row was written.")
    state = AsciiField(max_length=10, choices=State.choices, default=State.PENDING)
    reason = models.TextField(blank=True, help_text="How it ended, or why it could not be published.")
    call = models.BinaryField(null=True, help_text="The stored call, in the task's serializer.")
    attempts = models.IntegerField(default=0, help_text="How often it could not be published.")
    created_at = models.BigIntegerField()
    ended_at = models.BigIntegerField(null=True)
    publish_at = models.BigIntegerField(null=True, help_text="When it is anybody's to decide or publish.")
    relay = AsciiField(max_length=16, default="", blank=True, help_text="Who has taken it to publish.")
    copies = models.IntegerField(default=0, help_text="How often nothing was heard of it for its TTL.")

    wait_key = AsciiField(max_length=80, null=True)
    run_key = AsciiField(max_length=80, null=True)
    attention = models.BigIntegerField(null=True, help_text="When to look at it; empty without a seat.")
    counts = AsciiField(max_length=4, default="", blank=True, help_text="States that keep the waiting key.")

    place = models.BigIntegerField(default=0, help_text="Order of acceptance under one lock.")
    seat = AsciiField(max_length=1, default="", blank=True)
    nonce = AsciiField(max_length=64, default="", blank=True)
    lease = models.BigIntegerField(default=0)
    until = models.BigIntegerField(default=0)
    due = models.BigIntegerField(default=0)
    first = models.BigIntegerField(default=0)
    since = models.BigIntegerField(default=0)
    ttl = models.BigIntegerField(default=0)
    over = models.TextField(default="", blank=True, help_text="Tokens that it supersedes, JSON.")
    args = models.BinaryField(null=True, help_text="Newest arguments of merged calls.")
    merged = models.IntegerField(default=0)
    starts = models.IntegerField(default=0)
    refused = models.IntegerField(default=0)
    fence = models.BigIntegerField(default=0)
    by = models.TextField(default="", blank=True, help_text="The process, as host:pid.")
    last = models.TextField(default="", blank=True, help_text="The last repeatable step.")
    asleep = models.TextField(default="", blank=True, help_text="Its place in the line of its lock, JSON.")

    mark_until = models.BigIntegerField(default=0)
    mark_n = models.IntegerField(default=-1)
    mark_final = models.SmallIntegerField(default=0)
    mark_by = models.TextField(default="", blank=True, help_text="The token that took its place.")
    mark_nonce = AsciiField(max_length=64, default="", blank=True)
    mark_number = models.IntegerField(null=True)

    objects = IntentQuerySet.as_manager()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["fingerprint", "key"], name="jobdedup_intent_token"),
            models.UniqueConstraint(fields=["wait_key"], name="jobdedup_intent_wait"),
            models.UniqueConstraint(fields=["run_key"], name="jobdedup_intent_run"),
        ]
        indexes: ClassVar = [
            models.Index(fields=["fingerprint", "attention"], name="jobdedup_intent_held"),
            models.Index(fields=["fingerprint", "fence"], name="jobdedup_intent_fence"),
            models.Index(fields=["shard", "attention"], name="jobdedup_intent_attention"),
            models.Index(fields=["fingerprint", "publish_at"], name="jobdedup_intent_order"),
            models.Index(fields=["publish_at"], name="jobdedup_intent_publish"),
            models.Index(fields=["ended_at"], name="jobdedup_intent_ended"),
            models.Index(fields=["job_key"], name="jobdedup_intent_job"),
        ]

    def __str__(self) -> str:
        return f"{self.name} {self.token} {self.state}"

"""A transaction longer than ``JOBDEDUP_CONFIRM_WITHIN``: a relay is faster than the sender's own action."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connections, transaction
from django.test.utils import CaptureQueriesContext

from django_jobdedup.dispatching import outbox
from django_jobdedup.stores.record import Ref
from django_jobdedup.stores.requests import Claim, Finish, Token
from django_jobdedup.stores.results import Claimed, Superseded
from tests.jobs import tasks

from .conftest import Base


def run(base: Base, task_id: str) -> Any:
    """Do what a worker does with the message of a job; what the store says to its start."""
    row = next(row for row in base.rows() if row.token == task_id)
    ref = Ref(row.shard, row.fingerprint)
    answer = base.store.claim(Claim(ref, row.token, 0, "nonce" + task_id, name=row.name))
    if isinstance(answer, Claimed):
        base.store.finish(
            Finish(Token(ref, row.token, "nonce" + task_id), 0, name=row.name, reason="success")
        )
    return answer


def faster(base: Base, action: Callable[[], object]) -> None:
    """Let ``action`` come after the commit, before the sender's own action."""
    transaction.on_commit(action, using=base.using)


@pytest.mark.usefixtures("soon")
def test_a_call_that_a_relay_has_refused_is_not_decided_again(base: Base) -> None:
    """Its holder has ended meanwhile: it would be published, not run, and block its key."""
    first = tasks.until_executed.delay("a")
    with base.atomic():
        faster(base, lambda: (base.relay(), run(base, first.id)))
        second = tasks.until_executed.delay("a")
    assert base.states() == ["done", "superseded"]
    assert (second.outcome, second.duplicate) == ("suppressed", True)
    assert base.sent() == [first.id]
    assert run(base, second.id) == Superseded(first.id)
    assert tasks.until_executed.delay("a").outcome == "accepted"


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("unique", [None, False], ids=["locked", "bypassed"])
def test_a_call_that_a_relay_has_published_is_not_published_again(base: Base, unique: Any) -> None:
    options = {} if unique is None else {"unique": unique}
    with base.atomic():
        faster(base, base.relay)
        result = tasks.until_executed.apply_async(("a",), **options)
    assert base.sent() == [result.id]
    assert base.states() == ["published"]
    assert result.outcome == ("accepted" if unique is None else "bypassed")


@pytest.mark.usefixtures("soon")
def test_a_call_that_a_relay_has_parked_stays_parked(base: Base) -> None:
    def park() -> None:
        (intent,) = base.due()
        base.store.resolve(intent.ref, intent.id, "dead", reason="broken")

    with base.atomic():
        faster(base, park)
        tasks.until_executed.delay("a")
    assert (base.sent(), base.states()) == ([], ["dead"])


def test_many_calls_of_few_keys_are_decided_in_few_statements(base: Base) -> None:
    with base.atomic():
        results = [tasks.until_executed.delay(f"key-{n % 5}") for n in range(100)]
        asked = CaptureQueriesContext(connections[base.using])
        faster(base, asked.__enter__)
    asked.__exit__(None, None, None)
    assert [result.outcome for result in results] == ["accepted"] * 5 + ["suppressed"] * 95
    assert base.sent() == [result.id for result in results[:5]]
    assert len(asked) <= 30, [each["sql"][:80] for each in asked]


@pytest.mark.usefixtures("soon")
def test_a_caller_waits_for_a_while_and_a_relay_does_the_rest(
    base: Base, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "PATIENCE", 0.0)
    monkeypatch.setattr(outbox, "BATCH", 2)
    with base.atomic():
        results = [tasks.until_executed.delay(f"key-{n % 3}") for n in range(5)]
    assert base.sent() == [result.id for result in results[:2]]
    assert base.states() == ["published", "published", "pending", "pending", "pending"]
    assert results[4].outcome == "deferred"
    base.relay(3)
    assert base.sent() == [result.id for result in results[:3]]
    assert [result.outcome for result in results] == ["accepted"] * 3 + ["suppressed"] * 2

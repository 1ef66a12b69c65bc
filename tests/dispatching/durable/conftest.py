"""A store that keeps calls, on each engine in turn, in a world of its own for each test."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from django.db import connections, transaction

from django_jobdedup.call import Execution, Running, running
from django_jobdedup.dispatching import outbox
from django_jobdedup.header import HEADER, Header
from django_jobdedup.models import JobIntent
from django_jobdedup.stores.durable import DurableStore, Intent
from django_jobdedup.stores.handler import stores
from tests.dispatching.looking import messages
from tests.rig.engines import Engine
from tests.rig.environment import Environment
from tests.rig.waiting import wait_for


class Base:
    """One database with a store in it, and what can be seen from outside."""

    def __init__(self, engine: Engine, world: Environment, client: redis.Redis) -> None:
        self.engine, self.world, self._client = engine, world, client
        self.using = engine.alias

    @property
    def store(self) -> DurableStore:
        """Give the store."""
        store = stores["default"]
        assert isinstance(store, DurableStore)
        return store

    def atomic(self, **options: Any) -> Any:
        """Open a transaction, or a savepoint."""
        return transaction.atomic(using=self.using, **options)

    @contextlib.contextmanager
    def failing(self) -> Iterator[None]:
        """Open a transaction, or a savepoint, that fails at its end."""
        with contextlib.suppress(LookupError), self.atomic():
            yield
            raise LookupError("the payment failed")

    @contextlib.contextmanager
    def interrupted(self) -> Iterator[None]:
        """Open a transaction with an action that fails after the commit, before all that come later."""

        def fail() -> None:
            raise LookupError("the mail server is down")

        with contextlib.suppress(LookupError), self.atomic():
            transaction.on_commit(fail, using=self.using)
            yield

    def rows(self) -> list[JobIntent]:
        """Give every row, in order of acceptance."""
        return list(JobIntent.objects.using(self.using).order_by("id"))

    def states(self) -> list[str]:
        """Give the states of all rows."""
        return [row.state for row in self.rows()]

    def sent(self, queue: str = "celery") -> list[str]:
        """Give the task ids of the messages that wait in a queue, oldest first."""
        return [message["headers"]["id"] for message in self.messages(queue)]

    def messages(self, queue: str = "celery") -> list[dict[str, Any]]:
        """Give the messages that wait in a queue, oldest first."""
        return messages(self._client, self.world.namespace, queue)

    def message(self, task_id: str, queue: str = "celery") -> dict[str, Any]:
        """Give the message of a job."""
        return next(message for message in self.messages(queue) if message["headers"]["id"] == task_id)

    def actions(self) -> int:
        """Give the number of actions that wait for the commit."""
        return len(connections[self.using].run_on_commit)

    def elsewhere(self, **settings: Any) -> Environment:
        """Give the world of another process with this database as its only one."""
        return self.world.having(settings={**self.engine.settings_as_default, **settings})

    @contextlib.contextmanager
    def body(self, task: Any, key: str, **facts: Any) -> Iterator[Running]:
        """Call a task and be in the body of its job, as far as our own code can tell; ``facts`` of it."""
        result = task.delay(key)
        header = Header.decode(self.message(result.id)["headers"][HEADER])
        assert header is not None
        body = Running(Execution(task.name, result.id, header, "nonce", task_object=task, **facts))
        mark = running.set(body)
        try:
            yield body
        finally:
            running.reset(mark)

    def relay(self, number: int = 1) -> list[outbox.Sent]:
        """Do what the relay does, once that many intents are due."""
        return outbox.send(self.store, self.due(number))

    def due(self, number: int = 1) -> list[Intent]:
        """Wait until that many intents are due, and take them as the relay does."""
        found: list[Intent] = []

        def take() -> bool:
            taken = self.store.due()
            assert isinstance(taken, list)
            found.extend(taken)
            return len(found) >= number

        wait_for(take, 10, what=lambda: f"{number} intents, there are: {found}, {self.states()}")
        return found


@pytest.fixture
def base(engine: Engine, celery_env: Environment, settings: Any, redis_client: redis.Redis) -> Base:
    """A database with a store in it."""
    settings.JOBDEDUP_STORES = engine.stores
    return Base(engine, celery_env, redis_client)


@pytest.fixture
def soon(settings: Any) -> None:
    """Let the relay have what was not published after a blink."""
    settings.JOBDEDUP_CONFIRM_WITHIN = 0.2

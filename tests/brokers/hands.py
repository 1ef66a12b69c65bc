"""Move messages as workers do, with kombu's own channel; and watch a reading from the inside."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

import redis
from celery import Celery
from kombu.transport.redis import Channel

from django_jobdedup.brokers.redis.broker import RedisBroker
from django_jobdedup.brokers.redis.layout import Layout

QUEUE = "celery"


class Hands:
    """A consumer's channel. What it holds at the end stays unacked."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._connection = app.connection_for_write()

    def __enter__(self) -> Self:
        self.channel: Channel = self._connection.channel()
        self.prefix = self.channel.global_keyprefix
        self.client = redis.Redis(connection_pool=self.channel.pool)
        return self

    def __exit__(self, *exc: object) -> None:
        self.channel.qos._delivered.clear()  # else closing puts them back
        self._connection.release()

    def key(self, queue: str = QUEUE, step: int = 0) -> str:
        """Give the full key of a list."""
        return f"{self.prefix}{self.channel._q_for_pri(queue, step)}"

    def send(self, name: str = "tests.brokers.job", *args: Any, queue: str = QUEUE, **options: Any) -> str:
        """Publish a message that no policy touches, and give its id."""
        id = options.pop("task_id", None) or str(uuid.uuid4())
        made = self._app.amqp.create_task_message(
            id, name, args=args, kwargs={}, eta=options.pop("eta", None)
        )
        with self._app.amqp.Producer(self._connection, auto_declare=False) as producer:
            self._app.amqp.send_task_message(producer, name, made, queue=queue, **options)
        return id

    def take(self, queue: str = QUEUE) -> Any:
        """Take the next message of a queue: RPOP, then HSET of ``unacked``."""
        return self.channel.basic_get(queue)

    def take_until(self, id: str, queue: str = QUEUE) -> Any:
        """Take messages until one has this id."""
        while (message := self.take(queue)) is not None:
            if message.headers["id"] == id:
                return message
        return None

    def requeue(self, message: Any) -> None:
        """Put a message back at the head, as ``Reject(requeue=True)`` does."""
        self.channel.basic_reject(message.delivery_tag, requeue=True)

    def restore(self, message: Any) -> None:
        """Put a message back at the tail, as a shutdown and the visibility timeout do."""
        self.channel.qos.restore_by_tag(message.delivery_tag)

    def republish(self, message: Any, **options: Any) -> None:
        """Publish the same id and ack this delivery, as a retry and a put-off do."""
        self.send(task_id=message.headers["id"], **options)
        self.channel.basic_ack(message.delivery_tag)


class Watched:
    """A Redis client that calls back before every command with the number of commands so far."""

    def __init__(self, client: redis.Redis, before: Callable[[int], None]) -> None:
        self._client = client
        self._before = before
        self.commands = 0

    def step(self) -> None:
        """Count one and call back."""
        self._before(self.commands)
        self.commands += 1

    def pipeline(self, transaction: bool) -> Any:
        """Give a pipeline whose execution is one command."""
        pipeline = self._client.pipeline(transaction=transaction)
        execute = pipeline.execute

        def stepping() -> Any:
            self.step()
            return execute()

        pipeline.execute = stepping  # type: ignore[method-assign]
        return pipeline

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)

        def call(*args: Any, **options: Any) -> Any:
            self.step()
            return method(*args, **options)

        return call


class WatchedBroker(RedisBroker):
    """A Redis broker whose reading can be interrupted between any two commands."""

    def __init__(self, app: Celery, before: Callable[[int], None] = lambda step: None) -> None:
        super().__init__(app)
        self._before = before
        self.commands = 0

    @contextmanager
    def _layout(self) -> Iterator[Layout]:
        with super()._layout() as layout:
            layout.client = watched = Watched(layout.client, self._before)
            try:
                yield layout
            finally:
                self.commands = watched.commands

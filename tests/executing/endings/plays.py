"""How an ending is brought about where a call alone does not do it."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import redis
from celery.result import AsyncResult

from testproject.celery import app
from tests.rig.environment import Environment
from tests.rig.forking import Forked
from tests.rig.journal import Run
from tests.rig.worker import Worker

from . import jobs
from .waits import Story, pause, until

ETA = 2.0
"""Seconds until a job that expires before is due."""
A_MOMENT = 0.4
"""Seconds from the start of a body until it is struck."""


@dataclass(frozen=True, slots=True)
class Scene:
    """Where one ending is played: a worker, its queue, and what can be seen of the runs of a key."""

    environment: Environment
    pool: str
    worker: Worker | Forked
    queue: str
    seconds: float
    runs: Callable[[str], list[Run]]

    def take(self, queue: str) -> None:
        """Have the worker take messages from one more queue."""
        app.control.add_consumer(queue, destination=[self.worker.name])

    def start(self, key: str) -> Story[None]:
        """Wait until a body runs, and a moment longer: the worker's main process knows of it by then."""
        yield from until(lambda: self.runs(key), 60, f"a start of {key}")
        yield from pause(A_MOMENT)


Play = Callable[[Scene, Any, str], Story[AsyncResult]]
"""Brings about one ending of a job of this task with this key."""


def call(how: str = "succeed", seconds: float | None = None, **options: Any) -> Play:
    """A call does it; without *seconds* its body runs as long as the scene says."""

    def play(scene: Scene, task: Any, key: str) -> Story[AsyncResult]:
        yield
        lasts = scene.seconds if seconds is None else seconds
        return task.apply_async((key, how, lasts), queue=scene.queue, **options)

    return play


def revoked_waiting(scene: Scene, task: Any, key: str) -> Story[AsyncResult]:
    """Revoked while its message waits in the queue."""
    yield
    result = task.apply_async((key,), queue=key)
    app.control.revoke(result.id, destination=[scene.worker.name])
    scene.take(key)
    return result


def revoked_unheard(scene: Scene, task: Any, key: str) -> Story[AsyncResult]:
    """Revoked while no worker is there to hear it; one comes later."""
    yield
    result = task.apply_async((key,), queue=key)
    app.control.revoke(result.id, destination=["nobody@localhost"])
    assert task.apply_async((key,), queue=key).id == result.id
    scene.take(key)
    return result


def revoked_before_eta(scene: Scene, task: Any, key: str) -> Story[AsyncResult]:
    """Revoked while a worker holds it until its eta."""
    result = task.apply_async((key,), queue=scene.queue, countdown=3 * jobs.LEASE)
    yield from until(lambda: result.id in scene.worker.log, 60, "the reception")
    app.control.revoke(result.id, destination=[scene.worker.name])
    return result


def revoked_running(how: str = "succeed", **options: Any) -> Play:
    """Revoked while its body runs."""

    def play(scene: Scene, task: Any, key: str) -> Story[AsyncResult]:
        result = task.apply_async((key, how, scene.seconds), queue=scene.queue)
        yield from scene.start(key)
        app.control.revoke(result.id, destination=[scene.worker.name], **options)
        return result

    return play


def expired_waiting(scene: Scene, task: Any, key: str) -> Story[AsyncResult]:
    """Expired while its message waits in the queue."""
    result = task.apply_async((key,), queue=key, expires=0.2)
    yield from pause(0.3)
    scene.take(key)
    return result


def expired_before_eta(scene: Scene, task: Any, key: str) -> Story[AsyncResult]:
    """Expired while a worker holds it until its eta."""
    yield
    return task.apply_async((key,), queue=scene.queue, countdown=ETA, expires=ETA / 2)


def unknown(scene: Scene, task: Any, key: str) -> Story[AsyncResult]:
    """A task whose policy only the sender knows."""
    yield
    return unknown_again(scene, key)


def unknown_again(scene: Scene, key: str) -> AsyncResult:
    """The same call once more."""
    return app.send_task(jobs.NOWHERE, kwargs={"key": key}, queue=scene.queue)


def unaccepted(scene: Scene, task: Any, key: str) -> Story[AsyncResult]:
    """A content type that the worker does not accept."""
    yield
    return task.apply_async((key,), queue=scene.queue, serializer="yaml")


def undecodable(scene: Scene, task: Any, key: str) -> Story[AsyncResult]:
    """A message whose body cannot be read any more, with its headers intact."""
    yield
    result = task.apply_async((key,), queue=key)
    name = f"{scene.environment.namespace}:{key}"
    with redis.Redis.from_url(scene.environment.redis_url) as client:
        envelope = json.loads(client.rpop(name))
        client.lpush(name, json.dumps({**envelope, "body": base64.b64encode(b"{broken").decode()}))
    scene.take(key)
    return result

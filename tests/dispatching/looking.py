"""Look at what a dispatch left behind: messages in the broker, holders in the store."""

from __future__ import annotations

import base64
import json
from typing import Any

import redis

from django_jobdedup.conf import conf
from django_jobdedup.dispatching.confirm import confirmer
from django_jobdedup.fingerprint.digest import shard_of
from django_jobdedup.stores.handler import stores
from django_jobdedup.stores.record import Holder, Record, Ref
from tests.rig.monitor import Command, Monitor


def messages(client: redis.Redis, namespace: str, queue: str = "celery") -> list[dict[str, Any]]:
    """Give the raw messages of a queue, oldest first; ``arguments`` is the body's first part, read."""
    found = [json.loads(raw) for raw in client.lrange(f"{namespace}:{queue}", 0, -1)]
    for message in found:
        message["arguments"], message["named"], message["embed"] = json.loads(
            base64.b64decode(message["body"])
        )
    return found[::-1]


def ids(client: redis.Redis, namespace: str, queue: str = "celery") -> list[str]:
    """Give the task ids in a queue, oldest first."""
    return [message["headers"]["id"] for message in messages(client, namespace, queue)]


def holders(result: Any, task: str) -> tuple[Holder, ...]:
    """Give the holders of the lock behind a result, once all that was published is confirmed."""
    return holders_of(result.fingerprint, task)


def holders_of(fingerprint: str, lock_name: str) -> tuple[Holder, ...]:
    """Give the holders of a fingerprint."""
    confirmer.flush()
    found = stores["default"].inspect(Ref(shard_of(lock_name, conf.SHARDS), fingerprint))
    assert found is None or isinstance(found, Record), found
    return found.holders if found is not None else ()


def state(result: Any, task: str) -> list[tuple[str, str]]:
    """Give (id, state) of each holder of the lock behind a result."""
    return [(holder.id, holder.state) for holder in holders(result, task)]


def locks(client: redis.Redis, namespace: str) -> list[str]:
    """Give the names of all lock records in a world."""
    return list(client.scan_iter(match=f"{{{namespace}:*:lock:*", count=1000))


def store_calls(monitor: Monitor, namespace: str) -> list[Command]:
    """Give the round trips of the last phase that went to the lock store."""
    found = monitor.touching(namespace)
    return [command for command in found if any(f"{{{namespace}:" in word for word in command.words)]

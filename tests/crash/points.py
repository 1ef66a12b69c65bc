"""The points at which a process can be killed: wrappers around the product's, Celery's and kombu's steps.

Three for each step: "before", "unread" (the server has done it, its reply has not been read), "after".
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterable
from typing import Any

from celery.signals import worker_init
from kombu.transport.redis import Channel, QoS
from redis.connection import AbstractConnection

from django_jobdedup.executing import worker
from django_jobdedup.header import task_id_of
from django_jobdedup.middleware import refusing, releasing, starting
from django_jobdedup.stores.database.store import DatabaseStore
from django_jobdedup.stores.redis.store import RedisStore
from tests.crash.strikes import aims_at, here, pass_by

Ids = Callable[..., Iterable[str]]
COMMANDS = (b"EVALSHA", b"LPUSH")
"""What takes a step of the protocol over to the server."""


class Unread(threading.local):
    """The job whose next reply, in this thread, is not read any more."""

    id = ""
    point = ""
    sent = False


_unread = Unread()


def plant() -> None:
    """Wrap every step; run once a process."""
    for store in (RedisStore, DatabaseStore):
        _wrap(store, "acquire", "acquire", lambda _, request: [request.id])
        _wrap(store, "acquire_many", "acquire", lambda _, requests: [r.id for r in requests])
        _wrap(store, "confirm", "confirm", lambda _, seats: [id for _, id in seats])
        _wrap(store, "withdraw", "withdraw", lambda _, request: [request.id])
        _wrap(store, "claim", "claim", lambda _, request: [request.id])
        _wrap(store, "finish", "finish", lambda _, request: [request.token.id])
    _wrap(refusing, "bury", "dead row", lambda call, *_: [call.id])
    _wrap(starting, "bury_execution", "dead row", lambda execution, *_: [execution.id])
    _wrap(starting, "hold", "hold", lambda _, request, *__: [request.id])
    _wrap(releasing, "wake", "wake", lambda waiter: [task_id_of(waiter.id)])
    _wrap(Channel, "_put", "publish", _published)
    _wrap(QoS, "ack", "ack", _acked)
    _wrap(worker, "receive", "reception", lambda request: [request.id])
    _wrap_replies()
    worker_init.connect(_this_is_main, weak=False)


def _published(_: Any, queue: str, message: dict[str, Any], **__: Any) -> list[str]:
    id = (message.get("headers") or {}).get("id")
    return [id] if id else []


def _acked(channel: QoS, tag: str) -> list[str]:
    """Where kombu tells Redis: Celery's own acknowledge() only puts it off to the next turn of the loop."""
    message = channel._delivered.get(tag)
    id = message.headers.get("id") if message is not None else None
    return [id] if id else []


def _wrap(owner: Any, name: str, step: str, ids_of: Ids) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        ids = list(ids_of(*args, **kwargs))
        for id in ids:
            pass_by(f"before {step}", id)
        for id in ids:
            if aims_at(f"{step} unread", id):
                _unread.id, _unread.point = id, f"{step} unread"
        answer = original(*args, **kwargs)
        for id in ids:
            pass_by(f"after {step}", id)
        return answer

    setattr(owner, name, wrapper)


def _wrap_replies() -> None:
    """Below every client: a connection is told the command, then asked for the reply."""
    send, read = AbstractConnection.send_packed_command, AbstractConnection.read_response

    @functools.wraps(send)
    def send_packed_command(self: Any, command: Any, *args: Any, **options: Any) -> Any:
        text = command if isinstance(command, bytes) else b"".join(command)
        answer = send(self, command, *args, **options)
        # Afterwards: a new connection greets within, with other words.
        _unread.sent = any(word in text for word in COMMANDS)
        return answer

    @functools.wraps(read)
    def read_response(self: Any, *args: Any, **options: Any) -> Any:
        if _unread.id and _unread.sent:
            id, _unread.id = _unread.id, ""
            assert self.can_read(timeout=5), "no reply came"
            pass_by(_unread.point, id)
        return read(self, *args, **options)

    AbstractConnection.send_packed_command = send_packed_command  # type: ignore[method-assign]
    AbstractConnection.read_response = read_response  # type: ignore[method-assign]


def _this_is_main(**_: Any) -> None:
    here.main = os.getpid()

"""Relays that are killed at a point; orders for ``tests.rig.zygote``."""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Callable
from typing import Any, Final

from kombu.transport.redis import Channel

from tests.rig.zygote import Orders, status_of

POINTS: Final = (
    "after due",
    "before acquire",
    "after acquire",
    "before publish",
    "after publish",
    "before confirm",
    "after confirm",
)
"""Before and after each step that anybody else can see: the stamp, the seat, the message, the confirm."""


def relay_once(point: str) -> int:
    """Fork a relay that dies when it comes by a point for the first time (empty: it lives); give its end."""
    return status_of(functools.partial(_relay, point))


def _relay(point: str) -> None:
    from django_jobdedup.recovery.duty import never
    from django_jobdedup.recovery.relay import relay
    from django_jobdedup.stores.database.store import DatabaseStore

    _plant(DatabaseStore, "due", "due", point)
    _plant(DatabaseStore, "acquire_many", "acquire", point)
    _plant(DatabaseStore, "acquire", "acquire", point)
    _plant(DatabaseStore, "confirm", "confirm", point)
    _plant(Channel, "_put", "publish", point)
    relay(never)


def _plant(owner: Any, name: str, step: str, point: str) -> None:
    original: Callable[..., Any] = getattr(owner, name)

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        _strike(f"before {step}", point)
        answer = original(*args, **kwargs)
        _strike(f"after {step}", point)
        return answer

    setattr(owner, name, wrapper)


def _strike(here: str, point: str) -> None:
    if here == point:
        os.kill(os.getpid(), signal.SIGKILL)


ORDERS: Final[Orders] = {"relay": relay_once}

"""Callers and the maintenance of the soak; orders for ``tests.rig.zygote``."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Final

from tests.rig.zygote import Orders, fork, write_to
from tests.soak import caller


def start(do: Callable[[list[str]], None], words: list[str], log: str) -> int:
    """Fork a process that does it; give its pid."""

    def child() -> None:
        os.setsid()
        write_to(log)
        do(words)

    return fork(child)


def call(words: list[str]) -> None:
    """Be one of those that call."""
    from django_jobdedup.dispatching.confirm import confirmer

    sys.argv = ["caller", *words]
    caller.main()
    confirmer.flush()  # a forked process leaves without the usual ceremony


def maintain(words: list[str]) -> None:
    """Be the maintenance."""
    from django.core.management import call_command

    call_command("jobdedup", "maintain", "--loop", *words)


ORDERS: Final[Orders] = {"call": partial(start, call), "maintain": partial(start, maintain)}

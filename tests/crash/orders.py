"""Senders that are killed on their way, and the maintenance; orders for ``tests.rig.zygote``."""

from __future__ import annotations

import time
from typing import Any, Final

from testproject.celery import app
from tests.rig.zygote import Orders, fork

SURVIVES: Final = 3.0
"""Seconds after which a sender that was not killed gives up."""
PACE: Final = 0.5
"""Seconds between two rounds of the maintenance."""


def send(task: str, args: list[Any], options: dict[str, Any], plan: dict[str, Any]) -> int:
    """Fork a sender that dispatches; give its pid."""
    from tests.crash.strikes import Plan, for_sender

    def child() -> None:
        for_sender(Plan(**plan))
        app.tasks[task].apply_async(args, **options)
        time.sleep(SURVIVES)  # the confirm goes out in the background
        print(f"a sender came past {plan['point']!r}")

    return fork(child)


def maintain(unattended: list[str]) -> int:
    """Fork a process that relays and reaps, past some stores; give its pid."""

    def child() -> None:
        from django.conf import settings
        from django.test import override_settings

        from django_jobdedup.recovery.duty import never
        from django_jobdedup.recovery.reaper import reap
        from django_jobdedup.recovery.relay import relay
        from django_jobdedup.stores.handler import stores

        known = settings.JOBDEDUP_STORES
        attended = {alias: known[alias] for alias in known if alias not in unattended}
        override_settings(JOBDEDUP_STORES=attended).enable()
        assert list(stores) == list(attended)
        while True:
            relay(never)
            reap(never)
            time.sleep(PACE)

    return fork(child)


ORDERS: Final[Orders] = {"send": send, "maintain": maintain}

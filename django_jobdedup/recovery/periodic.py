"""The periodic task: maintenance in whichever worker is free."""

from __future__ import annotations

import time
from typing import Any, Final

from celery import shared_task

#: Name of the task; names that begin like it pass the hook.
NAME: Final = "django_jobdedup.maintain"
#: How often it is meant to be sent, seconds.
EVERY: Final = 15.0
#: How old a message may be when a worker takes it, seconds: none pile up while no worker is there, and
#: clocks that differ by less do not keep it from being done.
EXPIRES: Final = 60.0
#: How long one run may take before it leaves the rest to the next, seconds: it shall not keep a slot.
BUDGET: Final = 10.0


@shared_task(name=NAME, ignore_result=True, expires=EXPIRES, acks_late=False)
def maintain() -> list[dict[str, Any]]:
    """Do what is due, each duty at its own pace in this process."""
    from django_jobdedup.recovery.maintain import maintenance

    until = time.monotonic() + BUDGET
    return [done.as_json() for done in maintenance.run(lambda: time.monotonic() > until)]

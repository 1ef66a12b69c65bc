"""Faults in a worker's broker line, as the message itself asks for them; workers import this module.

A message with the header ``fault: n`` fails its next *n* publishes in a worker that was started with
``TEST_FAULTS`` in its environment, as if the broker were away.
"""

from __future__ import annotations

import functools
import os
from typing import Any

from django.conf import settings
from kombu import Producer
from kombu.exceptions import OperationalError

from django_jobdedup.executing import putting_off
from tests.rig.journal import writer

MODULE = __name__
HEADER = "fault"

_publish = Producer.publish


@functools.wraps(_publish)
def publish(self: Producer, body: Any, *args: Any, **options: Any) -> Any:
    """Publish, or fail."""
    headers = options.get("headers") or {}
    number = int(headers.get(HEADER) or 0)
    if number:
        counter = f"{settings.TEST_NAMESPACE}:faults:{headers['id']}"
        if writer(settings.JOURNAL_URL, os.getpid()).incr(counter) <= number:
            raise OperationalError("the broker is away")
    return _publish(self, body, *args, **options)


if os.environ.get("TEST_FAULTS"):
    Producer.publish = publish
    putting_off.PAUSES = (0.1, 0.2)  # instead of a quarter of a minute

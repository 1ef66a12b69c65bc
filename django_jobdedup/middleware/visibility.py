"""How soon a broker copies a message that was not acked, and so how long one may sleep."""

from __future__ import annotations

import time
from typing import Any, Final

from django_jobdedup.exceptions import PolicyError
from django_jobdedup.header import MOST
from django_jobdedup.policies.unique import Unique
from django_jobdedup.strategies.wait import Wait

#: Visibility timeout of kombu's Redis transport unless the project sets one, seconds.
REDIS_DEFAULT: Final = 3600.0
#: Stand-in where the broker has no visibility timeout (AMQP closes channels after half an hour:
#: RabbitMQ's ``consumer_timeout``), seconds.
OTHERS: Final = 1800.0
_TIMED: Final = ("redis", "sqs", "rediss", "sentinel", "gcpubsub", "azurestoragequeues")


def visibility_timeout(app: Any) -> float:
    """Return the time after which the broker delivers an unacked message again, seconds."""
    options = app.conf.broker_transport_options or {}
    if "visibility_timeout" in options:
        return float(options["visibility_timeout"])
    url = app.conf.broker_read_url or app.conf.broker_url or ""
    scheme = str(url[0] if isinstance(url, list | tuple) and url else url).partition(":")[0]
    return REDIS_DEFAULT if scheme.partition("+")[0] in _TIMED else OTHERS


def longest_sleep(app: Any) -> float:
    """Return the longest time a put-off may sleep: beyond it the broker would multiply the message."""
    return visibility_timeout(app) / 3


def sleeps_until(after: float, hop: float) -> float:
    """Return when a sleep of ``after`` seconds ends (epoch seconds), 0 where a message sleeps it at once.

    A message that wakes after ``hop`` seconds, before that, asks the gate, and nothing else.
    """
    return min(time.time() + after, MOST - 1) if hop < after else 0.0


def check_wait(policy: Unique, app: Any, task_name: str) -> None:
    """Refuse a start that would wait for longer than the broker lets it. Raises PolicyError."""
    strategy, longest = policy.execution_strategy, longest_sleep(app)
    if isinstance(strategy, Wait) and strategy.seconds > longest:
        raise PolicyError(
            f"task {task_name!r}: Wait({strategy.seconds:g}) is above a third of the broker's "
            f"visibility timeout ({visibility_timeout(app):g} s), so the message would be delivered again "
            f'meanwhile. Write Wait({longest:g}) or less, or "reschedule", which holds no worker slot.'
        )

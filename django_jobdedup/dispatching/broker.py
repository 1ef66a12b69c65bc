"""Publish a kept call, and never wait for a broker that is down: the row is there, the relay comes later.

Celery's own publish waits for a connection for seconds, and its Redis result backend for twenty. So the
connection is tried once before, without a pause, and a broker that failed is left alone for a moment.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final
from weakref import WeakKeyDictionary

from kombu.exceptions import OperationalError

from django_jobdedup.call import Call
from django_jobdedup.stores.breaker import Breaker

logger = logging.getLogger("django_jobdedup")

#: The id that is being published: the hook, or a second copy of it further in, lets it pass.
publishing: Final[ContextVar[str]] = ContextVar("jobdedup_publishing", default="")

#: Errors of a broker that is down; every other error is the message's own, and so is one of these that
#: ``is_down`` denies.
DOWN: Final = (OperationalError, OSError)
#: What no connection raises, though kombu takes some of it for that: the message is to blame.
OWN: Final = (
    LookupError, TypeError, ValueError, AttributeError, ImportError, ArithmeticError,
    FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError, PermissionError,
)  # fmt: skip


class ResultsDown(OperationalError):  # noqa: N818 - a fact
    """The result backend does not answer."""


_breakers: WeakKeyDictionary[Any, Breaker] = WeakKeyDictionary()


def breaker_of(app: Any) -> Breaker:
    """Return the breaker of an app's broker."""
    return _breakers.setdefault(app, Breaker())


def publish(app: Any, call: Call, way: Callable[..., Any] | None = None) -> Any:
    """Publish a call under its id and return Celery's result.

    ``way`` publishes, Celery's own unless told otherwise. A lost connection is opened anew once: the same
    id is safe to send twice. Raises ``DOWN`` for a broker that cannot be reached, and what the message
    itself is to blame for.
    """
    breaker = breaker_of(app)
    try:
        try:
            result = _publish(app, call, way)
        except DOWN:
            result = _publish(app, call, way)
    except DOWN as error:
        if is_own(app, error):
            breaker.worked()
            raise
        breaker.failed(str(error))
        logger.warning(
            "the broker does not answer, so what is kept in a store waits for the relay: %s",
            error,
            extra={"action": "broker_down", "task": call.task},
        )
        raise
    except Exception:
        breaker.worked()
        raise
    breaker.worked()
    return result


def blame(error: BaseException) -> None:
    """Note that the message is to blame for an error, whatever class it has."""
    error._jobdedup_own = True  # type: ignore[attr-defined]


def is_own(app: Any, error: BaseException) -> bool:
    """Say whether a message is to blame for what looks like an error of the broker, and note it there.

    Only a broker that answers can be told from one that is down: it is asked.
    """
    own = _looks_own(error) and _answers(app)
    if own:
        blame(error)
    return own


def is_down(error: object) -> bool:
    """Say whether an error means that the broker, or the result backend, is down."""
    return isinstance(error, DOWN) and not getattr(error, "_jobdedup_own", False)


def _looks_own(error: BaseException) -> bool:
    """Whether the message may be to blame for what looks like an error of the broker.

    kombu raises OperationalError for whatever goes wrong in its publish: an unknown compression, too.
    """
    cause = error.__cause__ if isinstance(error, OperationalError) else error
    return isinstance(cause, OWN) and not isinstance(error, ResultsDown)


def _answers(app: Any) -> bool:
    """Whether a new connection to the broker can be opened."""
    try:
        with app.connection_for_write() as connection:
            connection.ensure_connection(max_retries=1, interval_start=0, interval_step=0, interval_max=0)
    except Exception:
        return False
    return True


def _publish(app: Any, call: Call, way: Callable[..., Any] | None) -> Any:
    options = {**call.options, "task_id": call.id, "retry": False}
    given = options.pop("producer", None) or options.pop("publisher", None)
    way = way or app.send_task
    with app.producer_or_acquire(given) as producer:
        reach(producer)
        mark = publishing.set(call.id)
        try:
            return way(call.task, call.args, call.kwargs, producer=producer, **options)
        except Exception as error:
            if of_results(app, error) and not _looks_own(error):
                raise ResultsDown(f"the result backend does not answer: {error}") from error
            raise
        finally:
            publishing.reset(mark)


def of_results(app: Any, error: Exception) -> bool:
    """Say whether the result backend is down: Celery subscribes to the result before it publishes."""
    causes = getattr(app.backend, "connection_errors", ())
    return isinstance(error, causes) or isinstance(error.__cause__, causes)


def reach(producer: Any) -> None:
    """Raise OperationalError at once if the broker does not answer."""
    connection = producer.connection
    if not connection.connected:
        # Each host of a failover list once.
        connection.ensure_connection(
            max_retries=max(1, len(connection.alt)), interval_start=0, interval_step=0, interval_max=0
        )
    ping = getattr(getattr(producer.channel, "client", None), "ping", None)
    if ping is None:  # AMQP learns of a lost connection from its socket
        return
    try:
        ping()
    except connection.connection_errors as error:
        raise OperationalError(str(error)) from error

"""Publishing many calls: over one connection, in one round trip where the broker's transport can.

That is kombu 5.7 with Redis (``Producer.batch``). Elsewhere every message goes out by itself: over AMQP
that is no round trip either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

from kombu import exceptions
from kombu.exceptions import OperationalError
from kombu.utils.functional import retry_over_time

from django_jobdedup.call import Call
from django_jobdedup.dispatching.broker import DOWN, breaker_of, is_own, of_results, publishing, reach
from django_jobdedup.dispatching.inline import confirm, hand_over, left_to_the_relay
from django_jobdedup.dispatching.sending import is_kept, note, publish_one
from django_jobdedup.middleware.base import Dispatch
from django_jobdedup.outcomes import Outcome

#: Messages in one round trip.
BATCH: Final = 1000
#: Options that name a connection of the call's own: such a call goes out by itself.
OWN_LINE: Final = ("producer", "publisher", "connection")
#: A batch that was perhaps delivered; kombu has it from 5.7 on.
_BATCH_FAILED: Final = getattr(exceptions, "BatchPublishError", OperationalError)
_FAILED: Final = (*DOWN, _BATCH_FAILED)
_PAUSES: Final = ("max_retries", "interval_start", "interval_step", "interval_max")


class ResultsDown(Exception):  # noqa: N818 - a fact
    """The result backend does not answer: Celery has waited for it, so nobody tries again."""


class Pipeline:
    """Publishes the calls of one ``dispatch_many`` and one app; ``way`` is Celery's own ``send_task``."""

    def __init__(self, app: Any, way: Callable[..., Any]) -> None:
        self._app, self._way = app, way

    def publish(self, calls: Sequence[Call]) -> list[Dispatch]:
        """Publish calls in order; the error of each stands in its answer."""
        done: dict[int, Dispatch] = {}
        shared: list[int] = []
        kept: list[int] = []
        for place, call in enumerate(calls):
            if any(call.options.get(name) for name in OWN_LINE):
                done[place] = publish_one(self._app, self._way, call)
            else:
                (kept if is_kept(call) else shared).append(place)
        for places, publish in ((shared, self._shared), (kept, self._kept)):
            for start in range(0, len(places), BATCH):
                some = places[start : start + BATCH]
                done.update(zip(some, publish([calls[place] for place in some]), strict=True))
        return [done[place] for place in range(len(calls))]

    def _shared(self, calls: Sequence[Call]) -> list[Dispatch]:
        """Publish a batch, again and again as Celery does with a message, then give up the batch."""
        batch = _Batch(self._app, self._way, calls)
        conf = self._app.conf
        policy = conf.task_publish_retry_policy or {}
        pauses: dict[str, Any] = {name: policy[name] for name in _PAUSES if name in policy}
        try:
            if conf.task_publish_retry:
                retry_over_time(batch.go, _FAILED, **pauses)
            else:
                batch.go()
        except (*_FAILED, ResultsDown) as error:
            batch.fail(error)
        done = batch.answers()
        note(*(each.call for each in done if each.error is None))
        return done

    def _kept(self, calls: Sequence[Call]) -> list[Dispatch]:
        """Publish calls that a row stands for: at once, or not at all."""
        batch, breaker = _Batch(self._app, self._way, calls, at_once=True), breaker_of(self._app)
        try:
            if breaker.refuses():
                raise OperationalError(f"the broker did not answer a moment ago: {breaker.error}")
            batch.go()
            breaker.worked()
        except (*_FAILED, ResultsDown) as error:
            if not breaker.refuses():
                breaker.failed(str(error))
            batch.fail(error)
        done = batch.answers()
        confirm([each.call.reserved for each in done if each.error is None and each.call.reserved])
        left = {
            place: self._left(each, each.error) for place, each in enumerate(done) if each.error is not None
        }
        hand_over([*left.values()])
        return [left.get(place, each) for place, each in enumerate(done)]

    def _left(self, done: Dispatch, error: BaseException) -> Dispatch:
        assert isinstance(error, Exception)  # noqa: S101 - others are not caught here
        return left_to_the_relay(self._app, done.call, error)


class _Batch:
    """Messages that go out together; may be tried again until all have an answer."""

    def __init__(
        self, app: Any, way: Callable[..., Any], calls: Sequence[Call], *, at_once: bool = False
    ) -> None:
        self._app, self._way, self._calls, self._at_once = app, way, calls, at_once
        self._done: dict[int, Dispatch] = {}

    def go(self) -> None:
        """Publish what has no answer yet. Raises what says that the broker does not answer."""
        with self._app.producer_or_acquire() as producer:
            if self._at_once:
                reach(producer)
            together = getattr(producer, "supports_batch_publish", False)
            done = {} if together else self._done
            with _batched(producer) if together else nullcontext():
                for place, call in enumerate(self._calls):
                    if place not in self._done:
                        done[place] = self._publish(call, producer)
            self._done.update(done)

    def _publish(self, call: Call, producer: Any) -> Dispatch:
        options = {
            **call.options,
            "task_id": call.id,
            "publisher": None,
            "producer": producer,
            "retry": False,
        }
        mark = publishing.set(call.id)
        try:
            result = self._way(self._app, call.task, call.args, call.kwargs, **options)
        except _FAILED as error:
            if not is_own(self._app, error):
                raise
            # Nothing of it has gone into the batch, so the others go out.
            return Dispatch(call, Outcome.UNKNOWN, call.id, error=error)
        except Exception as error:
            if of_results(self._app, error):
                raise ResultsDown(f"the result backend does not answer: {error}") from error
            return Dispatch(call, Outcome.UNKNOWN, call.id, error=error)
        finally:
            publishing.reset(mark)
        return Dispatch(call, Outcome.UNKNOWN, call.id, result=result)

    def fail(self, error: Exception) -> None:
        """Give what has no answer yet this error: nobody knows whether those messages went out."""
        if not isinstance(error, DOWN):
            error = OperationalError(f"{error} ({error.__cause__})" if error.__cause__ else str(error))
        for place, call in enumerate(self._calls):
            self._done.setdefault(place, Dispatch(call, Outcome.UNKNOWN, call.id, error=error))

    def answers(self) -> list[Dispatch]:
        """Return one answer a call, in order."""
        return [self._done[place] for place in range(len(self._calls))]


def _batched(producer: Any) -> AbstractContextManager[Any]:
    batch: AbstractContextManager[Any] = producer.batch(max_size=10 * BATCH)
    return batch

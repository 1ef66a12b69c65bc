"""Middleware for the tests: it stands where a broken broker, a tracer or a user's own rule would."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from kombu.exceptions import EncodeError, OperationalError

from django_jobdedup.call import Call
from django_jobdedup.conf import DEFAULT_MIDDLEWARE
from django_jobdedup.middleware.base import Dispatch, Middleware
from django_jobdedup.outcomes import Outcome

Next = Callable[[Sequence[Call]], list[Dispatch]]
HERE = "tests.dispatching.layers."


def within(*names: str) -> dict[str, Any]:
    """Give the setting that has these layers of this module inside of the locking."""
    return {"JOBDEDUP_MIDDLEWARE": [*DEFAULT_MIDDLEWARE, *(HERE + name for name in names)]}


def failed(calls: Sequence[Call], error: Exception) -> list[Dispatch]:
    """Answer that the publish of every call has failed."""
    return [Dispatch(call, Outcome.UNKNOWN, call.id, error=error) for call in calls]


class Plan(Middleware):
    """A layer that a test may tell what to do, and that counts how often it was asked."""

    asked: ClassVar[int] = 0
    #: Called once, in the middle of the next publish.
    meanwhile: ClassVar[Callable[[], object] | None] = None

    @classmethod
    def count(cls) -> int:
        """Count one publish, run what shall happen meanwhile, and give the number."""
        Plan.asked += 1
        then, Plan.meanwhile = Plan.meanwhile, None
        if then is not None:
            then()
        return Plan.asked


class FailsOnce(Plan):
    """The first publish meets a connection that breaks before anything went out."""

    def dispatch(self, calls: Sequence[Call], call_next: Next) -> list[Dispatch]:
        """Fail, then work."""
        return failed(calls, OperationalError("broken pipe")) if self.count() == 1 else call_next(calls)


class FailsAlways(Plan):
    """The broker cannot be reached."""

    def dispatch(self, calls: Sequence[Call], call_next: Next) -> list[Dispatch]:
        """Fail."""
        self.count()
        return failed(calls, OperationalError("refused"))


class PerhapsFailed(Plan):
    """The first message goes out, then the connection breaks before the broker's answer."""

    def dispatch(self, calls: Sequence[Call], call_next: Next) -> list[Dispatch]:
        """Publish and say that it failed; then work."""
        done = call_next(calls)
        return failed(calls, OperationalError("timed out")) if self.count() == 1 else done


class CannotEncode(Plan):
    """The serializer refuses an argument."""

    def dispatch(self, calls: Sequence[Call], call_next: Next) -> list[Dispatch]:
        """Fail."""
        self.count()
        return failed(calls, EncodeError("cannot encode"))


class Raises(Plan):
    """A layer of the user's that breaks."""

    def dispatch(self, calls: Sequence[Call], call_next: Next) -> list[Dispatch]:
        """Raise."""
        self.count()
        raise RuntimeError("a layer broke")


class Drops(Middleware):
    """Publish nothing."""

    def dispatch(self, calls: Sequence[Call], call_next: Next) -> list[Dispatch]:
        """Answer for every call, pass none on."""
        return [Dispatch(call, Outcome.BYPASSED, call.id) for call in calls]


class Forgets(Middleware):
    """A wrong layer: answers fewer calls than it got."""

    def dispatch(self, calls: Sequence[Call], call_next: Next) -> list[Dispatch]:
        """Pass all on and lose the answers."""
        call_next(calls)
        return []


class Replaces(Middleware):
    """Write something into the headers of every message."""

    def dispatch(self, calls: Sequence[Call], call_next: Next) -> list[Dispatch]:
        """Pass changed calls on."""
        return call_next([replace(call, options=_with(call.options, "tenant", "acme")) for call in calls])


class Adds(Middleware):
    """Publish one more call for each, with another key."""

    def dispatch(self, calls: Sequence[Call], call_next: Next) -> list[Dispatch]:
        """Pass all on and one more each; answer for the first ones."""
        more = [replace(call, id=f"{call.id}-more", args=(f"{call.args[0]}-more",)) for call in calls]
        return call_next([*calls, *more])[: len(calls)]


class Told(Middleware):
    """Note the order in which layers are passed."""

    passed: ClassVar[list[str]] = []

    def dispatch(self, calls: Sequence[Call], call_next: Next) -> list[Dispatch]:
        """Note the way in and the way out."""
        name = type(self).__name__
        Told.passed.append(f"{name} in")
        done = call_next(calls)
        Told.passed.append(f"{name} out")
        return done


class Outer(Told):
    """The first."""


class Inner(Told):
    """The last."""


class TurnsDown(Middleware):
    """Let an error of its own reach the caller."""

    def dispatch(self, calls: Sequence[Call], call_next: Next) -> list[Dispatch]:
        """Raise outward."""
        raise PermissionError("not on a Sunday")


def _with(options: Any, name: str, value: str) -> dict[str, Any]:
    return {**options, "headers": {**(options.get("headers") or {}), name: value}}


def nothing() -> None:
    """Be no middleware."""

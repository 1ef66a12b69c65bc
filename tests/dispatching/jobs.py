"""Tasks for the tests of the dispatching side, beside those of ``tests.jobs.tasks``."""

from __future__ import annotations

from typing import Any

from celery import Task, current_app, shared_task

from django_jobdedup import DuplicateDispatch
from tests.jobs.tasks import JobError, unique
from tests.rig.journal import recorded


class Based(Task):
    """A base class of the project's own, with a policy for all its tasks."""

    abstract = True
    unique = unique()

    def greeting(self) -> str:
        """Show that the class is in use."""
        return "based"


@shared_task(bind=True, base=Based)
def based(self: Any, key: str, seconds: float = 0.0) -> str:
    """Run under the policy of its base class."""
    with recorded(self.request, key) as recording:
        recording.work(seconds)
    return f"{self.greeting()} {key}"


@shared_task(bind=True, unique=unique(), ignore_result=True)
def forgetful(self: Any, key: str, seconds: float = 0.0) -> str:
    """Run without a result."""
    with recorded(self.request, key) as recording:
        recording.work(seconds)
    return key


@shared_task(bind=True)
def asking(
    self: Any, key: str, task: str, times: int = 2, options: dict[str, Any] | None = None
) -> list[list[Any]]:
    """Dispatch *task* from a body; gives ``[outcome, duplicate, id]`` or the error of each call."""
    with recorded(self.request, f"{key}-asking"):
        return [_ask(task, key, options or {}) for _ in range(times)]


def _ask(task: str, key: str, options: dict[str, Any]) -> list[Any]:
    try:
        result = current_app.tasks[task].apply_async((key,), **options)
    except DuplicateDispatch as error:
        return ["DuplicateDispatch", True, error.holder_id]
    return [str(result.outcome), result.duplicate, result.id]


@shared_task(bind=True)
def letting_through(self: Any, key: str, task: str) -> None:
    """Dispatch *task* twice under ``raise`` and let the error pass."""
    with recorded(self.request, f"{key}-parent"):
        for _ in range(2):
            current_app.tasks[task].apply_async((key,), countdown=1.0, unique={"on_conflict": "raise"})


@shared_task(bind=True, max_retries=5, unique=unique())
def traced(self: Any, key: str, countdown: float = 0.0) -> int:
    """Retry once, with a tracing library around that has put its own headers over the request's."""
    with recorded(self.request, key):
        if self.request.retries < 1:
            self.request.headers = {"traceparent": "00-1"}
            raise self.retry(countdown=countdown)
    return int(self.request.retries)


@shared_task(bind=True, unique=unique())
def giving_way(self: Any, key: str) -> None:
    """Replace itself by a job of another task, which goes on under its id."""
    with recorded(self.request, key):
        queue = self.request.delivery_info["routing_key"]
        raise self.replace(noticing.si(f"{key}-heir").set(queue=queue))


@shared_task(bind=True, unique=unique(key=None))
def spelled(self: Any, x: int | None = None, flag: bool = False, *, note: str = "") -> None:
    """Take arguments that can be written in many ways."""
    with recorded(self.request, f"spelled {x} {flag} {note}"):
        pass


@shared_task(bind=True, unique=unique(key=None))
def variadic(self: Any, *args: Any, **kwargs: Any) -> None:
    """Take any arguments."""
    with recorded(self.request, f"variadic {args} {sorted(kwargs.items())}"):
        pass


@shared_task(unique=unique(key="x"))
def keyed(y: int = 0, x: int = 7) -> None:
    """Name an argument with a default in the key."""


@shared_task(unique=unique(key=None))
def anything(value: object) -> str:
    """Take one value of any kind."""
    return repr(value)


@shared_task(unique=unique(key=[]))
def named_only(value: object = None) -> None:
    """Be one job, whatever the arguments."""


@shared_task(unique=unique())
def adding(key: str, left: int, right: int, fails: bool = False) -> int:
    """Give a value for the next step."""
    if fails:
        raise JobError(key)
    return left + right


@shared_task(bind=True, unique=unique())
def summing(self: Any, values: list[Any], key: str) -> int:
    """Take what a chord's header gave."""
    with recorded(self.request, key):
        return len(values)


@shared_task(bind=True, unique=unique())
def noticing(self: Any, key: str) -> str:
    """Run as a callback."""
    with recorded(self.request, key):
        return key

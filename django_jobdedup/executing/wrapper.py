"""The wrapper around ``task.run``: outermost, so autoretry never sees our exceptions.

Put in place in ``worker_init``: every task module is imported by then, and Celery has not yet built
its tracers. It works in every pool, and independently of the user's own hooks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Never

from celery.exceptions import Ignore, Reject

from django_jobdedup import signals
from django_jobdedup.call import Execution, Running, in_body, running
from django_jobdedup.conf import conf
from django_jobdedup.exceptions import JobDead, StoreUnavailable
from django_jobdedup.executing import in_place
from django_jobdedup.executing.broker import visibility_timeout
from django_jobdedup.executing.endings import failed, is_lost_by_ack, retries_in_place, succeeded, unseen
from django_jobdedup.executing.following import Later, follow
from django_jobdedup.executing.nonce import new_nonce
from django_jobdedup.executing.own_lease import kept_alive
from django_jobdedup.executing.pool import comes_again
from django_jobdedup.executing.putting_off import put_off
from django_jobdedup.header import HEADER, NONCE, Header
from django_jobdedup.middleware import stack
from django_jobdedup.middleware.base import NotStarted
from django_jobdedup.middleware.releasing import copies_live
from django_jobdedup.middleware.starting import log_suppressed
from django_jobdedup.outcomes import How, Start, Suppressed


def wrap_tasks(app: Any) -> int:
    """Wrap every task of an app except Celery's own; return how many are new."""
    tasks = [task for name, task in app.tasks.items() if not name.startswith("celery.")]
    return sum(wrap(task) for task in tasks)


def wrap(task: Any) -> bool:
    """Wrap one task; False if it is wrapped already."""
    if hasattr(task.run, "jobdedup"):
        return False
    original = task.run

    @functools.wraps(original)
    def run(*args: Any, **kwargs: Any) -> Any:
        header = _header(task.request)
        if header is None:
            return _plain(functools.partial(original, *args, **kwargs))
        execution = execution_of(task, header, args, kwargs)
        if header.follow or header.mark:
            return _led(original, execution)
        return _guarded(original, execution)

    run.jobdedup = True  # type: ignore[attr-defined]
    task.run = run
    return True


def _header(request: Any) -> Header | None:
    """Our header, flat on the request; None for a direct call, an eager one without locks, or no policy."""
    if request.called_directly or conf.MODE == "off":
        return None
    if request.is_eager:
        return in_place.take_header(request.id)
    header = Header.decode(request.get(HEADER))
    if header is None or header.id != request.id:
        return None
    current = running.get()
    if current is not None and current.active and current.execution.id == request.id:
        return None  # the body calls its own run(): it is inside its lock already
    return header


def _plain(body: Callable[[], Any]) -> Any:
    with _in_body():
        return body()


@contextmanager
def _in_body() -> Iterator[None]:
    mark = in_body.set(True)
    try:
        yield
    finally:
        in_body.reset(mark)


def _led(original: Callable[..., Any], execution: Execution) -> Any:
    """Take the outcome of the job that this one follows, look again later, or run the body after all."""
    found = follow(execution)
    if isinstance(found, Execution):
        return _guarded(original, found)
    if isinstance(found, Later):
        stop = NotStarted(Start.PUT_OFF, by=found.by, after=found.after, strategy=found.counts)
        return _carry_out(found.execution.task_object, found.execution, stop)
    _announce(execution, found.start, found.by)
    return found.give()


def _guarded(original: Callable[..., Any], execution: Execution) -> Any:
    task, header = execution.task_object, execution.header
    current = Running(execution)
    mark = running.set(current)
    try:
        return stack.execute(execution, functools.partial(_run, current, original))
    except NotStarted as stop:
        return _carry_out(task, execution, stop)
    except Exception as error:
        # Raised before the body, by the claim or by a layer around it: nobody has given the seat back.
        if header.locks and not current.reason and failed(current, error)[0] is How.RELEASE:
            _end(execution)
        raise
    except BaseException as error:
        if is_lost_by_ack(current, error):
            raise Reject("cut short by the shutdown", requeue=True) from error
        raise
    finally:
        running.reset(mark)
        in_place.note(execution, current.how)


def _end(execution: Execution) -> None:
    """Free the seat of a job that ends before its body."""
    app = execution.task_object.app
    stack.ended(unseen(app, execution.task, execution.header, "failure", nonce=execution.nonce))


def execution_of(
    task: Any, header: Header, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
) -> Execution:
    """Return the frozen facts of the delivery that is about to start."""
    request, visibility = task.request, visibility_timeout(task.app)
    is_late = comes_again(task) and header.locks and not request.is_eager
    late = copies_live(header.knobs, visibility) if is_late else 0.0
    return Execution(
        task=task.name,
        id=request.id,
        header=header,
        nonce=request.get(NONCE) or new_nonce(),
        retries=request.retries,
        late_for=late,
        visibility=visibility,
        redelivered=bool((request.delivery_info or {}).get("redelivered")),
        far=bool(request.eta) and not header.at,
        counted=stack.counts_in_store(),
        task_object=task,
        eager=request.is_eager,
        args=tuple(args),
        kwargs=kwargs or {},
    )


def _run(current: Running, original: Callable[..., Any], execution: Execution) -> Any:
    """Run the body with the arguments that came through all layers; a retry inside it keeps them."""
    if execution.args is not current.execution.args or execution.kwargs is not current.execution.kwargs:
        request = execution.task_object.request
        request.args, request.kwargs = list(execution.args), dict(execution.kwargs)
    start = Start.RUN if current.protected or not current.execution.header.locks else Start.UNPROTECTED
    _announce(current.execution, start)
    current.active = True
    try:
        with _in_body(), kept_alive(current) if current.execution.eager else nullcontext():
            value = original(*execution.args, **execution.kwargs)
    except BaseException as error:
        current.republished |= retries_in_place(current, error)
        current.ended(*failed(current, error))
        raise
    current.republished |= retries_in_place(current, value)
    current.ended(*succeeded(current))
    return value


def _carry_out(task: Any, execution: Execution, stop: NotStarted) -> Suppressed:
    """Do what was decided instead of running the body.

    Raises Ignore where another delivery of this id speaks for it. A superseded or suppressed job has
    nobody else to speak for it: it ends as success, with a value. Raises JobDead for one that was given up.
    """
    if stop.start is Start.DEAD:
        _announce(execution, stop.start, stop.by)
        raise JobDead(f"{execution.task} is dead: {stop.reason}.", execution.id, stop.reason)
    if execution.eager:
        return _refuse_in_place(task, execution, stop)
    _announce(execution, stop.start, stop.by)
    if stop.start is Start.PUT_OFF:
        _put_off(task, execution, stop)
    if stop.start is Start.DONE:
        raise Ignore("another delivery of this id has run")
    return Suppressed(stop.by)


def _refuse_in_place(task: Any, execution: Execution, stop: NotStarted) -> Suppressed:
    """End an eager call that may not start: nobody would start it later, so what is put off ends as well.

    Raises StoreUnavailable where a policy wants no start without its store.
    """
    _announce(execution, Start.SUPPRESSED, stop.by)
    if stop.start is Start.PUT_OFF:
        _end(execution)
        if not stop.by:
            raise StoreUnavailable(f"{execution.task} did not run: its lock store does not answer.")
        log_suppressed(execution.task, execution.header, stop.by)
    in_place.refuse(execution, stop.by)
    return Suppressed(stop.by)


def _put_off(task: Any, execution: Execution, stop: NotStarted) -> Never:
    """Put off; a job that cannot be is at its end, so its waiting seat is free."""
    try:
        put_off(task, execution, stop)
    except (Ignore, Reject):
        raise
    except Exception:
        _end(execution)
        raise


def _announce(execution: Execution, decision: Start, by: str = "") -> None:
    signals.send(
        signals.execution_decided, type(execution.task_object), execution=execution, decision=decision, by=by
    )

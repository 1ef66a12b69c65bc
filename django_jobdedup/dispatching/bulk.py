"""Many calls at once: ``dispatch_many()``.

Each signature goes its usual way (``apply_async`` of its task, whatever a project or a tracing library has
laid around it) as far as the hook, which puts the call into a basket. Then all calls are decided together,
one round trip to a store for a thousand calls of a shard, and published together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from celery import Task
from celery.canvas import Signature

from django_jobdedup.call import Call
from django_jobdedup.dispatching.announcing import announce
from django_jobdedup.dispatching.basket import Basket, Taken, basket
from django_jobdedup.dispatching.hook import result_of
from django_jobdedup.dispatching.pipeline import Pipeline
from django_jobdedup.dispatching.result import marked, unmarked
from django_jobdedup.exceptions import BulkError
from django_jobdedup.middleware import stack
from django_jobdedup.middleware.base import Dispatch
from django_jobdedup.middleware.merging import with_arguments
from django_jobdedup.middleware.planning import plan
from django_jobdedup.outcomes import Outcome


def dispatch_many(signatures: Iterable[Any]) -> list[Any]:
    """Queue many calls, of any tasks and with any options, and return one result a call, in order.

    Each signature is one of a task: ``build_report.s(42, "2026-08").set(queue="slow")``. An equal call
    later in the batch is decided as if it came right after: the result of a suppressed one has the id of the
    first.

    A call that cannot be decided (an argument without a canonical form, a policy that cannot work) raises
    its own error, with a note that says which call it is, before anything is locked or queued. Raises
    BulkError, which holds all results, when some calls were refused by the strategy ``raise``, could not be
    published, or could not be refused. Raises TypeError for what is no signature of a task.
    """
    if isinstance(signatures, Signature):
        raise TypeError("dispatch_many() takes a list of signatures, not one: write [build_report.s(42)].")
    collected = Basket()
    returned = [_taken(collected, place, each) for place, each in enumerate(signatures)]
    errors: dict[int, BaseException] = {}
    results: dict[int, Any] = {}
    for taken, done in _decided(collected.taken):
        if done.error is not None:
            errors.setdefault(taken.place, done.error)
        else:
            results[id(taken.standin)] = _result(taken, done)
    found = [results.get(id(each), each) for each in returned]
    if errors:
        raise _incomplete(errors, [None if place in errors else each for place, each in enumerate(found)])
    return found


def _taken(collected: Basket, place: int, signature: Any) -> Any:
    if not isinstance(signature, Signature) or signature.get("subtask_type"):
        more = (
            f"a task: write {signature.name.rpartition('.')[2]}.s(...)."
            if isinstance(signature, Task)
            else f"{type(signature).__name__}. A chain, group or chord is queued by its own apply_async()."
        )
        raise TypeError(
            f"dispatch_many() takes signatures of tasks, such as build_report.s(42); number {place} is {more}"
        )
    collected.place = place
    mark = basket.set(collected)
    try:
        return signature.apply_async()
    except Exception as error:
        error.add_note(_which(place, signature["task"]))
        raise
    finally:
        basket.reset(mark)


def _which(place: int, task: str) -> str:
    return f"django_jobdedup: raised by call number {place} (counted from 0) of dispatch_many(), to {task}."


def _dispatched(taken: Sequence[Taken]) -> list[Dispatch]:
    """Decide and publish the calls of one app; one answer a call, in order."""
    publisher = _Publisher(taken)
    with_policy = [each.call for each in taken if each.has_policy]
    try:
        done = iter(stack.dispatch(with_policy, publisher) if with_policy else ())
    except Exception as error:
        if (guilty := _guilty(taken, error)) is not None:
            error.add_note(_which(guilty.place, guilty.call.task))
        raise
    publisher.rest()
    answers = [next(done) if each.has_policy else publisher.plain[each.call.id] for each in taken]
    failed = {each.id: each.error for each in answers if each.error is not None and each.id == each.call.id}
    return [_with_its_holder(each, failed) for each in answers]


def _decided(taken: Sequence[Taken]) -> Iterator[tuple[Taken, Dispatch]]:
    """Decide and publish all calls, app by app; give each with what it became."""
    for number, (_, some) in enumerate(groupby(taken, lambda each: (each.app, each.way))):
        of_app = list(some)
        try:
            done = _dispatched(of_app)
        except Exception as error:
            if number == 0:
                raise
            # What the app before has queued is out: its callers need their results.
            done = [Dispatch(each.call, Outcome.UNKNOWN, each.call.id, error=error) for each in of_app]
        yield from zip(of_app, done, strict=True)


def _guilty(taken: Sequence[Taken], error: Exception) -> Taken | None:
    """The call that a layer has raised for; asked again, because planning changes nothing."""
    for each in taken:
        try:
            with_arguments(plan(each.call))
        except Exception as same:
            return each if type(same) is type(error) else None
    return None


def _with_its_holder(done: Dispatch, failed: Mapping[str, BaseException | None]) -> Dispatch:
    """An equal call that came later shares the failure of the first: no job of that id will run."""
    if done.error is None and done.result is None and done.id != done.call.id and done.id in failed:
        return replace(done, outcome=Outcome.UNKNOWN, error=failed[done.id])
    return done


def _result(taken: Taken, done: Dispatch) -> Any:
    if taken.outcome is Outcome.BYPASSED:
        return marked(taken.app, replace(done, outcome=taken.outcome))
    if not taken.has_policy:
        return unmarked(done.result)
    announce(done)
    return result_of(taken.app, done)


def _incomplete(errors: Mapping[int, BaseException], results: list[Any]) -> BulkError:
    first = min(errors)
    return BulkError(
        f"{len(errors)} of {len(results)} calls were not queued; number {first} (counted from 0): "
        f"{str(errors[first]).rstrip('.')}. The attribute results holds what became of the others.",
        errors,
        results,
    )


class _Publisher:
    """What the middleware publishes with: calls without a policy go along in their order."""

    def __init__(self, taken: Sequence[Taken]) -> None:
        self.plain: dict[str, Dispatch] = {}
        self._pipeline = Pipeline(taken[0].app, taken[0].way)
        self._places = {each.call.id: place for place, each in enumerate(taken)}
        self._waiting = [each.call for each in taken if not each.has_policy]

    def __call__(self, calls: Sequence[Call]) -> list[Dispatch]:
        """Publish; one answer a call, in order."""
        along, self._waiting = self._waiting, []
        batch: list[Call] = [*calls, *along]
        # A call that a middleware has added goes last.
        order = sorted(range(len(batch)), key=lambda at: self._places.get(batch[at].id, len(self._places)))
        sent = dict(zip(order, self._pipeline.publish([batch[at] for at in order]), strict=True))
        self.plain.update((call.id, sent[len(calls) + at]) for at, call in enumerate(along))
        return [sent[at] for at in range(len(calls))]

    def rest(self) -> None:
        """Publish what nobody has published along: every call with a policy was refused."""
        if self._waiting:
            self(())

"""The forms of a canvas: what each starts, how often the equal work should run, and what comes out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from celery import chain, chord, group

from . import tasks

MODES = {"follow": tasks.follow, "run": tasks.again, "mark": tasks.mark}


@dataclass(frozen=True, slots=True)
class Story:
    """What was started: the results to wait for, and the keys under which callbacks must have run once.

    ``values`` takes the values of ``results`` and gives those of the equal calls.
    """

    results: list[Any]
    callbacks: tuple[str, ...] = ()
    values: Callable[[list[Any]], list[Any]] = list


@dataclass(frozen=True, slots=True)
class Form:
    """One form: ``start(task, key)`` starts ``calls`` equal calls of the task."""

    start: Callable[[Any, str], Story]
    words: str
    calls: int = 2


def _flat(values: list[Any]) -> list[Any]:
    return [one for value in values for one in (_flat(value) if isinstance(value, list) else [value])]


def first_of_chain(task: Any, key: str) -> Story:
    """Two chains share their first step."""
    tails = tuple(f"{key}-tail-{n}" for n in range(2))
    return Story([chain(task.si(key), tasks.tail.s(tail)).apply_async() for tail in tails], tails)


def middle_of_chain(task: Any, key: str) -> Story:
    """Two chains share a step in their midst."""
    tails = tuple(f"{key}-tail-{n}" for n in range(2))
    heads = [tasks.plain.si(f"{key}-head") for _ in tails]
    return Story(
        [
            chain(head, task.si(key), tasks.tail.s(tail)).apply_async()
            for head, tail in zip(heads, tails, strict=True)
        ],
        tails,
    )


def last_of_chain(task: Any, key: str) -> Story:
    """Two chains share their last step."""
    return Story([chain(tasks.plain.si(f"{key}-head"), task.si(key)).apply_async() for _ in range(2)])


def members_of_group(task: Any, key: str) -> Story:
    """A group has three equal members."""
    return Story(list(group(task.si(key) for _ in range(3)).apply_async()))


def beside_a_job(task: Any, key: str) -> Story:
    """A group has a member that an equal job does already."""
    job = task.delay(key)
    members = group(task.si(key), tasks.plain.si(f"{key}-other")).apply_async()
    return Story([job, *members], (), lambda values: values[:2])


def header_of_chord(task: Any, key: str) -> Story:
    """A chord has two equal members, and another."""
    header = [task.si(key), tasks.plain.si(f"{key}-other"), task.si(key)]
    done = chord(header, tasks.total.s(f"{key}-body")).apply_async()
    return Story([done], (f"{key}-body",), lambda values: [values[0][0], values[0][2]])


def body_of_chord(task: Any, key: str) -> Story:
    """Two chords have an equal body."""
    return Story([chord([tasks.plain.si(f"{key}-{n}")], task.si(key)).apply_async() for n in range(2)])


def nested_chord(task: Any, key: str) -> Story:
    """Equal members stand in two chords, which are the members of a third."""
    inner = [chord([task.si(key), task.si(key)], tasks.total.s(f"{key}-inner-{n}")) for n in range(2)]
    done = chord(inner, tasks.total.s(f"{key}-outer")).apply_async()
    callbacks = (f"{key}-inner-0", f"{key}-inner-1", f"{key}-outer")
    return Story([done], callbacks, _flat)


def with_link(task: Any, key: str) -> Story:
    """Two calls have a callback each."""
    callbacks = tuple(f"{key}-link-{n}" for n in range(2))
    return Story([task.apply_async((key,), link=tasks.quiet.si(name)) for name in callbacks], callbacks)


def with_link_error(task: Any, key: str) -> Story:
    """Two calls have an error callback each, and no error."""
    return Story([task.apply_async((key,), link_error=tasks.told.s(f"{key}-error")) for _ in range(2)])


def given_id(task: Any, key: str) -> Story:
    """Two calls have ids that their caller has given."""
    return Story([task.apply_async((key,), task_id=f"{key}-id-{n}") for n in range(2)])


def in_replace(task: Any, key: str) -> Story:
    """A job replaces itself by a group with two equal members."""
    return Story([tasks.replacing.delay(key, task.name)], (), _flat)


#: In ``chunks`` the inner tasks are plain calls, made by one message: nothing is locked, all run.
FORMS = {
    "chain, first step": Form(first_of_chain, "the first step of two chains"),
    "chain, middle step": Form(middle_of_chain, "a step in the middle of two chains"),
    "chain, last step": Form(last_of_chain, "the last step of two chains"),
    "group": Form(members_of_group, "members of a group", calls=3),
    "group, beside an equal job": Form(beside_a_job, "a member of a group, and a job of its own"),
    "chord, header": Form(header_of_chord, "members of a chord"),
    "chord, body": Form(body_of_chord, "the body of two chords"),
    "chord in a chord": Form(nested_chord, "members of chords in a chord", calls=4),
    "`link`": Form(with_link, "calls with a callback"),
    "`link_error`": Form(with_link_error, "calls with an error callback"),
    "`task_id` given": Form(given_id, "calls with an id of the caller's"),
    "`replace()`": Form(in_replace, "members of what a job replaces itself by"),
}

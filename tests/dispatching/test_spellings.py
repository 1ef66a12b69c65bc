"""U34: one call, many spellings; each is really enqueued, and one job runs."""

from __future__ import annotations

from typing import Any

import pytest

from testproject.celery import app
from tests.conftest import StartWorker
from tests.rig.environment import Environment
from tests.rig.journal import Journal

from . import jobs

pytestmark = [
    pytest.mark.worker,
    pytest.mark.environment(celery={"imports": ["tests.dispatching.jobs"]}),
]


def spellings() -> dict[str, list[Any]]:
    """Dispatch every spelling of some calls and give the results, by call."""
    spelled, variadic = jobs.spelled, jobs.variadic
    return {
        "spelled 1 False ": [
            spelled.delay(1),
            spelled.delay(x=1),
            spelled.delay(1, False),
            spelled.delay(1, flag=False),
            spelled.delay(x=1, flag=False),
            spelled.delay(flag=False, x=1),
            spelled.delay(1, note=""),
            spelled.apply_async((1,)),
            spelled.apply_async([1], {}),
            spelled.apply_async(kwargs={"x": 1}),
            spelled.s(1).delay(),
            spelled.s(flag=False).delay(1),
            spelled.s(False).apply_async((1,)),
            spelled.si(x=1).apply_async(),
            app.send_task(spelled.name, (1,)),
            app.send_task(spelled.name, kwargs={"note": "", "x": 1}),
            app.signature(spelled.name, args=(1,)).delay(),
        ],
        "spelled None False ": [
            spelled.delay(),
            spelled.delay(None),
            spelled.apply_async(None, None),
            spelled.apply_async((), {}),
            spelled.apply_async([], None),
            spelled.s().delay(),
        ],
        "spelled True False ": [spelled.delay(True), spelled.delay(x=True)],
        "spelled 1 True ": [spelled.delay(1, True), spelled.delay(flag=True, x=1)],
        "variadic (1, 2) [('a', 1), ('b', 2)]": [
            variadic.delay(1, 2, a=1, b=2),
            variadic.delay(1, 2, b=2, a=1),
            variadic.apply_async([1, 2], {"b": 2, "a": 1}),
        ],
        "variadic () [('a', 1), ('b', 2)]": [variadic.delay(a=1, b=2), variadic.delay(b=2, a=1)],
        "variadic () [('a', 2), ('b', 1)]": [variadic.delay(a=2, b=1), variadic.delay(b=1, a=2)],
        "variadic (1, 2) []": [variadic.delay(1, 2)],
        "variadic (2, 1) []": [variadic.delay(2, 1)],
        "variadic ([1, 2],) []": [variadic.delay([1, 2]), variadic.delay((1, 2))],
    }


def test_each_call_is_one_job_in_all_its_spellings(
    celery_env: Environment, worker: StartWorker, journal: Journal
) -> None:
    found = spellings()
    for name, results in found.items():
        assert len({result.fingerprint for result in results}) == 1, name
        assert [result.outcome for result in results] == ["accepted", *["suppressed"] * (len(results) - 1)]
        assert len({result.id for result in results}) == 1, name
    assert len({results[0].fingerprint for results in found.values()}) == len(found)
    worker()
    for results in found.values():
        results[-1].get(timeout=15)
    assert sorted(run.key for run in journal.runs()) == sorted(found)


def test_a_key_takes_an_argument_by_its_default(celery_env: Environment) -> None:
    first = jobs.keyed.delay()
    others = [jobs.keyed.delay(5), jobs.keyed.delay(x=7), jobs.keyed.delay(1, 7), jobs.keyed.delay(y=3, x=7)]
    assert {result.id for result in others} == {first.id}
    assert jobs.keyed.delay(x=8).outcome == "accepted"


def test_an_empty_key_is_the_task_alone(celery_env: Environment) -> None:
    first = jobs.named_only.delay("a")
    assert [jobs.named_only.delay(value).id for value in ("b", {"c": 1})] == [first.id] * 2

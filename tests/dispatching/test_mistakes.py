"""A mistake of the project, met where nothing may be raised: one line in the log, and the job goes out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis

from testproject.celery import app
from tests.jobs import tasks
from tests.rig.environment import Environment

from . import jobs

NAME = "tests.jobs.tasks.until_executed"
BY_BEAT: dict[str, Any] = {"headers": {"celery_beat_task": True}}
WITHOUT = "goes without a lock:"
Heard = dict[str, list[dict[str, Any]]]


class Formless:
    """A value without a canonical form."""


def wrong_option() -> Any:
    return app.send_task(NAME, ("k",), unique={"tl": 3}, **BY_BEAT)


def wrong_argument() -> Any:
    return jobs.anything.apply_async((Formless(),), serializer="pickle", **BY_BEAT)


def wrong_key() -> Any:
    return tasks.until_executed.apply_async(("k",), unique={"key": "kye"}, **BY_BEAT)


def wrong_store() -> Any:
    return tasks.until_executed.apply_async(("k",), unique={"store": "nowhere"}, **BY_BEAT)


@pytest.mark.parametrize(
    ("publish", "sentence"),
    [
        (
            wrong_option,
            f"{NAME} {WITHOUT} policy of '{NAME}': Unique has no option",
        ),
        (wrong_argument, f"{jobs.anything.name} {WITHOUT} Argument value is of type {__name__}.Formless"),
        (wrong_key, f"{NAME} {WITHOUT} key names 'kye', which the task does not take; did you mean 'key'?"),
        (wrong_store, "There is no lock store 'nowhere': add it to JOBDEDUP_STORES"),
    ],
    ids=["option", "argument", "key", "store"],
)
def test_a_mistake_is_said_once_in_one_line_and_the_job_is_published(
    celery_env: Environment,
    redis_client: redis.Redis,
    heard: Heard,
    log: pytest.LogCaptureFixture,
    publish: Callable[[], Any],
    sentence: str,
) -> None:
    for _ in range(3):
        publish()

    assert redis_client.llen(f"{celery_env.namespace}:celery") == 3
    (record,) = [record for record in log.records if record.name == "django_jobdedup"]
    assert sentence in record.getMessage()
    assert (record.levelname, record.exc_info, record.action) == ("ERROR", None, "mistake")  # type: ignore[attr-defined]
    assert heard["internal_error"] == []


def test_another_sentence_of_the_same_task_is_said_too(
    celery_env: Environment, log: pytest.LogCaptureFixture
) -> None:
    for option in ("tl", "lase", "tl"):
        app.send_task(NAME, ("k",), unique={option: 3}, **BY_BEAT)

    said = [record.getMessage() for record in log.records]
    assert ["'tl'" in each for each in said] == [True, False]


def test_a_key_function_that_raises_is_no_sentence_of_ours(
    celery_env: Environment, heard: Heard, log: pytest.LogCaptureFixture
) -> None:
    """Its traceback is needed."""

    def key(*_: object, **__: object) -> None:
        raise ZeroDivisionError("in the project")

    for _ in range(2):
        tasks.until_executed.apply_async(("k",), unique={"key": key}, **BY_BEAT)

    assert [(each["where"], type(each["error"])) for each in heard["internal_error"]] == [
        ("planning", ZeroDivisionError)
    ] * 2
    assert all(record.exc_info for record in log.records)

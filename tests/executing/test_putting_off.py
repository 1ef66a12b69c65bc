"""A put-off whose publish fails: the message is never acked away."""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
from kombu.exceptions import OperationalError

from django_jobdedup.call import Execution
from django_jobdedup.executing import putting_off
from django_jobdedup.executing.broker import longest_sleep, sleeps_until, visibility_timeout
from django_jobdedup.executing.putting_off import SHORTEST
from django_jobdedup.header import Header
from testproject.celery import app
from tests.rig.environment import Environment, new_namespace
from tests.rig.journal import Journal
from tests.rig.worker import Worker

from . import faults, tasks
from .conftest import call_until_accepted, new_key
from .remains import LockKeys


@pytest.mark.parametrize(
    ("options", "url", "expected"),
    [
        ({"visibility_timeout": 90}, "redis://localhost", 90),
        ({}, "redis://localhost", 3600),
        ({}, "sentinel://localhost;sentinel://other", 3600),
        ({}, "sqs://", 3600),
        ({}, "amqp://localhost", 1800),
        ({}, ["amqp://one", "amqp://two"], 1800),
    ],
)
def test_no_put_off_sleeps_longer_than_a_third_of_the_visibility_timeout(
    options: dict[str, int], url: Any, expected: float
) -> None:
    """RabbitMQ has none: there ``consumer_timeout`` closes the channel after half an hour."""

    class Conf:
        broker_transport_options = options
        broker_read_url = url
        broker_url = url

    class App:
        conf = Conf

    assert visibility_timeout(App) == expected
    assert longest_sleep(App) == expected / 3


class Scene:
    """A worker with faults."""

    def __init__(self, journal: Journal, lock_keys: LockKeys, worker: Worker) -> None:
        self.journal, self.lock_keys, self.worker = journal, lock_keys, worker


@pytest.fixture(scope="module")
def scene(redis_server: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Start the worker."""
    environment = Environment(
        new_namespace(), redis_server.url, celery={"imports": [tasks.MODULE, faults.MODULE]},
        variables={"TEST_FAULTS": "1"},
    )  # fmt: skip
    with environment.entered(app), ExitStack() as stack:
        worker = stack.enter_context(Worker(environment, tmp_path_factory.mktemp("faults"), concurrency=6))
        worker.wait_until_ready()
        journal = stack.enter_context(closing(Journal(environment.redis_url, environment.namespace)))
        lock_keys = stack.enter_context(closing(LockKeys(environment)))
        yield Scene(journal, lock_keys, worker)
    environment.clean()


@pytest.mark.worker
@pytest.mark.parametrize("task", [tasks.mutex, tasks.mutex_late], ids=["early", "late"])
def test_a_put_off_survives_a_publish_that_fails(scene: Scene, task: Any) -> None:
    key = new_key()
    task.delay(key, 1.5)
    scene.journal.wait_for_runs(1, key)
    second = task.apply_async((key,), headers={faults.HEADER: 1})
    assert second.get(timeout=15) == key
    assert [run.id for run in scene.journal.runs(key)][1:] == [second.id]
    assert scene.journal.overlaps(key) == []


@pytest.mark.worker
def test_with_late_ack_the_message_itself_goes_back(scene: Scene) -> None:
    """No process of the pool waits for the broker: the failed put-off becomes a redelivery."""
    key = new_key()
    tasks.mutex_late.delay(key, 1.5)
    scene.journal.wait_for_runs(1, key)
    second = tasks.mutex_late.apply_async((key,), headers={faults.HEADER: 2})
    assert second.get(timeout=15) == key
    lines = [line for line in scene.worker.log.splitlines() if f"[{second.id}] reject requeue=True" in line]
    assert len(lines) == 2
    assert scene.journal.runs(key)[1].attempt == 1


@pytest.mark.worker
def test_an_early_ack_job_that_cannot_be_put_off_at_all_fails_and_frees_its_seat(scene: Scene) -> None:
    """Nobody else has its message, so the error is its end, for everybody to see."""
    key = new_key()
    first = tasks.one_and_one.delay(key, 2.5)
    scene.journal.wait_for_runs(1, key)
    second = tasks.one_and_one.apply_async((key,), headers={faults.HEADER: 99})
    with pytest.raises(OperationalError, match="the broker is away"):
        second.get(timeout=10)
    third = call_until_accepted(lambda: tasks.one_and_one.delay(key), timeout=1)
    assert first.status != "SUCCESS", "it runs still"
    assert third.get(timeout=10) == key
    assert [run.id for run in scene.journal.runs(key)] == [first.id, third.id]


@pytest.mark.worker
def test_nothing_is_left_behind_a_failed_put_off(scene: Scene) -> None:
    scene.lock_keys.wait_until_empty(5)


@pytest.mark.worker
@pytest.mark.parametrize("task", [tasks.early, tasks.late], ids=["early", "late"])
def test_a_retry_that_cannot_be_published_frees_the_key(scene: Scene, task: Any) -> None:
    """Celery turns it into a rejection; the job has ended."""
    key = new_key()
    first = task.apply_async((key, "retry", 0.1), headers={faults.HEADER: 99}, retry=False)
    scene.journal.wait_for_ends(1, key)
    scene.lock_keys.wait_until_empty(5)
    assert task.delay(key).get(timeout=10) == key
    assert len(scene.journal.runs(task_id=first.id)) == 1


@pytest.mark.worker
def test_a_put_off_is_logged_with_whom_it_waits_for_and_how_long(scene: Scene) -> None:
    """Otherwise nothing tells a reader of the log why a job that was received does not run."""
    key = new_key()
    holder = tasks.mutex.delay(key, 1.0)
    scene.journal.wait_for_runs(1, key)
    second = tasks.mutex.delay(key)
    assert second.get(timeout=15) == key
    said = [line for line in scene.worker.log.splitlines() if f"{second.id}] is put off" in line]
    assert said
    name = re.escape(tasks.mutex.name)
    line = rf"INFO.* {name}\[{second.id}\] is put off behind job {holder.id}, again in [\d.]+ s$"
    assert [each for each in said if not re.search(line, each)] == []


@pytest.mark.parametrize(
    ("by", "words"),
    [
        ("other", "is put off behind job other, again in 5 s"),
        ("me", "is put off behind another delivery of itself, again in 5 s"),
        ("", "is put off, again in 5 s"),
    ],
)
def test_the_line_of_a_put_off_fits_what_is_in_the_way(
    caplog: pytest.LogCaptureFixture, by: str, words: str
) -> None:
    with caplog.at_level(logging.INFO, "django_jobdedup"):
        putting_off._log(Execution("shop.report", "me", Header("me"), "nonce"), by, 5.0)
    (record,) = caplog.records
    assert record.getMessage() == f"shop.report[me] {words}"
    assert (record.action, record.task_id, record.holder_id) == ("put_off", "me", by)  # type: ignore[attr-defined]


def test_a_sleep_that_has_to_hop_ends_at_an_instant_that_every_header_can_carry() -> None:
    """A strategy of one's own may decide any finite number."""
    assert sleeps_until(5, 5) == 0
    assert sleeps_until(0, SHORTEST) == 0, "the shortest sleep is no hop"
    assert sleeps_until(5, 1) == pytest.approx(time.time() + 5, abs=1)
    header = Header("id", asleep_until=sleeps_until(1e300, 1))
    assert Header.decode(json.loads(json.dumps(header.encode()))) == header

"""U24: a worker waits already, and never runs before the data is there; the last writer's data is seen."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from celery import chain, chord
from django.db import connections, transaction
from django.test import override_settings

from testproject.celery import app
from testproject.embedded_redis import EmbeddedRedis, GivenRedis
from testproject.shop.models import Invoice, Tenant
from tests.dispatching import jobs
from tests.jobs import tasks
from tests.rig.engines import BACKEND, Engine, Engines
from tests.rig.environment import Environment, new_namespace
from tests.rig.waiting import wait_for
from tests.rig.worker import Worker

from . import work

pytestmark = [pytest.mark.worker, pytest.mark.slow, pytest.mark.timeout(180)]

ROUNDS, SIDE_BY_SIDE = 200, 4
WAIT = 60


@pytest.fixture(scope="module", params=["postgresql", "mariadb", "sqlite_wal"])
def database(request: pytest.FixtureRequest, engines: Engines) -> Iterator[Engine]:
    """A database that this process and the workers share."""
    with engines.open(request.param) as engine:
        yield engine
        for model in (Invoice, Tenant):
            model.objects.using(engine.alias).all().delete()


@pytest.fixture(scope="module")
def world(redis_server: GivenRedis | EmbeddedRedis, database: Engine) -> Iterator[Environment]:
    """The world of this module."""
    celery = {"imports": ["tests.dispatching.jobs", "tests.dispatching.durable.work"]}
    environment = Environment(new_namespace(), redis_server.url, celery=celery)
    with environment.entered(app), override_settings(JOBDEDUP_STORES=database.stores):
        yield environment
    environment.clean()


@pytest.fixture(scope="module")
def node(world: Environment, database: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """A worker that waits."""
    # What the bodies write and what the store writes goes over one connection, as in a project.
    stores = {"default": {"BACKEND": BACKEND, "LOCATION": "default"}}
    environment = world.having(settings={**database.settings_as_default, "JOBDEDUP_STORES": stores})
    with Worker(environment, tmp_path_factory.mktemp("node"), concurrency=4) as worker:
        yield worker.wait_until_ready()


@pytest.fixture
def tenant(database: Engine, node: Worker) -> Tenant:
    """A tenant that nobody else uses."""
    return Tenant.objects.using(database.alias).create(name=secrets.token_hex(8))


def test_no_job_runs_before_its_data_is_there(database: Engine, node: Worker) -> None:
    """200 rounds: write a row, call, take a moment, commit."""
    results = []
    for _ in range(ROUNDS):
        with transaction.atomic(using=database.alias):
            row = Tenant.objects.using(database.alias).create(name=secrets.token_hex(8))
            results.append(work.look.delay(row.pk))
            time.sleep(0.002)
    assert [result.get(timeout=WAIT) for result in results] == ["found"] * ROUNDS


def test_without_a_policy_the_worker_is_faster(database: Engine, node: Worker) -> None:
    """The test above could fail: the worker is awake, and the row is not there yet."""
    if database.name == "sqlite_wal":
        pytest.skip("a reader of SQLite sees no row either, which proves nothing of its writer")
    with transaction.atomic(using=database.alias):
        row = Tenant.objects.using(database.alias).create(name=secrets.token_hex(8))
        assert work.look_unlocked.delay(row.pk).get(timeout=WAIT) == "missing"


class Writer(threading.Thread):
    """Writes an invoice and calls for a count, in a transaction that commits when it is told to."""

    def __init__(self, using: str, pk: int, number: str, together: threading.Barrier, task: Any) -> None:
        super().__init__()
        self._using, self._pk, self._number, self._together, self._task = using, pk, number, together, task
        self.error: BaseException | None = None
        self.result: Any = None

    def run(self) -> None:
        """Write, call, wait for the other, commit."""
        try:
            with transaction.atomic(using=self._using):
                invoices = Invoice.objects.using(self._using)
                invoices.create(tenant_id=self._pk, number=self._number, amount=1)
                self.result = self._task.delay(self._pk)
                self._together.wait(WAIT)
        except BaseException as error:
            self.error = error
            self._together.abort()
        finally:
            connections[self._using].close()


def both_write(using: str, pk: int, task: Any) -> list[Writer]:
    """Have two transactions call for one key while both are open."""
    together = threading.Barrier(2)
    writers = [Writer(using, pk, name, together, task) for name in ("left", "right")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(WAIT)
    return writers


def test_of_two_interleaved_transactions_the_last_writers_data_is_seen(
    database: Engine, node: Worker
) -> None:
    """200 rounds, some side by side: whoever commits last, a run that started then has counted both rows.

    No deadlock and no refusal reaches a caller: inside the transactions there is nothing to wait for.
    """
    if database.name == "sqlite_wal":
        pytest.skip("SQLite has one writer at a time: two transactions that both write cannot interleave")
    rows = [Tenant.objects.using(database.alias).create(name=secrets.token_hex(8)) for _ in range(ROUNDS)]
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        pairs = pool.map(lambda row: both_write(database.alias, row.pk, work.count), rows)
    writers = [writer for pair in pairs for writer in pair]
    assert [writer.error for writer in writers if writer.error is not None] == []
    outcomes = {str(writer.result.outcome) for writer in writers}
    assert outcomes <= {"accepted", "suppressed"}
    for writer in writers:
        writer.result.get(timeout=WAIT)
    pks = [row.pk for row in rows]
    counted = Tenant.objects.using(database.alias).filter(pk__in=pks).values_list("recomputed", flat=True)
    assert list(counted) == [2] * ROUNDS


def test_a_change_during_the_run_gets_a_run_of_its_own(
    database: Engine, tenant: Tenant, node: Worker
) -> None:
    """Under ``until_and_while_executing`` the call waits behind the run that has read the old data."""
    invoices = Invoice.objects.using(database.alias)
    first = work.count.delay(tenant.pk, seconds=1.5)
    wait_for(lambda: has_read(database, tenant), 20)
    with transaction.atomic(using=database.alias):
        invoices.create(tenant_id=tenant.pk, number="late", amount=1)
        second = work.count.delay(tenant.pk)
    assert second.outcome == "accepted"
    assert (first.get(timeout=WAIT), second.get(timeout=WAIT)) == (0, 1)
    tenant.refresh_from_db(using=database.alias)
    assert tenant.recomputed == 1


def test_under_until_executed_a_change_during_the_run_is_not_seen(
    database: Engine, tenant: Tenant, node: Worker
) -> None:
    """What the pages say: ``skip`` there is right for requests and wrong for changes."""
    invoices = Invoice.objects.using(database.alias)
    work.count_as_a_request.delay(tenant.pk, seconds=1.5)
    wait_for(lambda: has_read(database, tenant), 20)
    with transaction.atomic(using=database.alias):
        invoices.create(tenant_id=tenant.pk, number="late", amount=1)
        second = work.count_as_a_request.delay(tenant.pk)
    assert (second.outcome, second.duplicate) == ("suppressed", True)
    assert second.get(timeout=WAIT) == 0


def has_read(database: Engine, tenant: Tenant) -> bool:
    """Say whether a body has read what is there."""
    tenant.refresh_from_db(using=database.alias)
    return tenant.total > 0


def test_workflows_of_a_transaction_come_to_their_end(database: Engine, tenant: Tenant, node: Worker) -> None:
    """Chain, chord and link: each of their steps is published after the commit, under its promised id."""
    key = tenant.name
    with transaction.atomic(using=database.alias):
        tail = chain(tasks.until_executed.si(key), jobs.noticing.si(f"{key}-tail")).delay()
        summed = chord(
            [tasks.until_executed.si(f"{key}-part-{n}") for n in range(2)], jobs.summing.s(f"{key}-body")
        ).delay()
        linked = jobs.adding.apply_async((key, 1, 2), link=jobs.anything.s())
    assert tail.get(timeout=WAIT) == f"{key}-tail"
    assert summed.get(timeout=WAIT) == 2
    assert linked.get(timeout=WAIT) == 3


def test_a_retry_inside_a_transaction_counts(database: Engine, tenant: Tenant, node: Worker) -> None:
    """A retry ends its attempt's transaction with an error, and is published all the same."""
    result = work.retry_inside.delay(tenant.pk)
    assert result.get(timeout=WAIT) == 2
    numbers = Invoice.objects.using(database.alias).filter(tenant=tenant).values_list("number", flat=True)
    assert list(numbers) == ["try-2"]
    again = work.retry_inside.delay(tenant.pk)
    assert again.outcome == "accepted"


def test_a_body_that_calls_in_a_transaction(database: Engine, tenant: Tenant, node: Worker) -> None:
    """In a worker it is as in a request: deferred, decided after the commit, gone with a rollback."""
    before, after, task_id = work.call_inside.delay(tenant.pk).get(timeout=WAIT)
    assert (before, after) == ("deferred", "accepted")
    assert app.AsyncResult(task_id).get(timeout=WAIT) == 1
    before, after, _ = work.call_inside.delay(tenant.pk, fails=True).get(timeout=WAIT)
    assert (before, after) == ("deferred", "deferred")

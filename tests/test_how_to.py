"""The how-to pages at work: their code runs as it stands there, and what they say of it is so."""

from __future__ import annotations

import json
import logging
import re
import sys
import types
from collections.abc import Callable, Iterator
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

import kombu
import pytest
import redis
from celery import chain, group
from django.apps import apps
from django.test import RequestFactory, override_settings
from django_redis import get_redis_connection
from kombu.transport.redis import Channel

from django_jobdedup import Reschedule, Unique, outcome_of, signals
from django_jobdedup.exceptions import StoreUnavailable
from django_jobdedup.outcomes import How
from django_jobdedup.stores.handler import stores
from django_jobdedup.stores.record import Ref
from django_jobdedup.stores.requests import Acquire, Claim, Finish, Token
from testproject.celery import app
from testproject.embedded_redis import EmbeddedRedis
from testproject.shop.tasks import build_report
from tests.jobs import tasks

from .conftest import StartWorker
from .rig.environment import Environment
from .rig.journal import Journal
from .rig.waiting import wait_for
from .test_readme import DOCS, PAGES, blocks

UNTIL_EXECUTED = "tests.jobs.tasks.until_executed"


def page(name: str) -> str:
    return (DOCS / "how-to" / f"{name}.md").read_text()


def block(text: str, start: str) -> str:
    """The only Python block of a page with *start* in its text."""
    (found,) = (each for each in blocks(text, "python") if start in each)
    return found


def run(source: str, **names: Any) -> dict[str, Any]:
    """Run a block; gives its names."""
    module: dict[str, Any] = {"__name__": "project.example", **names}
    exec(compile(source, "how-to", "exec"), module)
    return module


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package ``project``, importable here."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == "project"]:
        del sys.modules[name]


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shop's reports under the name that the pages use."""
    module = types.ModuleType("reports.tasks")
    module.build_report = build_report  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "reports.tasks", module)


@pytest.mark.worker
def test_the_middleware_sees_duplicates_here_and_runs_there(
    celery_env: Environment,
    worker: StartWorker,
    journal: Journal,
    project: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    text = page("write-a-middleware")
    (project / "jobs.py").write_text(block(text, "class Watch"))
    paths = run(block(text, "JOBDEDUP_MIDDLEWARE"))["JOBDEDUP_MIDDLEWARE"]
    there = celery_env.having(
        settings={"JOBDEDUP_MIDDLEWARE": paths}, variables={"PYTHONPATH": str(project.parent)}
    )
    with override_settings(JOBDEDUP_MIDDLEWARE=paths), caplog.at_level(logging.INFO, "project.jobs"):
        first = tasks.until_executed.delay("k")
        assert tasks.until_executed.delay("k").id == first.id
    assert f"{UNTIL_EXECUTED}: covered by job {first.id}" in caplog.messages
    node = worker(there)
    journal.wait_for_ends(1, "k")
    node.wait_for_log(f"{UNTIL_EXECUTED} took")


def test_the_receivers_are_connected_and_called(
    celery_env: Environment, caplog: pytest.LogCaptureFixture
) -> None:
    example = run(block(page("connect-signals"), "ProjectConfig"))
    try:
        example["ProjectConfig"].ready(apps.get_app_config("shop"))
        with caplog.at_level(logging.INFO, "project.example"):
            tasks.until_executed.delay("k")
            signals.send(signals.lock_lost, None, id="an id", fingerprint="f" * 64)
    finally:
        signals.dispatch_decided.disconnect(dispatch_uid="project.count")
        for signal in (signals.store_unavailable, signals.lock_lost):
            signal.disconnect(dispatch_uid="project.alarm")
    assert f"{UNTIL_EXECUTED} accepted" in caplog.messages
    assert any(message.startswith("locks: ") and "an id" in message for message in caplog.messages)


def test_the_views_answer_with_the_job_that_is_there(celery_env: Environment, reports: None) -> None:
    text = page("handle-duplicates-in-a-view")
    view = run(block(text, "def start_report("))["start_report"]
    strict = run(block(text, "def start_report_once("))["start_report_once"]
    request = RequestFactory().post("/")
    request.user = types.SimpleNamespace(pk=5)  # type: ignore[assignment]
    first, second = (json.loads(view(request, 42, "2026-08").content) for _ in range(2))
    assert first["already_running"] is False
    assert second == {"job": first["job"], "already_running": True}
    refused = strict(request, 42, "2026-08")
    assert (refused.status_code, json.loads(refused.content)) == (409, {"job": first["job"]})
    assert strict(request, 43, "2026-08").status_code == 202


def test_the_key_function_makes_equal_what_it_says(celery_env: Environment) -> None:
    text = page("choose-what-equal-means")
    example = run(
        block(text, "def of_the_month"), Unique=Unique, shared_task=lambda **options: lambda body: options
    )
    policy = example["settle"]["unique"]
    assert policy.key([3, 1], "2026-08-17", note="x") == policy.key([1, 3], "2026-08-02")


@pytest.mark.worker
def test_a_task_that_was_turned_off_still_frees_what_its_jobs_hold(
    celery_env: Environment, worker: StartWorker, journal: Journal
) -> None:
    off = {"JOBDEDUP_TASKS": {UNTIL_EXECUTED: {"unique": False}}}
    held = tasks.until_executed.delay("k")
    with override_settings(**off):
        free = tasks.until_executed.delay("k")
    assert free.id != held.id
    assert outcome_of(free) == "unknown"
    worker(celery_env.having(settings=off))
    journal.wait_for_ends(2, "k")
    wait_for(lambda: not tasks.until_executed.delay("k").duplicate, 5, what="a free key")


@pytest.mark.worker
def test_turned_off_as_a_whole_it_gives_no_lock_back(
    celery_env: Environment, worker: StartWorker, journal: Journal
) -> None:
    held = tasks.until_executed.delay("k")
    with override_settings(JOBDEDUP_MODE="off"):
        free = tasks.until_executed.apply_async(("k",), unique={"ttl": 10})
        assert (free.outcome, free.duplicate) == ("bypassed", False)
    worker(celery_env.having(settings={"JOBDEDUP_MODE": "off"}))
    journal.wait_for_ends(2, "k")
    assert tasks.until_executed.delay("k").id == held.id, "its lock lapses with its ttl"


@pytest.mark.worker
def test_a_fence_rises_with_every_run_and_over_a_flush(
    celery_env: Environment, worker: StartWorker, lock_server: EmbeddedRedis, project: Path
) -> None:
    (project / "fencing.py").write_text(
        "from celery import shared_task\n"
        "from django_jobdedup import current_lock\n"
        "@shared_task(unique=True)\n"
        "def fence():\n"
        "    lock = current_lock()\n"
        "    lock.check()\n"
        "    return lock.fence, lock.held\n"
        "@shared_task(unique=True)\n"
        "def lockless():\n"
        "    return current_lock() is None\n"
    )
    there = celery_env.having(
        celery={"imports": ["project.fencing"]},
        variables={"PYTHONPATH": str(project.parent), "LOCKS_REDIS_URL": lock_server.url},
    )
    worker(there)
    fences = [app.send_task("project.fencing.fence").get(timeout=10) for _ in range(2)]
    lock_server.stop()
    lock_server.start()
    fences.append(app.send_task("project.fencing.fence").get(timeout=20))
    numbers = [number for number, held in fences if held]
    assert numbers == sorted(set(numbers))
    assert len(numbers) == 3
    assert numbers[-1] < 2**63
    assert app.send_task("project.fencing.lockless", unique=False).get(timeout=10) is True


def test_a_dead_store_is_passed_or_refused_as_the_policy_says(
    celery_env: Environment, lock_server: EmbeddedRedis, settings: Any
) -> None:
    """The caller goes on at once, without a lock or with an error, as its policy says."""
    settings.CACHES = {
        **settings.CACHES,
        "jobdedup": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": lock_server.url},
    }
    lock_server.stop()
    result = tasks.until_executed.delay("k")
    assert (result.outcome, result.duplicate) == ("unprotected", False)
    with pytest.raises(StoreUnavailable, match="was not queued"):
        tasks.until_executed.apply_async(("k",), unique={"on_store_error": "raise"})


def test_a_call_turns_on_what_the_settings_have_turned_off(celery_env: Environment) -> None:
    with override_settings(JOBDEDUP_TASKS={UNTIL_EXECUTED: {"unique": False}}):
        results = [tasks.until_executed.apply_async(("k",), unique=on) for on in ({"ttl": 10}, True)]
    assert [result.outcome for result in results] == ["accepted", "suppressed"]


def test_an_eager_result_is_bypassed_and_one_inside_a_group_has_no_attributes(
    celery_env: Environment,
) -> None:
    """What the pages say of results that are no publish's."""
    app.conf.task_always_eager = True
    try:
        eager = [tasks.until_executed.delay("k") for _ in range(2)]
    finally:
        app.conf.task_always_eager = False
    member = group([tasks.until_executed.s("k")]).apply_async().results[0]
    step = chain(tasks.until_executed.si("k"), tasks.until_executed.si("k")).apply_async().parent
    for result in (member, step):
        assert not hasattr(result, "outcome")
        assert outcome_of(result) == "unknown"
    assert [(result.outcome, result.duplicate) for result in eager] == [("bypassed", False)] * 2
    assert [result.get() for result in eager] == ["k", "k"]
    assert tasks.plain.delay("k").outcome == "unknown"


def test_two_aliases_with_one_url_share_the_timeouts_of_the_first(settings: Any) -> None:
    def alias(seconds: int) -> dict[str, Any]:
        options = {"SOCKET_TIMEOUT": seconds}
        return {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": "redis://127.0.0.1:1/7",
            "OPTIONS": options,
        }

    settings.CACHES = {"default": alias(30), "jobdedup": alias(1)}
    pools = [get_redis_connection(name).connection_pool for name in ("default", "jobdedup")]
    assert [pool.connection_kwargs["socket_timeout"] for pool in pools] == [30, 30]


def test_the_options_for_a_fast_recovery_are_kombus_with_its_defaults() -> None:
    text = page("recover-fast-with-late-ack")
    options = run(block(text, "CELERY_BROKER_TRANSPORT_OPTIONS"))["CELERY_BROKER_TRANSPORT_OPTIONS"]
    rows = text.split("| option |")[1].split("\n\n", maxsplit=1)[0].splitlines()[2:]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    defaults = {name.strip("`"): int(default.removesuffix(" s")) for name, default, *_ in cells}
    assert list(options) == list(defaults)
    newer = [name for name in defaults if f'"{name}": {options[name]},  # kombu 5.7' in text]
    assert len(newer) == 2
    known = [name for name in defaults if name not in newer or kombu.VERSION >= (5, 7)]
    assert {name: getattr(Channel, name) for name in known} == {name: defaults[name] for name in known}
    assert all(options[name] < defaults[name] for name in defaults)


MANY = 5000
NAME = "shop.tasks.recompute_tenant"


def test_the_sizes_are_those_of_the_page(lock_server: EmbeddedRedis, settings: Any) -> None:
    """Bytes for a lock that waits, for one that runs, and for a marker; a third more or less is no matter."""
    rows = page("give-the-locks-a-redis").split("| what |")[1].split("\n\n", maxsplit=1)[0].splitlines()[2:]
    written = [int(row.split("|")[2]) for row in rows]
    settings.CACHES = {
        "jobdedup": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": lock_server.url},
    }
    with redis.Redis.from_url(lock_server.url) as client:

        def used() -> int:
            return int(client.info("memory")["used_memory"])

        list(lives(1, used))  # loads the scripts
        before = used()
        measured = [(size - before) / MANY for size in lives(MANY, used)]
    assert measured == pytest.approx(written, rel=1 / 3)


def lives(many: int, used: Callable[[], int]) -> Iterator[int]:
    """Have many jobs wait, run and end; gives the memory in use after each step."""
    store = stores["default"]
    jobs = [(Ref(n % 16, sha256(b"%d of %d" % (n, many)).hexdigest()), str(uuid4())) for n in range(many)]
    store.acquire_many([Acquire(ref, id, by="web@host:12345", name=NAME) for ref, id in jobs])
    store.confirm(jobs)
    yield used()
    for ref, id in jobs:
        store.claim(Claim(ref, id, 0, "n" * 16, late=7200, by="pool@host:12345", name=NAME))
    yield used()
    for ref, id in jobs:
        store.finish(Finish(Token(ref, id, "n" * 16), 0, How.RELEASE, 7200, NAME))
    yield used()


SNIPPET = re.compile(r"Unique\((?:[^()`]|\([^()`]*\))*\)")
DECLARING = re.compile(
    r"```python\n((?:from [^\n]*\n)+\n\n(?:@dataclass[^\n]*\n)?class \w+\((?:LockType|Strategy)\).*?)```",
    re.DOTALL,
)
GOOD_PAGES = [page for page in PAGES if page.name != "policies.md"]  # that one shows what is refused


@pytest.mark.parametrize("path", GOOD_PAGES, ids=lambda path: path.name)
def test_every_policy_in_the_pages_can_be_made(path: Path) -> None:
    names: dict[str, Any] = {"Unique": Unique, "Reschedule": Reschedule, "timedelta": timedelta}
    names |= {"of_the_month": len}
    names["__name__"] = __name__
    for block in DECLARING.findall(path.read_text()):  # lock types and strategies of the reader's own
        exec(block, names)
    for snippet in SNIPPET.findall(path.read_text()):
        if "..." not in snippet:
            eval(snippet, dict(names))

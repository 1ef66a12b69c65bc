"""The one hook: put in place, taken away, beside other people's wrappers, in every app of a process."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
import redis
from celery import Celery
from django.test import override_settings

from django_jobdedup import install, uninstall
from django_jobdedup.dispatching.confirm import confirmer
from django_jobdedup.dispatching.hook import is_installed
from testproject.celery import app
from tests.jobs import tasks
from tests.rig.environment import Environment

from . import jobs
from .looking import holders, ids, locks, messages
from .process import run_python

NAME = "tests.jobs.tasks.until_executed"


@pytest.fixture(autouse=True)
def put_back(celery_env: Environment) -> Iterator[None]:
    """Leave the class as it was."""
    before = Celery.send_task
    yield
    Celery.send_task = before  # type: ignore[method-assign]
    install()
    confirmer.flush()


def test_the_hook_is_in_place_once_django_is_ready(celery_env: Environment) -> None:
    assert run_python(
        celery_env,
        """
        from django_jobdedup.dispatching.hook import is_installed
        from celery import Celery
        tell([is_installed(), hasattr(Celery.send_task.__wrapped__, "jobdedup")])
        """,
    ) == [[True, False]]


def test_installing_twice_is_installing_once(key: str) -> None:
    hook = Celery.send_task
    install()
    install()
    assert Celery.send_task is hook
    uninstall()
    plain = Celery.send_task
    uninstall()
    assert Celery.send_task is plain
    assert not is_installed()
    install()
    assert is_installed()
    assert Celery.send_task is not plain
    assert [tasks.until_executed.delay(key).outcome for _ in range(2)] == ["accepted", "suppressed"]


def test_without_the_hook_everything_is_celerys(
    celery_env: Environment, redis_client: redis.Redis, key: str
) -> None:
    uninstall()
    results = [tasks.until_executed.delay(key) for _ in range(2)]
    assert ids(redis_client, celery_env.namespace) == [result.id for result in results]
    assert not hasattr(results[0], "outcome")
    assert all("jobdedup" not in each["headers"] for each in messages(redis_client, celery_env.namespace))


def wrapped(seen: list[str], *, properly: bool) -> Any:
    """Wrap ``Celery.send_task`` as a tracing library does: with or without ``functools.wraps``."""
    inner = Celery.send_task

    def traced(self: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append(args[0])
        return inner(self, *args, **kwargs)

    Celery.send_task = functools.wraps(inner)(traced) if properly else traced  # type: ignore[method-assign]
    return Celery.send_task


@pytest.mark.parametrize("properly", [True, False], ids=["with functools.wraps", "without"])
@pytest.mark.parametrize("place", ["around ours", "within ours"])
def test_it_lives_beside_another_wrapper(
    celery_env: Environment, redis_client: redis.Redis, key: str, place: str, properly: bool
) -> None:
    seen: list[str] = []
    if place == "within ours":
        uninstall()
    theirs = wrapped(seen, properly=properly)
    install()
    install()
    results = [tasks.until_executed.delay(key) for _ in range(2)]
    assert [result.outcome for result in results] == ["accepted", "suppressed"]
    assert ids(redis_client, celery_env.namespace) == [results[0].id]
    # Where ours cannot see itself through their wrapper, it stands around it once more.
    assert seen == [NAME] * (2 if place == "around ours" and properly else 1)
    uninstall()
    assert not is_installed()
    if place == "within ours" or properly:
        assert Celery.send_task is theirs, "their wrapper is not ours to take away"
    seen.clear()
    third = tasks.until_executed.delay(key)
    if place == "within ours" or properly:
        assert seen == [NAME]
        assert not hasattr(third, "outcome")
        install()
        assert tasks.until_executed.delay(key).outcome == "suppressed"


def test_names_of_celery_and_of_ours_pass(
    celery_env: Environment, redis_client: redis.Redis, key: str
) -> None:
    with override_settings(JOBDEDUP_TASKS={"*": {"unique": {"key": []}}}):
        for name in ("celery.backend_cleanup", "django_jobdedup.maintain"):
            results = [app.send_task(name, queue=key) for _ in range(2)]
            assert len({result.id for result in results}) == 2
    sent = messages(redis_client, celery_env.namespace, key)
    assert len(sent) == 4
    assert all("jobdedup" not in message["headers"] for message in sent)


def test_positional_arguments_of_send_task_keep_their_meaning(
    celery_env: Environment, redis_client: redis.Redis, key: str
) -> None:
    """``send_task(name, args, kwargs, countdown, eta, task_id, ...)``."""
    result = app.send_task(NAME, [key], {}, 100, None, f"{key}-id")
    (message,) = messages(redis_client, celery_env.namespace)
    assert result.id == message["headers"]["id"] == f"{key}-id"
    assert message["headers"]["eta"] > app.now().isoformat()
    (holder,) = holders(result, NAME)
    assert 95 < holder.due - holder.since < 101
    with pytest.raises(TypeError, match="countdown"):
        app.send_task(NAME, [f"{key}-2"], {}, 100, countdown=100)
    with pytest.raises(TypeError):
        app.send_task(NAME, [f"{key}-2"], {}, *range(60))
    assert len(messages(redis_client, celery_env.namespace)) == 1


@pytest.mark.parametrize(
    "options",
    [
        {"countdown": 50},
        {"countdown": 50, "eta": datetime(2000, 1, 1, tzinfo=UTC)},
        {"eta": lambda: datetime.now(UTC) + timedelta(seconds=50)},
        {"eta": lambda: datetime.now(timezone(timedelta(hours=5))) + timedelta(seconds=50)},
        {"eta": lambda: f"{datetime.now(UTC) + timedelta(seconds=50):%Y-%m-%dT%H:%M:%S+00:00}"},
        {"eta": lambda: datetime.now(UTC).replace(tzinfo=None) + timedelta(seconds=50)},
    ],
    ids=["countdown", "both", "aware", "other zone", "text", "naive, read in the app's zone"],
)
def test_the_life_of_a_lock_counts_from_when_the_job_is_due(
    celery_env: Environment, key: str, options: dict[str, Any]
) -> None:
    given = {name: value() if callable(value) else value for name, value in options.items()}
    result = tasks.until_executed.apply_async((key,), **given)
    (holder,) = holders(result, NAME)
    assert 45 < holder.due - holder.since < 51
    assert holder.until - holder.due == pytest.approx(3600, abs=0.01)


def test_off_takes_our_options_out_and_says_bypassed(
    celery_env: Environment, redis_client: redis.Redis, key: str
) -> None:
    with override_settings(JOBDEDUP_MODE="off"):
        results = [tasks.until_executed.apply_async((key,), unique={"ttl": 10}) for _ in range(2)]
        results.append(tasks.until_executed.apply_async((key,), headers={"jobdedup": {"v": 1}, "own": 1}))
    assert {(result.outcome, result.duplicate, result.fingerprint) for result in results} == {
        ("bypassed", False, "")
    }
    sent = messages(redis_client, celery_env.namespace)
    assert [message["headers"]["id"] for message in sent] == [result.id for result in results]
    assert all("jobdedup" not in message["headers"] for message in sent)
    assert all("unique" not in message["properties"] for message in sent)
    assert sent[2]["headers"]["own"] == 1
    assert locks(redis_client, celery_env.namespace) == []


def test_an_app_that_is_made_later_is_hooked_too(
    celery_env: Environment, redis_client: redis.Redis, key: str
) -> None:
    """Two apps of one process share the locks: the same task name and arguments are the same job."""
    second = Celery(
        "second", broker=app.conf.broker_url, backend=app.conf.result_backend, set_as_current=False
    )
    second.conf.broker_transport_options = {"global_keyprefix": f"{celery_env.namespace}:"}

    @second.task(name="second.job", unique={"key": "key"})
    def job(key: str) -> str:
        return key

    first = job.apply_async((key,), queue="second")
    assert job.apply_async((key,), queue="second").id == first.id
    assert first.outcome == "accepted"
    assert first.app is second
    assert ids(redis_client, celery_env.namespace, "second") == [first.id]
    assert tasks.until_executed.delay(key).outcome == "accepted"
    by_name = second.send_task(NAME, (key,), queue="second")
    assert by_name.outcome in ("suppressed", "unknown"), "known by name only if the app has the task"
    second.close()


def test_a_sender_loads_nothing_of_the_workers_side(celery_env: Environment) -> None:
    (loaded,) = run_python(
        celery_env,
        """
        import sys
        from tests.jobs import tasks
        assert tasks.until_executed.delay("a").outcome == "accepted"
        tell(sorted(name for name in sys.modules if name.startswith("django_jobdedup.executing.")))
        """,
    )
    assert loaded == ["django_jobdedup.executing.activation"]


def test_a_sender_without_django_setup_calls_install(
    celery_env: Environment, redis_client: redis.Redis, key: str
) -> None:
    """Such as a script that configures Celery alone; policies come from the settings."""
    import subprocess
    import sys

    from tests.rig.process import ROOT

    source = f"""
from tests.jobs.bare import app
import django_jobdedup
django_jobdedup.install()
results = [app.send_task("{NAME}", kwargs={{"key": "{key}"}}, unique={{"key": "key"}}) for _ in range(2)]
print([str(result.outcome) for result in results])
"""
    done = subprocess.run(
        [sys.executable, "-c", source],
        cwd=ROOT,
        env=celery_env.for_process(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "['accepted', 'suppressed']\n", done.stderr
    assert len(ids(redis_client, celery_env.namespace)) == 1


def test_a_list_and_a_tuple_of_arguments_are_one_call(celery_env: Environment, key: str) -> None:
    """A list and a tuple of arguments are one call."""
    assert app.send_task(NAME, [key]).outcome == "accepted"
    assert app.send_task(NAME, (key,)).outcome == "suppressed"
    assert app.send_task(NAME, None, {"key": key}).outcome == "suppressed"
    assert jobs.named_only.delay(1).outcome == "accepted"
    assert jobs.named_only.delay(2).outcome == "suppressed"

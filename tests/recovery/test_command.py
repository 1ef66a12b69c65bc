"""The command: its subcommands, what they say, how they end."""

from __future__ import annotations

import json
import signal
import time
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError

from django_jobdedup.management import schedule
from django_jobdedup.management.commands.jobdedup import SUBCOMMANDS
from django_jobdedup.recovery.maintain import NAMES
from django_jobdedup.stores.handler import stores
from django_jobdedup.stores.memory import MemoryStore
from django_jobdedup.stores.record import Ref
from django_jobdedup.stores.redis.keys import keys_of
from django_jobdedup.stores.requests import Acquire
from tests.conftest import need
from tests.rig.engines import BACKEND, Engine
from tests.rig.environment import Environment
from tests.rig.waiting import wait_for

from . import command
from .conftest import Locks


def said(*words: str) -> str:
    out = StringIO()
    call_command("jobdedup", *words, stdout=out)
    return out.getvalue()


@pytest.fixture
def lost(memory: MemoryStore, ignored: Locks) -> None:
    """A run that has vanished."""
    ignored.run("a")
    memory.clock.advance(50)


def test_once_it_does_every_duty_and_says_what_came_of_it(lost: None) -> None:
    assert said("maintain") == (
        "relay: nothing to do\nreap: 1 lost\nhistory: nothing to do\nretention: nothing to do\n"
    )


def test_it_says_so_to_machines(lost: None) -> None:
    assert command.lines(said("maintain", "--json")) == [
        {"duty": "relay"},
        {"duty": "reap", "lost": 1},
        {"duty": "history"},
        {"duty": "retention"},
    ]


def test_it_does_only_what_it_is_told(lost: None) -> None:
    assert said("maintain", "--only", "retention,relay") == "relay: nothing to do\nretention: nothing to do\n"


@pytest.mark.parametrize("wrong", ["reaper", "", ",", "relay,shop"])
def test_a_duty_that_does_not_exist_is_refused(wrong: str) -> None:
    with pytest.raises(CommandError, match=r"there is no duty .*; use relay, reap, history, retention"):
        call_command("jobdedup", "maintain", "--only", wrong)


def test_a_duty_that_cannot_be_done_is_exit_code_1(
    celery_env: Environment, memory: MemoryStore, settings: Any
) -> None:
    settings.JOBDEDUP_STORES = {"broken": {"BACKEND": "no.such.Store"}}
    out = StringIO()
    with pytest.raises(CommandError, match="maintain: not all could be done") as caught:
        call_command("jobdedup", "maintain", "--only", "reap", stdout=out)

    assert caught.value.returncode == 1
    assert out.getvalue() == "reap: 1 unavailable\n"


def test_a_process_without_a_celery_app_is_told_what_to_write(celery_env: Environment) -> None:
    bare = celery_env.having(variables={"DJANGO_SETTINGS_MODULE": "tests.recovery.no_celery"})
    ended = command.run(bare, "maintain")

    assert ended.returncode == 1
    assert "No Celery app is loaded, so nothing can be published. Import your app" in ended.stderr


def test_without_a_subcommand_it_says_which_there_are(celery_env: Environment) -> None:
    ended = command.run(celery_env)

    assert ended.returncode == 2
    assert {each.name for each in SUBCOMMANDS} == {"maintain", "schedule"}
    assert "arguments are required: subcommand" in ended.stderr


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_loop_ends_well_when_it_is_told_to(
    celery_env: Environment, how: signal.Signals, redis_client: Any
) -> None:
    process = command.start(celery_env, "maintain", "--loop", "--only", "reap", "--json")
    index = keys_of(celery_env.namespace).shards[0].index
    redis_client.zadd(index, {"f" * 64: 1})  # of a lock that is gone: the reaper takes it out
    wait_for(lambda: not redis_client.exists(index), 20, what="the loop at work")
    process.send_signal(how)
    out, err = process.communicate(timeout=10)

    assert (process.returncode, out, err) == (0, "", "")


def test_the_duties_are_those_of_the_page() -> None:
    assert NAMES == ("relay", "reap", "history", "retention")


# The entry of django-celery-beat -------------------------------------------------------------------


def test_without_django_celery_beat_it_says_what_to_write() -> None:
    with pytest.raises(CommandError, match="django_celery_beat is not installed") as caught:
        call_command("jobdedup", "schedule")

    assert 'CELERY_BEAT_SCHEDULE = {"jobdedup-maintain": {"task": "django_jobdedup.maintain"' in str(
        caught.value
    )


def test_without_its_tables_it_says_what_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    class Missing:
        @property
        def objects(self) -> Any:
            raise DatabaseError("no such table: django_celery_beat_intervalschedule")

    monkeypatch.setattr(schedule.apps, "is_installed", lambda name: True)
    monkeypatch.setattr(schedule, "_model", lambda name: Missing())
    with pytest.raises(CommandError, match=r"no such table.*; run: manage\.py migrate django_celery_beat"):
        call_command("jobdedup", "schedule")


@pytest.fixture
def beat_world(celery_env: Environment, tmp_path: Any, settings: Any) -> Environment:
    """A project with django-celery-beat, and its tables."""
    need(find_spec("django_celery_beat") is not None, "django-celery-beat")
    world = celery_env.having(
        settings={"INSTALLED_APPS": [*settings.INSTALLED_APPS, "django_celery_beat"]},
        variables={"DATABASE_PATH": str(tmp_path / "beat.sqlite3")},
    )
    migrated = command.run(world, command="migrate")
    assert migrated.returncode == 0, migrated.stderr
    return world


ROWS = """
import json
from django_celery_beat.models import IntervalSchedule, PeriodicTask
rows = [
    [r.name, r.task, r.interval.every, r.interval.period, r.expire_seconds, r.enabled, r.queue]
    for r in PeriodicTask.objects.all()
]
print(json.dumps([rows, IntervalSchedule.objects.count()]))
"""


def test_the_entry_is_installed_once_and_set_right(beat_world: Environment) -> None:
    first = command.run(beat_world, "schedule", "--json")
    assert first.returncode == 0, first.stderr
    again = command.run(beat_world, "schedule", "--queue", "upkeep")
    rows, intervals = json.loads(command.shell(beat_world, ROWS))

    assert command.lines(first.stdout) == [
        {"entry": "django_jobdedup.maintain", "created": True, "enabled": True, "every": 15.0}
    ]
    assert again.stdout == "django_jobdedup.maintain: set right, every 15 s\n"
    name = "django_jobdedup.maintain"
    assert rows == [[name, name, 15, "seconds", 60, True, "upkeep"]]
    assert intervals == 1


def test_an_entry_that_a_person_has_switched_off_stays_off(beat_world: Environment) -> None:
    command.run(beat_world, "schedule")
    command.shell(
        beat_world,
        "from django_celery_beat.models import PeriodicTask; PeriodicTask.objects.update(enabled=False)",
    )

    assert command.run(beat_world, "schedule").stdout.endswith("; it is switched off\n")


UNSEEN = """
from django.core.management import call_command
from django_celery_beat.models import IntervalSchedule, PeriodicTask
every = IntervalSchedule.objects.create(every=60, period="seconds")
for name, enabled in (("unseen", True), ("switched off", False)):
    PeriodicTask.objects.create(name=name, task="app.sync", interval=every, enabled=enabled)
for words in ([], ["--database", "default"]):
    call_command("check", "--tag", "jobdedup", *words)
"""


def test_rows_that_send_what_nothing_imports_are_warned_of_where_the_database_is_asked(
    beat_world: Environment,
) -> None:
    """Case U10: beat sends such a task by name, past its policy."""
    told = command.shell(beat_world, f"import sys; sys.stderr = sys.stdout\n{UNSEEN}")
    assert told.count("(jobdedup.W109)") == 1
    assert "Beat's entry 'unseen' sends 'app.sync'" in told


def test_once_it_says_how_many_rows_are_not_due_yet(
    celery_env: Environment, sqlite_engine: Engine, settings: Any
) -> None:
    """Their senders may still publish them; whoever looks shall not read that there is nothing."""
    settings.JOBDEDUP_STORES = sqlite_engine.stores
    stores["default"].acquire(Acquire(Ref(0, "f" * 64), "a", call=b"a call"))
    assert said("maintain", "--only", "relay") == "relay: 1 not due yet\n"
    assert command.lines(said("maintain", "--only", "relay", "--json")) == [
        {"duty": "relay", "not_due_yet": 1}
    ]


def test_they_are_not_due_by_the_clock_of_the_database(
    celery_env: Environment, sqlite_engine: Engine, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a host whose own clock is an hour ahead they seemed to be due, and not to be there."""
    settings.JOBDEDUP_STORES = sqlite_engine.stores
    stores["default"].acquire(Acquire(Ref(0, "f" * 64), "a", call=b"a call"))
    ahead = time.time() + 3600
    monkeypatch.setattr(time, "time", lambda: ahead)
    assert said("maintain", "--only", "relay") == "relay: 1 not due yet\n"


def test_without_tables_every_duty_says_what_to_run(
    celery_env: Environment,
    sqlite_engine: Engine,
    settings: Any,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    django_db_blocker: Any,
) -> None:
    settings.JOBDEDUP_STORES = {"default": {"BACKEND": BACKEND, "LOCATION": "bare"}}
    with Engine("sqlite", "bare", {**sqlite_engine.database, "NAME": str(tmp_path / "bare")}).known():
        with pytest.raises(CommandError):
            said("maintain")
        stores.reset()
    words = [record.getMessage() for record in caplog.records if "store_unavailable" in str(record.__dict__)]
    assert {word.partition("(")[2].partition(")")[0] for word in words} >= {"due", "retention"}
    assert all("run: manage.py migrate jobdedup --database bare" in word for word in words)
    assert "internal error" not in caplog.text

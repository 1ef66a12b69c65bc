"""The demo: it ends by itself and well, leaves nothing behind, and sees a duplicate and a lost job."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import psutil
import pytest
import redis

from testproject.demo.facts import Asked, Ran
from testproject.demo.storm import Storm, Wanted
from testproject.demo.tally import Tally, finished
from testproject.demo.verdict import judge
from testproject.embedded_redis import EmbeddedRedis, free_port

from .rig.waiting import wait_for

ROOT = Path(__file__).resolve().parent.parent
KILLED_AT = 100.0


class Demo:
    """``python -m testproject.demo`` in an empty temporary folder; ``given`` is its ``REDIS_URL``."""

    def __init__(self, folder: Path, *, given: str | None = None, **options: Any) -> None:
        self.folder = folder
        ours = ("REDIS_URL", "LOCKS_REDIS_URL", "DATABASE_PATH", "DJANGO_SETTINGS_MODULE", "TEST_NAMESPACE")
        environment = {name: value for name, value in os.environ.items() if name not in ours}
        if given is not None:
            environment["REDIS_URL"] = given
        environment |= {f"TESTPROJECT_{name.upper()}": json.dumps(value) for name, value in options.items()}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "testproject.demo"],
            cwd=ROOT,
            env={**environment, "TMPDIR": str(folder)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # A test run in the background of a shell inherits an ignored SIGINT, and would pass it on.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
        )
        self.family: set[psutil.Process] = set()

    def finish(self, timeout: float = 55.0) -> str:
        """Wait for the end; gives what it printed."""
        output, _ = self.process.communicate(timeout=timeout)
        return output

    def end(self) -> None:
        """End it if it still plays."""
        if self.process.poll() is None:
            self.process.terminate()
            self.finish(20)

    def meet_family(self) -> int:
        """Note the processes that it has started so far; gives how many run right now."""
        found = psutil.Process(self.process.pid).children(recursive=True)
        self.family.update(found)
        return len(found)

    def remains(self) -> list[str]:
        """What is left: processes of its family, files."""
        alive = [process for process in self.family if process.is_running() and process.status() != "zombie"]
        return [*map(str, alive), *map(str, self.folder.iterdir())]


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty folder with a short path."""
    with tempfile.TemporaryDirectory(prefix="test-demo-") as folder:
        yield Path(folder)


def cells(output: str, name: str) -> list[str]:
    """The numbers of one row of the table."""
    row = re.search(rf"^ *{name} +(.+?) *$", output, re.MULTILINE)
    assert row is not None, output
    return row[1].replace(",", "").split(maxsplit=4)


@pytest.mark.worker
@pytest.mark.slow
def test_the_storm_is_deduplicated_and_the_killed_jobs_recover(folder: Path) -> None:
    """The whole demo, on a Redis of its own, without a terminal."""
    demo = Demo(folder)
    wait_for(lambda: demo.meet_family() >= 6, 30, what="Redis, a worker and its pool")
    output = demo.finish()
    assert demo.process.returncode == 0, output
    asked, accepted, suppressed, run, _ = cells(output, "equal recomputations")
    assert (asked, run) == ("1400", accepted)
    assert int(accepted) + int(suppressed) == 1400
    assert int(accepted) < 140
    assert cells(output, "distinct reports")[:4] == ["84", "84", "0", "84"]
    assert float(re.findall(r"run again after ([\d.]+) s", output)[0]) < 20, (
        "a lease and a redelivery, no TTL"
    )
    assert "none was lost" in output
    assert "\x1b" not in output
    assert demo.remains() == []


@pytest.mark.worker
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_in_the_storm_leaves_nothing_behind(
    folder: Path, lock_server: EmbeddedRedis, number: signal.Signals
) -> None:
    demo = Demo(folder, given=lock_server.url)
    with redis.Redis.from_url(lock_server.url) as client:
        wait_for(lambda: client.keys("*lock:*"), 30, what="a first lock")
        demo.meet_family()
        demo.process.send_signal(number)
        output = demo.finish(20)
        assert demo.process.returncode == 130, output
        assert "Traceback" not in output
        assert client.keys() == []
    assert demo.family
    assert demo.remains() == []


@dataclass(frozen=True)
class Played:
    """A demo that has come to its end, and what was left of it: files, keys."""

    code: int
    output: str
    remains: list[str]
    keys: list[bytes]


Name = Literal["given Redis", "no locks", "early ack"]


@pytest.fixture(scope="module")
def played() -> Iterator[Callable[[Name], Played]]:
    """Demos played side by side, as most of each is waiting; gives the one of that name."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(EmbeddedRedis())
        client = stack.enter_context(redis.Redis.from_url(server.url))
        client.set("somebody's", "key")
        prefix = "test-demo-"
        folders = [Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=prefix))) for _ in range(3)]
        demos: dict[Name, Demo] = {
            "given Redis": Demo(folders[0], given=server.url),
            "no locks": Demo(folders[1], settings={"JOBDEDUP_MODE": "off"}),
            "early ack": Demo(folders[2], celery={"task_acks_late": False}),
        }
        for demo in demos.values():
            stack.callback(demo.end)

        def give(name: Name) -> Played:
            output = demos[name].finish(80)
            return Played(demos[name].process.returncode, output, demos[name].remains(), client.keys())

        yield give


@pytest.mark.worker
@pytest.mark.slow
@pytest.mark.timeout(90)
def test_a_given_redis_keeps_its_keys_and_gets_none(played: Callable[[Name], Played]) -> None:
    demo = played("given Redis")
    assert demo.code == 0, demo.output
    assert demo.keys == [b"somebody's"]
    assert demo.remains == []


@pytest.mark.worker
@pytest.mark.slow
@pytest.mark.timeout(90)
@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("no locks", r"recompute_tenant\(\d\) (was queued twice|ran twice at the same time)"),
        ("early ack", r"\(.*\) was lost: job [\w-]+ never ran to its end"),
    ],
)
def test_it_ends_with_1_and_names_a_duplicate_or_a_lost_job(
    played: Callable[[Name], Played], name: Name, sentence: str
) -> None:
    """Early ack loses what the killed worker ran, as Celery's users choose; the demo must see it."""
    demo = played(name)
    assert demo.code == 1, demo.output
    assert re.search(sentence, demo.output)


def test_an_interrupt_in_the_midst_of_the_beginning_stops_the_storm() -> None:
    """Its threads would go on calling while the demo cleans up."""
    made: list[int] = []

    def delay(number: int) -> SimpleNamespace:
        made.append(number)
        return SimpleNamespace(id=str(number))

    class Interrupted(list[Wanted]):
        def __iter__(self) -> Iterator[Wanted]:
            yield from itertools.islice(super().__iter__(), 20)
            raise KeyboardInterrupt

    task = SimpleNamespace(delay=delay, __name__="f")
    calls = Storm(Interrupted(Wanted(task, (number,)) for number in range(100)))
    with pytest.raises(KeyboardInterrupt), calls:
        calls.begin()
    number = len(made)
    time.sleep(0.3)
    assert len(made) == number < 20


def test_a_given_redis_that_does_not_answer_is_said_so(folder: Path) -> None:
    demo = Demo(folder, given=f"redis://127.0.0.1:{free_port()}/0")
    output = demo.finish(30)
    assert demo.process.returncode == 1, output
    assert "does not answer" in output
    assert "Traceback" not in output
    assert demo.remains() == []


def asked(job: str, at: float, *, call: str = "f(1)", duplicate: bool = False) -> Asked:
    """A call that took a tenth of a second."""
    return Asked(call, job, duplicate, at, at + 0.1)


def ran(job: str, started: float, ended: float | None, *, call: str = "f(1)") -> Ran:
    return Ran(call, job, started, ended)


def test_jobs_one_after_the_other_are_no_duplicates() -> None:
    calls = [asked("a", 0), asked("a", 0.5, duplicate=True), asked("b", 3)]
    verdict = judge(calls, [ran("a", 1, 2), ran("b", 4, 5)], KILLED_AT)
    assert verdict.good


def test_different_calls_may_run_together() -> None:
    calls = [asked("a", 0), asked("b", 0, call="f(2)")]
    assert judge(calls, [ran("a", 1, 2), ran("b", 1, 2, call="f(2)")], None).good


def test_a_run_that_was_cut_off_and_came_again_is_no_duplicate() -> None:
    verdict = judge([asked("a", 98)], [ran("a", 99, None), ran("a", 103, 104)], KILLED_AT)
    assert verdict.good


def test_a_run_that_ended_just_before_the_kill_may_come_again() -> None:
    """Its worker died between the last line of the body and the ack."""
    assert judge([asked("a", 98)], [ran("a", 99, 99.9), ran("a", 103, 104)], KILLED_AT).good


@pytest.mark.parametrize(
    ("calls", "runs", "sentence"),
    [
        pytest.param(
            [asked("a", 0), asked("b", 1)], [ran("a", 2, 3), ran("b", 4, 5)], "was queued twice", id="flight"
        ),
        pytest.param(
            [asked("a", 0), asked("b", 9)], [ran("a", 1, 11), ran("b", 10, 12)], "same time", id="overlap"
        ),
        pytest.param([asked("a", 0)], [ran("a", 1, 2), ran("a", 3, 4)], "twice to its end", id="again"),
        pytest.param([asked("a", 98)], [ran("a", 99, None), ran("a", 99.5, 101)], "same time", id="cut"),
        pytest.param([asked("a", 0)], [ran("a", 1, 2), ran("x", 3, 4)], "no call started", id="unasked"),
    ],
)
def test_a_duplicate_is_named(calls: list[Asked], runs: list[Ran], sentence: str) -> None:
    verdict = judge(calls, runs, KILLED_AT)
    assert not verdict.good
    assert any(sentence in found for found in verdict.duplicates)


@pytest.mark.parametrize("runs", [[], [ran("a", 99, None)]], ids=["never ran", "cut off and never again"])
def test_a_lost_job_is_named(runs: list[Ran]) -> None:
    verdict = judge([asked("a", 98), asked("a", 98.5, duplicate=True)], runs, KILLED_AT)
    assert verdict.lost == ("f(1) was lost: job a never ran to its end.",)


def test_a_tally_counts_ends_and_cuts_apart() -> None:
    calls = [asked("a", 98), asked("a", 99, duplicate=True)]
    tally = Tally.of(calls, [ran("a", 99, None), ran("a", 103.5, 104)], KILLED_AT)
    assert tally == Tally(asked=2, accepted=1, suppressed=1, run=1, cut=1, recovered=3.5)


def test_a_demo_is_finished_when_every_id_ran_to_its_end() -> None:
    assert not finished([asked("a", 0)], [ran("a", 1, None)])
    assert finished([asked("a", 0)], [ran("a", 1, None), ran("a", 2, 3)])

"""U18: to look and to lock is one step, whatever the number of processes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest

from tests.rig.environment import Environment
from tests.rig.journal import Journal
from tests.rig.process import ROOT
from tests.rig.waiting import wait_for
from tests.rig.worker import Worker

pytestmark = [pytest.mark.worker, pytest.mark.slow, pytest.mark.timeout(120)]

NODE = {"pool": "threads", "concurrency": 48}
NAME = "tests.jobs.tasks.until_executed"


def storm(world: Environment, **plan: Any) -> list[list[list[Any]]]:
    """Run ``tests.dispatching.storm`` and give what each process saw, by round."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.dispatching.storm", json.dumps({"task": NAME, **plan})],
        cwd=ROOT,
        env=world.for_process(),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == "", done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("TELL")]
    rounds: list[list[list[Any]]] = json.loads(line.removeprefix("TELL"))
    return rounds


def test_of_32_processes_at_a_barrier_one_is_accepted_in_each_of_200_rounds(
    world: Environment, node: Worker, diary: Journal
) -> None:
    """The worker runs, and so frees, the jobs of earlier rounds meanwhile."""
    rounds = storm(world, processes=32, rounds=200, key="round-{}", seconds=1.5, barrier=True)
    winners = []
    for number, answers in enumerate(rounds):
        outcomes = Counter(outcome for outcome, _, _ in answers)
        assert outcomes == {"accepted": 1, "suppressed": 31}, f"round {number}: {answers}"
        ((_, duplicate, winner),) = [answer for answer in answers if answer[0] == "accepted"]
        assert duplicate is False
        assert {task_id for _, _, task_id in answers} == {winner}
        winners.append(winner)
    wait_for(lambda: len(diary.ended()) >= 200, 30, what=lambda: f"200 ends: {len(diary.ended())}")
    assert sorted(run.id for run in diary.runs()) == sorted(winners)
    assert len(set(winners)) == 200


def test_calls_that_race_with_releases_of_their_own_key_never_fail_or_overlap(
    world: Environment, node: Worker, diary: Journal
) -> None:
    """A key that is freed between the look and the answer means one accepted call more, never an error."""
    rounds = storm(world, processes=8, rounds=600, key="hot", seconds=0.0, barrier=False)
    answers = [answer for answers in rounds for answer in answers]
    accepted = [task_id for outcome, _, task_id in answers if outcome == "accepted"]
    assert Counter(outcome for outcome, _, _ in answers).keys() == {"accepted", "suppressed"}
    assert {task_id for _, _, task_id in answers} == set(accepted)
    diary.wait_for_ends(len(accepted), "hot", timeout=20)
    assert sorted(run.id for run in diary.runs("hot")) == sorted(accepted)
    assert diary.overlaps("hot") == []
    assert len(accepted) > 10, "the key was freed often"

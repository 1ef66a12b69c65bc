"""Every form where ``task_routes`` gives the shared work a queue of its own; each worker has one queue."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from tests.rig.environment import Environment
from tests.rig.journal import Journal
from tests.rig.worker import Worker

from . import tasks
from .conftest import WAIT
from .forms import FORMS, Story

pytestmark = [pytest.mark.worker, pytest.mark.timeout(120)]

SHARED = "shared"
WORLD = {"celery": {"task_routes": {tasks.follow.name: {"queue": SHARED}}}}
Told = dict[str, tuple[str, Story]]


@pytest.fixture(scope="module")
def sharer(world: Environment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """The worker of the shared work, on that queue only."""
    with Worker(world, tmp_path_factory.mktemp("sharer"), queues=[SHARED], concurrency=4) as worker:
        yield worker.wait_until_ready()


@pytest.fixture(scope="module")
def told(node: Worker, sharer: Worker) -> Told:
    """Every form, started at once."""
    keys = {name: f"routed-{secrets.token_hex(4)}" for name in FORMS}
    return {name: (key, FORMS[name].start(tasks.follow, key)) for name, key in keys.items()}


@pytest.mark.parametrize("name", FORMS)
def test_it_comes_to_its_end_on_the_queues_of_its_members(
    told: Told, node: Worker, sharer: Worker, diary: Journal, name: str
) -> None:
    key, story = told[name]
    values = story.values([result.get(timeout=WAIT) for result in story.results])
    for callback in story.callbacks:
        assert len(diary.wait_for_ends(1, callback, WAIT)) == 1
    (run,) = diary.runs(key)
    assert values == [f"{key} by {run.id}"] * FORMS[name].calls
    assert run.id in sharer.log


def test_no_worker_has_seen_what_is_not_of_its_queue(told: Told, node: Worker, sharer: Worker) -> None:
    for _, story in told.values():
        for result in story.results:
            result.get(timeout=WAIT)
    assert f"Task {tasks.follow.name}[" not in node.log
    others = (tasks.plain, tasks.tail, tasks.quiet, tasks.total, tasks.replacing)
    assert not [each.name for each in others if f"Task {each.name}[" in sharer.log]

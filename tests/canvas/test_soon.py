"""Case U40: a workflow ends within five seconds of the work that its members share, in every form."""

from __future__ import annotations

import secrets
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.rig.journal import Journal
from tests.rig.worker import Worker

from . import tasks
from .conftest import WAIT
from .forms import FORMS, Story

pytestmark = [pytest.mark.worker, pytest.mark.alone]

SOON = 5.0
"""Seconds, while all forms are under way at once."""


@pytest.fixture(scope="module")
def told(node: Worker) -> dict[str, tuple[str, Story]]:
    """Every form, started at once."""
    keys = {name: f"soon-{secrets.token_hex(4)}" for name in FORMS}
    return {name: (key, FORMS[name].start(tasks.follow, key)) for name, key in keys.items()}


@pytest.mark.parametrize("name", FORMS)
def test_it_ends_soon_after_the_work(told: dict[str, tuple[str, Story]], diary: Journal, name: str) -> None:
    key, story = told[name]
    for result in story.results:
        result.get(timeout=WAIT)
    (run,) = diary.runs(key)
    assert run.ended is not None
    ends = [_stored_at(result) for result in story.results]
    ends += [diary.wait_for_ends(1, callback, WAIT)[0].started for callback in story.callbacks]
    assert max(ends) - run.ended < SOON


def _stored_at(result: Any) -> float:
    """The moment by the clock of the journal, which is that of this machine."""
    done: datetime = result.date_done
    moment = (done if done.tzinfo else done.replace(tzinfo=UTC)).timestamp()
    return moment - time.time() + time.monotonic()

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
"""Seconds."""
AT_ONCE = 4
"""Forms under way at a time: the machine is not what is judged."""


@pytest.fixture(scope="module")
def told(node: Worker) -> dict[str, tuple[str, Story]]:
    """Every form, a few at a time, at its end."""
    told: dict[str, tuple[str, Story]] = {}
    names = list(FORMS)
    for start in range(0, len(names), AT_ONCE):
        some = {name: f"soon-{secrets.token_hex(4)}" for name in names[start : start + AT_ONCE]}
        told |= {name: (key, FORMS[name].start(tasks.follow, key)) for name, key in some.items()}
        for name in some:
            for result in told[name][1].results:
                result.get(timeout=WAIT)
    return told


@pytest.mark.parametrize("name", FORMS)
def test_it_ends_soon_after_the_work(told: dict[str, tuple[str, Story]], diary: Journal, name: str) -> None:
    key, story = told[name]
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

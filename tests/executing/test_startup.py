"""A worker refuses to start with what would fail every job it takes."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from tests.rig.environment import Environment

pytestmark = pytest.mark.worker

REDIS_STORE = "django_jobdedup.stores.redis.store.RedisStore"


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"JOBDEDUP_MODE": "of"}, "JOBDEDUP_MODE needs one of"),
        ({"JOBDEDUP_STORES": {"default": {"BACKEND": REDIS_STORE, "LOCATION": "nope"}}}, "nope"),
        ({"JOBDEDUP_MIDDLEWARE": ["tests.jobs.Missing"]}, "tests.jobs.Missing"),
        ({"JOBDEDUP_TASKS": {"tests.jobs.tasks.plain": {"unique": {"key": "wrong"}}}}, "wrong"),
        ({"JOBDEDUP_TASKS": {"tests.jobs.tasks.plain": {"unique": {"store": "other"}}}}, "other"),
        (
            {
                "CELERY_BROKER_TRANSPORT_OPTIONS": {"visibility_timeout": 60},
                "JOBDEDUP_TASKS": {
                    "tests.jobs.tasks.plain": {
                        "unique": {"lock": "while_executing", "on_conflict": ["wait", {"seconds": 30}]}
                    }
                },
            },
            "Wait(30) is above a third of the broker's visibility timeout (60 s)",
        ),
    ],
    ids=["mode", "store", "middleware", "key", "alias", "wait"],
)
def test_a_worker_does_not_start_with_what_cannot_work(
    celery_env: Environment, settings: dict[str, Any], sentence: str
) -> None:
    """It says which setting or task it is, and exits before it takes a message."""
    words = [sys.executable, "-m", "celery", "-A", "testproject", "worker", "--pool", "solo"]
    ended = subprocess.run(
        [*words, "--without-gossip", "--without-mingle"],
        env=celery_env.having(settings=settings).for_process(),
        capture_output=True,
        text=True,
        timeout=40,
        check=False,
    )
    assert ended.returncode != 0
    assert "this worker does not start" in ended.stderr
    assert sentence in ended.stderr
    assert " ready." not in ended.stderr + ended.stdout

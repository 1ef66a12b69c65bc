"""A place: one worker, and what can be seen of it, whichever store keeps its locks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import redis

from django_jobdedup.dead import dead_jobs
from django_jobdedup.models import JobIntent
from tests.rig.engines import Engine
from tests.rig.journal import Journal
from tests.rig.waiting import wait_for
from tests.rig.worker import Worker

from . import strategy_tasks
from .remains import LockKeys


@dataclass(frozen=True)
class Place:
    """One worker, and what can be seen of it."""

    worker: Worker
    journal: Journal
    keys: LockKeys
    client: redis.Redis
    namespace: str
    engine: Engine
    store: str

    def values(self, key: str) -> list[int]:
        """Give the values with which bodies ran."""
        return strategy_tasks.values(self.client, self.namespace, key)

    def let_end(self, key: str) -> None:
        """Let the runs of a key end, however long they were to take."""
        strategy_tasks.let_end(self.client, self.namespace, key)

    def dead(self) -> dict[str, Any]:
        """Give the dead jobs by task id."""
        return {row.token: row for row in dead_jobs(self.engine.alias)}

    def check_covered(self, id: str, by: str) -> None:
        """Insist that the row of a call, where there is one, says that another job covers it."""
        if self.store == "database":
            row = JobIntent.objects.using(self.engine.alias).get(token=id)
            assert (row.state, row.mark_by) == ("superseded", by)

    def wait_until_free(self) -> None:
        """Wait until no lock is left."""
        if self.store == "redis":
            self.keys.wait_until_empty()
        else:
            wait_for(lambda: not JobIntent.objects.using(self.engine.alias).held().exists(), 5)

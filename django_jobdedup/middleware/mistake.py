"""What was caught in a publish that Celery makes itself: a mistake in the project, or a bug of ours."""

from __future__ import annotations

import logging
from typing import Final

from django.core.exceptions import ImproperlyConfigured

from django_jobdedup import signals
from django_jobdedup.exceptions import FingerprintError, PolicyError, StoredCallError
from django_jobdedup.middleware.out_of_time import let_pass

logger = logging.getLogger("django_jobdedup")

#: Errors whose sentence says what to write instead; a traceback would add nothing.
MISTAKES: Final = (PolicyError, FingerprintError, StoredCallError, ImproperlyConfigured)
#: Sentences that a process keeps; beat would say each of them at every tick.
_KEPT: Final = 1000
_said: Final[set[tuple[str, str]]] = set()


def report(where: str, task: str, error: Exception) -> None:
    """Log a mistake of the project once per task and sentence; send ``internal_error`` for the rest.

    Raises a soft time limit again: the body that publishes has to end.
    """
    let_pass(error)
    if not isinstance(error, MISTAKES):
        signals.report(where, error)
        return
    said = task, str(error).removeprefix(f"{task}: ")
    if said in _said:
        return
    if len(_said) >= _KEPT:
        _said.clear()
    _said.add(said)
    logger.error("%s goes without a lock: %s", *said, extra={"action": "mistake", "task": task})


def forget() -> None:
    """Say everything again."""
    _said.clear()

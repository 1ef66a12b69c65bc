"""The presence key: this worker's queues are attended by this app."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

from django_jobdedup import signals
from django_jobdedup.stores.handler import stores

#: How long a presence key lives, seconds: senders keep locking while workers are down for days.
LIVES: Final = 30 * 86400.0
#: How often a running worker leaves it anew, seconds: a store that was down or has lost its memory knows
#: it again soon, and a queue that was added at run time is known.
AGAIN: Final = 30.0


class Presence:
    """The queues of this worker, and when their keys are due again."""

    def __init__(self) -> None:
        self._queues: Iterable[str] = ()
        self._due = 0.0

    def announce(self, queues: Iterable[str]) -> None:
        """Leave the presence key of each queue in every store; ``queues`` is read again each time."""
        self._queues = queues
        self._due = time.monotonic() + AGAIN
        names = tuple(queues)
        if names:
            for alias in stores:
                _announce(alias, names)

    def refresh(self) -> None:
        """Leave the keys anew, every half minute."""
        if time.monotonic() >= self._due:
            self.announce(self._queues)


def _announce(alias: str, names: tuple[str, ...]) -> None:
    try:
        stores[alias].announce(names, LIVES)
    except Exception as error:  # one store that cannot be made does not silence the others
        signals.report("presence.announce", error)


presence: Final = Presence()

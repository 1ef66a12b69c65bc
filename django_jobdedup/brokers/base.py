"""The contract of a broker: it lists, finds and counts messages, and changes nothing.

Nothing here deletes, acknowledges, moves or publishes. What cannot be read in full and surely is
``Unreadable``: whoever wants proof that a message is gone has none then.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator

from django_jobdedup.brokers.found import Count, Found
from django_jobdedup.brokers.message import Message


class Broker(ABC):
    """The messages of one Celery app's broker. Every call opens a connection of its own and closes it."""

    @abstractmethod
    def queues(self) -> tuple[str, ...]:
        """Return the queues that may hold jobs: the app's own and those that the broker knows; sorted."""

    @abstractmethod
    def count(self, queue: str) -> Count:
        """Count a queue's messages in a few round trips; a queue that does not exist holds none."""

    @abstractmethod
    def messages(self, queue: str) -> Iterator[Message]:
        """Go over what waits in a queue, newest first within a priority; memory for one batch.

        An entry that no worker could read comes with an empty ``id``. A queue that moves while it is read
        may show a message twice, under one ``tag``.
        """

    @abstractmethod
    def unacked(self) -> Iterator[Message]:
        """Go over what workers hold of any queue: running with late ack, prefetched, waiting for an eta."""

    @abstractmethod
    def find(
        self, task_ids: Iterable[str], queues: Iterable[str] | None = None, *, patience: float = 0.0
    ) -> Found:
        """Say where each id was seen in these queues (all known ones by default) and in workers' hands.

        One reading, whatever the number of ids. An id in ``missing`` was at no moment of the reading in
        this broker, but for a message that a worker had popped and not yet noted: ``patience`` is the
        number of seconds after which ids that were not seen are looked for once more.
        Raises Unreadable rather than guess.
        """

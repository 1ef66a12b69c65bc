"""One message as it lies in a broker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from django_jobdedup.brokers.content import Body, Content
from django_jobdedup.header import HEADER, Header


class Place(StrEnum):
    """Where in a broker a message lies."""

    QUEUE = "queue"
    PRIORITY_LIST = "priority list"
    UNACKED = "unacked"
    DELAYED = "delayed"


@dataclass(frozen=True, slots=True)
class Message:
    """One message. Its ``repr`` shows no arguments.

    ``id`` and ``task`` are empty for an entry that no worker can read; ``task`` also for a message of
    Celery's protocol 1, which keeps it in the body. ``priority`` is what the sender asked for, ``tag``
    kombu's delivery tag, ``raw`` the entry as it lies there. ``redelivered`` is True also where it cannot
    be told. ``headers`` are plain JSON.
    """

    id: str
    task: str
    queue: str
    place: Place
    priority: int = 0
    eta: datetime | None = None
    tag: str = ""
    redelivered: bool = True
    headers: Mapping[str, Any] = field(default_factory=dict, repr=False)
    raw: bytes = field(default=b"", repr=False)
    content: Content | None = field(default=None, repr=False)

    @property
    def header(self) -> Header | None:
        """Return our own header; None for a message without one."""
        return Header.decode(self.headers.get(HEADER))

    def body(self) -> Body:
        """Decode the arguments, with a serializer that the project accepts; raises Unreadable otherwise."""
        return (self.content or Content()).decode()

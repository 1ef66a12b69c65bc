"""kombu's envelope on Redis: a JSON text in a list, or ``[message, exchange, routing key]`` in ``unacked``.

Headers are read as plain JSON: kombu's own reader would need every type that the sender registered, and
an entry that only a worker can read must not look like garbage here. Pickle stays closed: it is in the body.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django_jobdedup.brokers.content import Content
from django_jobdedup.brokers.message import Message, Place


def read_entry(raw: bytes, queue: str, place: Place, accept: frozenset[str]) -> Message:
    """Read an entry of a list; one that no worker can read has no id."""
    return _message(_json(raw), raw, queue, place, accept)


def read_unacked(raw: bytes, accept: frozenset[str]) -> tuple[Message, str, str]:
    """Read an entry of ``unacked``: its message, still without a queue, exchange and routing key."""
    match _json(raw):
        case [payload, exchange, routing_key]:
            message = _message(payload, raw, "", Place.UNACKED, accept)
            return message, str(exchange or ""), str(routing_key or "")
    return Message("", "", "", Place.UNACKED, raw=raw), "", ""


def _json(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None


def _message(payload: Any, raw: bytes, queue: str, place: Place, accept: frozenset[str]) -> Message:
    match payload:
        case {"headers": Mapping() as headers, "properties": Mapping() as properties}:
            pass
        case _:
            return Message("", "", queue, place, raw=raw)
    info = properties.get("delivery_info")
    return Message(
        # Both protocols repeat the id there; protocol 1 has it nowhere else outside the body.
        id=_text(headers.get("id")) or _text(properties.get("correlation_id")),
        task=_text(headers.get("task")),
        queue=queue,
        place=place,
        priority=_priority(properties.get("priority")),
        eta=_instant(headers.get("eta")),
        tag=_text(properties.get("delivery_tag")),
        redelivered=not isinstance(info, Mapping) or bool(info.get("redelivered")),
        headers=headers,
        raw=raw,
        content=Content(
            payload.get("body") or "",
            _text(payload.get("content-type")),
            _text(payload.get("content-encoding")),
            _text(properties.get("body_encoding")),
            _text(headers.get("compression")),
            accept,
        ),
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _priority(value: Any) -> int:
    """Clamp as kombu does."""
    try:
        return max(0, min(int(value), 9))
    except (OverflowError, TypeError, ValueError):
        return 0


def _instant(value: Any) -> datetime | None:
    try:
        return datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None

"""The body of a message, decoded on request and only by serializers that the project accepts."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kombu import serialization
from kombu.compression import decompress

from django_jobdedup.brokers.unreadable import Unreadable


@dataclass(frozen=True, slots=True)
class Body:
    """Arguments of a job; ``embed`` are its callbacks, chain and chord, or all the rest under protocol 1."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    embed: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Content:
    """An encoded body, and what is needed to decode it. ``accept`` are content types."""

    text: Any = ""
    content_type: str = ""
    content_encoding: str = ""
    body_encoding: str = ""
    compression: str = ""
    accept: frozenset[str] = frozenset()

    def decode(self) -> Body:
        """Decode; raises Unreadable for a content type that is not accepted and for broken bytes."""
        # Asked before kombu is, which trusts some types whatever the project says.
        if self.content_type not in self.accept:
            raise Unreadable(
                f"The body of this message is {self.content_type or 'of no type'}, which accept_content of "
                "the Celery app does not name, so it stays closed."
            )
        try:
            data = base64.b64decode(self.text) if self.body_encoding == "base64" else self.text
            if self.compression:
                data = decompress(data, self.compression)
            return _body(
                serialization.loads(data, self.content_type, self.content_encoding, accept=self.accept)
            )
        except Exception as error:  # whatever a serializer raises
            raise Unreadable(f"The body of this message cannot be decoded: {error}") from error


def _body(decoded: Any) -> Body:
    if isinstance(decoded, Mapping):  # protocol 1
        rest = {key: value for key, value in decoded.items() if key not in ("args", "kwargs")}
        return Body(tuple(decoded.get("args") or ()), decoded.get("kwargs") or {}, rest)
    args, kwargs, embed = decoded
    return Body(tuple(args), kwargs, embed or {})


def accepted_types(app: Any) -> frozenset[str]:
    """Return the content types that the app's workers accept."""
    return frozenset(serialization.prepare_accept_content(app.conf.accept_content) or ())

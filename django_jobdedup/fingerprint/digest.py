"""Text to hash: the fingerprint of a call, and the shard of a lock name."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from zlib import crc32

from django_jobdedup.fingerprint.canonical import canonical
from django_jobdedup.fingerprint.scalars import quoted

#: Version of the text and of everything in it. It is the first thing that is hashed.
FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """A fingerprint with the text that it was made from: ``hex`` decides, ``text`` explains."""

    text: str
    hex: str


def text_of(scope: object, lock_name: str, key_text: str) -> str:
    """Return ``1:[scope,"lock name",key]``, the whole text that is hashed.

    ``scope`` is a value, ``key_text`` is canonical text already. The first two parts end where their
    own grammar says, and the rest is the key, so no part can reach into another.
    Raises FingerprintError for a scope without a canonical form.
    """
    if type(scope) is dict and len(scope) == 1 and type(tenant := scope.get("tenant")) is str:
        return f"{_head_of_tenant(tenant, lock_name)},{key_text}]"
    return f"{_head(scope, lock_name)},{key_text}]"


def _head(scope: object, lock_name: str) -> str:
    return f"{FORMAT}:[{canonical(scope, 'scope')},{quoted(lock_name)}"


@lru_cache(1000)
def _head_of_tenant(tenant: str, lock_name: str) -> str:
    # The usual scope, and the same text in every call of a tenant: a fifth of the whole fingerprint.
    return _head({"tenant": tenant}, lock_name)


def fingerprint(text: str, secret: str | bytes | None = None) -> str:
    """Return 64 hexadecimal characters: SHA-256 of the text, HMAC-SHA-256 with a secret.

    Without the secret, whoever reads the store can try likely arguments. An empty secret is none.
    """
    data = text.encode("utf-8", "surrogatepass")
    if not secret:
        return hashlib.sha256(data).hexdigest()
    key = secret.encode() if isinstance(secret, str) else secret
    return hmac.digest(key, data, "sha256").hex()


def describe(scope: object, lock_name: str, key_text: str, secret: str | bytes | None = None) -> Fingerprint:
    """Return text and hash together, for messages, ``explain`` and tests."""
    text = text_of(scope, lock_name, key_text)
    return Fingerprint(text, fingerprint(text, secret))


def shard_of(lock_name: str, shards: int) -> int:
    """Return CRC-32 of the UTF-8 lock name modulo ``shards``, from 0 to ``shards`` - 1.

    Of the lock name, not of the fingerprint: all locks of one task lie together. This function never
    changes, or two versions would look for one lock in two places. Raises ValueError below one shard.
    """
    if shards < 1:
        raise ValueError(f"shards must be 1 or more, not {shards}")
    return crc32(lock_name.encode("utf-8", "surrogatepass")) % shards

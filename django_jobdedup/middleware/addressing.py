"""What a header means to a store: the record of its lock, and the token of one of its deliveries."""

from __future__ import annotations

from django_jobdedup.header import Header
from django_jobdedup.stores.record import Ref
from django_jobdedup.stores.requests import Token


def ref_of(header: Header) -> Ref:
    """Return the address of the record of the first lock."""
    return Ref(header.shard, header.fingerprint)


def token_of(header: Header, nonce: str) -> Token:
    """Return what renews and finishes the delivery with this nonce."""
    return Token(ref_of(header), header.token, nonce, header.knobs.lease)

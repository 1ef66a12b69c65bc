"""The two parts of a stored call: what it was sent with, and its arguments.

A call that joins a waiting job gives it its arguments and nothing else, so the second part is replaced
alone, by bytes, in whichever store: here, and in a Redis by ``with_newest`` of ``acquire.lua``.
"""

from __future__ import annotations

import re
from typing import Final

#: The length of the first part, bytes; the two parts follow.
_LENGTH: Final = re.compile(rb"(\d+)\n")


def framed(own: bytes, arguments: bytes) -> bytes:
    """Return two parts as one."""
    return b"%d\n%b%b" % (len(own), own, arguments)


def parts(stored: bytes) -> tuple[bytes, bytes] | None:
    """Return the two parts; None for bytes that have no parts."""
    length = _LENGTH.match(stored)
    if length is None:
        return None
    end = length.end() + int(length[1])
    return stored[length.end() : end], stored[end:]


def with_newest(stored: bytes | None, newest: bytes) -> bytes:
    """Return what a store keeps of a waiting job once a call has joined it: its own, with newer arguments.

    A job of which no call is stored is lent the whole: better than a message that nobody can publish.
    """
    own, joined = parts(stored or b""), parts(newest)
    return newest if own is None or joined is None else framed(own[0], joined[1])

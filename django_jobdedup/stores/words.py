"""Words of an error on their way into a row: every engine takes them."""

from __future__ import annotations

from typing import Final

#: The most characters that are kept.
MOST: Final = 2000


def storable(text: str) -> str:
    """Return a text that databases take: no NUL, nothing that is not UTF-8, at most ``MOST`` characters.

    What an error says is not ours: it may quote a file name or a message of a broker.
    """
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")[:MOST]


def plain(text: str) -> str:
    """Return it in ASCII: for a column of an old character set."""
    return storable(text).encode("ascii", "backslashreplace").decode()[:MOST]

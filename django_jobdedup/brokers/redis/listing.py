"""Read a Redis list while others push, pop and remove, in memory for one batch."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any, Final

from django_jobdedup.brokers.unreadable import Unreadable

#: Bytes of one reply, about. Messages may be large.
BATCH: Final = 4 * 2**20
#: Entries of the first reply, before anything is known of their size, and of any reply at most.
FIRST: Final = 16
MOST: Final = 1000
#: Readings that may lose their place before the list counts as unreadable.
ATTEMPTS: Final = 8


class Listing:
    """One reading of one list, from the head (newest) to the tail.

    Ascending indexes, for producers push at the head and workers pop at the tail: a push moves what was
    not read yet further up, where it is met again; a pop takes what lies behind. Only a removal from the
    middle (a purge) would pull an unread entry below the index. So each window begins some entries early
    and must show one that the window before had; the unread ones follow it. If it shows none, then either
    everything that was unread has been popped, or the place is lost: the reading begins again.

    So an entry that stays in its list from the first window of the last attempt on is read.
    """

    def __init__(self, client: Any, key: str) -> None:
        self._client = client
        self.key = key
        #: The first window of the last attempt: whatever is pushed later lies before these.
        self.first: list[bytes] = []
        self._count = 0
        self._bytes = 0

    @property
    def average(self) -> int:
        """Return the mean size of the entries so far, bytes."""
        return self._bytes // self._count if self._count else 1024

    def windows(self) -> Iterator[list[bytes]]:
        """Go over the entries in batches; raises Unreadable for a list that moves too fast."""
        for _ in range(ATTEMPTS):
            if (yield from self._attempt()):
                return
        raise Unreadable(
            f"The list {self.key!r} changes faster than it can be read: {ATTEMPTS} readings lost their place."
        )

    def _attempt(self) -> Generator[list[bytes], None, bool]:
        """Read to the end and return True, or False where the place was lost."""
        start, size, anchors = 0, FIRST, list[bytes]()
        while True:
            window = self._client.lrange(self.key, start, start + size - 1)
            fresh = window
            if start == 0:
                self.first = window
            else:
                known = next((anchor for anchor in reversed(anchors) if anchor in window), None)
                if known is None:
                    return False
                fresh = window[window.index(known) + 1 :]
            self._count += len(fresh)
            self._bytes += sum(map(len, fresh))
            if fresh:
                yield fresh
            if len(window) < size:  # the end of the list lay in this very reply
                return True
            overlap = max(1, size // 8)
            anchors = window[-overlap:]
            start += size - overlap
            size = fitting(self.average)


def fitting(average: int) -> int:
    """Return how many entries of this mean size (bytes) make one reply."""
    return max(4, min(MOST, BATCH // (average + 1)))

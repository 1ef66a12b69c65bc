"""Looking for a reply a few times before going to sleep for it.

A server nearby answers within some tens of microseconds; to be put to sleep and woken up again takes as
long once more. Every look lets the other threads run.
"""

from __future__ import annotations

import _socket
import select
from time import perf_counter
from typing import Any, Final

#: Longest time of looking for one reply, seconds.
LONGEST: Final = 0.000_15
#: Most replies that are not looked for after looking was in vain.
MOST_SPARED: Final = 1000


class Spin:
    """Looks only while that pays: after each time in vain, twice as many replies are slept for at once.

    So a server far away, or a machine with more to do than it has cores, soon costs no looks any more.
    Threads may share one; a count that two of them change at once is a look more or less.
    """

    def __init__(self) -> None:
        self._spared = self._left = 0

    def look(self, sock: Any) -> bool:
        """Say whether something to read has come; False: nobody knows, wait for it in the usual way.

        A socket of gevent or eventlet is never looked at: their other threads run only while one sleeps.
        """
        if self._left > 0:
            self._left -= 1
            return False
        if not isinstance(sock, _socket.socket) or not hasattr(select, "poll"):
            return False
        poll = select.poll()
        try:
            poll.register(sock, select.POLLIN)
        except ValueError:  # another thread has closed it: who reads will say so
            return False
        end = perf_counter() + LONGEST
        while not poll.poll(0):
            if perf_counter() > end:
                self._spared = self._left = min(2 * self._spared + 1, MOST_SPARED)
                return False
        self._spared = 0
        return True

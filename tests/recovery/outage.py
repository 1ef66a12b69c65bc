"""A wire to a server that can be cut and mended: a port that refuses while it is cut."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

from celery import Celery

from tests.rig.environment import forget_connections


class Wire:
    """Forwards ``port`` to a server; ``cut`` closes what is open and refuses the rest."""

    def __init__(self, target: int, host: str = "127.0.0.1") -> None:
        self._target, self._host = target, host
        self._guard = threading.Lock()
        self._open: set[socket.socket] = set()
        self._listener: socket.socket | None = None
        self.port = 0
        self.mend()

    def mend(self) -> None:
        """Take connections, at the same port as before."""
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def cut(self) -> None:
        """Refuse connections and break those that are open."""
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
        with self._guard:
            sockets, self._open = self._open, set()
        for each in sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def restart(self, seconds: float) -> None:
        """Be a server that is away for some seconds."""
        self.cut()
        time.sleep(seconds)
        self.mend()

    def lead_to(self, target: int) -> None:
        """Break what is open, and forward to another server from now on."""
        self.cut()
        self._target = target
        self.mend()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                server = socket.create_connection((self._host, self._target))
                with self._guard:
                    self._open |= {client, server}
                for source, drain in ((client, server), (server, client)):
                    threading.Thread(target=self._pump, args=(source, drain), daemon=True).start()

    def _pump(self, source: socket.socket, drain: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                drain.sendall(data)
        for each in (source, drain):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def broker_at(app: Celery, url: str) -> Iterator[None]:
    """Have this process look for its broker elsewhere."""
    before: Any = app.conf.broker_url
    app.conf.update(broker_url=url, broker_read_url=url, broker_write_url=url)
    forget_connections(app)
    try:
        yield
    finally:
        app.conf.update(broker_url=before, broker_read_url=None, broker_write_url=None)
        forget_connections(app)


REFUSED = "redis://127.0.0.1:1/0"
"""A broker that refuses."""

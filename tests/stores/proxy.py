"""A wire between a client and Redis that loses replies, and a server that answers one thing."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator


class Proxy:
    """Forwards to a server; ``lose`` replies get lost: the command was executed, the connection breaks."""

    def __init__(self, port: int) -> None:
        self.lose = 0
        self.commands = 0
        self._last_was_ours = False
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        # A close alone does not wake the thread that accepts.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        server = socket.create_connection(("127.0.0.1", self._target))
        threading.Thread(target=self._ask, args=(client, server), daemon=True).start()
        with client, server, contextlib.suppress(OSError):
            while answer := server.recv(1 << 20):
                if self.lose > 0 and self._last_was_ours and not answer.startswith(b"-NOSCRIPT"):
                    self.lose -= 1
                    client.shutdown(socket.SHUT_RDWR)
                    server.shutdown(socket.SHUT_RDWR)
                    return
                client.sendall(answer)

    def _ask(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while question := client.recv(1 << 20):
                self._last_was_ours = b"EVALSHA" in question
                self.commands += self._last_was_ours
                server.sendall(question)


@contextlib.contextmanager
def answering(reply: bytes) -> Iterator[int]:
    """A server that answers every command with one reply; yields its port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=talk, args=(client,), daemon=True).start()

    def talk(client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            while client.recv(1 << 20):
                client.sendall(reply)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()

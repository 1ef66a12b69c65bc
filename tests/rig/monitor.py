"""Count the commands a Redis server receives, by MONITOR on a connection of its own."""

from __future__ import annotations

import re
import secrets
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import redis

LINE = re.compile(r'^(?P<at>[\d.]+) \[(?P<db>\d+) (?P<client>[^\]]+)\] (?P<words>".*)$', re.DOTALL)
WORD = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
BACKGROUND = frozenset({"CLIENT", "HELLO", "SELECT", "AUTH", "PING", "COMMAND", "INFO", "MONITOR"})
"""Commands of connection set-up and health, that no call of ours causes."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command as the server saw it: server time, client address (``lua`` inside a script), words."""

    at: float
    client: str
    words: tuple[str, ...]

    @property
    def name(self) -> str:
        """The command's name in capitals."""
        return self.words[0].upper()

    @property
    def from_script(self) -> bool:
        """Whether a Lua script issued it: then it cost no round trip."""
        return self.client == "lua"


class Monitor:
    """Record commands between ``start()`` and ``stop()``; also a context manager.

    A pair may be used again and again: each ``start()`` opens a new phase. Commands on the wire before
    ``stop()`` was called are in the phase for sure: the recording ends at a marker that ``stop()`` sends.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._commands: list[Command] = []
        self._marker = ""
        self._complete = False
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Begin a phase; returns once the server reports every command."""
        if self._thread is not None:
            raise RuntimeError("The monitor runs already; call stop() first.")
        self._commands = []
        self._complete = False
        self._marker = secrets.token_hex(8)
        watching = threading.Event()
        self._thread = threading.Thread(target=self._watch, args=(watching,), daemon=True)
        self._thread.start()
        assert watching.wait(5), "MONITOR did not start"

    def stop(self) -> list[Command]:
        """End the phase and give its commands in the order of the server."""
        if self._thread is None:
            return self.commands()
        with redis.Redis.from_url(self._url) as client:
            client.echo(self._marker)
        self._thread.join(5)
        self._thread = None
        assert self._complete, "the recording broke off before its marker"
        return self.commands()

    def commands(self, *names: str, ignore: Iterable[str] = BACKGROUND) -> list[Command]:
        """Give the round trips of the last phase: all, or those with one of *names*; none from scripts."""
        wanted = {name.upper() for name in names}
        ignored = set(ignore) - wanted
        return [
            command
            for command in self._commands
            if not command.from_script
            and command.name not in ignored
            and (not wanted or command.name in wanted)
        ]

    def touching(self, text: str, *, ignore: Iterable[str] = BACKGROUND) -> list[Command]:
        """Give the round trips of the last phase that name *text* in a key or argument."""
        found = self.commands(ignore=ignore)
        return [command for command in found if any(text in word for word in command.words[1:])]

    def _watch(self, watching: threading.Event) -> None:
        with redis.Redis.from_url(self._url, socket_timeout=None) as client:
            connection = client.connection_pool.get_connection()
            try:
                connection.send_command("MONITOR")
                connection.read_response()
                watching.set()
                for line in iter(connection.read_response, None):
                    command = read_line(line)
                    if self._marker in command.words:
                        self._complete = True
                        return
                    self._commands.append(command)
            finally:
                connection.disconnect()


def read_line(line: bytes | str) -> Command:
    """Read one line of MONITOR; a byte outside ASCII stays in the server's spelling ``\\x..``."""
    text = line.decode("ascii", "backslashreplace") if isinstance(line, bytes) else line
    found = LINE.match(text)
    if found is None:
        raise ValueError(f"not a line of MONITOR: {text!r}")
    words = tuple(re.sub(r'\\(["\\])', r"\1", word) for word in WORD.findall(found["words"]))
    return Command(float(found["at"]), found["client"], words)

"""The screen: a live table on a terminal, plain lines elsewhere, one small table at the end."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from typing import Self

from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table

from .tally import Tally

LINE_EVERY = 1.0
"""Seconds between two lines where there is no terminal."""


class Screen:
    """Shows what happens; a context manager. Colours and width are left to rich, which obeys NO_COLOR."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)
        self._started = time.monotonic()
        self._shown_at, self._shown = 0.0, ""
        self._live: Live | None = None
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            self._live = Live(console=self._console, refresh_per_second=8, transient=True)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.freeze()

    def freeze(self) -> None:
        """End the live part; what follows is printed below."""
        live, self._live = self._live, None
        if live is not None:
            with contextlib.suppress(Exception):  # a terminal that went away must not stop the clean-up
                live.stop()

    def note(self, text: str, style: str = "") -> None:
        """Print one line about something that happened."""
        stamp = f"{time.monotonic() - self._started:5.1f} s"
        self._console.print(f"{stamp}  {text}", style=style, markup=False, soft_wrap=True)

    def show(self, tallies: Mapping[str, Tally], doing: str) -> None:
        """Show the numbers of this moment."""
        if self._live is not None:
            self._live.update(table(tallies, doing))
        elif time.monotonic() - self._shown_at >= LINE_EVERY:
            text, before = line(tallies, doing), self._shown
            self._shown_at, self._shown = time.monotonic(), text
            if text != before:
                self.note(text)

    def end(self, tallies: Mapping[str, Tally]) -> None:
        """Print the table at the end."""
        self.freeze()
        self._console.print(table(tallies))

    def say(self, text: str, style: str = "") -> None:
        """Print one line, whatever its length, as it is."""
        self.freeze()
        self._console.print(text, style=style, markup=False, soft_wrap=True)


def table(tallies: Mapping[str, Tally], caption: str | None = None) -> Table:
    """Draw the numbers, one row a kind of job."""
    drawn = Table(box=box.SIMPLE, caption=caption, caption_justify="left", caption_style="")
    drawn.add_column("jobs", no_wrap=True)
    for heading in ("asked", "accepted", "suppressed", "run", "recovered"):
        drawn.add_column(heading, justify="right", no_wrap=True)
    for name, tally in tallies.items():
        numbers = (tally.asked, tally.accepted, tally.suppressed, tally.run)
        drawn.add_row(name, *(f"{number:,}" for number in numbers), recovered(tally))
    return drawn


def recovered(tally: Tally) -> str:
    """Write how many jobs were cut off and how soon they ran again, as "4 in 3.3 s"."""
    if not tally.cut:
        return "-"
    return f"{tally.cut} in {tally.recovered:.1f} s" if tally.recovered is not None else f"0 of {tally.cut}"


def line(tallies: Mapping[str, Tally], doing: str) -> str:
    """Write the sums as one line."""
    words = ("asked", "accepted", "suppressed", "run")
    sums = (f"{word} {sum(getattr(tally, word) for tally in tallies.values()):,}" for word in words)
    return f"{', '.join(sums)}  ({doing})"

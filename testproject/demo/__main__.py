"""The door: ``python -m testproject.demo``."""

from __future__ import annotations

import contextlib
import signal
import sys
from types import FrameType
from typing import TYPE_CHECKING, Never

if TYPE_CHECKING:
    from .screen import Screen
    from .verdict import Verdict
    from .world import World

INTERRUPTED = 130
"""Exit code after Ctrl-C."""

SHOWN = 5
"""Sentences of the verdict that are printed; a storm without locks would give hundreds."""


GOOD = "Every accepted job ran to its end once, no two equal jobs at the same time, and none was lost."


def main() -> int:
    """Run the demo: 0 if all is well, 1 if a duplicate ran or a job was lost, 130 after Ctrl-C."""
    try:
        from .screen import Screen
    except ImportError:
        print("The demo needs rich: pip install -e '.[demo]'", file=sys.stderr)
        return 1
    from .world import NotPossible, World

    signal.signal(signal.SIGTERM, _interrupt)
    with contextlib.ExitStack() as stack:
        screen = stack.enter_context(Screen())
        try:
            return _play(stack.enter_context(World()), screen, stack)
        except NotPossible as error:
            screen.say(str(error), "red")
            return 1
        except KeyboardInterrupt:
            screen.say("Interrupted; cleaning up.")
            return INTERRUPTED
        finally:
            # From here on it only cleans up; another Ctrl-C must not break that off.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _play(world: World, screen: Screen, stack: contextlib.ExitStack) -> int:
    from .play import Play

    verdict = Play(world, screen, stack).run()
    tell(verdict, screen)
    return 0 if verdict.good else 1


def tell(verdict: Verdict, screen: Screen) -> None:
    """Print the verdict in sentences."""
    if verdict.good:
        screen.say(GOOD, "green")
    for found in (verdict.duplicates, verdict.lost):
        for sentence in found[:SHOWN]:
            screen.say(sentence, "red")
        if len(found) > SHOWN:
            screen.say(f"... and {len(found) - SHOWN} more like it.", "red")


def _interrupt(number: int, frame: FrameType | None) -> Never:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())

"""The signals of a command that runs for long, at whatever moment of its main thread they come."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from django_jobdedup.management.ending import SIGNALS, Ending

#: A signal that comes while the handler's own thread is anywhere in ``wait``: between any two lines of it, or
#: of what it calls.
EVERYWHERE = """
import os, signal, sys
from django_jobdedup.management.ending import Ending

sent = seen = 0

def look(frame, what, argument):
    global seen
    seen += 1
    if not sent and seen == place:
        send()
    return look

def send():
    global sent
    sent = 1
    os.kill(os.getpid(), signal.SIGTERM)

for place in range(2, 100):
    sent = seen = 0
    with Ending() as ending:
        sys.settrace(look)
        ending.wait(0.0)
        sys.settrace(None)
        if not sent:
            break
        assert ending.is_near() and ending.wait(60)
else:
    raise SystemExit("wait never ends")
print("places", place)
"""


@pytest.mark.timeout(60)
def test_a_signal_at_any_line_of_the_wait_is_heard() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", EVERYWHERE], capture_output=True, text=True, timeout=30, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout.split()[1]) > 4


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_asks_and_the_handler_from_before_has_the_second(number: signal.Signals) -> None:
    heard: list[int] = []
    before = signal.signal(number, lambda number, frame: heard.append(number))
    try:
        with Ending() as ending:
            assert not ending.wait(0.0)
            os.kill(os.getpid(), number)
            assert ending.wait(60)
            assert (ending.is_near(), heard) == (True, [])
            os.kill(os.getpid(), number)
            assert heard == [number]
    finally:
        signal.signal(number, before)


def test_a_wait_without_a_signal_ends_by_itself() -> None:
    started = time.monotonic()
    with Ending() as ending:
        assert not ending.wait(0.3)
    assert time.monotonic() - started >= 0.3

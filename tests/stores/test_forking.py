"""A process that forks children while another of its threads takes steps: a worker that replaces a child."""

from __future__ import annotations

from tests.dispatching.process import run_python
from tests.rig.engines import Engine
from tests.rig.environment import Environment

CHILDREN = 15

FORKING = f"""
import os, threading, time
from django_jobdedup.stores.handler import stores
from django_jobdedup.stores.record import Ref
from django_jobdedup.stores.requests import Acquire

def take(number):
    request = Acquire(Ref(1, format(number, "064x")), f"job-{{number}}")
    return type(stores["default"].acquire(request)).__name__

over = threading.Event()

def work():
    number = 0
    while not over.is_set():
        number += 1
        take(number)
        time.sleep(0.001)  # a lock that is asked for again at once is never free for others

take(0)  # everything is imported: a child must not be forked in the midst of that either
busy = threading.Thread(target=work)
busy.start()
for child in range({CHILDREN}):
    pid = os.fork()
    if not pid:
        os._exit(0 if take(10**6 + child) == "Acquired" else 1)
    tell(os.waitpid(pid, 0)[1])
over.set()
busy.join()
"""


def test_a_child_inherits_no_lock_of_a_step_that_its_parent_takes(
    sqlite_engine: Engine, celery_env: Environment
) -> None:
    """SQLite notes in memory what it holds, and a child found the database locked for ever."""
    there = celery_env.having(settings=sqlite_engine.settings_as_default)
    assert run_python(there, FORKING, timeout=50) == [0] * CHILDREN


CROSSED = """
import threading, time
from django.db import transaction
from django_jobdedup.models import JobIntent
from django_jobdedup.stores.handler import stores
from django_jobdedup.stores.record import Ref
from django_jobdedup.stores.requests import Acquire

def take(number):
    request = Acquire(Ref(1, format(number, "064x")), f"job-{number}")
    return type(stores["default"].acquire(request)).__name__

take(0)
using = stores["default"].line.using
written = threading.Event()

def other():
    written.wait()
    tell(take(1))

thread = threading.Thread(target=other)
thread.start()
with transaction.atomic(using=using):
    JobIntent.objects.using(using).update(reason="")
    written.set()
    time.sleep(0.5)  # the other thread waits for this transaction now
    began = time.monotonic()
    tell(take(2))
    took = time.monotonic() - began
thread.join()
tell(took < 2)
"""


def test_a_step_in_a_transaction_does_not_wait_for_a_thread_that_waits_for_the_transaction(
    sqlite_engine: Engine, celery_env: Environment
) -> None:
    """It stood still until SQLite gave up, although nobody but itself was in the way."""
    there = celery_env.having(settings=sqlite_engine.settings_as_default)
    assert run_python(there, CROSSED, timeout=50) == ["Acquired", "Acquired", True]

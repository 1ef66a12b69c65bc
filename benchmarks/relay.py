"""Drain an outbox: ``python -m benchmarks.relay [ENGINE ...] [--rows 10000] [--relays 1]``.

Engines are those of the tests: sqlite, sqlite_wal, postgresql, mariadb. Rows are committed while the broker
refuses, then relays (processes of ``manage.py jobdedup maintain --only relay``) publish them, and the time
from the first message in the queue to the last counts. Rates belong to this machine.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import secrets
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from testproject.embedded_redis import EmbeddedRedis

ENGINES = ("sqlite", "sqlite_wal", "postgresql", "mariadb")
NOBODY = "redis://127.0.0.1:1/0"


def main() -> None:
    """Drain one outbox an engine and print a line each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("engines", nargs="*", default=["sqlite_wal", "postgresql", "mariadb"])
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--relays", type=int, default=1)
    parser.add_argument("--fill", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.fill:
        return fill(chosen.rows)
    for engine in chosen.engines:
        with EmbeddedRedis() as server, tempfile.TemporaryDirectory() as folder:
            os.environ.update(REDIS_URL=server.url, TEST_NAMESPACE=f"bench-{secrets.token_hex(4)}")
            os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
            measure(engine, chosen.rows, chosen.relays, Path(folder), server.url)


def measure(engine: str, rows: int, relays: int, folder: Path, url: str) -> None:
    """Fill and drain the outbox of one engine."""
    from tests.rig.engines import BACKEND, database_of

    with database_of(engine, folder) as database:
        stores = {"default": {"BACKEND": BACKEND, "LOCATION": "default"}}
        settings = {"DATABASES": {"default": database}, "JOBDEDUP_STORES": stores}
        os.environ["TESTPROJECT_SETTINGS"] = json.dumps(settings)
        run("django", "migrate", "--verbosity", "0")
        run("benchmarks.relay", "--fill", engine, "--rows", str(rows))
        before = processor_time()
        started = [
            start("django", "jobdedup", "maintain", "--only", "relay", "--json") for _ in range(relays)
        ]
        seconds = drained(url, rows)
        said = [json.loads(process.communicate()[0]) for process in started]
    published = sum(line.get("published", 0) for line in said)
    own = (processor_time() - before) / published * 1000
    shared = "" if relays == 1 else f", {relays} relays: {[line.get('published', 0) for line in said]}"
    rate = f"{published / seconds:.0f} a second, {own:.2f} ms of a processor each"
    print(f"{engine}: {published} rows in {seconds:.1f} s, {rate}{shared}", flush=True)


def processor_time() -> float:
    """Return the seconds that processes of ours have used which have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def fill(rows: int) -> None:
    """Commit rows that nobody publishes, and let their time come."""
    import django

    django.setup()
    from django.db import transaction
    from django.db.models import F

    from django_jobdedup.models import JobIntent
    from testproject.celery import app
    from tests.jobs import tasks

    app.conf.update(broker_url=NOBODY, broker_read_url=NOBODY, broker_write_url=NOBODY)
    for start_at in range(0, rows, 500):
        with transaction.atomic():
            for number in range(start_at, min(start_at + 500, rows)):
                tasks.until_executed.delay(f"k{number}")
            # As killed right after the commit.
            transaction.get_connection().run_on_commit.clear()
    JobIntent.objects.update(publish_at=F("id"))


def drained(url: str, rows: int) -> float:
    """Wait for the first and the last message; return the seconds between."""
    import redis

    queue = f"{os.environ['TEST_NAMESPACE']}:celery"
    with redis.Redis.from_url(url) as client:
        wait(lambda: client.llen(queue))
        began = time.monotonic()
        wait(lambda: client.llen(queue) >= rows)
        return time.monotonic() - began


def wait(condition: Any) -> None:
    """Wait until it holds."""
    until = time.monotonic() + 600
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError("the outbox does not drain")
        time.sleep(0.005)


def start(module: str, *words: str) -> subprocess.Popen[str]:
    """Start a Python module."""
    return subprocess.Popen([sys.executable, "-m", module, *words], stdout=subprocess.PIPE, text=True)


def run(module: str, *words: str) -> None:
    """Run a Python module."""
    subprocess.run([sys.executable, "-m", module, *words], check=True)


if __name__ == "__main__":
    main()

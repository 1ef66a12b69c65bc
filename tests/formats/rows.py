"""What format 1 looks like in a database: the rows of one lock, by the state of its holder.

``golden_rows_1.json`` was written once, by ``python -m tests.formats.rows``, and is never written again: a
later format is a second file, and both are honoured for a release.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from django_jobdedup.outcomes import How
from django_jobdedup.stores.record import Ref
from django_jobdedup.stores.requests import Acquire, Claim, Finish, Merge, Token, Withdraw

from .golden import FINGERPRINT, LONG, SHARD, STATES, play

FILE = Path(__file__).with_name("golden_rows_1.json")
REF = Ref(SHARD, FINGERPRINT)
#: States that only rows have, or that show columns which are empty in the others.
MORE = ("merged", "replaced", "called off", "stored")
#: Columns that differ from one writing to the next.
OWN = ("id",)


def play_row(store: Any, state: str) -> None:
    """Bring the rows of a lock into a state, with the verbs of the store."""
    common: dict[str, Any] = {"ttl": LONG, "pending": LONG, "by": "host:1", "name": "shop.tasks.report"}
    if state == "merged":
        common |= {"counts": "PW", "on_waiting": "merge", "merge": Merge(0.5, 300.0)}
        store.acquire(Acquire(REF, "id-merged", args=b"1", **common))
        store.acquire(Acquire(REF, "another", args=b"2", **common))
        store.confirm([(REF, "id-merged")])
    elif state == "replaced":
        common |= {"counts": "PW", "on_waiting": "over"}
        store.acquire(Acquire(REF, "id-replaced", **common))
        store.acquire(Acquire(REF, "newcomer-1", **common))
        store.confirm([(REF, "newcomer-1")])
        store.acquire(Acquire(REF, "newcomer-2", **common))
    elif state == "called off":
        store.acquire(Acquire(REF, "id-called off", **common))
        store.withdraw(Withdraw(REF, "id-called off", waiting=True, marker_ttl=LONG, reason="revoked"))
    elif state == "stored":
        store.acquire(Acquire(REF, "id-stored", call=b"the call", **common))
        store.confirm([(REF, "id-stored")])
        token = Token(REF, "id-stored", "nonce-1", LONG)
        store.claim(Claim(REF, "id-stored", 0, "nonce-1", LONG, LONG, late=LONG, name="shop.tasks.report"))
        store.finish(Finish(token, 0, How.REQUEUE, LONG, "shop.tasks.report"))
    else:
        play(store, state)


def rows(alias: str) -> list[dict[str, Any]]:
    """Give every row of the lock as JSON takes it, bytes in hexadecimal characters."""
    from django_jobdedup.models import JobIntent

    found = JobIntent.objects.using(alias).of(FINGERPRINT).values()
    return [{name: _plain(value) for name, value in row.items() if name not in OWN} for row in found]


def put(alias: str, golden: list[dict[str, Any]]) -> None:
    """Write rows as a process of format 1 has."""
    from django_jobdedup.models import JobIntent

    for row in golden:
        bytes_in = {name: bytes.fromhex(row[name]) for name in ("call", "args") if row[name] is not None}
        JobIntent.objects.using(alias).create(**{**row, **bytes_in})


def _plain(value: Any) -> Any:
    return bytes(value).hex() if isinstance(value, bytes | memoryview) else value


def main() -> None:
    """Write the file."""
    import os

    os.environ["DJANGO_SETTINGS_MODULE"] = "testproject.settings"
    import django

    django.setup()
    from django.core.management import call_command

    from django_jobdedup.stores.database.store import DatabaseStore
    from tests.rig.engines import Engine, sqlite_database

    golden = {}
    with tempfile.TemporaryDirectory() as folder, sqlite_database(Path(folder), wal=True) as database:
        engine = Engine("sqlite_wal", "golden", database)
        with engine.known():
            call_command("migrate", database=engine.alias, verbosity=0, interactive=False)
            for state in (*STATES, *MORE):
                engine.empty()
                store = DatabaseStore("default", engine.alias)
                play_row(store, state)
                golden[state] = rows(engine.alias)
                store.close()
    FILE.write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()

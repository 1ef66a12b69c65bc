"""What format 1 looks like outside of this process: headers in messages, records in Redis.

``golden_1.json`` was written once, by ``python -m tests.formats.golden``, and is never written again: a
later format is a second file, and both are honoured for a release.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from django_jobdedup.header import Header, Knobs
from django_jobdedup.outcomes import How
from django_jobdedup.stores.record import Ref
from django_jobdedup.stores.requests import Acquire, Claim, Finish, Token

FILE = Path(__file__).with_name("golden_1.json")
FINGERPRINT = "0123456789abcdef" * 4
SHARD = 7
#: No test lives to see the end of it, seconds.
LONG = 3e9

#: Every kind of header, by name.
HEADERS = {
    "usual": Header("the-id", 7, ((FINGERPRINT, Knobs(name="shop.tasks.report")),), at=1790000000.25),
    "bypass": Header("the-id"),
    "every knob": Header(
        "the-id",
        15,
        (
            (
                FINGERPRINT,
                Knobs(
                    lock="until_expired", name="reports", counts="PWRK", limit=3, gate=3, ttl=72000.0,
                    lease=5.5, keeps=True, keep_on_failure=True, at_dispatch=False, max_starts=4,
                    execution=["reschedule", {"after": 9.0}], on_store_error="raise", store="rows",
                    on_waiting="merge", observe=True,
                ),
            ),
        ),
        n=2, at=1790000000.0, put_offs=5, refused_by="another", life="00ff",
    ),
}  # fmt: skip


def play(store: Any, state: str) -> None:
    """Bring the record of one id into a state, with the verbs of the store."""
    ref, id = Ref(SHARD, FINGERPRINT), f"id-{state}"
    token = Token(ref, id, "nonce-1", LONG)
    store.acquire(Acquire(ref, id, ttl=LONG, pending=LONG, by="host:1", name="shop.tasks.report"))
    if state == "pending":
        return
    store.confirm([(ref, id)])
    if state == "waiting":
        return
    store.claim(Claim(ref, id, 0, "nonce-1", LONG, LONG, by="host:2", name="shop.tasks.report"))
    how = {"kept": How.KEEP, "handed over": How.HANDOVER, "ended": How.RELEASE}.get(state)
    if how is not None:
        store.finish(Finish(token, 0, how, LONG, "shop.tasks.report"))


STATES = ("pending", "waiting", "running", "kept", "handed over", "ended")


def names(namespace: str, state: str) -> dict[str, str]:
    """Give the names of the keys, as format 1 writes them."""
    tag = f"{{{namespace}:{SHARD:02}}}:1:"
    return {"lock": f"{tag}lock:{FINGERPRINT}", "mark": f"{tag}mark:id-{state}"}


def values(client: Any, namespace: str, state: str) -> dict[str, str]:
    """Give what stands in the store, in hexadecimal characters."""
    found = {what: client.get(name) for what, name in names(namespace, state).items()}
    return {what: value.hex() for what, value in found.items() if value is not None}


def main() -> None:
    """Write the file."""
    from testproject.embedded_redis import EmbeddedRedis

    with EmbeddedRedis() as server:
        os.environ.update(REDIS_URL=server.url, DJANGO_SETTINGS_MODULE="testproject.settings")
        import django

        django.setup()
        from django_jobdedup.stores.handler import stores

        records = {}
        for state in STATES:
            client = stores["default"].line.client.get()  # type: ignore[attr-defined]
            client.flushdb()  # of its own server
            play(stores["default"], state)
            records[state] = values(client, "jd", state)
        headers = {name: header.encode() for name, header in HEADERS.items()}
        FILE.write_text(json.dumps({"headers": headers, "records": records}, indent=1) + "\n")


if __name__ == "__main__":
    main()

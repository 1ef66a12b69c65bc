"""Looking after records: what has lapsed, lists, events, counters, presence."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Final

from django_jobdedup.models import Counter, LockEvent, WorkerPresence
from django_jobdedup.stores.clock import milliseconds
from django_jobdedup.stores.database.line import Sql
from django_jobdedup.stores.database.rows import key_of
from django_jobdedup.stores.database.statements import TABLE, upsert
from django_jobdedup.stores.record import Ref
from django_jobdedup.stores.results import Event

#: The most records that one question finds.
MOST: Final = 1000


def lapsed(sql: Sql, shard: int, limit: int) -> list[Ref]:
    """Find records whose moment of attention has passed; intents with a call are the relay's."""
    q = sql.dialect.name
    text = (
        f"SELECT {q('fingerprint')}, MIN({q('attention')}) FROM {q(TABLE)} "  # noqa: S608
        f"WHERE {q('shard')} = %s AND {q('attention')} <= {sql.milliseconds} AND {q('publish_at')} IS NULL "
        f"GROUP BY {q('fingerprint')} ORDER BY 2, 1 LIMIT %s"
    )
    return [Ref(shard, str(fingerprint)) for fingerprint, _ in sql.rows(text, [shard, limit])]


def by_attention(sql: Sql, shard: int, after: float, limit: int) -> list[tuple[Ref, int]]:
    """Find records by rising moment of attention: each by the row of its earliest holder."""
    q = sql.dialect.name
    held = q("held")
    earlier = (
        f"SELECT 1 FROM {q(TABLE)} e WHERE e.{q('fingerprint')} = {held}.{q('fingerprint')} "  # noqa: S608
        f"AND e.{q('attention')} >= 0 AND (e.{q('attention')} < {held}.{q('attention')} OR "
        f"(e.{q('attention')} = {held}.{q('attention')} AND e.{q('id')} < {held}.{q('id')}))"
    )
    text = (
        f"SELECT {q('fingerprint')}, {q('attention')} FROM {q(TABLE)} {held} "  # noqa: S608
        f"WHERE {q('shard')} = %s AND {q('attention')} >= %s AND NOT EXISTS ({earlier}) "
        f"ORDER BY {q('attention')}, {q('fingerprint')} LIMIT %s"
    )
    found = sql.rows(text, [shard, milliseconds(after), min(limit, MOST)])
    return [(Ref(shard, str(fingerprint)), int(attention)) for fingerprint, attention in found]


def events(sql: Sql, shard: int, after: str, limit: int) -> list[Event]:
    """Read the stream of a shard."""
    found = (
        LockEvent.objects.using(sql.connection.alias).of_store("").filter(shard=shard, id__gt=int(after or 0))
    )
    return [
        Event(str(e.id), e.what, e.at / 1000, Ref(shard, e.fingerprint), e.token, e.name, e.by, e.other)
        for e in found.order_by("id")[:limit]
    ]


def counters(sql: Sql) -> dict[str, dict[str, int]]:
    """Read all counters."""
    numbers: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for counter in Counter.objects.using(sql.connection.alias).all():
        numbers[counter.name][counter.what] = counter.number
    return dict(numbers)


def now_of(sql: Sql) -> int:
    """Return the server's time in milliseconds."""
    return int(sql.rows(f"SELECT {sql.clock}", [])[0][0]) // 1000


def announce(sql: Sql, queues: Iterable[str], ttl: float) -> None:
    """Leave the presence of a worker for each queue, in one order for all workers."""
    until = now_of(sql) + milliseconds(ttl)
    words = [word for queue in sorted(set(queues), key=key_of) for word in (key_of(queue), queue, until)]
    if words:
        names = ("key", "queue", "until")
        table = WorkerPresence._meta.db_table
        sql.write(upsert(sql.dialect, table, names, "until", len(words) // 3, more=False), words)


def announced(sql: Sql, queue: str) -> bool:
    """Say whether a worker is present on a queue."""
    found: Any = WorkerPresence.objects.using(sql.connection.alias).filter(key=key_of(queue))
    until = found.values_list("until", flat=True).first()
    return until is not None and until > now_of(sql)

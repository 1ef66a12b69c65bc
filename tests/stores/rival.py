"""A process that competes for locks in a database; of its own, so that a fork server loads it once."""

from __future__ import annotations

import random
import time
import traceback
from typing import Any

import django

django.setup()

from django.db import connections, transaction  # noqa: E402
from django.test import override_settings  # noqa: E402

from django_jobdedup import TransactionConflict  # noqa: E402
from django_jobdedup.models import Counter  # noqa: E402
from django_jobdedup.stores.database import line  # noqa: E402
from django_jobdedup.stores.database.store import DatabaseStore  # noqa: E402
from django_jobdedup.stores.record import Ref  # noqa: E402
from django_jobdedup.stores.requests import Acquire, Claim, Finish, Token  # noqa: E402
from django_jobdedup.stores.results import Acquired, Claimed  # noqa: E402
from tests.rig.engines import Engine  # noqa: E402

KEYS = 12
ADDS = 10


def compete(rival: int, engine: Engine, rounds: int, pooled: bool, barrier: Any, results: Any) -> None:
    """Take part in every discipline, and send all answers at the end."""
    engine.register()
    if pooled:
        pool(engine)
    with override_settings(JOBDEDUP_NAMESPACE="jd"):
        store = DatabaseStore("default", engine.alias)
        told: dict[str, Any] = {}
        try:
            for discipline in (take_keys, take_seats, add_up, take_many, defer_two):
                barrier.wait(60)
                told[discipline.__name__] = discipline(store, engine, rival, rounds, barrier)
        except Exception:
            barrier.abort()
            told["error"] = traceback.format_exc()
        results.put(told)
        store.close()
        connections.close_all()


def ref(kind: str, number: int) -> Ref:
    """Return the record of a round."""
    return Ref(7, f"{kind}{number:0{64 - len(kind)}}")


def take_keys(store: DatabaseStore, engine: Engine, rival: int, rounds: int, barrier: Any) -> list[Any]:
    """Ask for one waiting seat a round, all at once."""
    told = []
    for number in range(rounds):
        barrier.wait(60)
        id = f"{rival}-{number}"
        told.append((id, store.acquire(Acquire(ref("a", number), id))))
    return told


def take_seats(store: DatabaseStore, engine: Engine, rival: int, rounds: int, barrier: Any) -> list[Any]:
    """Ask for one running seat a round, all at once; two rivals bring copies of one message."""
    told = []
    for number in range(rounds):
        barrier.wait(60)
        told.append(store.claim(Claim(ref("c", number), f"id{rival % 4}", 0, f"nonce{rival}")))
    return told


def add_up(store: DatabaseStore, engine: Engine, rival: int, rounds: int, barrier: Any) -> int:
    """Read a number, add one, write it, each time under the lock; and say how many times."""
    numbers = Counter.objects.using(engine.alias).filter(key="sum")
    lock = ref("d", 0)
    for turn in range(ADDS):
        id = f"{rival}-{turn}"
        while not isinstance(store.claim(Claim(lock, id, 0, "one")), Claimed):
            time.sleep(random.uniform(0, 0.02))
        number = numbers.get().number
        time.sleep(0.001)
        numbers.update(number=number + 1)
        store.finish(Finish(Token(lock, id, "one"), 0))
    return ADDS


def take_many(store: DatabaseStore, engine: Engine, rival: int, rounds: int, barrier: Any) -> list[Any]:
    """Ask for many waiting seats in an order of one's own."""
    told = []
    for number in range(rounds // 5):
        barrier.wait(60)
        keys = list(range(number * KEYS, (number + 1) * KEYS))
        random.shuffle(keys)
        asked = [Acquire(ref("b", key), f"{rival}-{key}") for key in keys]
        told += [(r.ref.fingerprint, r.id, a) for r, a in zip(asked, store.acquire_many(asked), strict=True)]
    return told


def defer_two(store: DatabaseStore, engine: Engine, rival: int, rounds: int, barrier: Any) -> int:
    """Write intents of two keys in one transaction, in either order, and decide after its commit."""
    won = 0
    for number in range(rounds // 5):
        barrier.wait(60)
        keys = [ref("e", number), ref("f", number)]
        asked = [Acquire(key, f"{rival}-{number}", call=b"x") for key in (keys if rival % 2 else keys[::-1])]
        while not _written(store, engine, asked):
            pass
        won += sum(isinstance(answer, Acquired) for answer in store.acquire_many(asked))
    return won


def _written(store: DatabaseStore, engine: Engine, asked: list[Acquire]) -> bool:
    """Write intents one by one in a transaction; False where it has to begin anew, as its error says."""
    try:
        with transaction.atomic(engine.alias):
            for request in asked:
                store.defer([request])
    except TransactionConflict:
        return False
    return True


def pool(engine: Engine) -> None:
    """Hand each statement outside a transaction to another connection, as a pooler does."""
    others = []
    for number in range(3):
        other = Engine(engine.name, f"{engine.alias}_{number}", engine.database)
        other.register()
        others.append(other.alias)

    class Pooled(line.Sql):
        def rows(self, text: str, words: list[Any]) -> list[tuple[Any, ...]]:
            self._move()
            return super().rows(text, words)

        def write(self, text: str, words: list[Any]) -> int:
            self._move()
            return super().write(text, words)

        def atomic(self) -> Any:
            self._move()
            return super().atomic()

        def _move(self) -> None:
            if self.alone:
                self.connection = connections[random.choice(others)]

    line.Sql = Pooled  # type: ignore[misc]

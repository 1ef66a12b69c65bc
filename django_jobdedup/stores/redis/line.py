"""The line to Redis: one question, one round trip, one answer, and never an exception of Redis.

Whatever goes wrong on the way (refused, timed out, pool empty, loading, read only, out of memory)
becomes ``Unavailable``, opens the breaker and sends ``store_unavailable``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from redis.exceptions import DataError, RedisError, ResponseError

from django_jobdedup import signals
from django_jobdedup.stores.breaker import Breaker
from django_jobdedup.stores.record import Ref
from django_jobdedup.stores.redis.client import RAW, Client, RedisClient
from django_jobdedup.stores.redis.scripts import Call, Scripts, Word
from django_jobdedup.stores.results import Unavailable

#: Most items in one script: it stops the server for some milliseconds.
BATCH: Final = 1000


class Line:
    """Asks one Redis, through a breaker."""

    def __init__(self, store: str, client: Client, scripts: Scripts, breaker: Breaker) -> None:
        self.store, self.client, self.scripts, self.breaker = store, client, scripts, breaker

    def run(self, verb: str, count: int, *words: Word) -> Any:
        """Run one script; ``words`` are ``count`` keys, then arguments."""
        if self.breaker.refuses():
            return Unavailable(self.breaker.error)
        try:
            answer = self.scripts.run(self.client, verb, count, words)
        except (RedisError, OSError) as error:
            return self._failed(verb, error)
        self.breaker.worked()
        return answer

    def run_many(self, verb: str, calls: Sequence[Call]) -> list[Any]:
        """Run one script for each call, all in one round trip; a call that failed gives ``Unavailable``."""
        if len(calls) == 1:
            count, words = calls[0]
            return [self.run(verb, count, *words)]
        answers = self.ask(verb, lambda client: self.scripts.run_many(client, verb, calls))
        if isinstance(answers, Unavailable):
            return [answers] * len(calls)
        return [self._failed(verb, a) if isinstance(a, RedisError) else a for a in answers]

    def commands(self, verb: str, commands: Sequence[Sequence[Word]]) -> Any:
        """Send plain commands, all in one round trip."""

        def send(client: RedisClient) -> list[Any]:
            with client.pipeline(transaction=False) as pipeline:
                for command in commands:
                    pipeline.execute_command(*command, **RAW)
                return list(pipeline.execute())

        return self.ask(verb, send)

    def ask(self, verb: str, question: Callable[[RedisClient], Any]) -> Any:
        """Ask anything."""
        if self.breaker.refuses():
            return Unavailable(self.breaker.error)
        try:
            answer = question(self.client.get())
        except (RedisError, OSError) as error:
            return self._failed(verb, error)
        self.breaker.worked()
        return answer

    def _failed(self, verb: str, error: Exception) -> Unavailable:
        if isinstance(error, DataError):
            raise error  # a value that is none of the contract's: our caller's mistake, not the store's
        words = f"{type(error).__name__}: {error}"
        if type(error) is not ResponseError:  # that is a script's own complaint: the server is well
            self.breaker.failed(words)
        signals.send(signals.store_unavailable, None, store=self.store, verb=verb, error=words)
        return Unavailable(words)


def batches(refs: Sequence[Ref]) -> Iterable[tuple[int, list[int]]]:
    """Cut items into scripts: (shard, places in the sequence), one shard and at most BATCH items each."""
    places: dict[int, list[int]] = {}
    for place, ref in enumerate(refs):
        places.setdefault(ref.shard, []).append(place)
    for shard, some in places.items():
        for start in range(0, len(some), BATCH):
            yield shard, some[start : start + BATCH]

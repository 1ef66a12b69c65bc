"""The Redis store: each verb is one Lua script, so one atomic step and one round trip."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from django_jobdedup.conf import conf
from django_jobdedup.stores import results
from django_jobdedup.stores.base import Store
from django_jobdedup.stores.breaker import Breaker
from django_jobdedup.stores.clock import milliseconds
from django_jobdedup.stores.options import read_pauses
from django_jobdedup.stores.record import Holder, Record, Ref
from django_jobdedup.stores.redis import codec
from django_jobdedup.stores.redis.cache_alias import check_location
from django_jobdedup.stores.redis.client import Client
from django_jobdedup.stores.redis.eviction import eviction_of
from django_jobdedup.stores.redis.keys import keys_of
from django_jobdedup.stores.redis.line import Line, batches
from django_jobdedup.stores.redis.scripts import Call, Scripts, Word
from django_jobdedup.stores.requests import Acquire, Claim, Finish, Sleep, Token, Withdraw
from django_jobdedup.stores.results import Unavailable


class RedisStore(Store):
    """Locks in the Redis behind the django-redis cache alias ``location``.

    Options: ``pause`` and ``max_pause``, the seconds for which a store that failed is left alone.
    Raises ImproperlyConfigured for other options or values, and for a location that django-redis does not
    serve.
    """

    def __init__(
        self,
        alias: str,
        location: str,
        options: Mapping[str, Any] | None = None,
        scripts: Scripts | None = None,
    ) -> None:
        pauses = read_pauses(alias, options)
        check_location(alias, location)
        self.alias = alias
        self.shards = conf.SHARDS
        self.keys = keys_of(conf.NAMESPACE)
        self.line = Line(alias, Client(location), scripts or Scripts(conf.GRACE), Breaker(*pauses))
        self._pending = milliseconds(conf.CONFIRM_WITHIN)

    def close(self) -> None:
        """Close the connections; the store can still be used and opens new ones."""
        self.line.client.close()

    def acquire(self, request: Acquire) -> results.AcquireResult:
        """Ask for one waiting seat: the shortest way, one EVALSHA."""
        ref = request.ref
        keys = self.keys.shards[ref.shard]
        answer = self.line.run(
            "acquire",
            5,
            keys.index,
            keys.events,
            keys.counters,
            keys.lock + ref.fingerprint,
            keys.mark + request.id,
            *codec.acquire_words(request),
        )
        return answer if isinstance(answer, Unavailable) else codec.acquire_result(answer)

    def acquire_many(self, requests: Sequence[Acquire]) -> list[results.AcquireResult]:
        """Ask for waiting seats: one script per shard and thousand, all in one round trip."""
        refs = [request.ref for request in requests]
        ids = [request.id for request in requests]
        answers = self._spread("acquire", refs, [codec.acquire_words(r) for r in requests], ids)
        return _each(codec.acquire_result, answers)

    def confirm(
        self, seats: Sequence[tuple[Ref, str]]
    ) -> list[results.Confirmed | results.Gone | Unavailable]:
        """Say that the messages of these seats exist, in one round trip."""
        answers = self._spread("confirm", [ref for ref, _ in seats], [(id,) for _, id in seats])
        return _each(lambda row: results.Confirmed() if row else results.Gone(), answers)

    def withdraw(self, request: Withdraw) -> results.Withdrawn | results.Owed | results.Gone | Unavailable:
        """Give a waiting seat back."""
        words = (request.n, int(request.waiting), milliseconds(request.marker_ttl), request.by)
        answer = self._one("withdraw", request.ref, request.id, words)
        return answer if isinstance(answer, Unavailable) else codec.withdraw_result(answer)

    def claim(self, request: Claim) -> results.ClaimResult:
        """Ask for a running seat."""
        keys = self.keys.shards[request.ref.shard]
        answer = self.line.run(
            "claim",
            6,
            keys.index,
            keys.events,
            keys.counters,
            keys.lock + request.ref.fingerprint,
            keys.mark + request.id,
            keys.fence,
            *codec.claim_words(request),
        )
        return answer if isinstance(answer, Unavailable) else codec.claim_result(answer)

    def asleep(self, request: Sleep) -> results.SleepResult:
        """Let a job that was put off stand in the line of its lock."""
        answer = self._one("asleep", request.ref, request.id, codec.asleep_words(request))
        return answer if isinstance(answer, Unavailable) else codec.asleep_result(answer)

    def renew(self, tokens: Sequence[Token]) -> list[results.Renewed | results.Lost | Unavailable]:
        """Move the leases of running deliveries, in one round trip."""
        words = [(token.id, token.nonce, milliseconds(token.lease)) for token in tokens]
        answers = self._spread("renew", [token.ref for token in tokens], words)
        return _each(lambda row: results.Renewed() if row else results.Lost(), answers)

    def finish(self, request: Finish) -> results.FinishResult:
        """Give a running seat back."""
        token = request.token
        answer = self._one("finish", token.ref, token.id, codec.finish_words(request))
        return answer if isinstance(answer, Unavailable) else codec.finish_result(request.token.ref, answer)

    def eviction(self) -> str | Unavailable:
        """Return the policy by which the server evicts keys when memory is short; empty if it evicts none."""
        policy: str | Unavailable = self.line.ask("eviction", eviction_of)
        return policy

    def reap(self, shard: int, limit: int = 100) -> results.Reaped | Unavailable:
        """Sweep what has lapsed in a shard: O(lapsed), found through the index."""
        answer = self._shard("reap", shard, limit, self._pending)
        return answer if isinstance(answer, Unavailable) else codec.reaped(shard, answer)

    def remove(self, ref: Ref, shown: Holder) -> results.Withdrawn | results.Gone | Unavailable:
        """Remove a holder if it is still the one that was shown."""
        words = (shown.state, milliseconds(shown.since), milliseconds(shown.until), shown.merged)
        answer = self._one("remove", ref, shown.id, words)
        return answer if isinstance(answer, Unavailable) else codec.remove_result(answer)

    def inspect(self, ref: Ref, id: str = "") -> Record | Unavailable | None:
        """Return the record as it is, with the marker of ``id``."""
        answer = self._one("inspect", ref, id, ())
        return answer if isinstance(answer, Unavailable) else codec.record(ref, answer)

    def list_locks(self, shard: int, after: float = 0.0, limit: int = 100) -> list[Record] | Unavailable:
        """Return records of a shard by rising moment of attention."""
        answer = self._shard("list", shard, milliseconds(after), limit)
        return answer if isinstance(answer, Unavailable) else codec.listed(shard, answer)

    def counters(self) -> dict[str, dict[str, int]] | Unavailable:
        """Return ``{lock name: {what: number}}`` over all shards."""
        names = [self.keys.shards[shard].counters for shard in range(self.shards)]
        answer = self.line.commands("counters", [("HGETALL", name) for name in names])
        return answer if isinstance(answer, Unavailable) else codec.counted(answer)

    def events(self, shard: int, after: str = "", limit: int = 100) -> list[results.Event] | Unavailable:
        """Return what was abnormal in a shard, oldest first."""
        words = ("XRANGE", self.keys.shards[shard].events, f"({after}" if after else "-", "+", "COUNT", limit)
        answer = self.line.commands("events", [words])
        if isinstance(answer, Unavailable):
            return answer
        return [codec.event(shard, key, fields) for key, fields in answer[0]]

    def announce(self, queues: Iterable[str], ttl: float) -> Unavailable | None:
        """Leave the presence key of a worker for each queue."""
        life = milliseconds(ttl)
        sets = [("SET", self.keys.worker + queue, "1", "PX", life) for queue in queues]
        answer = self.line.commands("announce", sets)
        return answer if isinstance(answer, Unavailable) else None

    def announced(self, queue: str) -> bool | Unavailable:
        """Say whether a worker with this app has been seen on the queue."""
        answer = self.line.commands("announced", [("EXISTS", self.keys.worker + queue)])
        return answer if isinstance(answer, Unavailable) else answer == [1]

    def _one(self, verb: str, ref: Ref, id: str, words: Sequence[Word]) -> Any:
        keys = self.keys.shards[ref.shard]
        lock, mark = keys.lock + ref.fingerprint, keys.mark + id
        return self.line.run(verb, 5, keys.index, keys.events, keys.counters, lock, mark, *words)

    def _shard(self, verb: str, shard: int, *words: Word) -> Any:
        keys = self.keys.shards[shard]
        return self.line.run(verb, 3, keys.index, keys.events, keys.counters, *words)

    def _spread(
        self,
        verb: str,
        refs: Sequence[Ref],
        words: Sequence[Sequence[Word]],
        marks: Sequence[str] | None = None,
    ) -> list[Any]:
        """Run one script per shard and batch, and bring the answers back into the order of the items."""
        parts = list(batches(refs))
        calls = [self._call(shard, places, refs, words, marks) for shard, places in parts]
        answers: list[Any] = [None] * len(refs)
        for (_, places), rows in zip(parts, self.line.run_many(verb, calls), strict=True):
            for position, place in enumerate(places):
                # A script with one item answers it bare.
                answers[place] = rows[position] if isinstance(rows, list) else rows
        return answers

    def _call(
        self,
        shard: int,
        places: Sequence[int],
        refs: Sequence[Ref],
        words: Sequence[Sequence[Word]],
        marks: Sequence[str] | None,
    ) -> Call:
        keys = self.keys.shards[shard]
        names: list[Word] = [keys.index, keys.events, keys.counters]
        for place in places:
            names.append(keys.lock + refs[place].fingerprint)
            if marks is not None:
                names.append(keys.mark + marks[place])
        return len(names), [*names, *(word for place in places for word in words[place])]


def _each(read: Callable[[Any], Any], rows: Iterable[Any]) -> list[Any]:
    return [row if isinstance(row, Unavailable) else read(row) for row in rows]

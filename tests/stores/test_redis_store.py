"""What only Redis has: keys and their lives, the index, scripts and their loading, slots, the format."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from redis import Redis
from redis.cluster import key_slot
from redis.exceptions import DataError

from django_jobdedup.outcomes import How
from django_jobdedup.stores.record import Ref
from django_jobdedup.stores.redis.client import Client
from django_jobdedup.stores.redis.scripts import VERBS, Scripts, Word, fold
from django_jobdedup.stores.redis.store import RedisStore
from django_jobdedup.stores.requests import Acquire, Claim, Finish, Token, Withdraw
from django_jobdedup.stores.results import Acquired, Claimed, Confirmed, Held, Lost, Reaped, Released

from .bench import CLOCK_KEY, GRACE, NOON, OTHER, REF, RedisBench
from .conftest import ALIAS

TAG = "{jd:07}:1:"


def everything(bench: RedisBench) -> None:
    """Use every verb, and leave something of each kind behind."""
    bench.wait("a")
    bench.acquire("b")
    bench.acquire("c", counts="PW", on_waiting="over")
    bench.confirm("c")
    bench.claim("a")
    bench.run("c", late=7200)
    bench.renew("c")
    bench.again("c")
    bench.merge("d", b"1")
    bench.merge("e", b"2")
    bench.withdraw("d")
    bench.finish("c", how=How.HANDOVER)
    bench.finish("c", "stranger")
    bench.withdraw("f", waiting=True)
    bench.acquire("g", ref=OTHER)
    bench.advance(20)
    bench.reap()
    bench.store.remove(REF, bench.holder("c"))
    bench.store.acquire_many([Acquire(Ref(shard, "a" * 64), f"m{shard}") for shard in range(3)])
    bench.store.announce(["celery"], 60)
    bench.store.list_locks(7)
    bench.counted()


def test_every_key_ever_written_expires(redis_bench: RedisBench, client: Redis) -> None:
    """The fixture ``client`` looks after each test; here it has every kind of key to look at."""
    everything(redis_bench)
    names = {key.decode().replace("{jd:07}:1:", "") for key in client.scan_iter("{jd:07}*")}
    assert {name.split(":")[0] for name in names} == {"index", "events", "counters", "fence", "lock", "mark"}


class Recording(Scripts):
    """Scripts that remember the keys of every call."""

    def __init__(self) -> None:
        super().__init__(GRACE, f"return tonumber(redis.call('GET', '{CLOCK_KEY}'))")
        self.keys: list[Sequence[Word]] = []

    def run(self, client: Client, verb: str, count: int, words: Sequence[Word]) -> Any:
        self.keys.append(words[:count])
        return super().run(client, verb, count, words)

    def run_many(self, client: Any, verb: str, calls: Any) -> list[Any]:
        self.keys.extend(words[:count] for count, words in calls)
        return super().run_many(client, verb, calls)


def test_the_keys_of_one_script_lie_in_one_slot(redis_bench: RedisBench, client: Redis) -> None:
    scripts = Recording()
    redis_bench.store = RedisStore("default", ALIAS, scripts=scripts)
    everything(redis_bench)
    assert len(scripts.keys) > 20
    for keys in scripts.keys:
        assert len({key_slot(str(key).encode()) for key in keys}) == 1, keys


def test_a_script_touches_no_key_outside_its_slot(redis_bench: RedisBench, client: Redis) -> None:
    """Also not those that a client cannot know, as the markers of superseded ids."""
    with client.monitor() as monitor:
        everything(redis_bench)
        client.echo("the end")
        inside = []
        for command in monitor.listen():
            if command["command"].startswith("ECHO"):
                break
            if command["client_type"] == "lua" and CLOCK_KEY not in command["command"]:
                inside.append(command["command"].split())
    touched = {word for words in inside for word in words[1:] if word.startswith("{")}
    assert len(touched) > 10
    assert all(len({key_slot(w.encode()) for w in words if w.startswith("{")}) <= 1 for words in inside)


# --- the format ---------------------------------------------------------------------------------------


def test_key_names_and_bytes_of_format_1_are_for_ever(redis_bench: RedisBench, client: Redis) -> None:
    """Whatever changes this breaks the locks that are held while it is deployed: raise FORMAT instead."""
    redis_bench.advance(0.123456)
    redis_bench.merge("id-1", b"args", wait=30, max_wait=300, ttl=100, pending=15)
    redis_bench.acquire("id-2", counts="", on_waiting="keep", by="ü")
    redis_bench.run("id-2", "nonce", lease=30, late=200, ttl=100)
    redis_bench.finish("id-3", "x", n=2, marker_ttl=60)
    redis_bench.run("id-4", "n4", gate=0)
    redis_bench.finish("id-4", "n4", marker_ttl=60)
    strings = [key for key in client.scan_iter(_type="STRING") if key != CLOCK_KEY.encode()]
    found = {key.decode(): client.get(key).hex() for key in sorted(strings)}
    assert found == GOLDEN
    assert client.zrange(TAG + "index", 0, -1, withscores=True) == [
        (REF.fingerprint.encode(), 1_800_000_015_123)
    ]
    assert client.hgetall(TAG + "counters") == {
        b"shop.recompute\x1facquired": b"2",
        b"shop.recompute\x1fclaimed": b"2",
        b"shop.recompute\x1fnot_mine": b"1",
        b"shop.recompute\x1freleased": b"1",
    }


GOLDEN = {
    "{jd:07}:1:fence": b"1800000000123457".hex(),
    "{jd:07}:1:lock:" + 64 * "f": (
        "92ae73686f702e7265636f6d7075746592dc0011a469642d31a150a000cf000001a3185c8b13cf000001a3185c"
        "c5abcf000001a3185c507bcf000001a3185c507bce000186a0c2a46172677300000000a57765624031a0dc0011"
        "a469642d32a152a56e6f6e6365cf000001a3185cc5abcf000001a3185f5dbbcf000001a3185c507b00cf000001"
        "a3185c507bce000186a0c2c2000100cf00066517289a6240a8776f726b65724031a0"
    ),
    "{jd:07}:1:mark:id-3": "92cf000001a3185d3adb02",
    "{jd:07}:1:mark:id-4": "93cf000001a3185d3adbffa26e34",
}


def test_presence_lies_outside_the_shards(redis_store: RedisStore, client: Redis) -> None:
    redis_store.announce(["celery"], 60)
    assert client.keys("*") == [b"jd:1:worker:celery"]
    assert 59_000 < client.pttl("jd:1:worker:celery") <= 60_000


def test_two_namespaces_do_not_meet(client: Redis, settings: Any) -> None:
    settings.JOBDEDUP_NAMESPACE = "one"
    one = RedisStore("default", ALIAS)
    settings.JOBDEDUP_NAMESPACE = "two"
    two = RedisStore("default", ALIAS)
    assert isinstance(one.acquire(Acquire(REF, "a")), Acquired)
    assert isinstance(two.acquire(Acquire(REF, "b")), Acquired)


def test_a_header_may_name_a_shard_of_older_settings(redis_store: RedisStore) -> None:
    ref = Ref(99, "a" * 64)
    assert isinstance(redis_store.claim(Claim(ref, "a", 0, "one")), Claimed)
    assert redis_store.finish(Finish(Token(ref, "a", "one"), 0)) == Released()


# --- lives ----------------------------------------------------------------------------------------------


def life(client: Redis, name: str) -> float:
    """Return how long a key of the shard lives, in seconds."""
    return client.pttl(TAG + name) / 1000


def test_a_record_lives_until_its_last_deadline_and_the_grace_time(
    redis_bench: RedisBench, client: Redis
) -> None:
    lock = f"lock:{REF.fingerprint}"
    redis_bench.acquire("a", pending=15, ttl=5400)
    assert life(client, lock) == pytest.approx(GRACE + 15, abs=2)
    redis_bench.confirm("a")
    assert life(client, lock) == pytest.approx(GRACE + 5400, abs=2)
    redis_bench.acquire("b")
    assert life(client, lock) == pytest.approx(GRACE + 5400, abs=2), "a refusal moves nothing"
    redis_bench.run("a", lease=30)
    assert life(client, lock) == pytest.approx(GRACE + 30, abs=2)


def test_an_intent_lives_for_a_month_behind_its_deadline(redis_bench: RedisBench, client: Redis) -> None:
    redis_bench.merge("a", b"1", pending=15)
    lock = f"lock:{REF.fingerprint}"
    assert life(client, lock) == pytest.approx(30 * 86_400 + 15 + GRACE, abs=2)
    client.pexpire(TAG + lock, 1000)
    redis_bench.advance(20)
    redis_bench.reap()
    assert life(client, lock) > 30 * 86_400, "each pass of the reaper renews it"


def test_the_index_lives_as_long_as_its_longest_record(redis_bench: RedisBench, client: Redis) -> None:
    redis_bench.wait("a", ttl=1_000_000)
    assert life(client, "index") >= 1_000_000 + GRACE
    redis_bench.acquire("b", ref=OTHER)
    assert life(client, "index") >= 1_000_000 + GRACE, "a shorter one does not shorten it"


def test_a_marker_lives_as_long_as_it_is_told(redis_bench: RedisBench, client: Redis) -> None:
    redis_bench.run("a")
    redis_bench.finish("a", marker_ttl=7200)
    assert life(client, "mark:a") == pytest.approx(7200, abs=2)


def test_counters_are_kept_for_a_month_from_their_last_refresh(
    redis_bench: RedisBench, client: Redis
) -> None:
    redis_bench.wait("a")
    client.pexpire(TAG + "counters", 1000)
    for _ in range(63):
        redis_bench.acquire("b")
    client.pexpire(TAG + "counters", 1000)
    redis_bench.acquire("b")
    assert life(client, "counters") <= 1
    redis_bench.acquire("b")
    assert life(client, "counters") > 29 * 86_400, "the 65th of a field"


def test_events_are_capped(redis_bench: RedisBench, client: Redis) -> None:
    with client.pipeline(transaction=False) as pipeline:
        for _ in range(12_000):
            pipeline.xadd(TAG + "events", {"what": "old"})
        pipeline.execute()
    redis_bench.finish("a", "stranger")
    assert client.xlen(TAG + "events") <= 10_200


def test_real_time_lets_everything_go(client: Redis) -> None:
    """With a grace time of 0.1 s: a record, its index member and its shard are gone by themselves."""
    store = RedisStore("default", ALIAS, scripts=Scripts(0.1))
    store.acquire(Acquire(REF, "a", pending=0.05, counted=False))
    assert client.exists(TAG + f"lock:{REF.fingerprint}")
    deadline = time.monotonic() + 5
    while client.exists(TAG + f"lock:{REF.fingerprint}"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert client.zcard(TAG + "index") == 1
    store.acquire(Acquire(OTHER, "b", counted=False))
    assert client.zrange(TAG + "index", 0, -1) == [OTHER.fingerprint.encode()]


def test_an_acquire_removes_at_most_a_hundred_old_members(redis_bench: RedisBench, client: Redis) -> None:
    old = {f"{number:064}": (NOON - GRACE - 1) * 1000 for number in range(150)}
    client.zadd(TAG + "index", old)
    client.pexpire(TAG + "index", 60_000)
    redis_bench.acquire("a")
    assert client.zcard(TAG + "index") == 51
    redis_bench.acquire("b")
    assert client.zcard(TAG + "index") == 1, "a refused one too"


def test_the_reaper_drops_members_whose_record_is_gone(redis_bench: RedisBench, client: Redis) -> None:
    redis_bench.acquire("a")
    client.delete(TAG + f"lock:{REF.fingerprint}")
    assert redis_bench.store.list_locks(7) == []
    redis_bench.advance(20)
    assert redis_bench.reap() == Reaped((), ())
    assert client.zcard(TAG + "index") == 0


def test_the_reaper_reads_what_has_lapsed_and_not_what_lives(redis_bench: RedisBench, client: Redis) -> None:
    store = redis_bench.store
    living = [Acquire(Ref(7, f"{number:064}"), f"id{number}", pending=1000) for number in range(3000)]
    store.acquire_many(
        [*living, *(Acquire(Ref(7, f"{n:064x}"), f"dead{n}") for n in range(10**9, 10**9 + 5))]
    )
    redis_bench.advance(20)
    client.config_resetstat()
    assert len(redis_bench.reap().lapses) == 5
    calls = {name: stat["calls"] for name, stat in client.info("commandstats").items()}
    assert sum(calls.values()) < 60


# --- round trips and scripts ------------------------------------------------------------------------------


def calls(client: Redis, command: str) -> int:
    """Return how often a command was called by clients since the statistics were reset."""
    return int(client.info("commandstats").get(f"cmdstat_{command}", {"calls": 0})["calls"])


def test_each_verb_is_one_command(redis_store: RedisStore, client: Redis) -> None:
    store = redis_store
    store.acquire(Acquire(REF, "a"))
    token = Token(REF, "a", "one")
    for question in (
        lambda: store.acquire(Acquire(REF, "a")),
        lambda: store.acquire(Acquire(REF, "b")),
        lambda: store.acquire_many([Acquire(Ref(7, f"{n:064}"), f"id{n}") for n in range(900)]),
        lambda: store.confirm([(REF, "a"), (OTHER, "b")]),
        lambda: store.claim(Claim(REF, "a", 0, "one")),
        lambda: store.renew([token, token]),
        lambda: store.finish(Finish(token, 0)),
        lambda: store.withdraw(Withdraw(REF, "a")),
        lambda: store.inspect(REF),
        lambda: store.list_locks(7),
        lambda: store.reap(7),
    ):
        question()  # loads the script
        client.config_resetstat()
        question()
        assert calls(client, "evalsha") == 1


def test_scripts_are_loaded_again_after_a_flush(redis_bench: RedisBench, client: Redis) -> None:
    redis_bench.wait("a")
    client.script_flush()
    assert redis_bench.acquire("b") == Held("a", "W", NOON, NOON + 5400, "web@1")
    client.script_flush()
    requests = [Acquire(Ref(shard, "a" * 64), f"id{shard}") for shard in range(4)]
    assert redis_bench.store.acquire_many(requests) == [Acquired(NOON)] * 4
    assert redis_bench.counted("") == {"acquired": 4}, "each was executed once"
    client.config_resetstat()
    redis_bench.acquire("b")
    assert calls(client, "eval") == 0


def test_many_of_many_shards_are_one_script_each(redis_store: RedisStore, client: Redis) -> None:
    requests = [Acquire(Ref(n % 4, f"{n:064}"), f"id{n}") for n in range(40)]
    redis_store.acquire_many(requests)
    client.config_resetstat()
    redis_store.acquire_many(requests)
    assert calls(client, "evalsha") == 4


def test_there_is_one_script_a_verb_and_constants_are_folded() -> None:
    assert set(VERBS) == {
        "acquire", "asleep", "claim", "confirm", "finish", "inspect", "list", "reap", "remove", "renew",
        "withdraw",
    }  # fmt: skip
    for text in Scripts(GRACE).text.values():
        assert "HOLDER" not in text
        assert "@" not in text
        assert "holder[1]" in text
    assert fold("local ONE, TWO = 1, -2\nreturn ONE + TWO + NONE") == "\nreturn 1 + -2 + NONE"


def test_policy_words_are_not_in_the_scripts() -> None:
    words = ("until_exec", "while_exec", "rerun", "debounce", "throttle", "skip", "replace(", "strategy")
    for text in Scripts(GRACE).text.values():
        assert not [word for word in words if word in text.lower()]


def test_a_value_that_is_none_of_the_contracts_is_the_callers_mistake(redis_store: RedisStore) -> None:
    with pytest.raises(DataError):
        redis_store.finish(Finish(Token(REF, "a", None), 0))  # type: ignore[arg-type]
    assert isinstance(redis_store.acquire(Acquire(REF, "a")), Acquired), "the breaker stays shut"


def test_unknown_options_are_refused(client: Redis) -> None:
    with pytest.raises(ImproperlyConfigured, match=r"STORES\['x'\]: there is no option 'retry'; .*pause"):
        RedisStore("x", ALIAS, {"retry": 3})


# --- many ---------------------------------------------------------------------------------------------------


def test_ten_thousand_jobs_leave_nothing_but_counters_markers_and_a_fence(
    redis_store: RedisStore, client: Redis
) -> None:
    store = redis_store
    for number in range(10_000):
        ref, id = Ref(number % 4, f"{number:064}"), f"id{number}"
        assert type(store.acquire(Acquire(ref, id, name="shop.recompute"))) is Acquired
        assert store.confirm([(ref, id)]) == [Confirmed()]
        assert type(store.claim(Claim(ref, id, 0, "n", name="shop.recompute"))) is Claimed
        assert store.finish(Finish(Token(ref, id, "n"), 0, marker_ttl=60)) == Released()
    kinds: dict[str, int] = {}
    for key in client.scan_iter(count=2000):
        kind = key.decode().split(":")[3]
        kinds[kind] = kinds.get(kind, 0) + 1
    assert kinds == {"mark": 10_000, "counters": 4, "fence": 4}


def test_a_lock_and_a_marker_are_small(redis_store: RedisStore, client: Redis) -> None:
    """Measured, with ids, names and processes as Celery has them; the bounds leave some room."""
    from uuid import uuid4

    def used() -> int:
        return int(client.info("memory")["used_memory"])

    requests = [
        Acquire(Ref(7, f"{n:064x}"), str(uuid4()), name="shop.tasks.recompute_tenant", by="web-1:12345")
        for n in range(8_000)
    ]
    before = used()
    redis_store.acquire_many(requests)
    lock = (used() - before) / len(requests)
    redis_store.confirm([(request.ref, request.id) for request in requests])
    waiting = (used() - before) / len(requests)
    for request in requests:
        redis_store.claim(Claim(request.ref, request.id, 0, "n"))
        redis_store.finish(Finish(Token(request.ref, request.id, "n"), 0))
    marker = (used() - before) / len(requests)
    print(f"pending {lock:.0f}, waiting {waiting:.0f}, marker {marker:.0f} bytes")
    assert lock < 650
    assert marker < 220


def test_fences_rise_over_a_lost_store(redis_store: RedisStore, client: Redis) -> None:
    fences = []
    for number in range(3):
        answer = redis_store.claim(Claim(REF, f"id{number}", 0, "n"))
        assert isinstance(answer, Claimed)
        fences.append(answer.fence)
        client.flushdb()
    assert all(earlier < later for earlier, later in pairwise(fences))
    assert redis_store.renew([Token(REF, "id2", "n")]) == [Lost()], "who held it learns that it is forgotten"

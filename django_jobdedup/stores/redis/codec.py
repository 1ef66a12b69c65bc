"""Between values and words: requests to script arguments, replies to results. Milliseconds on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from django_jobdedup.stores import results
from django_jobdedup.stores.clock import milliseconds
from django_jobdedup.stores.record import Holder, Marker, Record, Ref, State
from django_jobdedup.stores.redis.scripts import Word
from django_jobdedup.stores.requests import Acquire, Claim, Finish, Sleep

FINAL: Final = -1
SUPERSEDED: Final = -3


def text(value: bytes) -> str:
    """Return a reply as text."""
    return value.decode()


def acquire_words(request: Acquire) -> tuple[Word, ...]:
    """Return the arguments of one request to ``acquire.lua``."""
    merge = request.merge
    flags = (
        request.again
        | request.received << 1
        | request.counted << 2
        | (request.args is not None) << 3
        | (merge is not None) << 4
    )
    wait, most = (0, -1) if merge is None else (milliseconds(merge.wait), _bound(merge.max_wait))
    words = (
        f"{request.counts} {request.limit} {request.on_waiting} {milliseconds(request.due_in)} "
        f"{milliseconds(request.ttl)} {milliseconds(request.pending)} {wait} {most} {flags}"
        f"\x1f{request.by}\x1f{request.name}"
    )
    return (words,) if request.args is None else (words, request.args)


def _bound(seconds: float | None) -> int:
    return -1 if seconds is None else milliseconds(seconds)


def acquire_result(answer: bytes) -> results.AcquireResult:
    """Read one answer of ``acquire.lua``; the call in it is any bytes, so it comes last."""
    if answer[:2] == b"M\x1f":
        _, token, n, publish, ahead, due_in, call = answer.split(b"\x1f", 6)
        return results.Merged(
            text(token), int(n), publish == b"1", int(ahead) / 1000, int(due_in) / 1000, call
        )
    kind, *words = answer.decode().split("\x1f")
    match kind:
        case "A":
            return results.Acquired(int(words[0]) / 1000)
        case "H":
            id, state, since, until, by = words
            return results.Held(id, cast("State", state), int(since) / 1000, int(until) / 1000, by)
    return results.Outside()


def claim_words(request: Claim) -> tuple[Word, ...]:
    """Return the arguments of ``claim.lua``."""
    words = (
        f"{request.n} {milliseconds(request.lease)} {milliseconds(request.ttl)} {milliseconds(request.late)} "
        f"{request.gate} {request.max_starts} {request.counted:d}\x1f{request.by}\x1f{request.name}"
    )
    return request.nonce, words


def claim_result(answer: bytes) -> results.ClaimResult:
    """Read the answer of ``claim.lua``; the arguments in it are any bytes, so they come last."""
    kind, *words = answer.split(b"\x1f", 5)
    match kind:
        case b"C":
            fence, at, starts, with_args, args = words
            return results.Claimed(
                int(fence), int(at) / 1000, args if with_args == b"1" else None, int(starts)
            )
        case b"S":
            return results.Superseded(text(words[0]))
        case b"B":
            return results.Busy(words[0] == b"1", int(words[1]) / 1000, text(words[2]))
        case b"E":
            return results.Early(int(words[0]) / 1000)
        case b"X":
            return results.Exhausted(int(words[0]))
    return results.Done()


def asleep_words(request: Sleep) -> tuple[Word, ...]:
    """Return the arguments of ``asleep.lua``."""
    words = f"{request.n} {request.gate} {milliseconds(request.life)} {request.woken:d}"
    return (words,) if request.call is None else (words, request.call)


def asleep_result(answer: bytes) -> results.Asleep | results.Open:
    """Read the answer of ``asleep.lua``."""
    return results.Open() if answer == b"O" else results.Asleep()


def finish_words(request: Finish) -> tuple[Word, ...]:
    """Return the arguments of ``finish.lua``."""
    life = milliseconds(request.marker_ttl)
    return request.token.nonce, f"{request.n} {request.how} {life} {request.counted:d}\x1f{request.name}"


def withdraw_result(answer: bytes) -> results.Withdrawn | results.Owed | results.Gone:
    """Read the answer of ``withdraw.lua``."""
    return results.Owed() if answer == b"O" else remove_result(answer)


def remove_result(answer: bytes) -> results.Withdrawn | results.Gone:
    """Read the answer of ``remove.lua``."""
    return results.Withdrawn(int(answer[2:])) if answer[:1] == b"W" else results.Gone()


def finish_result(ref: Ref, answer: bytes) -> results.FinishResult:
    """Read the answer of ``finish.lua``; the arguments in it are any bytes, so they come last."""
    what, *words = answer.split(b"\x1f", 4)
    if not words:
        return FINISHED[text(what)]
    id, n, name, args = words
    waiter = results.Overdue(ref, text(id), int(n), args, text(name))
    return results.Released(waiter) if what == b"released" else results.Kept(waiter)


FINISHED: Final[dict[str, results.FinishResult]] = {
    "released": results.Released(),
    "kept": results.Kept(),
    "handed_over": results.HandedOver(),
    "not_mine": results.NotMine(),
}


def reaped(shard: int, rows: list[list[Any]]) -> results.Reaped:
    """Read the answer of ``reap.lua``."""
    return results.Reaped(
        tuple(
            results.Lapse(_lapse(what), Ref(shard, text(fp)), text(id), text(name), text(by))
            for what, fp, id, name, by in rows[0]
        ),
        tuple(
            results.Overdue(Ref(shard, text(fp)), text(id), n, args, text(name))
            for fp, id, n, args, name in rows[1]
        ),
        tuple(results.Doubt(Ref(shard, text(fp)), text(name), holder(row)) for fp, name, row in rows[2]),
        tuple(
            results.Overdue(Ref(shard, text(fp)), text(id), n, args, text(name))
            for fp, id, n, args, name in rows[3]
        ),
    )


def holder(row: list[Any]) -> Holder:
    """Read one holder of a record."""
    return Holder(
        id=text(row[0]),
        state=_state(row[1]),
        nonce=text(row[2]),
        lease=row[3] / 1000,
        until=row[4] / 1000,
        due=row[5] / 1000,
        first=row[6] / 1000,
        since=row[7] / 1000,
        ttl=row[8] / 1000,
        over=tuple(text(id) for id in row[9] or ()),
        args=row[10],
        merged=row[11],
        starts=row[12],
        refused=row[13],
        fence=row[14],
        by=text(row[15]),
    )


def marker(row: list[Any]) -> Marker | None:
    """Read a marker; one that ends nothing (it only keeps the answer of a withdrawal) is none."""
    if not row or row[1] == -2:
        return None
    if row[1] == SUPERSEDED:
        return Marker(superseded_by=text(row[2]))
    return Marker(final=True) if row[1] == FINAL else Marker(n=row[1])


def record(ref: Ref, rows: list[Any]) -> Record | None:
    """Read the answer of ``inspect.lua``."""
    now, name, holders, mark = rows
    found = marker(mark)
    if not holders and found is None:
        return None
    return Record(ref, text(name), tuple(map(holder, holders)), found, now / 1000)


def listed(shard: int, rows: list[Any]) -> list[Record]:
    """Read the answer of ``list.lua``."""
    now, found = rows
    return [
        Record(
            Ref(shard, text(fingerprint)),
            text(name),
            tuple(map(holder, holders)),
            now=now / 1000,
            attention=attention / 1000,
        )
        for fingerprint, attention, name, holders in found
    ]


def event(shard: int, key: bytes, fields: Mapping[bytes, bytes]) -> results.Event:
    """Read one entry of the event stream."""
    read = {text(name): text(value) for name, value in fields.items()}
    return results.Event(
        key=text(key),
        what=read["what"],
        at=int(read["at"]) / 1000,
        ref=Ref(shard, read["fingerprint"]),
        id=read["id"],
        name=read["name"],
        by=read["by"],
        other=read["other"],
    )


def _state(value: bytes) -> State:
    return cast("State", text(value))


def _lapse(value: bytes) -> results.Lapsed:
    return cast("results.Lapsed", text(value))


def counted(hashes: list[Mapping[bytes, bytes]]) -> dict[str, dict[str, int]]:
    """Read the counters of all shards into ``{lock name: {what: number}}``."""
    numbers: dict[str, dict[str, int]] = {}
    for fields in hashes:
        for field, number in fields.items():
            name, _, what = text(field).rpartition("\x1f")
            of_name = numbers.setdefault(name, {})
            of_name[what] = of_name.get(what, 0) + int(number)
    return numbers

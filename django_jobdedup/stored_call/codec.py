"""A whole call as bytes, and back: what a store keeps until somebody publishes it.

Two parts (``parts.py``), each one line of JSON that anybody may read, then data in the task's own
serializer: what the call was sent with, and its arguments. They are read again only in a content type that
the project accepts from its broker.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, Final

from kombu.exceptions import ContentDisallowed, DecodeError, SerializerNotInstalled
from kombu.serialization import dumps, loads, registry  # type: ignore[attr-defined]

from django_jobdedup.call import Call
from django_jobdedup.exceptions import StoredCallError
from django_jobdedup.stored_call.options import travelling
from django_jobdedup.stored_call.parts import framed, parts
from django_jobdedup.suggestion import suggest

#: Version of the form.
FORMAT: Final = 2
#: Largest stored call, bytes: a quarter of what MariaDB takes in one statement unless it is told otherwise.
LARGEST: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Notes:
    """What decides over a stored call, beside the call itself.

    ``promised`` and ``by_celery`` as in ``Call``. ``plain`` is the outcome of a call that takes no seat,
    else empty. ``strategy`` is the strategy for a refused dispatch, in its JSON form. ``typed``: Celery was
    given the task itself, not only its name. ``canvas``: what it becomes when it is refused and promised.
    ``app`` is the name of the Celery app that was called.
    """

    promised: bool = False
    by_celery: bool = False
    plain: str = ""
    strategy: Any = None
    typed: bool = False
    canvas: str = "run"
    app: str = ""


_NOTES: Final = {each.name: each.default for each in fields(Notes)}


@dataclass(frozen=True, slots=True)
class Head:
    """The readable line of a stored call: task, id, content type and encoding, due time (epoch), notes."""

    task: str
    id: str
    content_type: str
    encoding: str
    due: float
    notes: Notes


def encode(
    call: Call, notes: Notes, *, serializer: str, accept: Collection[str], largest: int = LARGEST
) -> bytes:
    """Return the stored form of a call; ``accept`` are content types (``application/json``).

    Raises StoredCallError for an option or argument that cannot be stored, a content type that nobody
    would read, and a call above ``largest`` bytes.
    """
    options = travelling(call.task, call.options, datetime.now(UTC))
    content_type, encoding, body, arguments = _dumped(call, options, serializer)
    if content_type not in accept:
        raise StoredCallError(
            f"{call.task} was not queued: its serializer {serializer!r} writes {content_type}, which "
            "accept_content does not list, so nobody could read the stored call. Add it there, or give the "
            "task another serializer."
        )
    head = {
        "v": FORMAT,
        "task": call.task,
        "id": call.id,
        "type": content_type,
        "encoding": encoding,
        "due": time.time() + call.due_in if call.due_in else 0,
        **{name: value for name, default in _NOTES.items() if (value := getattr(notes, name)) != default},
    }
    own = {"type": content_type, "encoding": encoding}
    stored = framed(_line(head) + body, _line(own) + arguments)
    if len(stored) > largest:
        raise StoredCallError(
            f"{call.task} was not queued: its call takes {len(stored):,} bytes in its store, and at most "
            f"{largest:,} are kept. Store the data elsewhere and pass its id."
        )
    return stored


def _line(words: Mapping[str, Any]) -> bytes:
    return json.dumps(words, separators=(",", ":")).encode() + b"\n"


def _dumped(call: Call, options: Mapping[str, Any], serializer: str) -> tuple[str, str, bytes, bytes]:
    try:
        content_type, encoding, body = dumps(options, serializer)
        _, _, arguments = dumps([list(call.args), dict(call.kwargs)], serializer)
    except SerializerNotInstalled:
        known = sorted({each for each in registry.name_to_type if each != "raw"})
        raise StoredCallError(
            f"{call.task} was not queued: there is no serializer {serializer!r}; {suggest(serializer, known)}"
        ) from None
    except Exception as error:
        raise StoredCallError(
            f"{call.task} was not queued: {_culprit(call, options, serializer)} cannot be stored with the "
            f"serializer {serializer!r} ({error})."
        ) from error
    return content_type, encoding, _raw(body, encoding), _raw(arguments, encoding)


def _raw(data: Any, encoding: str) -> bytes:
    return data if isinstance(data, bytes) else bytes(data.encode(encoding))


def _culprit(call: Call, options: Mapping[str, Any], serializer: str) -> str:
    """Name the part that cannot be encoded."""
    parts = {f"argument {place}": value for place, value in enumerate(call.args, 1)}
    parts |= {f"argument {name}=": value for name, value in call.kwargs.items()}
    parts |= {f"option {name}=": value for name, value in options.items()}
    for name, value in parts.items():
        try:
            dumps(value, serializer)
        except Exception:
            return f"its {name}"
    return "it"


def head_of(stored: bytes) -> tuple[Head, bytes]:
    """Return the readable line and what comes behind it: the options. Raises StoredCallError."""
    own, _ = parts(bytes(stored)) or (bytes(stored), b"")
    line, _, body = own.partition(b"\n")
    try:
        head = json.loads(line)
        if head["v"] != FORMAT:
            raise StoredCallError(f"A stored call has format {head['v']!r}; this version reads {FORMAT}.")
        notes = Notes(**{name: head[name] for name in _NOTES if name in head})
        task, id, content_type, encoding = (str(head[name]) for name in ("task", "id", "type", "encoding"))
        return Head(task, id, content_type, encoding, float(head["due"]), notes), body
    except (KeyError, TypeError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise StoredCallError(f"A stored call cannot be read: {_words(error)}.") from error


def decode(stored: bytes, *, accept: Collection[str]) -> tuple[Call, Notes]:
    """Return the call and its notes; the call's policy and task object are for the caller to find.

    Its arguments are the newest of the calls that have joined it. Raises StoredCallError for bytes that are
    no stored call, and for a content type not in ``accept``.
    """
    head, body = head_of(stored)
    name = f"stored call {head.id} of {head.task}"
    options = _read(name, (head.content_type, head.encoding, body), accept)
    args, kwargs = _arguments(name, stored, accept)
    try:
        call = Call(
            task=head.task,
            id=head.id,
            args=args,
            kwargs=kwargs,
            options=dict(options),
            due_in=max(0.0, head.due - time.time()) if head.due else 0.0,
            promised=head.notes.promised,
            by_celery=head.notes.by_celery,
        )
    except (TypeError, ValueError) as error:
        raise StoredCallError(f"The {name} cannot be read: {_words(error)}.") from error
    return call, head.notes


def arguments_of(stored: bytes, *, accept: Collection[str]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the newest arguments, positional and by name, whatever they stand beside.

    Raises StoredCallError as ``decode``.
    """
    return _arguments("stored call", stored, accept)


def _arguments(name: str, stored: bytes, accept: Collection[str]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    found = parts(bytes(stored))
    line, _, body = (found[1] if found is not None else b"").partition(b"\n")
    try:
        head = json.loads(line)
        args, kwargs = _read(name, (str(head["type"]), str(head["encoding"]), body), accept)
        return tuple(args), dict(kwargs)
    except (KeyError, TypeError, ValueError) as error:
        raise StoredCallError(f"The {name} cannot be read: {_words(error)}.") from error


def _read(name: str, data: tuple[str, str, bytes], accept: Collection[str]) -> Any:
    """Read what stands in one part: its content type, its encoding, its bytes."""
    content_type, encoding, body = data
    if content_type not in accept:
        raise StoredCallError(
            f"The {name} is written in {content_type}, which accept_content does not list: add it there "
            "where this process runs."
        )
    if not body:
        raise StoredCallError(f"The {name} cannot be read: a part of it is empty.")
    try:
        return loads(body, content_type, encoding, accept=set(accept))
    except (ContentDisallowed, DecodeError, TypeError, ValueError) as error:
        raise StoredCallError(f"The {name} cannot be read: {_words(error)}.") from error


def _words(error: Exception) -> str:
    """What an error says; not its repr, which may hold the whole body: arguments are nobody's business."""
    return f"{type(error).__name__}: {error}"

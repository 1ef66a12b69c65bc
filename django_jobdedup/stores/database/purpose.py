"""Who asks for a step, and what he brings that no seat and no marker says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from django_jobdedup.stores.requests import Acquire

Verb = Literal[
    "acquire", "confirm", "withdraw", "claim", "asleep", "finish", "handover", "reap", "remove", "inspect"
]


@dataclass(frozen=True, slots=True)
class Purpose:
    """One verb of one token.

    ``counts`` are the states in which its seat keeps a waiting key, ``gated``: a run holds a running key,
    ``call`` is to be stored; ``renewed``: it replaces what is stored. ``reason`` is an ending in one word,
    ``by`` the token of the holder that covers the job from now on.
    """

    verb: Verb
    token: str = ""
    name: str = ""
    counts: str = ""
    gated: bool = False
    call: bytes | None = None
    renewed: bool = False
    reason: str = ""
    by: str = ""


def acquiring(request: Acquire) -> Purpose:
    """Return the purpose of a dispatch."""
    return Purpose(
        "acquire",
        request.id,
        name=request.name,
        counts=request.counts,
        call=request.call,
        renewed=request.again,
    )

"""The end of an error about an unknown name: what is known, and what was perhaps meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def suggest(name: object, known: Iterable[str]) -> str:
    """Return ``known: "a", "b". Did you mean "b"?``, the question only where one name is close."""
    names = list(known)
    listed = ", ".join(f'"{each}"' for each in names)
    close = get_close_matches(str(name), names, n=1)
    question = f' Did you mean "{close[0]}"?' if close else ""
    return f"known: {listed}.{question}"

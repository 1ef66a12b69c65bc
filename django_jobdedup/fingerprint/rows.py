"""Django's own values: a saved row, a lazy text, a lazy object.

Nothing here imports Django: a value of one of its types cannot exist before Django is imported, so what
is not in ``sys.modules`` is not needed. The room works in an interpreter without Django.
"""

from __future__ import annotations

import sys
from typing import Any

from django_jobdedup.fingerprint.refusal import Refusal


def _is_a(value: object, module: str, name: str) -> bool:
    """Say whether a value is of a class that may not be imported yet. ``__class__`` can lie: ask the type."""
    found = getattr(sys.modules.get(module), name, None)
    return found is not None and issubclass(type(value), found)


def awake(value: Any) -> Any:
    """Return what a lazy text or a lazy object (``request.user``) stands for; others as they are.

    A lazy text is taken in the language that is active now, as the message serializers take it.
    """
    if _is_a(value, "django.utils.functional", "Promise"):
        return str(value)
    if _is_a(value, "django.utils.functional", "LazyObject"):
        if value._wrapped is sys.modules["django.utils.functional"].empty:
            value._setup()
        return value._wrapped
    return value


def row_of(value: Any) -> tuple[str, object, str] | None:
    """Return (label of the concrete model, primary key, database alias); None if this is no model instance.

    The key is cast as its field does, so ``"5"`` given by hand is 5. Raises Refusal for an unsaved row.
    """
    if not _is_a(value, "django.db.models.base", "Model"):
        return None
    meta, state, pk = value._meta, value._state, value.pk
    parts = pk if isinstance(pk, tuple) else (pk,)
    if state.adding or None in parts:
        raise Refusal(
            f"is an unsaved or deleted {meta.label}, so no row stands for it. "
            "Save it before the dispatch, or pass the values that identify the job"
        )
    cast = _cast(meta, parts)
    return meta.concrete_model._meta.label, cast if isinstance(pk, tuple) else cast[0], state.db or "default"


def _cast(meta: Any, parts: tuple[Any, ...]) -> list[Any]:
    from django.core.exceptions import ValidationError

    try:
        return [field.to_python(part) for field, part in zip(meta.pk_fields, parts, strict=True)]
    except ValidationError:
        raise Refusal(f"is a {meta.label} whose primary key is not a value of its field. Reload it") from None

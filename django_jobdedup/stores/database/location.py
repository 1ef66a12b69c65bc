"""The database alias in which a store shall live."""

from __future__ import annotations

from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from django_jobdedup.stores.database.dialect import dialect_of


def check_location(alias: str, location: str) -> None:
    """Refuse an alias that is not in ``DATABASES``, or whose engine is not supported.

    Raises ImproperlyConfigured; empty is right, and says nothing of the engine.
    """
    if location and location not in connections:
        known = ", ".join(map(repr, connections))
        raise ImproperlyConfigured(
            f"JOBDEDUP_STORES[{alias!r}]: LOCATION {location!r} is no alias in DATABASES; write one of "
            f"{known}, or leave it out: then the database routers decide."
        )
    if location:
        dialect_of(connections[location], alias)

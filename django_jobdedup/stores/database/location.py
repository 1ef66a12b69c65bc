"""The database alias in which a store shall live."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from django_jobdedup.stores.database.dialect import dialect_of


def check_location(alias: str, location: str) -> None:
    """Refuse an alias that is not in ``DATABASES``, or on which the store cannot work.

    Raises ImproperlyConfigured; empty is right, and says nothing of the engine.
    """
    if location and location not in connections:
        known = ", ".join(map(repr, connections))
        raise ImproperlyConfigured(
            f"JOBDEDUP_STORES[{alias!r}]: LOCATION {location!r} is no alias in DATABASES; write one of "
            f"{known}, or leave it out: then the database routers decide."
        )
    if location:
        check_connection(alias, connections[location])


def check_connection(alias: str, connection: Any) -> None:
    """Refuse an engine that is not supported, and an alias whose every statement waits for a commit by hand.

    Raises ImproperlyConfigured; does not connect.
    """
    dialect_of(connection, alias)
    if not connection.settings_dict["AUTOCOMMIT"]:
        raise ImproperlyConfigured(
            f"JOBDEDUP_STORES[{alias!r}]: DATABASES[{connection.alias!r}] has AUTOCOMMIT = False, so nothing "
            "that a worker or the relay writes would be committed. Take it out, or give the store an alias "
            "of its own."
        )

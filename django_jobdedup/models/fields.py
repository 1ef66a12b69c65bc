"""A column for digests and codes: short ASCII text that every engine compares byte by byte."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper

if TYPE_CHECKING:
    Base = models.CharField[Any, Any]
else:
    Base = models.CharField


class AsciiField(Base):
    """Short ASCII text, never compared by a collation of the project's.

    MySQL and MariaDB take letters of either case, with or without accent, for equal by default; their
    ``ascii_bin`` takes a byte for a byte, and one byte a character in an index.
    """

    def db_type(self, connection: BaseDatabaseWrapper) -> str:
        """Return the type of the column, its collation included."""
        if connection.vendor == "mysql":
            return f"varchar({self.max_length}) CHARACTER SET ascii COLLATE ascii_bin"
        if connection.vendor == "postgresql":
            return f'varchar({self.max_length}) COLLATE "C"'
        return str(super().db_type(connection))

    def cast_db_type(self, connection: BaseDatabaseWrapper) -> str:
        """Return the type in a cast, which takes no collation."""
        return f"char({self.max_length})" if connection.vendor == "mysql" else f"varchar({self.max_length})"

    def db_parameters(self, connection: BaseDatabaseWrapper) -> Any:
        """Return the type and nothing more: the collation stands in it."""
        return {"type": self.db_type(connection), "check": None}

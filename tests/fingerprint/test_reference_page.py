"""The table of values in the docs is run, line by line."""

from __future__ import annotations

import re
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth.models import User
from django.utils.functional import SimpleLazyObject
from django.utils.translation import gettext_lazy, override

from django_jobdedup.fingerprint.canonical import canonical

from .values import Colour, Level, Money, Point

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "fingerprint.md"
ROW = re.compile(r"^\| (?P<what>[^|]+) \| `(?P<example>[^`|]+)` \| `(?P<text>[^`|]+)` \|$", re.MULTILINE)
ROWS = [(found["what"], found["example"], found["text"]) for found in ROW.finditer(PAGE.read_text("utf-8"))]

NAMES = {
    kind.__name__: kind
    for kind in (date, datetime, time, timedelta, Decimal, UUID, ZoneInfo, SimpleLazyObject)
} | {"Colour": Colour, "Level": Level, "Money": Money, "Point": Point, "gettext_lazy": gettext_lazy}


def test_the_page_has_its_table() -> None:
    assert len(ROWS) > 30


@pytest.mark.parametrize(("what", "example", "text"), ROWS, ids=[row[0][:40] for row in ROWS])
def test_a_line_of_the_table_is_true(what: str, example: str, text: str) -> None:
    user = User.from_db("default", ["id"], [5])
    with override("en"):
        assert canonical(eval(example, {**NAMES, "user": user})) == text

"""The options of a store: what they may say, and what is said of the rest."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from django_jobdedup.checks.stores import check_stores
from django_jobdedup.stores.options import read_pauses
from tests.rig.engines import BACKEND


@pytest.mark.parametrize(
    ("options", "pauses"),
    [
        (None, (1.0, 5.0)),
        ({}, (1.0, 5.0)),
        ({"pause": 2}, (2.0, 5.0)),
        ({"pause": timedelta(seconds=8)}, (8.0, 8.0)),
        ({"pause": 0.5, "max_pause": 0.5}, (0.5, 0.5)),
    ],
)
def test_pauses_are_seconds(options: Any, pauses: tuple[float, float]) -> None:
    assert read_pauses("x", options) == pauses


WRONG: list[tuple[Any, str]] = [
    ({"pause": "x"}, "the option pause needs a number of seconds above 0 or a timedelta, not 'x'."),
    ({"pause": -3}, "the option pause needs a number of seconds above 0 or a timedelta, not -3."),
    ({"max_pause": True}, "the option max_pause needs a number of seconds"),
    ({"paus": 3}, 'there is no option \'paus\'; known: "pause", "max_pause". Did you mean "pause"?'),
    ({"pause": 3, "max_pause": 2}, "above max_pause, the longest: write max_pause=3 or more."),
    (["pause"], "OPTIONS needs a dict, not ['pause']."),
]


@pytest.mark.parametrize("backend", [BACKEND, "django_jobdedup.stores.redis.store.RedisStore"])
@pytest.mark.parametrize(("options", "said"), WRONG)
def test_a_wrong_one_is_found_by_the_check(settings: Any, backend: str, options: Any, said: str) -> None:
    settings.JOBDEDUP_STORES = {"x": {"BACKEND": backend, "OPTIONS": options}}
    (found,) = check_stores()
    assert found.id == "jobdedup.E108"
    assert found.msg.startswith("JOBDEDUP_STORES['x']: ")
    assert said in found.msg
    with pytest.raises(ImproperlyConfigured):
        read_pauses("x", options)

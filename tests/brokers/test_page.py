"""The page of the brokers says what the code says."""

from __future__ import annotations

import re
from pathlib import Path

from django_jobdedup.brokers.base import Broker
from django_jobdedup.brokers.message import Place
from django_jobdedup.brokers.rabbitmq import management
from django_jobdedup.brokers.rabbitmq.broker import STALE
from django_jobdedup.brokers.redis import listing
from django_jobdedup.brokers.redis.broker import TIMEOUTS

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "brokers.md").read_text()


def test_every_place_has_a_row() -> None:
    assert {place.value for place in Place} == set(re.findall(r"^\| `([a-z ]+)` \|", PAGE, re.MULTILINE))


def test_every_question_has_a_row() -> None:
    rows = " ".join(line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| `"))
    assert {name for name in Broker.__abstractmethods__ if f"`{name}(" in rows} == Broker.__abstractmethods__


def test_numbers_are_those_of_the_code() -> None:
    assert f"`patience` of {STALE:g} seconds" in PAGE
    assert f"one batch ({listing.BATCH // 2**20} MB)" in PAGE
    assert f"| {management.PORT}; {management.TLS_PORT} with TLS |" in PAGE
    assert set(TIMEOUTS.values()) == {5.0}
    assert "after five seconds, unless `socket_timeout`" in PAGE


def test_every_option_of_the_management_api_has_a_row() -> None:
    assert set(re.findall(r"manager_\w+", management.ADVICE)) == set(re.findall(r"`(manager_\w+)`", PAGE))

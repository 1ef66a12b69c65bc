"""Text to hash: versioned, of fixed length, with or without a secret."""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import re
import zlib
from collections import Counter

import pytest

from django_jobdedup import header
from django_jobdedup.exceptions import FingerprintError
from django_jobdedup.fingerprint.digest import FORMAT, describe, fingerprint, shard_of, text_of


def test_the_text_begins_with_the_version_and_holds_all_parts() -> None:
    text = text_of({"tenant": "acme"}, "shop.report", '{"tenant_id":42}')
    assert text == '1:[{"tenant":"acme"},"shop.report",{"tenant_id":42}]'
    assert text.startswith(f"{FORMAT}:")


def test_the_header_names_the_same_version() -> None:
    assert header.FORMAT == FORMAT


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((None, "a", "1"), ("null", "a", "1")),
        ((None, 'a",1', "1"), (None, "a", '1,"1')),
        ((["a"], "b", "1"), ("a", "b", "1")),
        ((None, "A", "1"), (None, "a", "1")),
        ((None, "a ", "1"), (None, "a", "1")),
        ((None, "e\u0301", "1"), (None, "\u00e9", "1")),
        ((None, "x" * 300 + "a", "1"), (None, "x" * 300 + "b", "1")),
        ((None, "a", f'"{"k" * 200}a"'), (None, "a", f'"{"k" * 200}b"')),
    ],
)
def test_parts_cannot_reach_into_each_other(
    left: tuple[object, str, str], right: tuple[object, str, str]
) -> None:
    assert fingerprint(text_of(*left)) != fingerprint(text_of(*right))


@pytest.mark.parametrize("text", ["", "x", "x" * 10**6, "é \ud800"])
@pytest.mark.parametrize("secret", [None, "s3cret", b"\x00\xff"])
def test_a_fingerprint_is_64_hexadecimal_characters(text: str, secret: str | bytes | None) -> None:
    assert re.fullmatch("[0-9a-f]{64}", fingerprint(text, secret))


def test_without_a_secret_it_is_sha256() -> None:
    assert fingerprint("é") == hashlib.sha256("é".encode()).hexdigest()
    assert fingerprint("é", "") == fingerprint("é", b"") == fingerprint("é")


def test_with_a_secret_it_is_hmac_sha256() -> None:
    expected = hmac.new("schlüssel".encode(), b"text", "sha256").hexdigest()
    assert fingerprint("text", "schlüssel") == fingerprint("text", "schlüssel".encode()) == expected
    assert len({fingerprint("text", secret) for secret in (None, "a", "b")}) == 3


def test_a_scope_without_a_form_is_refused() -> None:
    with pytest.raises(FingerprintError) as caught:
        text_of(["tenant", object()], "shop.report", "{}")
    assert caught.value.argument == "scope[1]"


def test_text_and_hash_come_together_and_stay() -> None:
    both = describe(None, "shop.report", "{}", "s3cret")
    assert both.text == text_of(None, "shop.report", "{}")
    assert both.hex == fingerprint(both.text, "s3cret")
    with pytest.raises(dataclasses.FrozenInstanceError):
        both.hex = ""  # type: ignore[misc]


def test_a_shard_is_crc32_of_the_lock_name() -> None:
    assert shard_of("shop.report", 64) == zlib.crc32(b"shop.report") % 64
    assert shard_of("é\ud800", 1) == 0


def test_lock_names_spread_over_the_shards() -> None:
    counts = Counter(shard_of(f"shop.tasks.task_{number}", 16) for number in range(1600))
    assert set(counts) == set(range(16))
    assert max(counts.values()) < 200


@pytest.mark.parametrize("shards", [0, -1])
def test_less_than_one_shard_is_refused(shards: int) -> None:
    with pytest.raises(ValueError, match="must be 1 or more"):
        shard_of("a", shards)

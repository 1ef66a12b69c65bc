"""Settings: defaults, values in all their forms, and sentences that say what is needed."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.core.exceptions import ImproperlyConfigured

from django_jobdedup.conf import BY_NAME, SETTINGS, conf, seconds


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_the_default_of_a_setting_is_a_value_it_accepts(setting, settings):
    if hasattr(settings, setting.full_name):
        delattr(settings, setting.full_name)
        conf.forget(setting.name)  # Django sends no signal for a setting that is deleted

    assert getattr(conf, setting.name) == setting.read(setting.default)
    conf.forget(setting.name)


def test_names_are_unique():
    assert len(BY_NAME) == len(SETTINGS)


def test_a_setting_is_read_at_each_use(settings):
    settings.JOBDEDUP_SHARDS = 3
    assert conf.SHARDS == 3
    settings.JOBDEDUP_SHARDS = 4
    assert conf.SHARDS == 4


def test_a_setting_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="there is no setting JOBDEDUP_SHARD"):
        _ = conf.SHARD


@pytest.mark.parametrize(
    ("value", "expected"),
    [(1, 1.0), (0.25, 0.25), (timedelta(minutes=2), 120.0), (timedelta(days=3650), 315_360_000.0)],
)
def test_a_duration_is_a_number_of_seconds_or_a_timedelta(value, expected):
    found = seconds(value)

    assert found == pytest.approx(expected)
    assert type(found) is float


@pytest.mark.parametrize(
    "wrong", [0, -1, True, "60", None, float("nan"), float("inf"), timedelta(0), timedelta(seconds=-1), [1]]
)
def test_what_is_no_duration_is_refused(wrong):
    with pytest.raises(ValueError, match="needs a number of seconds above 0 or a timedelta, not"):
        seconds(wrong)


REFUSED = [
    ("MODE", "on", "needs one of 'enforce', 'observe', 'off', not 'on'"),
    ("MODE", None, "needs one of 'enforce', 'observe', 'off', not None"),
    ("STORES", [], "needs a dict with text keys, not []"),
    ("STORES", {1: {}}, "needs a dict with text keys"),
    ("TASKS", None, "needs a dict with text keys"),
    ("DEFAULTS", True, "needs a dict with text keys"),
    ("NAMESPACE", "", "needs a short text without braces, colons and blanks"),
    ("NAMESPACE", "a:b", "needs a short text without braces, colons and blanks"),
    ("NAMESPACE", "{a}", "needs a short text without braces, colons and blanks"),
    ("NAMESPACE", 3, "needs a short text without braces, colons and blanks"),
    ("SCOPE", None, "needs a function without arguments or its dotted path"),
    ("MIDDLEWARE", "a.b", "needs a list of dotted paths"),
    ("MIDDLEWARE", [1], "needs a list of dotted paths"),
    ("MIDDLEWARE", None, "needs a list of dotted paths"),
    ("REQUIRE_WORKER", 1, "needs True or False, not 1"),
    ("CONFIRM_WITHIN", 0, "needs a number of seconds above 0 or a timedelta"),
    ("GRACE", "1 day", "needs a number of seconds above 0 or a timedelta"),
    ("SHARDS", 0, "needs a whole number from 1 to 100, not 0"),
    ("SHARDS", 101, "needs a whole number from 1 to 100"),
    ("SHARDS", True, "needs a whole number from 1 to 100"),
    ("SHARDS", 4.0, "needs a whole number from 1 to 100"),
    ("FINGERPRINT_SECRET", "", "needs a non-empty text or bytes, or None"),
    ("FINGERPRINT_SECRET", 3, "needs a non-empty text or bytes, or None"),
]


@pytest.mark.parametrize(("name", "value", "sentence"), REFUSED)
def test_a_wrong_value_says_what_is_needed(settings, name, value, sentence):
    setattr(settings, f"JOBDEDUP_{name}", value)
    with pytest.raises(ImproperlyConfigured) as caught:
        getattr(conf, name)

    assert f"JOBDEDUP_{name} {sentence}" in str(caught.value)


def test_a_secret_is_not_shown_in_the_error(settings):
    settings.JOBDEDUP_FINGERPRINT_SECRET = ["hunter2"]
    with pytest.raises(ImproperlyConfigured) as caught:
        _ = conf.FINGERPRINT_SECRET

    assert "hunter2" not in str(caught.value)


ACCEPTED = [
    ("MODE", "off", "off"),
    ("NAMESPACE", "shop-staging", "shop-staging"),
    ("SCOPE", "shop.tenant", "shop.tenant"),
    ("SCOPE", len, len),
    ("MIDDLEWARE", ["a.b"], ("a.b",)),
    ("MIDDLEWARE", [], ()),
    ("REQUIRE_WORKER", False, False),
    ("CONFIRM_WITHIN", timedelta(seconds=3), 3.0),
    ("SHARDS", 100, 100),
    ("FINGERPRINT_SECRET", b"secret", b"secret"),
    ("FINGERPRINT_SECRET", None, None),
    ("TASKS", {"shop.*": {"unique": True}}, {"shop.*": {"unique": True}}),
]


@pytest.mark.parametrize(("name", "value", "expected"), ACCEPTED)
def test_a_value_is_read_into_its_type(settings, name, value, expected):
    setattr(settings, f"JOBDEDUP_{name}", value)

    assert getattr(conf, name) == expected


@pytest.mark.parametrize("wrong", [timedelta.max, 10**400])
def test_ten_years_are_the_longest_duration(wrong):
    """Beyond lie overflows in Redis and in ``datetime``."""
    with pytest.raises(ValueError, match="at most ten years"):
        seconds(wrong)

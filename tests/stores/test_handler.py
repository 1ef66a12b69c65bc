"""Stores by alias: what settings give, and what they say when they cannot."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django_redis.cache import RedisCache

from django_jobdedup.stores.handler import StoreHandler, stores
from django_jobdedup.stores.memory import MemoryStore
from django_jobdedup.stores.redis.store import RedisStore

REDIS = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://127.0.0.1:1/0"}
LOCAL = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}
MEMORY = {"BACKEND": "django_jobdedup.stores.memory.MemoryStore"}


DJANGOS = {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": "redis://127.0.0.1:1/0"}
REDIS_STORE = "django_jobdedup.stores.redis.store.RedisStore"
DATABASE_STORE = "django_jobdedup.stores.database.store.DatabaseStore"
NO_ALIAS = (
    r"^JOBDEDUP_STORES\['default'\]\[\"LOCATION\"\] is 'redis://h:1/0', which is no cache alias\. "
    r"Write an alias of CACHES that django-redis serves \('default', 'jobdedup'\), "
    r"or add one: \"jobdedup\": \{"
)


class OwnCache(RedisCache):
    """A project's own subclass."""


def test_without_the_setting_it_is_the_cache_alias_jobdedup(
    settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings.JOBDEDUP_STORES = {}
    settings.CACHES = {"default": LOCAL, "jobdedup": REDIS}
    handler = StoreHandler()
    store = handler["default"]
    assert isinstance(store, RedisStore)
    assert (store.alias, store.line.client.alias) == ("default", "jobdedup")
    assert list(handler) == ["default"]
    assert handler.all() == [store]
    assert "default" in handler
    assert "other" not in handler
    assert not caplog.records


def test_else_it_is_the_default_cache_with_one_warning(
    settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings.JOBDEDUP_STORES = {}
    settings.CACHES = {"default": {**REDIS, "BACKEND": f"{__name__}.OwnCache"}, "jobdedup": LOCAL}
    handler = StoreHandler()
    with caplog.at_level(logging.WARNING, "django_jobdedup"):
        for _ in range(3):
            store = handler["default"]
            assert isinstance(store, RedisStore)
            handler.reset()
    assert store.line.client.alias == "default"
    (record,) = caplog.records
    assert "clear() deletes every lock" in record.message


@pytest.mark.parametrize(
    "caches",
    [{"default": LOCAL}, {}, {"default": {"BACKEND": "no.such.Cache"}}, {"default": {"BACKEND": "os.path"}}],
)
def test_else_the_error_says_what_to_write(settings: Any, caches: dict[str, Any]) -> None:
    settings.JOBDEDUP_STORES = {}
    settings.CACHES = caches
    with pytest.raises(
        ImproperlyConfigured, match=r'"jobdedup": \{"BACKEND": "django_redis\.cache\.RedisCache"'
    ):
        StoreHandler()["default"]


def test_a_store_is_made_once_from_its_backend_location_and_options(settings: Any) -> None:
    settings.JOBDEDUP_STORES = {
        "default": MEMORY,
        "fast": {
            "BACKEND": "django_jobdedup.stores.redis.store.RedisStore",
            "LOCATION": "jobdedup",
            "OPTIONS": {"pause": 0.5},
        },
    }
    assert isinstance(stores["default"], MemoryStore)
    fast = stores["fast"]
    assert isinstance(fast, RedisStore)
    assert stores["fast"] is fast
    assert sorted(stores) == ["default", "fast"]


@pytest.mark.parametrize(
    ("configured", "sentence"),
    [
        ({"default": {}}, r"JOBDEDUP_STORES\['default'\] needs a dict with \"BACKEND\""),
        ({"default": "memory"}, r"needs a dict with \"BACKEND\""),
        ({"default": {**MEMORY, "TIMEOUT": 3}}, "unknown keys TIMEOUT; use BACKEND, LOCATION, OPTIONS"),
        ({"default": {"BACKEND": "no.such.Store"}}, "'no.such.Store' cannot be imported"),
        ({"default": {"BACKEND": "collections.ChainMap"}}, "is not a django_jobdedup.stores.base.Store"),
        ({"default": {**MEMORY, "LOCATION": "x"}}, "the memory store takes no LOCATION and no OPTIONS"),
        ({"default": {"BACKEND": REDIS_STORE, "LOCATION": "redis://h:1/0"}}, NO_ALIAS),
        ({"default": {"BACKEND": REDIS_STORE}}, "is '', which is no cache alias. Write an alias of CACHES"),
        ({"default": {"BACKEND": REDIS_STORE, "LOCATION": ["jobdedup"]}}, "which is no cache alias"),
        ({"other": MEMORY}, "There is no lock store 'default': .* use one that is there; known: \"other\""),
        (
            {"other": MEMORY},
            'add "default": .*"LOCATION": "jobdedup"}, which policies use that name no other',
        ),
    ],
)
def test_what_cannot_work_is_refused_in_words(settings: Any, configured: Any, sentence: str) -> None:
    settings.JOBDEDUP_STORES = configured
    with pytest.raises(ImproperlyConfigured, match=sentence):
        StoreHandler()["default"]


def test_a_location_that_another_backend_serves_is_refused_with_both_names(settings: Any) -> None:
    settings.CACHES = {"default": LOCAL, "plain": DJANGOS}
    settings.JOBDEDUP_STORES = {"default": {"BACKEND": REDIS_STORE, "LOCATION": "plain"}}
    with pytest.raises(
        ImproperlyConfigured,
        match=r"is the cache alias 'plain', whose BACKEND is '"
        r"django\.core\.cache\.backends\.redis\.RedisCache'; "
        r'.*Write in CACHES: "plain": \{"BACKEND": "django_redis\.cache\.RedisCache"',
    ):
        StoreHandler()["default"]


def test_without_a_redis_the_backend_that_was_found_is_named(settings: Any) -> None:
    settings.JOBDEDUP_STORES = {}
    settings.CACHES = {"default": LOCAL, "jobdedup": DJANGOS}
    with pytest.raises(
        ImproperlyConfigured, match=r"its BACKEND is 'django\.core\.cache\.backends\.redis\.R.*Add"
    ):
        StoreHandler()["default"]


@pytest.mark.parametrize("setting", ["JOBDEDUP_STORES", "JOBDEDUP_GRACE", "CACHES"])
def test_changed_settings_make_new_stores(settings: Any, setting: str) -> None:
    settings.JOBDEDUP_STORES = {"default": MEMORY}
    first = stores["default"]
    values = {"JOBDEDUP_STORES": {"default": dict(MEMORY)}, "JOBDEDUP_GRACE": 60, "CACHES": settings.CACHES}
    setattr(settings, setting, values[setting])
    assert stores["default"] is not first


def test_other_settings_leave_the_stores_alone(settings: Any) -> None:
    settings.JOBDEDUP_STORES = {"default": MEMORY}
    first = stores["default"]
    settings.DEBUG = True
    assert stores["default"] is first


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("django_jobdedup.stores.database.DatabaseStore", DATABASE_STORE),
        ("django_jobdedup.stores.database.store.DatabaseStor", DATABASE_STORE),
        ("django_jobdedup.stores.RedisStore", REDIS_STORE),
        ("django_jobdedup.MemoryStore", "django_jobdedup.stores.memory.MemoryStore"),
    ],
)
def test_a_backend_that_is_nearly_right_is_asked_for(settings: Any, path: str, meant: str) -> None:
    settings.JOBDEDUP_STORES = {"default": {"BACKEND": path}}
    with pytest.raises(ImproperlyConfigured, match=rf"cannot be imported: .*\. Did you mean '{meant}'\?$"):
        StoreHandler()["default"]


@pytest.mark.parametrize("wrong", [{}, {"BACKEND": None}, "redis"])
def test_without_a_backend_both_are_named(settings: Any, wrong: Any) -> None:
    settings.JOBDEDUP_STORES = {"default": wrong}
    with pytest.raises(ImproperlyConfigured, match=r"RedisStore', or 'django_jobdedup\.stores\.database"):
        StoreHandler()["default"]


def test_an_alias_that_is_nearly_right_is_asked_for(settings: Any) -> None:
    settings.JOBDEDUP_STORES = {"durable": MEMORY}
    with pytest.raises(ImproperlyConfigured, match=r"no lock store 'durabl'.* Did you mean \"durable\"\?$"):
        StoreHandler()["durabl"]


WITHOUT_THE_APP = f"""
import django
from celery import Celery
from django.conf import settings

settings.configure(JOBDEDUP_STORES={{"default": {{"BACKEND": "{DATABASE_STORE}"}}}})
django.setup()
app = Celery(broker="memory://", backend="cache+memory://")

from django_jobdedup import outcome_of

print(outcome_of(app.AsyncResult("an id")))
"""


def test_a_result_is_unknown_where_the_app_is_not_installed() -> None:
    """There are no models then; it is no error to ask."""
    clean = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    ended = subprocess.run(
        [sys.executable, "-c", WITHOUT_THE_APP], env=clean, capture_output=True, text=True, check=False
    )
    assert (ended.stdout, ended.returncode) == ("unknown\n", 0), ended.stderr

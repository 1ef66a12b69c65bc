"""Settings of the shop: SQLite, one Redis, Celery, and whatever the environment adds.

``REDIS_URL``             the Redis for all: broker, results, locks, cache
``LOCKS_REDIS_URL``       another one for the locks alone
``DATABASE_PATH``         the SQLite file
``TESTPROJECT_CELERY``    JSON: Celery options by their lower-case name, over those below
``TESTPROJECT_SETTINGS``  JSON: Django settings, ``JOBDEDUP_*`` among them, over those below
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

BASE_DIR = Path(__file__).resolve().parent.parent
REDIS_URL = os.environ.get("REDIS_URL", "redis://127.0.0.1:6379/0")
LOCKS_REDIS_URL = os.environ.get("LOCKS_REDIS_URL", REDIS_URL)

SECRET_KEY = "the shop sells nothing"  # noqa: S105
DEBUG = False
USE_TZ = True
TIME_ZONE = "UTC"
ALLOWED_HOSTS = ["*"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django_jobdedup",
    "testproject.shop",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("DATABASE_PATH", str(BASE_DIR / "shop.sqlite3")),
        "OPTIONS": {"timeout": 20, "transaction_mode": "IMMEDIATE"},
    }
}

CACHES: dict[str, dict[str, Any]] = {
    "default": {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": REDIS_URL,
        "KEY_PREFIX": "shop",
    },
    # The locks have an alias of their own: short timeouts, and no cache.clear() that flushes them.
    "jobdedup": {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": LOCKS_REDIS_URL,
        "OPTIONS": {
            "SOCKET_CONNECT_TIMEOUT": 1,
            "SOCKET_TIMEOUT": 1,
            "CONNECTION_POOL_CLASS": "redis.BlockingConnectionPool",
            "CONNECTION_POOL_KWARGS": {"max_connections": 20, "timeout": 1},
        },
    },
}

SHOP_RECOMPUTE_SECONDS = 0.0
"""How long a recomputation takes beside its queries: the demo slows it down."""

CELERY_BROKER_URL = REDIS_URL
CELERY_RESULT_BACKEND = REDIS_URL
CELERY_BROKER_TRANSPORT_OPTIONS: dict[str, Any] = {}
CELERY_RESULT_BACKEND_TRANSPORT_OPTIONS: dict[str, Any] = {}
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_WORKER_HIJACK_ROOT_LOGGER = True


def merge(values: dict[str, Any]) -> None:
    """Put values over the settings of this module; a dict joins the one that stands there."""
    for name, value in values.items():
        current = globals().get(name)
        joined = isinstance(current, dict) and isinstance(value, dict)
        globals()[name] = dict(current or {}, **value) if joined else value


def from_environment(name: str) -> dict[str, Any]:
    """Read a JSON object from the environment; nothing there is an empty one."""
    values: dict[str, Any] = json.loads(os.environ.get(name, "{}"))
    return values


merge({f"CELERY_{name.upper()}": value for name, value in from_environment("TESTPROJECT_CELERY").items()})
merge(from_environment("TESTPROJECT_SETTINGS"))

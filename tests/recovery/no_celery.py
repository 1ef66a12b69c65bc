"""Settings of a project that loads no Celery app."""

from __future__ import annotations

SECRET_KEY = "nothing to sign"
INSTALLED_APPS = ["django_jobdedup"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
JOBDEDUP_STORES = {"default": {"BACKEND": "django_jobdedup.stores.memory.MemoryStore"}}
DEBUG = True
USE_TZ = True

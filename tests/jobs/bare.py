"""A Celery app over the settings of the tests that imports no task: a sender that knows only names."""

from __future__ import annotations

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")

app = Celery("bare")
app.config_from_object("django.conf:settings", namespace="CELERY")

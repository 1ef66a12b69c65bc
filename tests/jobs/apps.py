"""The tasks that the worker tests run, as a Django app so that every worker finds them."""

from __future__ import annotations

from django.apps import AppConfig


class JobsConfig(AppConfig):
    """Give the folder an app label."""

    name = "tests.jobs"
    label = "test_jobs"

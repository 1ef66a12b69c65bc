"""The Django app that plants the kills; installed only in the processes of the crash matrix."""

from __future__ import annotations

from django.apps import AppConfig


class CrashConfig(AppConfig):
    """Wrap the steps of the protocol when Django is ready."""

    name = "tests.crash"
    label = "test_crash"

    def ready(self) -> None:
        """Plant the points, in this process and in all that it forks."""
        from tests.crash import points

        points.plant()

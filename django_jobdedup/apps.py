"""The Django app."""

from __future__ import annotations

from django.apps import AppConfig


class JobDedupConfig(AppConfig):
    """Install the hook, the worker's receivers and the checks when Django is ready."""

    name = "django_jobdedup"
    label = "jobdedup"
    verbose_name = "Job deduplication"

    def ready(self) -> None:
        """Do everything that the app does to a process; safe to run again."""
        from django_jobdedup import signals
        from django_jobdedup.checks import register
        from django_jobdedup.dispatching import hook, promises
        from django_jobdedup.eager import hook as eager_hook
        from django_jobdedup.executing import activation
        from django_jobdedup.recovery import periodic  # noqa: F401 - registers its task with every Celery app

        hook.install()
        eager_hook.install()
        promises.connect()
        activation.connect()
        signals.connect_logging()
        register.register_checks()

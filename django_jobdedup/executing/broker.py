"""What an execution has to know of its broker; see ``middleware/visibility.py``."""

from __future__ import annotations

from django_jobdedup.middleware.visibility import longest_sleep, sleeps_until, visibility_timeout

__all__ = ["longest_sleep", "sleeps_until", "visibility_timeout"]

"""A small shop: the project that the demo, the tutorial and the acceptance tests share."""

from __future__ import annotations

from .celery import app as celery_app

__all__ = ["celery_app"]

"""The testing kit, for the tests of a project: locks in memory, a clock to move, what came of each call.

``override_jobdedup`` for Django's test cases; under pytest the fixture ``jobdedup`` is there by itself.
"""

from __future__ import annotations

from django_jobdedup.testkit.after_commit import PendingCall
from django_jobdedup.testkit.kit import Kit
from django_jobdedup.testkit.locks import HeldLock
from django_jobdedup.testkit.override import override_jobdedup

__all__ = ["HeldLock", "Kit", "PendingCall", "override_jobdedup"]

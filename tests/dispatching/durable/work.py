"""Tasks that look at the data of the transaction in which they were called."""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import Any

from celery import shared_task
from django.db import transaction
from django.db.models import F
from kombu.exceptions import OperationalError

from testproject.shop.models import Invoice, Tenant
from tests.jobs.tasks import unique
from tests.rig.waiting import wait_for


@shared_task(unique=unique(key="pk"))
def look(pk: int) -> str:
    """Say whether the row is there."""
    return "found" if Tenant.objects.filter(pk=pk).exists() else "missing"


@shared_task
def look_unlocked(pk: int) -> str:
    """Say the same, without a policy."""
    return "found" if Tenant.objects.filter(pk=pk).exists() else "missing"


def _count(pk: int, seconds: float) -> int:
    number = Invoice.objects.filter(tenant_id=pk).count()
    Tenant.objects.filter(pk=pk).update(total=F("total") + 1)
    time.sleep(seconds)
    Tenant.objects.filter(pk=pk).update(recomputed=number)
    return number


@shared_task(unique=unique("until_and_while_executing", key="pk"))
def count(pk: int, seconds: float = 0.0) -> int:
    """Write how many invoices a tenant has, as it began; ``total`` counts those that have read."""
    return _count(pk, seconds)


@shared_task(unique=unique("until_executed", key="pk"))
def count_as_a_request(pk: int, seconds: float = 0.0) -> int:
    """Do the same under the lock that refuses also while it runs."""
    return _count(pk, seconds)


@shared_task(bind=True, max_retries=3, unique=unique(key="pk"))
def retry_inside(self: Any, pk: int) -> int:
    """Write a row and retry, in one transaction: the retry counts, the row does not."""
    with transaction.atomic():
        Invoice.objects.create(tenant_id=pk, number=f"try-{self.request.retries}", amount=1)
        if self.request.retries < 2:
            raise self.retry(countdown=0)
    return int(self.request.retries)


@shared_task(unique=unique(key="pk"))
def call_inside(pk: int, fails: bool = False) -> list[Any]:
    """Call another job in a transaction, and say what the caller saw before and after it."""
    try:
        with transaction.atomic():
            Invoice.objects.create(tenant_id=pk, number=f"inside-{fails}", amount=1)
            result = count.delay(pk)
            before = str(result.outcome)
            if fails:
                raise LookupError
    except LookupError:
        pass
    return [before, str(result.outcome), result.id]


@shared_task(bind=True, max_retries=3, unique=unique(key="key"))
def retry_while_down(self: Any, key: str, inside: bool) -> str:
    """Wait until the broker is down, then retry with another argument, perhaps inside a transaction."""
    if key == "again":
        return f"well after {self.request.retries}"
    wait_for(lambda: not _answers(self.app), 30)
    with transaction.atomic() if inside else nullcontext():
        raise self.retry(args=("again", inside), countdown=0)


def _answers(app: Any) -> bool:
    try:
        with app.connection_for_write() as connection:
            connection.ensure_connection(max_retries=1, interval_start=0)
    except OperationalError:
        return False
    return True

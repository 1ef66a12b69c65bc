"""The work of the shop, one task for each question that a unique task answers.

Which calls are equal? Those with equal values of ``key``. While one of them holds the lock, what becomes of
the others? The lock type says how long it is held, ``on_conflict`` what the newcomer becomes.
"""

from __future__ import annotations

import time
from datetime import timedelta
from decimal import Decimal

from celery import shared_task
from django.conf import settings
from django.db import transaction
from django.db.models import F, Sum
from django.utils import timezone

from django_jobdedup import Reschedule, Unique

from .models import Invoice, Report, Tenant
from .runs import recorded


@shared_task(unique=True)
@recorded
def recompute_tenant(tenant_id: int) -> str:
    """Add up the invoices of a tenant. Asked a thousand times while one waits or runs, it runs once."""
    time.sleep(settings.SHOP_RECOMPUTE_SECONDS)
    found = Invoice.objects.filter(tenant_id=tenant_id).aggregate(total=Sum("amount"))
    total = found["total"] or Decimal(0)
    Tenant.objects.filter(pk=tenant_id).update(total=total, recomputed=F("recomputed") + 1)
    return f"{total:.2f}"


@shared_task(unique=Unique(key=["tenant_id", "period"], ttl=timedelta(hours=2), lease=10))
@recorded
def build_report(tenant_id: int, period: str, requested_by: str | None = None) -> int:
    """Build the report of one period. Who asked is no part of the key: two who ask share one report."""
    year, month = period.split("-")
    invoices = Invoice.objects.filter(tenant_id=tenant_id, paid_at__year=year, paid_at__month=month)
    text = "\n".join(f"{invoice.number}: {invoice.amount}" for invoice in invoices.order_by("number"))
    report, _ = Report.objects.update_or_create(tenant_id=tenant_id, period=period, defaults={"text": text})
    return report.pk


@shared_task(unique=Unique("while_executing", key="tenant_id", on_conflict=Reschedule(after=1, up_to=30)))
def import_sales(tenant_id: int, sales: dict[str, str]) -> int:
    """Write sales, number to amount. Two imports of one tenant never run at once, and all of them run."""
    with transaction.atomic():
        for number, amount in sales.items():
            Invoice.objects.update_or_create(
                tenant_id=tenant_id, number=number, defaults={"amount": Decimal(amount)}
            )
    return len(sales)


@shared_task(unique=Unique("until_and_while_executing", key="tenant_id"))
def refresh_prices(tenant_id: int) -> None:
    """Take over new prices. One runs and one waits: what changes during a run gets a run of its own."""
    time.sleep(settings.SHOP_RECOMPUTE_SECONDS)


@shared_task(unique=Unique("until_executing", key="invoice_id"))
def remind(invoice_id: int) -> bool:
    """Remind of an open invoice. Asked twice before it starts, it goes out once; asked later, again."""
    return Invoice.objects.filter(pk=invoice_id, paid_at=None).exists()


@shared_task(unique=Unique("until_expired", key=[], ttl=timedelta(hours=20)))
def close_day() -> int:
    """Close the day for all tenants: once a night, however many schedulers send it."""
    return Invoice.objects.filter(paid_at__lt=timezone.now()).count()


@shared_task
def greet(name: str) -> str:
    """Run without a policy, as all tasks did before."""
    return f"Hello {name}"

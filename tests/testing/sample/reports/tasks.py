"""The tasks of the sample."""

from celery import shared_task

from django_jobdedup import Unique
from reports.models import Report


@shared_task(unique=Unique(key=["tenant_id", "period"]))
def build_report(tenant_id: int, period: str, requested_by: int | None = None) -> int:
    """Build a report; give how many there are of this one."""
    Report.objects.create(tenant_id=tenant_id, period=period)
    return Report.objects.filter(tenant_id=tenant_id, period=period).count()


@shared_task(unique=Unique("until_expired", ttl=20 * 3600))
def send_summary(day: str) -> str:
    """Send the summary of a day; once, however often beat asks."""
    return day


@shared_task(unique=True)
def walk(folder: str) -> str:
    """Ask for the same walk again from within; give what that call became."""
    return str(walk.delay(folder).outcome)


@shared_task(unique=True)
def failing(tenant_id: int) -> None:
    """Fail."""
    raise LookupError(tenant_id)


@shared_task(unique=Unique(store="durable"))
def send_invoice(invoice_id: int) -> int:
    """Send an invoice; a call is committed with it."""
    return invoice_id

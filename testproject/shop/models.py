"""Four tables: who sells, what was sold, what was computed from it, and what ran."""

from __future__ import annotations

from django.db import models
from django.utils import timezone


class Tenant(models.Model):
    """A shop that uses the system, with the total that the tasks recompute."""

    name = models.CharField(max_length=100, unique=True)
    total = models.DecimalField(max_digits=12, decimal_places=2, default=0)
    recomputed = models.PositiveIntegerField(default=0, help_text="How often the total was computed.")

    def __str__(self) -> str:
        return self.name


class Invoice(models.Model):
    """A sale of a tenant."""

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="invoices")
    number = models.CharField(max_length=20)
    amount = models.DecimalField(max_digits=10, decimal_places=2)
    paid_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = (models.UniqueConstraint(fields=["tenant", "number"], name="shop_invoice_number"),)

    def __str__(self) -> str:
        return f"{self.tenant} {self.number}"


class Report(models.Model):
    """The report of one tenant over one period, as "2026-08"."""

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="reports")
    period = models.CharField(max_length=7)
    text = models.TextField(blank=True)
    built_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = (models.UniqueConstraint(fields=["tenant", "period"], name="shop_report_period"),)

    def __str__(self) -> str:
        return f"{self.tenant} {self.period}"


class Run(models.Model):
    """One start of a task body; without an end it was cut off or failed."""

    job = models.CharField(max_length=255, blank=True, db_index=True, help_text="The Celery task id.")
    call = models.CharField(max_length=200, help_text="As build_report(1, '2026-08').")
    started = models.DateTimeField(default=timezone.now)
    ended = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return self.call

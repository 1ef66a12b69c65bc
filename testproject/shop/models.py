"""Three tables: who sells, what was sold, and what was computed from it."""

from __future__ import annotations

from django.db import models


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

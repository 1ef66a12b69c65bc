"""What the sample builds."""

from django.db import models


class Report(models.Model):
    """One report of one tenant."""

    tenant_id = models.IntegerField()
    period = models.CharField(max_length=20)

    def __str__(self) -> str:
        return f"{self.period} of {self.tenant_id}"

"""The log of what ran."""

from __future__ import annotations

import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("shop", "0001_initial")]

    operations = [
        migrations.CreateModel(
            name="Run",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "job",
                    models.CharField(
                        blank=True, db_index=True, help_text="The Celery task id.", max_length=255
                    ),
                ),
                ("call", models.CharField(help_text="As build_report(1, '2026-08').", max_length=200)),
                ("started", models.DateTimeField(default=django.utils.timezone.now)),
                ("ended", models.DateTimeField(blank=True, null=True)),
            ],
        ),
    ]

"""The shop works as a Django project: its database, its command line, its tasks."""

from __future__ import annotations

import os
import subprocess
import sys
from decimal import Decimal
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command

from testproject.celery import app
from testproject.shop import tasks
from testproject.shop.models import Invoice, Report, Tenant

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def tenant(db: None) -> Tenant:
    """A tenant with two invoices, one of them paid in August."""
    tenant = Tenant.objects.create(name="Ada")
    Invoice.objects.create(tenant=tenant, number="1", amount=Decimal("10.50"), paid_at="2026-08-03T10:00:00Z")
    Invoice.objects.create(tenant=tenant, number="2", amount=Decimal("4.50"))
    return tenant


def test_the_tasks_of_the_shop_and_of_the_rig_are_registered() -> None:
    app.loader.import_default_modules()
    assert "testproject.shop.tasks.recompute_tenant" in app.tasks
    assert "tests.jobs.tasks.until_executed" in app.tasks


def test_a_total_is_the_sum_of_the_invoices(tenant: Tenant) -> None:
    assert tasks.recompute_tenant(tenant.pk) == "15.00"
    tenant.refresh_from_db()
    assert (tenant.total, tenant.recomputed) == (Decimal("15.00"), 1)


def test_a_report_holds_the_paid_invoices_of_its_period(tenant: Tenant) -> None:
    tasks.build_report(tenant.pk, "2026-08", requested_by="somebody")
    tasks.build_report(tenant.pk, "2026-08")
    assert Report.objects.get().text == "1: 10.50"


def test_an_import_writes_new_and_known_numbers(tenant: Tenant) -> None:
    assert tasks.import_sales(tenant.pk, {"2": "5.00", "3": "1.00"}) == 2
    assert dict(tenant.invoices.values_list("number", "amount")) == {
        "1": Decimal("10.50"),
        "2": Decimal("5.00"),
        "3": Decimal("1.00"),
    }


@pytest.mark.django_db
def test_the_migrations_match_the_models() -> None:
    out = StringIO()
    call_command("makemigrations", "shop", check=True, dry_run=True, stdout=out)
    assert "No changes" in out.getvalue()


@pytest.mark.parametrize("command", ["check", "migrate"])
def test_the_command_line_works_from_any_folder(tmp_path: Path, command: str) -> None:
    """Python puts the folder of manage.py on the path, where a module is called celery."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "testproject" / "manage.py"), command],
        cwd=tmp_path,
        env={
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "testproject.settings",
            "DATABASE_PATH": str(tmp_path / "shop.sqlite3"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr

"""The tables come from zero on every engine, say what the models say, and keep digests apart."""

from __future__ import annotations

import pytest
from django.core.management import call_command
from django.db import IntegrityError, connections, transaction

from django_jobdedup.models import JobIntent
from tests.rig.engines import Engine


def make(engine: Engine, fingerprint: str, key: str = "k", **columns: object) -> JobIntent:
    """Write a row."""
    return JobIntent.objects.using(engine.alias).create(
        **{
            "shard": 1, "fingerprint": fingerprint, "key": key, "job_key": key, "token": key,
            "created_at": 1, **columns,
        }
    )  # fmt: skip


def test_the_models_say_what_the_migrations_made(engine: Engine) -> None:
    call_command("makemigrations", "jobdedup", check=True, dry_run=True, verbosity=0)
    with connections[engine.alias].cursor() as cursor:
        tables = connections[engine.alias].introspection.table_names(cursor)
    assert {"jobdedup_jobintent", "jobdedup_lockevent", "jobdedup_counter"} <= set(tables)


@pytest.mark.django_db
@pytest.mark.parametrize("field", ["django.db.models.AutoField", "django.db.models.BigAutoField"])
def test_no_default_auto_field_asks_for_a_migration(field: str, settings: object) -> None:
    settings.DEFAULT_AUTO_FIELD = field  # type: ignore[attr-defined]
    call_command("makemigrations", "jobdedup", check=True, dry_run=True, verbosity=0)


@pytest.mark.parametrize(
    ("one", "two"), [("a", "A"), ("a", "á"[:1]), ("a", "a\t")], ids=["case", "accent", "blank"]
)
def test_digests_are_compared_byte_by_byte(engine: Engine, one: str, two: str) -> None:
    two = two.encode("ascii", "replace").decode()
    make(engine, one, wait_key=one)
    make(engine, two, wait_key=two)
    assert JobIntent.objects.using(engine.alias).of(one).count() == 1


@pytest.mark.parametrize("column", ["wait_key", "run_key"])
def test_a_seat_is_taken_once_and_free_ones_are_many(engine: Engine, column: str) -> None:
    make(engine, "a", "1", **{column: "a:0"})
    make(engine, "a", "2", **{column: None})
    make(engine, "a", "3", **{column: None})
    with pytest.raises(IntegrityError), transaction.atomic(engine.alias):
        make(engine, "a", "4", **{column: "a:0"})

"""Model instances by their row, lazy values by what they stand for."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.contrib.contenttypes.models import ContentType
from django.db import models
from django.test import override_settings
from django.utils.functional import SimpleLazyObject, lazy
from django.utils.safestring import mark_safe
from django.utils.translation import gettext_lazy, override

from django_jobdedup.exceptions import FingerprintError
from django_jobdedup.fingerprint.canonical import canonical, canonical_arguments


class Member(User):
    """A proxy: the same rows under another class."""

    class Meta:
        app_label = "fingerprint_rows"
        proxy = True


class Employee(User):
    """Multi-table inheritance: another table, a row of its own, the key of its parent."""

    class Meta:
        app_label = "fingerprint_rows"


class Place(models.Model):
    ref = models.UUIDField(primary_key=True)

    class Meta:
        app_label = "fingerprint_rows"

    def __str__(self) -> str:
        return "a place"


class Line(models.Model):
    pk = models.CompositePrimaryKey("order", "number")
    order = models.IntegerField()
    number = models.IntegerField()

    class Meta:
        app_label = "fingerprint_rows"

    def __str__(self) -> str:
        return "a line"


def loaded(model: type[models.Model], alias: str = "default", **values: Any) -> Any:
    """Return an instance as a query on ``alias`` makes it, without the query."""
    names = [field.attname for field in model._meta.concrete_fields if field.attname in values]
    return model.from_db(alias, names, [values[name] for name in names])


def test_a_saved_row_is_its_model_key_and_database() -> None:
    assert canonical(loaded(User, id=5)) == 'model("auth.User",5,"default")'


def test_rows_with_equal_text_differ() -> None:
    one, two = loaded(User, id=1, username="jo"), loaded(User, id=2, username="jo")
    assert str(one) == str(two)
    assert canonical(one) != canonical(two)


def test_other_fields_of_a_row_do_not_count() -> None:
    assert canonical(loaded(User, id=1, username="old")) == canonical(loaded(User, id=1, username="new"))


def test_equal_keys_of_two_models_differ() -> None:
    assert canonical(loaded(User, id=1)) != canonical(loaded(Group, id=1))


def test_the_same_row_of_two_databases_differs() -> None:
    assert canonical(loaded(User, id=1)) != canonical(loaded(User, "other", id=1))


def test_a_proxy_is_the_concrete_row() -> None:
    assert canonical(loaded(Member, id=1)) == canonical(loaded(User, id=1))


def test_a_row_of_a_derived_table_is_not_the_row_of_its_parent() -> None:
    assert (
        canonical(loaded(Employee, id=1, user_ptr_id=1)) == 'model("fingerprint_rows.Employee",1,"default")'
    )


def test_a_composite_key_is_a_list() -> None:
    assert canonical(loaded(Line, order="7", number=2)) == 'model("fingerprint_rows.Line",[7,2],"default")'


def test_a_key_is_cast_as_its_field_does() -> None:
    ref = "12345678-1234-5678-1234-567812345678"
    assert canonical(loaded(User, id="5")) == canonical(loaded(User, id=5))
    assert canonical(loaded(Place, ref=ref)) == f'model("fingerprint_rows.Place",uuid({ref}),"default")'


def test_a_row_said_to_be_saved_without_a_database_is_of_the_default_one() -> None:
    user = User(id=5)
    user._state.adding = False
    assert canonical(user) == canonical(loaded(User, id=5))


@pytest.mark.django_db
def test_rows_of_a_real_database_have_one_text_however_they_were_fetched() -> None:
    saved = Group.objects.create(name="staff")
    fetched = [
        saved,
        Group.objects.get(pk=saved.pk),
        Group.objects.only("id").get(),
        Group.objects.defer("name").get(),
        pickle.loads(pickle.dumps(saved)),
        copy.copy(saved),
        SimpleLazyObject(Group.objects.get),
    ]
    assert {canonical(group) for group in fetched} == {f'model("auth.Group",{saved.pk},"default")'}


@pytest.mark.django_db
def test_a_deleted_row_is_refused() -> None:
    group = Group.objects.create(name="staff")
    group.delete()
    with pytest.raises(FingerprintError, match=r"unsaved or deleted auth.Group"):
        canonical(group)


@pytest.mark.parametrize("make", [User, lambda: User(id=5), lambda: Place(ref="x"), lambda: Line(order=1)])
def test_an_unsaved_instance_is_refused_with_its_path(make: Any) -> None:
    with pytest.raises(FingerprintError, match="Save it before the dispatch") as caught:
        canonical_arguments({"rows": [1, {"who": make()}]})
    assert caught.value.argument == "rows[1]['who']"


def test_a_composite_key_with_a_gap_is_refused() -> None:
    with pytest.raises(FingerprintError, match="unsaved or deleted"):
        canonical(loaded(Line, order=1, number=None))


def test_a_saved_row_whose_key_was_overwritten_with_nonsense_is_refused() -> None:
    user = loaded(User, id=5)
    user.pk = "five"
    with pytest.raises(FingerprintError, match="primary key") as caught:
        canonical_arguments({"user": user})
    assert caught.value.argument == "user"


def test_a_lazy_object_is_what_it_wraps() -> None:
    assert canonical(SimpleLazyObject(lambda: loaded(User, id=5))) == 'model("auth.User",5,"default")'
    assert canonical(SimpleLazyObject(lambda: "text")) == '"text"'
    woken = SimpleLazyObject(lambda: [1])
    assert len(woken) == 1
    assert canonical(woken) == "[1]"


def test_a_lazy_text_is_its_text_in_the_active_language() -> None:
    with override("en"):
        assert canonical(gettext_lazy("Yes")) == '"Yes"'
    with override("de"), override_settings(USE_I18N=True):
        assert canonical(gettext_lazy("Yes")) == '"Ja"'


def test_another_lazy_value_is_the_text_that_the_wire_makes_of_it() -> None:
    assert canonical(lazy(lambda: 5, int)()) == '"5"'


def test_a_safe_text_is_its_text() -> None:
    assert canonical(mark_safe("<b>")) == canonical("<b>")


def test_choices_are_their_value() -> None:
    class Size(models.TextChoices):
        SMALL = "s", gettext_lazy("small")

    class Rank(models.IntegerChoices):
        FIRST = 1

    assert canonical([Size.SMALL, Rank.FIRST]) == '["s",1]'


@pytest.mark.parametrize("value", [User.objects.all(), User.objects.values("id"), User.objects])
def test_a_query_is_refused_and_not_run(value: object) -> None:
    """Without database access here, running it would fail the test."""
    with pytest.raises(FingerprintError, match="Pass a list of primary keys"):
        canonical(value)


def test_a_model_class_is_refused() -> None:
    with pytest.raises(FingerprintError, match="dotted path"):
        canonical(ContentType)


def test_a_model_may_have_a_form_of_its_own() -> None:
    class Named(Group):
        class Meta:
            app_label = "fingerprint_rows"
            proxy = True

        def __fingerprint__(self) -> object:
            return self.name

    assert canonical(Named(name="staff")) == '"staff"'

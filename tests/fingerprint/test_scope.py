"""The option ``scope``: work of two tenants or two queues is not equal."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connections

from django_jobdedup.exceptions import PolicyError
from django_jobdedup.fingerprint.canonical import canonical
from django_jobdedup.fingerprint.scope import Scope, check_scope, default_tenant, resolve_scope


def resolve(
    scope: Scope, queue: str = "celery", tenant: Any = lambda: "acme", *args: Any, **kwargs: Any
) -> object:
    return resolve_scope(scope, queue=queue, tenant=tenant, args=args, kwargs=kwargs, task="shop.report")


def test_each_form_is_resolved() -> None:
    assert resolve("tenant") == {"tenant": "acme"}
    assert resolve("queue") == {"queue": "celery"}
    assert resolve(None) is None
    assert resolve(("tenant", "queue", "reports", 7)) == [
        {"tenant": "acme"},
        {"queue": "celery"},
        "reports",
        7,
    ]
    assert resolve(["tenant"]) == resolve(("tenant",)), "a policy that travelled as JSON"
    assert resolve(()) == []


def test_a_function_gets_the_arguments_of_the_task() -> None:
    assert resolve(lambda a, b: [b, a], "celery", str, 1, b=2) == [2, 1]
    assert resolve(("tenant", lambda a, b: b), "celery", str, 1, b=2) == [{"tenant": ""}, 2]


def test_all_forms_differ() -> None:
    forms: list[Scope] = [None, "tenant", "queue", (), ("tenant",), ("queue",), ("same",), ("tenant", "same")]
    texts = {canonical(resolve(form, "same", lambda: "same")) for form in forms}
    assert len(texts) == len(forms)
    assert canonical(resolve(None)) != canonical(resolve("tenant", tenant=str)), (
        "global is not the empty tenant"
    )


def test_the_parts_of_a_tuple_cannot_be_moved() -> None:
    assert canonical(resolve(("a", "b,c"))) != canonical(resolve(("a,b", "c")))


def test_the_tenant_is_asked_only_when_it_counts() -> None:
    def tenant() -> str:
        raise AssertionError("asked")

    assert resolve(("queue",), tenant=tenant) == [{"queue": "celery"}]


@pytest.mark.parametrize(
    ("scope", "note"),
    [
        ("tenant", "raised by JOBDEDUP_SCOPE for task shop.report"),
        (lambda: 1 / 0, "raised by the scope function of task shop.report"),
        ((lambda: 1 / 0,), "raised by the scope function of task shop.report"),
    ],
)
def test_an_error_passes_with_a_note_that_names_the_task(scope: Scope, note: str) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        resolve(scope, tenant=lambda: 1 / 0)
    assert caught.value.__notes__ == [note]


@pytest.mark.parametrize(
    "scope", [None, "tenant", "queue", (), ("tenant", "reports", 1, None), ["queue"], len, (len,)]
)
def test_a_possible_scope_is_accepted(scope: object) -> None:
    check_scope(scope)


@pytest.mark.parametrize("scope", ["global", "tenants", 5, "", {"tenant"}, {"tenant": 1}, True])
def test_an_impossible_scope_is_refused_and_told_what_to_write(scope: object) -> None:
    with pytest.raises(PolicyError, match='write "tenant", "queue", None for one scope over everything'):
        check_scope(scope)


def test_a_constant_without_a_form_is_refused() -> None:
    with pytest.raises(
        PolicyError, match=r"part that cannot be a constant: Argument scope is of type builtins.object"
    ):
        check_scope(("tenant", object()))


def test_an_async_scope_is_refused() -> None:
    async def scope() -> str:
        return "acme"

    for form in (scope, ("tenant", scope)):
        with pytest.raises(PolicyError, match="write a plain function"):
            check_scope(form)


def test_the_default_tenant_is_the_schema_of_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """django-tenants and its kin set ``schema_name`` on the connection."""
    assert default_tenant() == ""
    monkeypatch.setattr(connections["default"], "schema_name", "acme", raising=False)
    assert default_tenant() == "acme"
    monkeypatch.setattr(connections["default"], "schema_name", None)
    assert default_tenant() == ""

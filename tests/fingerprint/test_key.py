"""The option ``key``: which part of a call counts."""

from __future__ import annotations

from typing import Any

import pytest

from django_jobdedup.exceptions import FingerprintError, PolicyError
from django_jobdedup.fingerprint.binding import bind
from django_jobdedup.fingerprint.key import Key, check_key, check_names, key_text, select


def report(tenant_id: int, period: str = "now", *, requested_by: Any = None) -> None: ...


def loose(tenant_id: int, *rows: Any, **options: Any) -> None: ...


def no_arguments() -> None: ...


def test_without_a_key_all_arguments_count() -> None:
    assert key_text(report, (1,), {}) == '{"period":"now","requested_by":null,"tenant_id":1}'


@pytest.mark.parametrize("key", [[], ()])
def test_an_empty_key_is_the_task_name_only(key: Key) -> None:
    assert key_text(report, (1,), {}, key) == key_text(report, (2, "then"), {}, key) == "{}"


@pytest.mark.parametrize("key", ["tenant_id", ["tenant_id"], ("tenant_id",)])
def test_one_name_or_a_list_of_one_are_the_same(key: Key) -> None:
    assert key_text(report, (1, "then"), {"requested_by": object()}, key) == '{"tenant_id":1}'


def test_the_order_of_names_does_not_matter() -> None:
    assert key_text(report, (1,), {}, ["tenant_id", "period"]) == key_text(
        report, (1,), {}, ["period", "tenant_id"]
    )


def test_a_name_may_be_a_defaulted_argument() -> None:
    assert key_text(report, (1,), {}, "period") == key_text(report, (2, "now"), {}, "period")


def test_values_of_two_names_cannot_be_exchanged() -> None:
    key = ["tenant_id", "period"]
    assert key_text(report, (1, 2), {}, key) != key_text(report, (2, 1), {}, key)


def test_a_name_may_end_in_the_rest_of_the_keywords() -> None:
    assert key_text(loose, (1,), {"region": "eu", "x": 1}, ["region"]) == '{"region":"eu"}'
    assert key_text(loose, (1, 2, 3), {}, ["rows"]) == '{"rows":[2,3]}'


def test_a_name_that_the_call_does_not_give_is_an_error() -> None:
    with pytest.raises(
        FingerprintError, match=r"region is named by key and was not given. Pass it"
    ) as caught:
        key_text(loose, (1,), {}, ["region"])
    assert caught.value.argument == "region"


def test_an_unknown_name_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(
        FingerprintError, match=r"did you mean 'tenant_id'. it takes: tenant_id, period, req"
    ) as caught:
        key_text(report, (1,), {}, ["tennant_id"])
    assert caught.value.argument == "tennant_id"


def test_names_of_an_unknown_task_are_found_among_the_keywords_only() -> None:
    kwargs = {"tenant_id": 1, "other": 2}
    assert key_text(None, (), kwargs, "tenant_id") == key_text(report, (1,), {}, "tenant_id")
    with pytest.raises(FingerprintError, match=r"does not know the task.*Pass period by keyword") as caught:
        key_text(None, (1,), kwargs, "period")
    assert caught.value.argument == "period"


def test_args_and_kwargs_are_no_names_of_an_unknown_task() -> None:
    """They are our words for what we do not know; the task may have arguments of these names."""
    assert key_text(None, (1,), {"args": 5}, "args") == '{"args":5}'
    with pytest.raises(FingerprintError, match="does not know the task"):
        key_text(None, (1,), {}, "args")


def test_all_arguments_of_an_unknown_task_count_as_written() -> None:
    assert key_text(None, (1,), {"x": 2}) == '{"args":[1],"kwargs":{"x":2}}'


def test_a_function_gets_the_arguments_of_the_task() -> None:
    key = lambda tenant_id, period="now", **rest: [tenant_id, period]  # noqa: E731
    spellings: list[tuple[Any, Any]] = [((1,), {}), ((), {"tenant_id": 1}), ((1, "now"), {"requested_by": 3})]
    assert {key_text(report, args, kwargs, key) for args, kwargs in spellings} == {'[1,"now"]'}


def test_what_a_function_returns_is_named_in_errors() -> None:
    with pytest.raises(FingerprintError, match=r"Argument key\(\)\[1\] is of type builtins.object") as caught:
        key_text(report, (1,), {}, lambda *args: [args, object()])
    assert caught.value.argument == "key()[1]"


def test_an_error_of_a_function_passes_with_a_note_that_names_the_task() -> None:
    def key(tenant_id: int) -> object:
        raise LookupError("no such tenant")

    with pytest.raises(LookupError, match="no such tenant") as caught:
        key_text(report, (1,), {}, key, "shop.report")
    assert caught.value.__notes__ == ["raised by the key function of task shop.report"]


@pytest.mark.parametrize("key", [None, [], "tenant_id", lambda *args: 1])
def test_arguments_that_do_not_fit_fail_whatever_the_key(key: Key) -> None:
    with pytest.raises(TypeError, match=r"report\(\) missing 1 required positional argument: 'tenant_id'"):
        key_text(report, (), {}, key)


def test_an_argument_without_a_form_fails_only_where_it_counts() -> None:
    with pytest.raises(FingerprintError) as caught:
        key_text(report, (1,), {"requested_by": [object()]})
    assert caught.value.argument == "requested_by[0]"
    assert key_text(report, (1,), {"requested_by": [object()]}, ["tenant_id"])


def test_select_gives_the_values_themselves() -> None:
    bound = bind(report, (1,), {})
    assert select(bound, None, (1,), {}) == {"tenant_id": 1, "period": "now", "requested_by": None}
    assert select(bound, ["period"], (1,), {}) == {"period": "now"}
    assert select(bound, lambda tenant_id: {tenant_id}, (1,), {}) == {1}


@pytest.mark.parametrize("key", [None, [], (), "a", ["a", "b"], ("a",), len, lambda *args: 1])
def test_a_possible_key_is_accepted(key: object) -> None:
    check_key(key)


@pytest.mark.parametrize("key", [5, "", "order.id", ["a", 1], {"a"}, {"a": 1}, [["a"]], "a b", [""], True])
def test_an_impossible_key_is_refused_and_told_what_to_write(key: object) -> None:
    with pytest.raises(PolicyError, match="write an argument name, a list of argument names"):
        check_key(key)


def test_an_async_key_is_refused() -> None:
    async def key(tenant_id: int) -> int:
        return tenant_id

    with pytest.raises(PolicyError, match="write a plain function"):
        check_key(key)


def test_names_are_checked_against_the_task() -> None:
    for key in (None, [], "tenant_id", ["period", "requested_by"], len):
        check_names(key, report)
    check_names("anything", loose)
    check_names("anything", max)
    with pytest.raises(PolicyError, match=r"key names 'periods'.*did you mean 'period'"):
        check_names(["tenant_id", "periods"], report)
    with pytest.raises(PolicyError, match=r"which the task does not take; it takes: nothing\."):
        check_names("x", no_arguments)

"""All spellings of a call bind to one mapping, and what does not fit fails as the call does."""

from __future__ import annotations

import functools
import gc
import inspect
import itertools
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from celery import Celery
from hypothesis import given, settings
from hypothesis import strategies as st

from django_jobdedup.fingerprint.binding import bind, shape_of
from django_jobdedup.fingerprint.key import key_text


def plain(x: Any, flag: Any = False) -> None: ...


def empty() -> None: ...


def keyword_only(x: Any, *, flag: Any = False) -> None: ...


def positional_only(x: Any, /, flag: Any = False) -> None: ...


def all_kinds(a: Any, /, b: Any, *args: Any, c: Any, d: Any = 4, **kwargs: Any) -> None: ...


def catch_all(*args: Any, **kwargs: Any) -> None: ...


class Task:
    def run(self, x: Any, flag: Any = False) -> None: ...

    @classmethod
    def build(cls, x: Any, flag: Any = False) -> None: ...

    @staticmethod
    def free(x: Any, flag: Any = False) -> None: ...

    def __call__(self, x: Any, flag: Any = False) -> None: ...


@functools.wraps(plain)
def wrapped(*args: Any, **kwargs: Any) -> None: ...


@functools.wraps(wrapped)
def wrapped_twice(*args: Any, **kwargs: Any) -> None: ...


class Slotted:
    """Neither hashable nor weakly referable."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]

    def __call__(self, x: Any, flag: Any = False) -> None: ...


SPELLINGS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((1,), {}),
    ((), {"x": 1}),
    ((), {"x": 1, "flag": False}),
    ((), {"flag": False, "x": 1}),
    ((1, False), {}),
    ((1,), {"flag": False}),
]
CALLABLES: list[Callable[..., object]] = [
    plain,
    Task().run,
    Task.build,
    Task.free,
    Task(),
    wrapped,
    wrapped_twice,
    functools.wraps(Task().run)(lambda *a, **k: None),
    partial(lambda y, x, flag=False: None, 0),
    Slotted(),
]


@pytest.mark.parametrize(
    "function", CALLABLES, ids=lambda function: getattr(function, "__qualname__", "object")
)
def test_all_spellings_are_one_call(function: Callable[..., object]) -> None:
    for args, kwargs in SPELLINGS:
        assert bind(function, args, kwargs) == {"x": 1, "flag": False}
        assert list(bind(function, args, kwargs)) == ["x", "flag"]


@pytest.mark.parametrize(
    "function", CALLABLES[:6], ids=lambda function: getattr(function, "__qualname__", "object")
)
def test_different_calls_stay_different(function: Callable[..., object]) -> None:
    calls = [(1, 2), (2, 1), (1, None), (1, 0), (1, True)]
    texts = {key_text(function, call, {}) for call in calls} | {key_text(function, (1,), {})}
    assert len(texts) == 6
    assert key_text(function, (), {"x": 1, "flag": 2}) != key_text(function, (), {"x": 2, "flag": 1})


def test_no_arguments_are_one_call_however_they_are_written() -> None:
    assert bind(empty, (), {}) == bind(empty, [], {}) == {}


def test_a_celery_task_binds_by_its_run() -> None:
    app = Celery("binding", set_as_current=False)

    @app.task
    def free(x: int, flag: bool = False) -> None: ...

    @app.task(bind=True)
    def bound(self: Any, x: int, flag: bool = False) -> None: ...

    @app.task(bind=True, autoretry_for=(OSError,))
    def retried(self: Any, x: int, flag: bool = False) -> None: ...

    for task in (free, bound, retried):
        for args, kwargs in SPELLINGS:
            assert bind(task.run, args, kwargs) == {"x": 1, "flag": False}


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "named"),
    [
        (keyword_only, (1,), {}, {"x": 1, "flag": False}),
        (keyword_only, (), {"flag": 2, "x": 1}, {"x": 1, "flag": 2}),
        (positional_only, (1,), {"flag": 2}, {"x": 1, "flag": 2}),
        (catch_all, (), {}, {"args": (), "kwargs": {}}),
        (catch_all, (1, 2), {"args": 3}, {"args": (1, 2), "kwargs": {"args": 3}}),
        (
            all_kinds,
            (1, 2, 3),
            {"c": 5, "a": 6},
            {"a": 1, "b": 2, "args": (3,), "c": 5, "d": 4, "kwargs": {"a": 6}},
        ),
        (all_kinds, (1,), {"b": 2, "c": 5}, {"a": 1, "b": 2, "args": (), "c": 5, "d": 4, "kwargs": {}}),
    ],
)
def test_every_kind_of_parameter_binds(
    function: Callable[..., object], args: Any, kwargs: Any, named: dict[str, Any]
) -> None:
    bound = bind(function, args, kwargs)
    assert bound == named
    assert list(bound) == list(named)
    assert bound.known


def test_an_unknown_task_is_bound_as_if_it_took_anything() -> None:
    bound = bind(None, [1, 2], {"x": 3})
    assert bound == bind(catch_all, (1, 2), {"x": 3})
    assert not bound.known


def test_a_builtin_that_tells_no_signature_counts_as_unknown() -> None:
    assert bind(max, (1, 2), {}) == {"args": (1, 2), "kwargs": {}}
    assert not bind(max, (1, 2), {}).known


class Method:
    def run(self, x: Any, flag: Any = False) -> None: ...

    @functools.wraps(run)
    def wrapped(self, *args: Any, **kwargs: Any) -> None:
        return self.run(*args, **kwargs)


MISFITS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {}),
    ((1, 2, 3), {}),
    ((1,), {"x": 1}),
    ((1,), {"flog": 2}),
    ((), {"flag": 2}),
    ((), {"flag": 2, "flog": 3}),
    ((1, 2, 3, 4), {"flag": 1}),
    ((1,), {1: 2}),  # type: ignore[dict-item]
]


def message(call: Callable[[], object]) -> str:
    with pytest.raises(TypeError) as caught:
        call()
    assert type(caught.value) is TypeError
    return str(caught.value)


def outcome(call: Callable[[], object]) -> tuple[type | None, object]:
    """Return what a call returned, or the TypeError that it raised, with its text."""
    try:
        return None, call()
    except TypeError as error:
        return type(error), str(error)


@pytest.mark.parametrize("function", [plain, empty, keyword_only, positional_only, all_kinds, Method().run])
@pytest.mark.parametrize(("args", "kwargs"), MISFITS)
def test_arguments_that_do_not_fit_raise_the_error_of_the_call(function: Any, args: Any, kwargs: Any) -> None:
    called = outcome(lambda: function(*args, **kwargs))
    bound = outcome(lambda: bind(function, args, kwargs))
    assert (called[0] is TypeError) == (bound[0] is TypeError)
    assert called[0] is not TypeError or called == bound


def test_the_error_names_what_a_wrapper_wraps() -> None:
    assert message(lambda: bind(wrapped_twice, (), {})) == message(plain)  # type: ignore[arg-type]
    assert message(lambda: bind(Method().wrapped, (), {})) == message(Method().wrapped)  # type: ignore[arg-type]
    outer = functools.wraps(Method().run)(lambda *args: None)
    assert message(lambda: bind(outer, (1, 2, 3), {})) == message(lambda: Method().run(1, 2, 3))  # type: ignore[call-arg]


def test_a_signature_written_by_hand_is_obeyed() -> None:
    def free(*args: Any, **kwargs: Any) -> None: ...

    free.__signature__ = inspect.signature(plain)  # type: ignore[attr-defined]
    assert bind(free, (1,), {}) == {"x": 1, "flag": False}
    assert "missing 1 required positional argument: 'x'" in message(lambda: bind(free, (), {}))
    free.__wrapped__ = empty  # type: ignore[attr-defined]
    assert "missing 1 required positional argument: 'x'" in message(lambda: bind(free, (), {}))


def test_an_error_without_a_call_to_compare_is_still_a_type_error() -> None:
    assert "missing" in message(lambda: bind(partial(plain), (), {}))
    assert "not a callable" in message(lambda: bind(5, (), {}))  # type: ignore[arg-type]


def test_a_mutable_default_is_not_shared_with_the_cache() -> None:
    def task(x: int, options: dict[str, int] = {}) -> None: ...  # noqa: B006

    first = bind(task, (1,), {})
    first["x"] = 2
    assert bind(task, (1,), {}) == {"x": 1, "options": {}}


def test_a_default_that_compares_oddly_is_not_asked() -> None:
    class Odd:
        def __eq__(self, other: object) -> bool:
            raise AssertionError("compared")

        __hash__ = object.__hash__

    odd = Odd()

    def task(x: Any, y: Any = odd) -> None: ...

    assert bind(task, (odd,), {})["y"] is odd


def test_a_signature_is_read_once_and_forgotten_with_its_function() -> None:
    def task(x: int) -> None: ...

    assert shape_of(task) is shape_of(task)
    assert shape_of(Task().run) is shape_of(Task().run)
    assert shape_of(Task().run) is not shape_of(Task.run)
    shape, function = weakref.ref(task), None
    assert shape() is not function
    del task
    gc.collect()
    assert shape() is None


NAMES = ("a", "b", "c", "d", "e")


@st.composite
def calls(draw: st.DrawFn) -> tuple[Callable[..., object], dict[str, int]]:
    """Draw a function of up to five parameters of any kind, and a value for each that has no default."""
    kinds = sorted(draw(st.lists(st.sampled_from([0, 1, 3]), max_size=5)))
    defaults = draw(st.lists(st.booleans(), min_size=len(kinds), max_size=len(kinds)))
    parameters, seen_default = [], False
    for name, kind, has_default in zip(NAMES, kinds, defaults, strict=False):
        seen_default = seen_default or (has_default and kind != 3)
        default = 0 if has_default or (seen_default and kind != 3) else inspect.Parameter.empty
        parameters.append(inspect.Parameter(name, inspect._ParameterKind(kind), default=default))
    head = str(inspect.Signature(parameters))
    namespace: dict[str, Any] = {}
    exec(f"def function{head}: return dict(locals())", namespace)
    values = {p.name: draw(st.integers(0, 2)) for p in parameters}
    return namespace["function"], values


def spellings(
    function: Callable[..., object], values: dict[str, int]
) -> list[tuple[tuple[int, ...], dict[str, int]]]:
    """Return every way to write the call: each split in positional and keyword, defaults left out or not."""
    parameters = list(inspect.signature(function).parameters.values())
    found = []
    for count in range(len(parameters) + 1):
        head, tail = parameters[:count], parameters[count:]
        if any(p.kind == 3 for p in head) or any(p.kind == 0 and p.default is p.empty for p in tail):
            continue
        if any(p.kind == 0 and values[p.name] != p.default for p in tail):
            continue
        named = [p for p in tail if p.kind != 0]
        optional = [p.name for p in named if p.default == values[p.name]]
        for left_out in itertools.chain([()], [tuple(optional)]):
            kwargs = {p.name: values[p.name] for p in reversed(named) if p.name not in left_out}
            found.append((tuple(values[p.name] for p in head), kwargs))
    return found


@given(calls())
@settings(deadline=None, max_examples=200)
def test_all_spellings_of_a_generated_call_have_one_text(
    call: tuple[Callable[..., object], dict[str, int]],
) -> None:
    """The function itself is the oracle: it returns what it was given."""
    function, values = call
    texts = set()
    for args, kwargs in spellings(function, values):
        assert bind(function, args, kwargs) == function(*args, **kwargs) == values
        texts.add(key_text(function, args, kwargs))
    assert len(texts) <= 1


@given(
    calls(),
    st.lists(st.integers(0, 2), max_size=6),
    st.dictionaries(st.sampled_from(NAMES), st.integers(0, 2)),
)
@settings(deadline=None, max_examples=300)
def test_any_call_binds_or_fails_as_the_function_does(
    call: tuple[Callable[..., object], dict[str, int]], args: list[int], kwargs: dict[str, int]
) -> None:
    function, _ = call
    called = outcome(lambda: function(*args, **kwargs))
    assert outcome(lambda: bind(function, args, kwargs)) == called

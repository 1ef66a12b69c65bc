"""A call to named arguments: positional, keyword and defaulted spellings become one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MethodType
from typing import Any, Final
from weakref import WeakKeyDictionary

_KINDS = inspect.Parameter
_MISSING: Final = object()


class Arguments(dict[str, object]):
    """Argument name to value, in the order of the signature, defaults included.

    ``rest`` is the name of the ``**`` parameter, if there is one. ``known`` is False when this process
    does not know the task: the call is then bound as if its signature were ``(*args, **kwargs)``.
    """

    __slots__ = ("known", "rest")

    def __init__(self, named: Mapping[str, object], rest: str | None = None, known: bool = True) -> None:
        super().__init__(named)
        self.rest = rest
        self.known = known


@dataclass(frozen=True, slots=True)
class Shape:
    """What binding needs of a signature.

    ``template`` maps each name to its default, required ones to a sentinel. ``nameless``: given by
    position only. ``plain``: only parameters that can be given by keyword, so that binding is two dict
    updates.
    """

    signature: inspect.Signature
    template: dict[str, object]
    positional: tuple[str, ...]
    nameless: frozenset[str]
    required: tuple[str, ...]
    rest: str | None
    plain: bool


# A bound method lives only for one attribute access, so its function is the key; the same function
# called unbound has one parameter more, hence two tables.
_of_functions: WeakKeyDictionary[Any, Shape | None] = WeakKeyDictionary()
_of_methods: WeakKeyDictionary[Any, Shape | None] = WeakKeyDictionary()


def shape_of(function: Callable[..., object]) -> Shape | None:
    """Return the shape of a callable, read once for each function; None if it does not tell its signature.

    Wrappers made with ``functools.wraps`` have the signature of what they wrap (Celery's autoretry).
    """
    table, key = _of_functions, function
    if isinstance(function, MethodType):
        table, key = _of_methods, function.__func__
    try:
        return table[key]
    except KeyError:
        shape = table[key] = _read(function)
        return shape
    except TypeError:  # cannot be hashed or referred to weakly
        return _read(function)


def _read(function: Callable[..., object]) -> Shape | None:
    try:
        signature = inspect.signature(function)
    except ValueError:  # some builtins
        return None
    parameters = signature.parameters.values()
    kinds = {parameter.kind for parameter in parameters}
    template = {p.name: _MISSING if p.default is p.empty else p.default for p in parameters}
    return Shape(
        signature=signature,
        template=template,
        positional=tuple(p.name for p in parameters if p.kind is _KINDS.POSITIONAL_OR_KEYWORD),
        nameless=frozenset(p.name for p in parameters if p.kind is _KINDS.POSITIONAL_ONLY),
        required=tuple(name for name, default in template.items() if default is _MISSING),
        rest=next((p.name for p in parameters if p.kind is _KINDS.VAR_KEYWORD), None),
        plain=kinds <= {_KINDS.POSITIONAL_OR_KEYWORD, _KINDS.KEYWORD_ONLY},
    )


def bind(
    function: Callable[..., object] | None, args: Sequence[object], kwargs: Mapping[str, object]
) -> Arguments:
    """Return the named arguments of a call, with defaults applied.

    ``function`` is what will be called with exactly these arguments (``task.run``), so without the
    ``self`` of a bound task; None if this process does not know the task.
    Raises the TypeError of the call itself when the arguments do not fit.
    """
    shape = shape_of(function) if function is not None else None
    if function is None or shape is None:
        return Arguments({"args": tuple(args), "kwargs": dict(kwargs)}, rest="kwargs", known=False)
    bound = _quickly(shape, args, kwargs)
    return bound if bound is not None else _thoroughly(function, shape, args, kwargs)


def _quickly(shape: Shape, args: Sequence[object], kwargs: Mapping[str, object]) -> Arguments | None:
    """Bind a plain signature by dict updates, six times faster than ``Signature.bind``; None if in doubt."""
    given = shape.positional[: len(args)]
    if not shape.plain or len(given) != len(args):
        return None
    bound = Arguments(shape.template)
    bound.update(zip(given, args, strict=True))
    if kwargs:
        for name in given:
            if name in kwargs:
                return None
        bound.update(kwargs)
    if len(bound) != len(shape.template):
        return None
    for name in shape.required:
        if bound[name] is _MISSING:
            return None
    return bound


def _thoroughly(
    function: Callable[..., object], shape: Shape, args: Sequence[object], kwargs: Mapping[str, object]
) -> Arguments:
    try:
        bound = shape.signature.bind(*args, **kwargs)
    except TypeError:
        _call_hollow(function, args, kwargs)
        raise  # pragma: no cover - both read one signature; should they disagree, this one stands
    if shape.rest is None and not shape.nameless.isdisjoint(kwargs):
        _call_hollow(function, args, kwargs)  # Python 3.13 binds these where a call refuses them
    bound.apply_defaults()
    return Arguments(bound.arguments, shape.rest)


def _call_hollow(
    function: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]
) -> None:
    """Raise the interpreter's own TypeError, by calling an empty function with the same head."""
    target = function if isinstance(function, MethodType) else _unwrapped(function)
    if isinstance(target, MethodType):
        target, args = _unwrapped(target.__func__), (None, *args)
    head = inspect.Signature(
        [
            parameter.replace(annotation=inspect.Parameter.empty, default=_placeholder(parameter))
            for parameter in inspect.signature(target).parameters.values()
        ]
    )
    namespace: dict[str, Any] = {}
    exec(f"def hollow{head}: pass", namespace)  # noqa: S102 - a signature of ours: names and None only
    hollow = namespace["hollow"]
    hollow.__qualname__ = getattr(target, "__qualname__", type(target).__qualname__)
    hollow(*args, **kwargs)


def _unwrapped(function: Callable[..., Any]) -> Any:
    return inspect.unwrap(function, stop=lambda wrapper: hasattr(wrapper, "__signature__"))


def _placeholder(parameter: inspect.Parameter) -> object:
    return parameter.empty if parameter.default is parameter.empty else None

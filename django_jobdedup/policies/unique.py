"""``Unique``: equal work is queued once, runs once at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, Never

from django_jobdedup.conf import Duration
from django_jobdedup.exceptions import PolicyError
from django_jobdedup.fingerprint.key import Key
from django_jobdedup.fingerprint.scope import Scope
from django_jobdedup.header import Knobs
from django_jobdedup.lock_types.base import LockType
from django_jobdedup.lock_types.registry import LOCK_TYPES, lock_type
from django_jobdedup.policies.conflicts import OnConflict, check_on_conflict, strategy_at
from django_jobdedup.policies.json_form import plain
from django_jobdedup.policies.options import UNSET, Unset, check_names, read
from django_jobdedup.strategies.base import Strategy
from django_jobdedup.strategies.reschedule import Reschedule
from django_jobdedup.suggestion import suggest

#: A strategy as it may be written: its name or dotted path, an instance, a class.
Written = str | Strategy | type[Strategy]
#: Marks the JSON form of a whole policy: such a dict replaces, any other overrides option by option.
MARK: Final = "policy"


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Unique:
    """The frozen declaration that equal jobs of a task are one job.

    ``lock``: the lock type's name, or a class of one's own. ``key``: an argument name, names, or a
    callable taking the task's own arguments; None is all arguments, ``[]`` the task name only. ``scope``:
    ``"tenant"``, ``"queue"``, a tuple, None (global), a callable. ``lock_name`` stands instead of the
    task's name. ``ttl`` and ``lease``: seconds or a ``timedelta``, kept as seconds. ``given`` names the
    options that were written; only those travel in JSON and win over ``JOBDEDUP_DEFAULTS``.

    Raises PolicyError for an unknown option, a wrong value, and a pair that cannot work.
    """

    lock: str = "until_executed"
    key: Key = None
    scope: Scope = "tenant"
    lock_name: str | None = None
    ttl: float = 5400.0
    lease: float = 30.0
    limit: int = 1
    on_conflict: OnConflict = None
    max_starts: int | None = None
    keep_on_failure: bool = False
    on_store_error: str = "proceed"
    canvas: str = "follow"
    store: str = "default"
    observe: bool = False
    given: frozenset[str] = frozenset()
    _knobs: dict[str, Knobs] = field(default_factory=dict, compare=False)

    def __init__(
        self,
        lock: str | type[LockType] | Unset = UNSET,
        *more: Never,
        key: Key | Unset = UNSET,
        scope: Scope | Unset = UNSET,
        lock_name: str | Unset | None = UNSET,
        ttl: Duration | Unset = UNSET,
        lease: Duration | Unset = UNSET,
        limit: int | Unset = UNSET,
        on_conflict: Written | Mapping[str, Written] | OnConflict | Unset = UNSET,
        max_starts: int | Unset | None = UNSET,
        keep_on_failure: bool | Unset = UNSET,
        on_store_error: str | Unset = UNSET,
        canvas: str | Unset = UNSET,
        store: str | Unset = UNSET,
        observe: bool | Unset = UNSET,
        **unknown: Never,
    ) -> None:
        written = {
            "lock": lock, "key": key, "scope": scope, "lock_name": lock_name, "ttl": ttl, "lease": lease,
            "limit": limit, "on_conflict": on_conflict, "max_starts": max_starts,
            "keep_on_failure": keep_on_failure, "on_store_error": on_store_error, "canvas": canvas,
            "store": store, "observe": observe,
        }  # fmt: skip
        if more:
            raise PolicyError(
                f"Unique takes the lock type alone without a name, so no {more[0]!r}: write "
                f'Unique("until_executed", key={more[0]!r}) or the like; {suggest("", _DEFAULTS)}'
            )
        check_names(unknown)
        given = {name: value for name, value in written.items() if value is not UNSET}
        for name, default in _DEFAULTS.items():
            object.__setattr__(self, name, read(name, given[name]) if name in given else default)
        object.__setattr__(self, "given", frozenset(given))
        object.__setattr__(self, "_knobs", {})
        _check_pairs(self)

    def __hash__(self) -> int:
        # The scope may hold a constant without a hash; equal policies still hash equal.
        return hash((self.lock, self.key, self.lock_name, self.ttl, self.lease, self.given))

    def __repr__(self) -> str:
        options = [f"{name}={value!r}" for name, value in self.options().items() if name != "lock"]
        return f"Unique({', '.join([repr(self.lock)] * ('lock' in self.given) + options)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (self.options(),)

    def __json__(self) -> dict[str, Any]:
        """Encode for kombu's JSON serializer; read again, it replaces as the instance would."""
        return {MARK: "unique", **self.to_json()}

    def options(self) -> dict[str, Any]:
        """Return the options that were written, as they are kept."""
        return {name: getattr(self, name) for name in _DEFAULTS if name in self.given}

    def to_json(self) -> dict[str, Any]:
        """Return the options that were written, in JSON.

        Raises PolicyError for a key or a scope that is a function.
        """
        return {name: plain(name, value) for name, value in self.options().items()}

    @classmethod
    def from_json(cls, options: Mapping[str, Any]) -> Unique:
        """Make a policy from a dict of options, read from JSON or written by hand. Raises PolicyError."""
        if not isinstance(options, Mapping):
            raise PolicyError(f"A policy in JSON is an object of options, not {options!r}.")
        for name in options:
            if not isinstance(name, str):
                raise PolicyError(f"An option of Unique is named by a text, not by {name!r}.")
        return cls(**{name: value for name, value in options.items() if name != MARK})

    @property
    def lock_type(self) -> LockType:
        """Return the lock type."""
        return LOCK_TYPES.get(self.lock) or lock_type(self.lock)

    @property
    def dispatch_strategy(self) -> Strategy:
        """Return the strategy for a refused dispatch."""
        return strategy_at("dispatch", self.lock_type, self.on_conflict)

    @property
    def execution_strategy(self) -> Strategy:
        """Return the strategy for a refused start."""
        return strategy_at("execution", self.lock_type, self.on_conflict)

    def knobs(self, lock_name: str) -> Knobs:
        """Return what a worker needs to know; made once for each lock name."""
        try:
            return self._knobs[lock_name]
        except KeyError:
            return self._knobs.setdefault(lock_name, self._make_knobs(lock_name))

    def _make_knobs(self, lock_name: str) -> Knobs:
        kind, refused = self.lock_type, self.dispatch_strategy
        return Knobs(
            lock=self.lock,
            name=lock_name,
            counts=kind.counts.replace("R", "") if refused.beside_running else kind.counts,
            limit=self.limit,
            gate=self.limit if kind.gated else 0,
            ttl=self.ttl,
            lease=self.lease,
            keeps=kind.keeps,
            keep_on_failure=self.keep_on_failure,
            at_dispatch=kind.at_dispatch,
            max_starts=self.max_starts or 0,
            execution=self.execution_strategy.encode(),
            on_store_error=self.on_store_error,
            store=self.store,
            on_waiting=refused.on_waiting if kind.at_dispatch else "keep",
        )


_DEFAULTS: Final = {
    each.name: each.default for each in fields(Unique) if each.name not in ("given", "_knobs")
}


def _rebuilt(options: Mapping[str, Any]) -> Unique:
    return Unique(**options)


def _check_pairs(policy: Unique) -> None:
    """Refuse options that cannot work together. Raises PolicyError."""
    check_on_conflict(policy.lock_type, policy.on_conflict)
    if policy.lock_type.keeps and "ttl" not in policy.given:
        raise PolicyError(
            f'The lock "{policy.lock}" is freed by its ttl alone, so it needs one: '
            f'write Unique("{policy.lock}", ttl=timedelta(hours=20)).'
        )
    if policy.keep_on_failure and not policy.lock_type.keeps:
        raise PolicyError(
            'keep_on_failure=True needs a lock that outlives the run: write lock="until_expired" with a '
            f'ttl, or leave it out with "{policy.lock}".'
        )
    refused = policy.dispatch_strategy
    if policy.limit > 1 and (refused.on_waiting != "keep" or isinstance(refused, Reschedule)):
        raise PolicyError(
            f'limit={policy.limit} goes with "skip", "log", "raise" and "reject" at dispatch, not with '
            f'"{refused.title()}": choose one of them, or write limit=1.'
        )

"""The public face of policies, as a type checker sees it: ``mypy tests/typing/api.py``. Never run.

A line that must not type-check says so with an ignore; the checker fails when the ignore is not needed.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django_jobdedup import PolicyError, Reschedule, Unique
from django_jobdedup.header import Knobs
from django_jobdedup.policies.resolve import BYPASS, UNSET, Bypass, check_against, policy_of, resolve
from django_jobdedup.strategies.base import Conflict, Strategy


def tenant_of(tenant_id: int, **_: object) -> int:
    """Give the part of the arguments that counts."""
    return tenant_id


# Every form of every option.
Unique()
Unique("while_executing")
Unique(lock="until_expired", ttl=timedelta(hours=20), keep_on_failure=True)
Unique(key=None)
Unique(key="tenant_id")
Unique(key=["tenant_id", "period"])
Unique(key=("tenant_id", "period"))
Unique(key=[])
Unique(key=tenant_of)
Unique(scope="queue")
Unique(scope=None)
Unique(scope=("tenant", "reports", 7))
Unique(scope=tenant_of)
Unique(lock_name="reports", store="locks")
Unique(ttl=5400, lease=30)
Unique(ttl=0.5, lease=timedelta(seconds=3))
Unique(limit=3, on_conflict="log")
Unique("while_executing", on_conflict=Reschedule(after=5, up_to=timedelta(minutes=5)))
Unique("until_and_while_executing", on_conflict={"dispatch": "raise", "execution": Reschedule(9)})
Unique(on_store_error="raise", canvas="run", observe=False, max_starts=None)
Unique(ttl=UNSET)

# What must not type-check.
Unique("until_executed", "tenant_id")  # type: ignore[arg-type]
Unique(leese=30)  # type: ignore[arg-type]
Unique(ttl="an hour")  # type: ignore[arg-type]
Unique(limit="3")  # type: ignore[arg-type]
Unique(key=3)  # type: ignore[arg-type]
Unique(on_conflict=3)  # type: ignore[arg-type]
Unique().ttl = 3  # type: ignore[misc]
Reschedule(after="5")  # type: ignore[arg-type]

# What comes out.
policy: Unique = Unique.from_json({"ttl": 60})
ttl: float = policy.ttl
lock_name: str | None = policy.lock_name
given: frozenset[str] = policy.given
encoded: dict[str, Any] = policy.to_json()
knobs: Knobs = policy.knobs("reports")
strategy: Strategy = policy.dispatch_strategy
delay: float = Reschedule().delay(3)
strategy.decide(Conflict(side="dispatch", holder_id="the-holder"))
Conflict(side="start", holder_id="the-holder")  # type: ignore[arg-type]
check_against(policy, tenant_of, "shop.tasks.report")


def narrowed(found: Unique | Bypass | None) -> Unique | None:
    """Tell a bypass from a policy by identity."""
    if found is BYPASS:
        return None
    return found


narrowed(policy_of("shop.tasks.report", None))
narrowed(policy_of("shop.tasks.report", {"ttl": 60}, False))
narrowed(resolve("shop.tasks.report", True, tasks={}, defaults={}))

error: ValueError = PolicyError("what to write instead")

"""The rows of knobs that the world is walked with: one for each lock type, strategy and number of holders."""

from __future__ import annotations

from dataclasses import dataclass

PENDING, LEASE, LONG, MARK = 15.0, 30.0, 100_000.0, 10_000_000.0
"""Time to confirm, lease, TTL, and how long an ended id is remembered; seconds."""
MOST_WAIT = 25.0
"""How long a debounced start can be put off by calls that keep coming."""


@dataclass(frozen=True)
class Policy:
    """One row of knobs."""

    name: str
    counts: str = "PWR"
    gate: int = 1
    limit: int = 1
    on_waiting: str = "keep"
    payload: bool = False
    wait: float = 0.0
    keeps: bool = False
    keep_on_failure: bool = False
    max_starts: int = 0
    at_dispatch: bool = True

    @property
    def exclusive(self) -> bool:
        """Say whether no more than ``limit`` may be in flight."""
        return "PWR" in self.counts and self.on_waiting == "keep"


POLICIES = (
    Policy("until_executed"),
    Policy("until_executed, two seats", limit=2, gate=2),
    Policy("until_executed, three seats", limit=3, gate=3),
    Policy("until_executed, one start", max_starts=1),
    Policy("until_executing", counts="PW", gate=0),
    Policy("until_expired", counts="PWRK", keeps=True),
    Policy("until_expired, two seats", counts="PWRK", keeps=True, keep_on_failure=True, limit=2, gate=2),
    Policy("while_executing", at_dispatch=False),
    Policy("while_executing, two at once", at_dispatch=False, gate=2),
    Policy("until_and_while_executing", counts="PW"),
    Policy("until_and_while_executing, two of each", counts="PW", limit=2, gate=2),
    Policy("rerun", counts="PW", on_waiting="merge", payload=True),
    Policy("rerun that counts runs", on_waiting="merge", payload=True),
    Policy("rerun, two starts", counts="PW", on_waiting="merge", payload=True, max_starts=2),
    Policy("replace", counts="PW", on_waiting="over"),
    Policy("keep_soonest", counts="PW", on_waiting="soonest"),
    Policy("debounce", counts="PW", on_waiting="merge", payload=True, wait=10.0),
)

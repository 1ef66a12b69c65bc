"""Reception: the worker's main process gets a message, before any pool does.

Each delivery gets its nonce here, in the process that renews leases and sees the endings that no
body sees. A message without our header (a foreign sender, a task unknown to the sender) is
fingerprinted here and takes its waiting seat with its own id.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

from django_jobdedup import signals
from django_jobdedup.call import HEADER, NONCE, Call, Header
from django_jobdedup.conf import conf
from django_jobdedup.exceptions import JobDedupError
from django_jobdedup.executing.broker import visibility_timeout
from django_jobdedup.executing.nonce import new_nonce
from django_jobdedup.middleware import stack
from django_jobdedup.middleware.planning import request_for
from django_jobdedup.middleware.releasing import copies_live
from django_jobdedup.middleware.starting import log_suppressed
from django_jobdedup.outcomes import PutOff, Suppress
from django_jobdedup.policies.identity import identify
from django_jobdedup.policies.resolve import policy_of
from django_jobdedup.policies.unique import Unique
from django_jobdedup.stores.handler import stores
from django_jobdedup.stores.record import Ref
from django_jobdedup.stores.requests import Token
from django_jobdedup.stores.results import Acquired, Held
from django_jobdedup.strategies.base import Conflict


@dataclass(slots=True)
class Delivery:
    """One received message of a job with a lock; hangs on Celery's request object.

    ``late_for`` is the time for which the broker may deliver the message again if this worker dies (0
    with early ack), seconds. ``renewed_at`` is when its lease was renewed last (monotonic, 0 before the
    first time and after it was lost): only then is a lost one news. ``missed``: the last renewal found
    nothing held.
    """

    header: Header
    nonce: str
    task: str
    late_for: float = 0.0
    renewed_at: float = 0.0
    missed: bool = False
    confirmed: bool = False
    #: Its end was seen by the main process, which now waits for the pool's process to be gone.
    ending: bool = False

    @property
    def token(self) -> Token:
        """Return what renews and finishes this delivery."""
        header = self.header
        return Token(Ref(header.shard, header.fingerprint), header.id, self.nonce, header.knobs.lease)


def receive(request: Any) -> Delivery | None:
    """Give a delivery its nonce; None for a job without a lock."""
    wire = request.request_dict
    wire.pop(NONCE, None)  # a message put back at a shutdown carries the nonce of its earlier delivery
    header = Header.decode(wire.get(HEADER))
    if header is None or header.id != request.id:
        header = _adopt(request)
    if header is None or not header.locks:
        return None
    late_for = copies_live(header.knobs, visibility_timeout(request.app)) if request.task.acks_late else 0.0
    delivery = Delivery(header, new_nonce(), request.task.name, late_for)
    wire[HEADER], wire[NONCE] = header.encode(), delivery.nonce
    request.jobdedup = delivery
    return delivery


def delivery_of(request: Any) -> Delivery | None:
    """Return what ``receive`` has hung on a request."""
    delivery = getattr(request, "jobdedup", None)
    return delivery if isinstance(delivery, Delivery) else None


def _adopt(request: Any) -> Header | None:
    """Make the header of a message that came without one."""
    if conf.MODE == "off":
        return None
    task = request.task
    policy = policy_of(task.name, getattr(task, "unique", None))
    if not isinstance(policy, Unique):
        return None
    queue = str(request.delivery_info.get("routing_key") or "")
    try:
        identity = identify(policy, task.name, task, request.args, request.kwargs, queue)
    except (JobDedupError, TypeError) as error:  # the body will say so; the message is not ours to drop
        signals.report("reception.adopt", error)
        return None
    if identity is None:
        return None
    knobs = policy.knobs(identity.lock_name)
    header = Header(request.id, identity.shard, ((identity.fingerprint, knobs),))
    return _seated(request, policy, header) if knobs.at_dispatch else replace(header, at=time.time())


def _seated(request: Any, policy: Unique, header: Header) -> Header:
    """Take the waiting seat: straight as waiting, for the message exists. Refused: ends at its start."""
    due_in = max(0.0, request.eta.timestamp() - time.time()) if request.eta else 0.0
    call = Call(task=request.task.name, id=request.id, due_in=due_in, counted=stack.counts_in_store())
    answer = stores[policy.store].acquire(request_for(call, header, received=True))
    if isinstance(answer, Acquired):
        return replace(header, at=answer.at)
    if isinstance(answer, Held) and not _is_promised(request):
        conflict = Conflict(side="dispatch", holder_id=answer.id, state=answer.state, task=call.task)
        decision = policy.dispatch_strategy.decide(conflict)
        if not isinstance(decision, PutOff):
            if not isinstance(decision, Suppress) or decision.log:  # "raise" has nobody to raise to here
                log_suppressed(call.task, header, answer.id)
            return replace(header, refused_by=answer.id)
    return header


def _is_promised(request: Any) -> bool:
    """Whether a workflow waits for this message: its group stands in the headers, the rest in the body."""
    embedded = request._payload[2] or {}
    return bool(request.request_dict.get("group")) or any(
        embedded.get(name) for name in ("chain", "chord", "callbacks", "errbacks")
    )

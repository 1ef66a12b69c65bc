"""The lock of the body that runs here: ``current_lock()``."""

from __future__ import annotations

from dataclasses import dataclass

from django_jobdedup.call import running
from django_jobdedup.exceptions import LockLost
from django_jobdedup.middleware.addressing import token_of
from django_jobdedup.stores.handler import stores
from django_jobdedup.stores.requests import Token
from django_jobdedup.stores.results import Lost


@dataclass(frozen=True, slots=True)
class CurrentLock:
    """The running seat of this execution.

    ``fence`` rises with every start under one fingerprint: keep it beside what you write, and refuse
    a write whose fence is lower than the one that is there.
    """

    fingerprint: str
    token: str
    fence: int
    _store: str
    _token: Token

    @property
    def held(self) -> bool:
        """Ask the store whether the seat is still this execution's; one round trip.

        True when the store does not answer: nothing is known to be lost.
        """
        answer = stores[self._store].renew([self._token])[0]
        return not isinstance(answer, Lost)

    def check(self) -> None:
        """Raise LockLost if the seat is somebody else's by now; call it before what must not double."""
        if not self.held:
            raise LockLost


def current_lock() -> CurrentLock | None:
    """Return the lock of the running body; None outside one, or when it runs without a lock."""
    current = running.get()
    if current is None or not current.protected:
        return None
    header = current.execution.header
    token = token_of(header, current.execution.nonce)
    return CurrentLock(header.fingerprint, header.id, current.fence, header.knobs.store, token)

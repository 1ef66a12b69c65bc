"""The lease of a body that runs in its caller: no worker looks after it, so a thread of its own does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from django_jobdedup import signals
from django_jobdedup.call import Running
from django_jobdedup.middleware.addressing import token_of
from django_jobdedup.stores.base import Store
from django_jobdedup.stores.handler import stores
from django_jobdedup.stores.requests import Token
from django_jobdedup.stores.results import Lost

#: Renewals in one lease: two may fail before it lapses.
RENEWALS: Final = 3


@contextmanager
def kept_alive(current: Running) -> Iterator[None]:
    """Renew the lease of a running seat until the block ends; without one do nothing."""
    if not current.protected:
        yield
        return
    header = current.execution.header
    over = threading.Event()
    token = token_of(header, current.execution.nonce)
    work = (stores[header.knobs.store], token, header.id, over)
    thread = threading.Thread(target=_renew, args=work, name="jobdedup-own-lease", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # interpreter shutdown, some embedders: then the lease is as long as it is
        over.set()
    try:
        yield
    finally:
        over.set()


def _renew(store: Store, token: Token, id: str, over: threading.Event) -> None:
    while not over.wait(token.lease / RENEWALS):
        try:
            answer = store.renew([token])[0]
        except Exception as error:
            signals.report("own_lease.renew", error)
            continue
        if isinstance(answer, Lost) and not over.is_set():
            signals.send(signals.lock_lost, None, id=id, fingerprint=token.ref.fingerprint)
            return

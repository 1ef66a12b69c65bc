"""One world with one worker for each module of the dispatching side, what it hears and logs."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from django_jobdedup import signals
from django_jobdedup.dispatching import presence, transactions
from django_jobdedup.dispatching.confirm import confirmer
from django_jobdedup.middleware import mistake
from tests.rig.amqp import queue  # noqa: F401 - a fixture
from tests.rig.sharing import diary, for_node, key, node, world  # noqa: F401 - fixtures

from . import jobs  # noqa: F401 - registers the tasks


@pytest.fixture(scope="module")
def for_world() -> Mapping[str, Any]:
    """The Celery options of the worlds of this folder."""
    return {"imports": ["tests.dispatching.jobs"]}


@pytest.fixture(autouse=True)
def fresh_memory() -> Iterator[None]:
    """Forget which queues are attended and which warnings were given, and confirm what was dispatched."""
    presence.forget()
    transactions._warned.clear()
    mistake.forget()
    yield
    confirmer.flush()
    presence.forget()


@pytest.fixture
def heard() -> Iterator[dict[str, list[dict[str, object]]]]:
    """What the signals of this process say, by the signal's name."""
    said: dict[str, list[dict[str, object]]] = {name: [] for name in signals.SIGNALS}
    receivers = []
    for name, signal in signals.SIGNALS.items():

        def receive(
            sender: object, *, _said: list[dict[str, object]] = said[name], **payload: object
        ) -> None:
            _said.append({"sender": sender, **payload})

        signal.connect(receive)
        receivers.append((signal, receive))
    yield said
    for signal, receive in receivers:
        signal.disconnect(receive)


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """What the app logs in this process."""
    caplog.set_level(logging.INFO, logger="django_jobdedup")
    return caplog

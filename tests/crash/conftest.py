"""The one laboratory of this folder, and what was measured in it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping

import pytest

from testproject.celery import app
from testproject.embedded_redis import EmbeddedRedis, GivenRedis
from tests.conftest import need
from tests.rig.engines import Engines, is_there

from . import page
from .cells import ENGINES, SQLITE
from .laboratory import AnyCell, AnyFinding, laboratory
from .matrix import EVERY

WRITE = "JOBDEDUP_WRITE_DOCS"
Found = Mapping[AnyCell, AnyFinding | Exception]


@pytest.fixture(scope="package")
def findings(
    request: pytest.FixtureRequest,
    redis_server: GivenRedis | EmbeddedRedis,
    tmp_path_factory: pytest.TempPathFactory,
    engines: Engines,
) -> Found:
    """What was measured in each selected cell whose store is there; all of them ran side by side."""
    chosen = [item.callspec.params.get("cell") for item in request.session.items if hasattr(item, "callspec")]
    cells = [cell for cell in EVERY if cell in set(chosen)]
    wanted = {SQLITE, *(cell.store for cell in cells)}
    with contextlib.ExitStack() as stack:
        there = {
            alias: stack.enter_context(engines.open(name))
            for alias, name in ENGINES.items()
            if alias in wanted and is_there(name)
        }
        lab = stack.enter_context(laboratory(app, redis_server.url, tmp_path_factory.mktemp("crash"), there))
        found = lab.run(cell for cell in cells if cell.store not in ENGINES or cell.store in there)
    if os.environ.get(WRITE):
        page.write(dict(sayable(found)), EVERY)
    return found


def sayable(found: Found) -> Iterator[tuple[AnyCell, str]]:
    """Give the words of all that have some; the tests tell of the others."""
    for cell, seen in found.items():
        if not isinstance(seen, Exception):
            with contextlib.suppress(AssertionError):
                yield cell, seen.words()


@pytest.fixture
def finding(findings: Found, cell: AnyCell) -> AnyFinding:
    """What was measured in one cell; raises what went wrong there."""
    need(cell in findings, f"a {cell.store} server")
    found = findings[cell]
    if isinstance(found, Exception):
        raise found
    return found

"""The fixtures of the dispatching side: a world for a whole module, and its keys."""

from tests.dispatching.conftest import (  # noqa: F401
    diary,
    for_node,
    for_world,
    fresh_memory,
    heard,
    key,
    log,
    node,
    world,
)

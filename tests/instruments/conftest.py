"""The fixtures of the dispatching side: a world for a whole module, and its keys."""

from tests.dispatching.conftest import diary, fresh_memory, heard, key, log, node, world  # noqa: F401

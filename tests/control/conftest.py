"""The fixtures of the dispatching side: a world and a worker for a whole module."""

from tests.dispatching.conftest import diary, fresh_memory, heard, key, log, node, world  # noqa: F401

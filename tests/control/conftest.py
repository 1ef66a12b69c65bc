"""The fixtures of the dispatching side: a world for a whole module, and its keys."""

from tests.dispatching.conftest import *  # noqa: F403 - fixtures

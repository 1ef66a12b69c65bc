"""The connection to Redis: that of a django-redis alias, but impatient, and with a pool that waits.

- Timeouts of one second unless the alias sets its own: a lock store must not hang a request.
- A plain pool raises when it is empty and a burst of threads would read that as "store down", so a
  waiting pool of the same kind of connections stands in for it. Sentinel and other pools stay as they are.
- One immediate retry after a lost connection, because every verb may be repeated; none after a timeout,
  which would double it. redis-py 8 itself retries ten times in ``Redis()`` and not at all in explicit pools.
"""

from __future__ import annotations

import os
import weakref
from typing import Any, Final

from django_redis import get_redis_connection
from redis import BlockingConnectionPool, ConnectionPool, Redis
from redis.backoff import NoBackoff
from redis.client import NEVER_DECODE
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.retry import Retry

from django_jobdedup.stores.redis.lanes import Lanes

#: A redis-py client. Not named by its class: redis-py's own types and the stubs for it disagree.
RedisClient = Any

#: Replies as bytes, also from a pool that decodes.
RAW: Final = {NEVER_DECODE: True}

#: Seconds to connect, to wait for a reply, to wait for a free connection.
PATIENCE: Final = 1.0
MAX_CONNECTIONS: Final = 50
#: Seconds that a waiting pool of redis-py waits when nobody chose.
UNSET_WAIT: Final = 20

#: What a pool of redis-py 7 and later adds to its own arguments, bound to that very pool.
OF_THE_POOL: Final = (
    "event_dispatcher",
    "himport_registry",
    "maint_notifications_config",
    "maint_notifications_pool_handler",
    "orig_host_address",
    "orig_socket_connect_timeout",
    "orig_socket_timeout",
    "oss_cluster_maint_notifications_handler",
)


class Client:
    """One Redis client per process, made at first use and made anew after a fork."""

    def __init__(self, alias: str) -> None:
        self.alias = alias
        self._redis: RedisClient | None = None
        self._lanes: Lanes | None = None
        _clients.add(self)

    def get(self) -> RedisClient:
        """Return the client; raises what django-redis raises for an alias it cannot use."""
        if self._redis is None:
            self._redis = connect(self.alias)
        return self._redis

    def ask(self, *command: Any) -> Any:
        """Send one command on the shortest way and return its reply in bytes. Raises redis.RedisError."""
        if self._lanes is not None:
            return self._lanes.ask(*command)
        pool = self.get().connection_pool
        if type(pool) is not BlockingConnectionPool:
            return self.get().execute_command(*command, **RAW)
        self._lanes = Lanes(pool)
        return self._lanes.ask(*command)

    def close(self) -> None:
        """Close the connections that are ours; the next use opens new ones."""
        client = self._redis
        self.forget()
        if client is not None and type(client.connection_pool) is BlockingConnectionPool:
            client.connection_pool.disconnect()

    def forget(self) -> None:
        """Drop the client, as a forked child must; the next use makes one with connections of its own."""
        self._redis = self._lanes = None


def connect(alias: str) -> RedisClient:
    """Return a client for a django-redis alias, as the head of this module says."""
    client: RedisClient = get_redis_connection(alias)
    pool = client.connection_pool
    if type(pool) not in (ConnectionPool, BlockingConnectionPool):
        return client
    return Redis(connection_pool=waiting_pool(pool))


def waiting_pool(pool: ConnectionPool) -> BlockingConnectionPool:
    """Return a waiting pool of the same connections, with short timeouts and one retry."""
    arguments: dict[str, Any] = {
        name: value for name, value in pool.connection_kwargs.items() if name not in OF_THE_POOL
    }
    arguments.setdefault("socket_timeout", PATIENCE)
    arguments.setdefault("socket_connect_timeout", PATIENCE)
    arguments.pop("retry_on_timeout", None)
    arguments.pop("retry_on_error", None)
    arguments["decode_responses"] = False  # stored arguments are bytes
    arguments["retry"] = Retry(NoBackoff(), 1, supported_errors=(RedisConnectionError,))
    return BlockingConnectionPool(
        max_connections=min(pool.max_connections, MAX_CONNECTIONS),
        timeout=patience_of(pool),
        connection_class=pool.connection_class,
        **quiet(),
        **arguments,
    )


def patience_of(pool: ConnectionPool) -> float:
    """Return how long to wait for a free connection: as the alias says, but neither for ever nor unasked."""
    own = getattr(pool, "timeout", None)
    return PATIENCE if own is None or own == UNSET_WAIT else float(own)


def quiet() -> dict[str, Any]:
    """Return the argument that turns maintenance notices off: they lengthen timeouts behind our back."""
    try:
        from redis.maint_notifications import MaintNotificationsConfig
    except ImportError:  # redis-py 6 has none
        return {}
    return {"maint_notifications_config": MaintNotificationsConfig(enabled=False)}


_clients: weakref.WeakSet[Client] = weakref.WeakSet()


def _forget_all() -> None:
    for client in list(_clients):
        client.forget()


os.register_at_fork(after_in_child=_forget_all)

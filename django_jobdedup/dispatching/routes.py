"""The queue that Celery will route a call to."""

from __future__ import annotations

import inspect
from typing import Any, Final

from celery import Celery
from celery.app.routes import MapRoute

#: Options that Celery has taken out before it asks its router, which may write into what a route returned.
TAKEN_OUT: Final = frozenset(inspect.signature(Celery.send_task).parameters) | {"ignore_result"}
#: Routes that are kept; beyond it they are worked out anew.
KEPT: Final = 10_000

# The router in the entry keeps its id from passing to another.
_kept: dict[tuple[object, ...], tuple[object, str]] = {}


def queue_of(app: Any, name: str, args: Any, kwargs: Any, options: dict[str, Any]) -> str:
    """Return the name of the queue, or the routing key where a route names no queue.

    Kept per task name and deciding options, unless a router function looks at the arguments.
    """
    router = options.get("router") or app.amqp.router
    for route in router.routes:
        if type(route) is not MapRoute:
            return _routed(app, router, name, args, kwargs, options)
    queue, exchange, routing_key = options.get("queue"), options.get("exchange"), options.get("routing_key")
    place = (
        id(router),
        name,
        options.get("route_name"),
        queue and str(queue),
        exchange and str(exchange),
        routing_key and str(routing_key),
    )
    kept = _kept.get(place)
    if kept is None:
        kept = router, _routed(app, router, name, args, kwargs, options)
        if len(_kept) < KEPT:
            _kept[place] = kept
    return kept[1]


def _routed(app: Any, router: Any, name: str, args: Any, kwargs: Any, options: dict[str, Any]) -> str:
    route_name, task_type = options.get("route_name") or name, options.get("task_type")
    given = {option: value for option, value in options.items() if option not in TAKEN_OUT}
    route = router.route(given, route_name, args, kwargs, task_type)
    queue = _bound(app, route.get("exchange"), route.get("routing_key")) or route.get("queue")
    return str(getattr(queue, "name", queue) or route.get("routing_key") or app.conf.task_default_queue)


def _bound(app: Any, exchange: Any, routing_key: Any) -> Any:
    """The declared queue that a call by exchange or routing key ends in; None for any other call."""
    if not exchange and not routing_key:
        return None
    name = getattr(exchange, "name", exchange)
    for queue in app.amqp.queues.values():
        if routing_key in (None, queue.routing_key) and name in (None, queue.exchange.name):
            return queue
    return None

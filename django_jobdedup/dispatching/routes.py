"""The queue that Celery will route a call to."""

from __future__ import annotations

from typing import Any, Final

from celery.app.routes import MapRoute

#: Options of a call that decide its route.
DECIDING: Final = ("queue", "exchange", "routing_key")
#: Routes that are kept; beyond it they are worked out anew.
KEPT: Final = 10_000

# The router in the entry keeps its id from passing to another.
_kept: dict[tuple[object, ...], tuple[object, str]] = {}


def queue_of(app: Any, name: str, args: Any, kwargs: Any, options: dict[str, Any]) -> str:
    """Return the name of the queue, or the routing key where a route names no queue.

    Kept per task name and deciding options, unless a router function looks at the arguments.
    """
    router = options.get("router") or app.amqp.router
    if not all(type(route) is MapRoute for route in router.routes):
        return _routed(app, router, name, args, kwargs, options)
    key = (id(router), name, options.get("route_name"), *(str(options.get(option)) for option in DECIDING))
    kept = _kept.get(key)
    if kept is None:
        kept = router, _routed(app, router, name, args, kwargs, options)
        if len(_kept) < KEPT:
            _kept[key] = kept
    return kept[1]


def _routed(app: Any, router: Any, name: str, args: Any, kwargs: Any, options: dict[str, Any]) -> str:
    route_name, task_type = options.get("route_name") or name, options.get("task_type")
    route = router.route(dict(options), route_name, args, kwargs, task_type)
    queue = route.get("queue")
    return str(getattr(queue, "name", queue) or route.get("routing_key") or app.conf.task_default_queue)

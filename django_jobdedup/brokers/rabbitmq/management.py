"""RabbitMQ's management API: the only place that tells how many messages workers hold."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, Final
from urllib.parse import quote

from django_jobdedup.brokers.unreadable import Unreadable

#: Seconds until the API counts as not there.
TIMEOUT: Final = 5.0
PORT: Final = 15672
TLS_PORT: Final = 15671
COLUMNS: Final = "name,messages_ready,messages_unacknowledged,consumers"
ADVICE: Final = (
    "Turn the plugin on (rabbitmq-plugins enable rabbitmq_management), give the user the tag monitoring, and "
    "where it is not on the broker's host and port 15672, set manager_hostname, manager_port, manager_userid "
    "and manager_password in broker_transport_options."
)


@dataclass(frozen=True, slots=True)
class Depth:
    """A queue's numbers as the API last heard of them; None before it has heard."""

    ready: int | None
    unacked: int | None
    consumers: int | None


class Management:
    """The API beside a broker, found and entered with kombu's own options for it."""

    def __init__(self, connection: Any) -> None:
        options = connection.transport_options
        self._tls = connection.ssl
        self._host = options.get("manager_hostname") or connection.hostname or "localhost"
        self._port = int(options.get("manager_port") or (TLS_PORT if self._tls else PORT))
        user = options.get("manager_userid") or connection.userid or "guest"
        password = options.get("manager_password") or connection.password or "guest"
        self._basic = base64.b64encode(f"{user}:{password}".encode()).decode()
        self._vhost = connection.virtual_host or "/"

    def queues(self) -> Mapping[str, Depth]:
        """Return every queue of the virtual host. The names are live, the numbers some seconds old.

        Raises Unreadable, with advice, where the API does not answer.
        """
        found = self._get(f"/api/queues/{quote(self._vhost, safe='')}?columns={COLUMNS}")
        try:
            return {str(queue["name"]): _depth(queue) for queue in found}
        except (KeyError, TypeError) as error:
            raise self._unreadable(f"it answered {found!r:.200}") from error

    def _get(self, path: str) -> Any:
        client = self._client()
        try:
            client.request("GET", path, headers={"Authorization": f"Basic {self._basic}"})
            response = client.getresponse()
            text = response.read()
            if response.status != 200:
                raise self._unreadable(f"it answered {response.status} {response.reason}")
            return json.loads(text)
        except (OSError, HTTPException, ValueError) as error:
            raise self._unreadable(str(error)) from error
        finally:
            client.close()

    def _client(self) -> HTTPConnection:
        if not self._tls:
            return HTTPConnection(self._host, self._port, timeout=TIMEOUT)
        authority = self._tls.get("ca_certs") if isinstance(self._tls, Mapping) else None
        context = ssl.create_default_context(cafile=authority)
        return HTTPSConnection(self._host, self._port, timeout=TIMEOUT, context=context)

    def _unreadable(self, what: str) -> Unreadable:
        return Unreadable(
            f"RabbitMQ does not tell how many messages workers hold: its management API at "
            f"{self._host}:{self._port} cannot be read, {what}. {ADVICE}"
        )


def _depth(queue: Mapping[str, Any]) -> Depth:
    numbers = (queue.get(name) for name in ("messages_ready", "messages_unacknowledged", "consumers"))
    return Depth(*(number if isinstance(number, int) else None for number in numbers))

"""The connections of a model over real sockets.

The module performs the model's action `SendRequest`, and returns the events `ResponseReceived` and
`RequestFailed`.

An address and a lane identify a connection. A lane is a name by which a model distinguishes its connections
to one broker.

The model's first request opens the connection, and ApiVersions precedes this request, as in real clients.
Responses arrive in the order of the requests.

If a connection breaks, all its requests fail. If a request times out, its connection is closed.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import count

from consumer.blocking.sockets import Sockets
from consumer.engine.network.transport import Answer, Broken, NetworkEvent, Open, Opened, Shut, Write

from ..errors import KprotoError
from ..messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ..messages.headers import decode_response, encode_request
from ..messages.index import response_class
from ..models.contract import (
    Address,
    CloseConnection,
    ConnectionLost,
    RequestFailed,
    ResponseReceived,
    SendRequest,
)
from ..wire.frame import frame
from ..wire.message import Message

API_VERSIONS = 18
# The lane (name) of the connection on which a broker's API versions are requested before the model starts.
BOOTSTRAP = "bootstrap"


@dataclass(slots=True, eq=False)
class _InFlightRequest:
    """A request in flight. `deadline` is in ms; the connection's ApiVersions request has no deadline."""

    request: Message
    version: int
    correlation_id: int
    deadline: int | None


@dataclass(slots=True)
class _Connection:
    key: int
    address: Address
    # Whether the response to ApiVersions has arrived.
    is_ready: bool = False
    # Requests that wait for the response to ApiVersions, with their deadlines.
    waiting: list[tuple[SendRequest, int]] = field(default_factory=list[tuple[SendRequest, int]])
    in_flight: deque[_InFlightRequest] = field(default_factory=deque[_InFlightRequest])
    correlation_id: int = 0  # The id of the last request.


class ModelConnections:
    """All connections of one model. Times are milliseconds of `Sockets.now()`."""

    def __init__(self, client_id: str, sockets: Sockets) -> None:
        self._client_id = client_id
        self._sockets = sockets
        self._connection_keys = count(1)
        self._by_address: dict[Address, _Connection] = {}
        self._by_key: dict[int, _Connection] = {}
        self._events: list[ResponseReceived | RequestFailed | ConnectionLost] = []
        # Maps an API key to its (lowest, highest) version, from the last ApiVersions response.
        self.offered: dict[int, tuple[int, int]] | None = None
        # Maps an address to the reason why its last connection ended.
        self.last_errors: dict[Address, str] = {}

    def request_api_versions(self, host: str, port: int) -> None:
        """Request the API versions of a broker; `offered` contains them after the response."""
        self._connection_to(Address(host, port, BOOTSTRAP))

    def send(self, action: SendRequest) -> None:
        """Send a request on its connection, which is opened if it does not exist."""
        due = Sockets.now() + action.timeout_ms
        connection = self._connection_to(action.to)
        if connection.is_ready:
            self._send_request(connection, action.request, action.version, due)
        else:
            connection.waiting.append((action, due))

    def close_connection(self, action: CloseConnection) -> None:
        """Close a connection; its requests fail."""
        connection = self._by_address.get(action.address)
        if connection is not None:
            self._sockets.perform(Shut(connection.key))
            self._on_lost(connection, "closed by the client")

    def due(self) -> int | None:
        """Return the earliest deadline of all open requests, or None if none of them has a deadline."""
        deadlines = [
            request.deadline
            for connection in self._by_key.values()
            for request in connection.in_flight
            if request.deadline is not None
        ]
        deadlines += [due for connection in self._by_key.values() for _, due in connection.waiting]
        return min(deadlines, default=None)

    def wait(self, seconds: float | None) -> list[ResponseReceived | RequestFailed | ConnectionLost]:
        """Wait at most `seconds` seconds for events, and return the events.

        If `seconds` is None, the wait has no limit. A call to `wake` ends the wait immediately.
        """
        deadline = self.due()
        if deadline is not None:
            remaining = max(0.0, (deadline - Sockets.now()) / 1000)
            seconds = remaining if seconds is None else min(seconds, remaining)
        for event in self._sockets.wait(0 if self._events else seconds):
            self._on_network_event(event)
        self._fail_late_requests()
        events, self._events = self._events, []
        return events

    def wake(self) -> None:
        """Make `wait` return immediately. May be called from any thread."""
        self._sockets.wake()

    def close(self) -> None:
        self._sockets.close()

    # ---- helpers

    def _connection_to(self, address: Address) -> _Connection:
        """Return the connection to an address and lane. If none exists, start to open one."""
        connection = self._by_address.get(address)
        if connection is None:
            connection = self._by_address[address] = _Connection(next(self._connection_keys), address)
            self._by_key[connection.key] = connection
            self._sockets.perform(Open(connection.key, address.host, address.port))
        return connection

    def _on_network_event(self, event: NetworkEvent) -> None:
        connection = self._by_key.get(event.key)
        if connection is None:
            return
        match event:
            case Opened():
                self._send_request(connection, ApiVersionsRequest(), 0, None)
            case Answer(body=body):
                try:
                    self._on_response(connection, body)
                except KprotoError as error:
                    self._sockets.perform(Shut(connection.key))
                    self._on_lost(connection, str(error))
            case Broken(why=why):
                self._on_lost(connection, why)
                if connection.is_ready:
                    self._events.append(ConnectionLost(connection.address))
            case _:
                pass  # Wait for more bytes: only a part of a response was read.

    def _on_response(self, connection: _Connection, body: bytes | bytearray) -> None:
        if not connection.in_flight:
            raise KprotoError("the broker sent a response, but no request is in flight")
        request = connection.in_flight.popleft()
        key = request.request.__api_key__
        assert key is not None
        correlation_id, response = decode_response(body, response_class(key), request.version)
        if correlation_id != request.correlation_id:
            raise KprotoError(
                f"the broker answered request {correlation_id}, "
                f"but the oldest request is {request.correlation_id}"
            )
        if isinstance(response, ApiVersionsResponse):
            self.offered = {key.api_key: (key.min_version, key.max_version) for key in response.api_keys}
            connection.is_ready = True
            waiting, connection.waiting = connection.waiting, []
            for action, due in waiting:
                self._send_request(connection, action.request, action.version, due)
        elif request.deadline is not None:
            self._events.append(ResponseReceived(request.request, response, request.version))

    def _send_request(self, connection: _Connection, request: Message, version: int, due: int | None) -> None:
        connection.correlation_id += 1
        connection.in_flight.append(_InFlightRequest(request, version, connection.correlation_id, due))
        body = encode_request(request, version, connection.correlation_id, self._client_id)
        self._sockets.perform(Write(connection.key, frame(body)))

    def _on_lost(self, connection: _Connection, why: str) -> None:
        """Forget a connection that has ended, and report its requests as failed."""
        self._by_key.pop(connection.key, None)
        self.last_errors[connection.address] = why
        if self._by_address.get(connection.address) is connection:
            del self._by_address[connection.address]
        self._events += [
            RequestFailed(request.request, why)
            for request in connection.in_flight
            if request.deadline is not None
        ]
        self._events += [RequestFailed(action.request, why) for action, _ in connection.waiting]

    def _fail_late_requests(self) -> None:
        """Fail the requests that are past their deadline, and close the connections of these requests."""
        now = Sockets.now()
        for connection in list(self._by_key.values()):
            expired = [
                request
                for request in connection.in_flight
                if request.deadline is not None and request.deadline <= now
            ]
            expired_waiting = [action for action, due in connection.waiting if due <= now]
            if expired or expired_waiting:
                requests = [request.request for request in expired]
                requests += [action.request for action in expired_waiting]
                self._events += [
                    RequestFailed(request, "no response in time", late=True) for request in requests
                ]
                connection.in_flight = deque(
                    request for request in connection.in_flight if request not in expired
                )
                connection.waiting = [(action, due) for action, due in connection.waiting if due > now]
                self._sockets.perform(Shut(connection.key))
                self._on_lost(connection, "a request got no response in time")

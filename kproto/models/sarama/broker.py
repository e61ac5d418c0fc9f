"""A connection to one broker, and the connection's mutex (sarama broker.go, v1.61.1).

The original functions are Open and sendAndReceive.

* A broker has at most one request in flight: the caller holds the broker's lock from the send until the
  response. So a JoinGroup that waits for other members blocks the fetches and heartbeats to its broker.

* Only OffsetCommit releases the lock after the send (offset_manager.go, flushToBrokerFor). Its request is
  built after the lock is taken, so it includes offsets that were marked during the wait.

* The lock behaves like Go's sync.Mutex. When it is released, the goroutine that released it, or one that has
  just arrived, may lock it before a waiting goroutine.

* If a goroutine has waited for 1 ms and still finds the lock taken, the lock enters Go's starvation mode.
  Then each release passes the lock to the goroutine that has waited longest.

* Starvation mode ends when no goroutine waits, or when the lock reaches a goroutine that has waited for less
  than 1 ms.

* A connection that breaks is closed immediately. Every call then fails until a lookup opens it again. After a
  request timeout, the connection stays open. Every further call fails until the group or a consumer closes
  the connection.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from ...addresses import address_text
from ...wire.message import Message
from ..contract import Address, CloseConnection, Notify, RequestFailed, ResponseReceived, SendRequest
from . import errors
from .config import Dialect, SaramaSettings
from .errors import GoError
from .routines import Routine, Scheduler, States, Table, row

READ_TIMEOUT_MS = 30_000  # Net.ReadTimeout


class SaramaBrokerState(States):
    # No routine holds the lock.
    FREE = "free"
    # A request is in flight, and its caller holds the lock.
    LOCKED = "locked"


S = SaramaBrokerState


@dataclass(slots=True)
class BrokerCall:
    """A routine that waits for the lock. `build` returns the request, or None if there is nothing to send."""

    routine: Routine
    build: Callable[[], Message | None]
    waits_since: int
    keeps_lock: bool = True  # Whether the routine holds the lock until the response.
    signal: str = "response"  # The signal that wakes the routine.


@dataclass(slots=True)
class BrokerResponse:
    """The result of a call to a broker. `error` is None if there is a response.

    If the call had nothing to send, `request`, `response` and `error` are None.
    """

    broker: SaramaBroker
    request: Message | None
    response: Message | None
    error: GoError | None


class ClientNetwork(Scheduler):
    """The part of `SaramaClient` that sends requests to brokers and reports errors."""

    def __init__(self, settings: SaramaSettings, versions: Mapping[int, int], dialect: Dialect) -> None:
        super().__init__()
        self.settings = settings
        self.versions = versions
        self.dialect = dialect
        # API key -> the lowest and highest version that the brokers support.
        self.offered: Mapping[int, tuple[int, int]] = {}
        # The requests in flight, by the `id()` of the request.
        self.open_requests: dict[int, tuple[Message, SaramaBroker, BrokerCall]] = {}

    def version(self, api_key: int) -> int:
        """Return the request version: sarama's, or the broker's highest if that is lower."""
        own_version = self.versions[api_key]
        offered = self.offered.get(api_key)
        return own_version if offered is None else min(own_version, offered[1])

    def send(self, broker: SaramaBroker, call: BrokerCall, request: Message, timeout_ms: int) -> None:
        """Send a request. Its response or failure is later passed to `broker`, together with `call`."""
        self.open_requests[id(request)] = (request, broker, call)
        key = request.__api_key__
        assert key is not None
        self.out.append(SendRequest(broker.address, request, self.version(key), timeout_ms))

    def on_response(self, event: ResponseReceived) -> None:
        open_request = self.open_requests.pop(id(event.request), None)
        if open_request is not None:
            _, broker, call = open_request
            broker.on_response(call, event)

    def on_request_failed(self, event: RequestFailed) -> None:
        open_request = self.open_requests.pop(id(event.request), None)
        if open_request is not None:
            _, broker, call = open_request
            broker.on_request_failed(call, event)

    def log(self, name: str, text: str) -> None:
        """Write to sarama's Logger."""
        self.out.append(Notify("log", name, text))

    def report(self, error: GoError) -> None:
        """Report an error on the Errors channel, or in the log if Return.Errors is false."""
        kind = "error" if self.settings.consumer_return_errors else "log"
        self.out.append(Notify(kind, error.name, error.text))


class SaramaBroker(Routine):
    """One sarama.Broker. `id` is -1 for a bootstrap address."""

    __slots__ = ("address", "broken", "client", "id", "last_error", "opened", "starving", "used", "waiting")
    TABLE: ClassVar[Table]
    EDGES: ClassVar = {S.FREE: {S.LOCKED}, S.LOCKED: {S.FREE}}

    def __init__(self, client: ClientNetwork, node_id: int, host: str, port: int) -> None:
        super().__init__(S.FREE)
        self.client = client
        self.id = node_id
        self.address = Address(host, port, "bootstrap" if node_id < 0 else "main")
        self.opened = False
        # Whether a request has been sent since the broker was opened.
        self.used = False
        # The error of a request that timed out. Further calls fail with it until the connection is closed.
        self.broken: GoError | None = None
        # The error that broke the connection. Calls fail with it until the broker is closed, or opened again.
        self.last_error: GoError | None = None
        self.waiting: deque[BrokerCall] = deque()
        self.starving = False

    def open(self) -> SaramaBroker:
        """Open the broker, unless it is open. Its first request establishes the connection."""
        if not self.opened:
            self.opened, self.used, self.broken = True, False, None
        return self

    def call(
        self,
        routine: Routine,
        request: Message | Callable[[], Message | None],
        keeps_lock: bool = True,
    ) -> None:
        """Send `request` as soon as the lock is free, then wake `routine` with "response".

        The payload of the signal is a `BrokerResponse`. If `request` is a callable, it is called under the
        lock, and returns the request, or None if there is nothing to send. Without `keeps_lock`, the lock is
        released after the send.
        """
        build = request if callable(request) else lambda: request
        keeps_lock = keeps_lock and not self.client.dialect.pipelines
        self._perform_or_queue(BrokerCall(routine, build, self.client.now, keeps_lock))

    def touch_lock(self, routine: Routine) -> None:
        """Take the lock and release it immediately, then resume `routine` with "lock_touched".

        The call models ResponseSize, which takes the lock to count the requests in flight.
        """
        self._perform_or_queue(
            BrokerCall(routine, lambda: None, self.client.now, keeps_lock=False, signal="lock_touched")
        )

    def close(self) -> None:
        """Close the connection. Its open request fails."""
        self.last_error = None
        if self.opened:
            self.opened, self.broken = False, None
            if self.used:
                self.client.out.append(CloseConnection(self.address))

    def on_response(self, call: BrokerCall, event: ResponseReceived) -> None:
        """Handle the response to a request that was sent to this broker."""
        self._finish_call(call, BrokerResponse(self, event.request, event.response, None))

    def on_request_failed(self, call: BrokerCall, event: RequestFailed) -> None:
        """Handle the failure of a request to this broker."""
        error = errors.network(event.why, event.late, address_text(self.address.host, self.address.port))
        if event.late:
            self.broken = error
        elif self.opened:
            self.opened, self.last_error = False, error
        self._finish_call(call, BrokerResponse(self, event.request, None, error))

    def _perform_or_queue(self, call: BrokerCall) -> None:
        lock_is_reserved = self.starving and bool(self.waiting)
        if self.state is S.FREE and not lock_is_reserved:
            self.perform(call)
        else:
            self.waiting.append(call)

    def perform(self, call: BrokerCall) -> None:
        """Build and send the request of a call whose routine has taken the lock.

        If there is nothing to send, or the connection is broken, the routine is woken without a response.
        """
        wake = self.client.wake
        error = self.broken if self.opened else self.last_error or errors.NOT_CONNECTED
        if call.signal == "lock_touched":
            if self.waiting:
                wake(self, "unlocked")
            self.client.resume(call.routine, "lock_touched")
            return
        request = call.build()
        if request is None or error is not None:
            call_error = None if request is None else error
            wake(call.routine, call.signal, BrokerResponse(self, request, None, call_error))
            if self.waiting:
                wake(self, "unlocked")
            return
        self.used = True
        self.client.send(self, call, request, READ_TIMEOUT_MS)
        if call.keeps_lock:
            self.move(S.LOCKED)
        elif self.waiting:
            wake(self, "unlocking")

    def _finish_call(self, call: BrokerCall, response: BrokerResponse) -> None:
        """Release the lock, if the call still holds it, and wake the routine with the result."""
        wake = self.client.wake
        if call.keeps_lock:
            self.move(S.FREE)
            if self.starving and self.waiting:
                self._hand_over_lock()
        wake(call.routine, call.signal, response)
        if self.waiting:
            wake(self, "unlocking")

    def _hand_over_lock(self) -> None:
        """Pass the lock to the first waiter, and end starvation mode under the conditions of sync.Mutex."""
        call = self.waiting.popleft()
        self.starving = bool(self.waiting) and self.client.now - call.waits_since >= 1
        self.perform(call)


def _on_unlocking(broker: SaramaBroker, payload: object) -> None:
    """Let the ready routines run before a waiter gets the lock, because a ready routine may take the lock."""
    broker.client.wake(broker, "unlocked")


def _on_unlocked(broker: SaramaBroker, payload: object) -> None:
    """Pass the free lock to the first waiter."""
    if broker.waiting:
        call = broker.waiting.popleft()
        broker.starving = broker.starving and bool(broker.waiting)
        broker.perform(call)


def _on_contended(broker: SaramaBroker, payload: object) -> None:
    """Enter starvation mode if the first waiter has waited for 1 ms, and still finds the lock taken."""
    if broker.waiting and broker.client.now - broker.waiting[0].waits_since >= 1:
        broker.starving = True


SaramaBroker.TABLE = {
    "unlocking": row(S, FREE=_on_unlocking, LOCKED=_on_unlocking),
    "unlocked": row(S, FREE=_on_unlocked, LOCKED=_on_contended),
}

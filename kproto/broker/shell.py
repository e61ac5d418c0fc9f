"""The I/O of a running broker: its connections, the actions of its state machine, and one timer."""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from ..printable import Log
from .broker import (
    Broker,
    Disconnect,
    GroupCoordinatorStep,
    LogsCleaned,
    SendFrame,
    TransactionCoordinatorStep,
)
from .machine import ClientConnected, ClientDisconnected, Event, ResponseSent, Tick, next_deadline, step
from .security.principal import principal
from .socket_connection import SocketConnection

# Receives an event of a coordinator, the actions that the coordinator returned, and the time (ms).
Observer = Callable[[Any, tuple[Any, ...], int], object]

log: Final = Log(logging.getLogger("kproto.broker"), {})

_CONNECTION_NUMBERS: Final = itertools.count(1)
# The interval of the check for idle connections, as a fraction of connections.max.idle.ms.
_IDLE_CHECK_FRACTION: Final = 0.1


class Clock:
    """Two clocks in ms: a monotonic one for deadlines, and the wall clock for timestamps."""

    def __init__(self) -> None:
        self._offset = self.wall_clock() - time.monotonic_ns() // 1_000_000

    def now(self) -> int:
        """Return the time in ms, which never decreases.

        The clock is set to the wall-clock time when this object is created, and then advances monotonically.
        """
        return self._offset + time.monotonic_ns() // 1_000_000

    def wall_clock(self) -> int:
        """Return the wall-clock time in ms, which may jump if the system's clock is set."""
        return time.time_ns() // 1_000_000


class Shell:
    """The I/O of a running broker: passes events to the state machine, and performs the machine's actions."""

    def __init__(
        self, broker: Broker, loop: asyncio.AbstractEventLoop, clock: Clock, observers: list[Observer]
    ) -> None:
        self.broker = broker
        self.loop = loop
        self._clock = clock
        self._observers = observers
        self._connections: dict[int, SocketConnection] = {}
        # Connections with requests that the broker has not accepted yet.
        self.waiting: set[SocketConnection] = set()
        # Connections whose TLS handshake is in progress. They are not in `_connections` yet.
        self.handshaking: set[SocketConnection] = set()
        self._all_closed = asyncio.Event()
        self._is_closing = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_deadline: int | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        # The delay of responses in seconds, which `Server.slow` sets.
        self._response_delay_s = 0.0
        # Each delayed response, with the event loop's time (s) at which the state machine returned it.
        self._delayed_responses: deque[tuple[float, SendFrame]] = deque()
        self._delay_timer: asyncio.TimerHandle | None = None

    def step(self, event: Event) -> None:
        """Apply an event to the state machine, and perform the actions that it returns.

        After a response that is sent immediately, the state machine also receives `ResponseSent`.
        """
        events = deque([event])
        while events:
            now = self._clock.now()
            self.broker.cluster.wall_clock_offset = self._clock.wall_clock() - now
            for action in step(self.broker, events.popleft(), now):
                if isinstance(action, SendFrame):
                    if self._response_delay_s or self._delayed_responses:
                        self._delayed_responses.append((self.loop.time(), action))
                        self._send_delayed()
                    elif self._send(action):
                        events.append(ResponseSent(action.conn))
                elif isinstance(action, Disconnect):
                    self.close_connection(action.conn, action.reason)
                elif not isinstance(action, LogsCleaned):
                    self._notify_observers(action, now)
        self.set_timer()

    def _send(self, action: SendFrame) -> bool:
        """Send a response; return whether the broker may send the next one immediately."""
        connection = self._connections.get(action.conn)
        return connection is not None and connection.send(action.frame)

    def delay_responses(self, seconds: float) -> None:
        """Set the delay of all responses, including those already delayed, to `seconds` seconds."""
        self._response_delay_s = seconds
        self._send_delayed()

    def _send_delayed(self) -> None:
        """Send the delayed responses that are due, and set the timer for the next one."""
        if self._delay_timer is not None:
            self._delay_timer.cancel()
            self._delay_timer = None
        while self._delayed_responses:
            returned_at, action = self._delayed_responses[0]
            due_at = returned_at + self._response_delay_s
            if due_at > self.loop.time():
                if due_at < math.inf and not self._is_closing:
                    self._delay_timer = self.loop.call_at(due_at, self._send_delayed)
                return
            self._delayed_responses.popleft()
            connection = self._connections.get(action.conn)
            if connection is not None and self._send(action):
                self.connection_step(connection, ResponseSent(action.conn))

    def connection_step(self, connection: SocketConnection, event: Event) -> None:
        """Pass an event to the broker; if the broker fails to handle it, close only this connection."""
        try:
            self.step(event)
        except Exception:
            log.exception(
                "connection %s (%s) closed: the broker failed to serve it", connection.conn, connection.peer
            )
            connection.transport.abort()

    def close_connection(self, conn: int, reason: str) -> None:
        """Close a connection and log the reason."""
        connection = self._connections.get(conn)
        if connection is not None:
            log.warning("connection %s (%s) closed: %s", conn, connection.peer, reason)
            connection.close()

    def set_timer(self) -> None:
        """Set the timer to the next deadline of the state machine."""
        deadline = None if self._is_closing else next_deadline(self.broker)
        if deadline == self._timer_deadline:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_deadline = None, deadline
        if deadline is not None:
            # The clock truncates to ms. One more ms ensures that the deadline has passed when the timer
            # fires.
            seconds = max(0, deadline - self._clock.now() + 1) / 1000
            self._timer = self.loop.call_later(seconds, self._on_timer)

    def close_idle_connections(self) -> None:
        """Close connections that have had no traffic for connections.max.idle.ms, and plan the next check.

        Unlike Kafka, this broker never closes a connection as idle while its client waits for a response.
        """
        self._idle_timer = None
        max_idle_s = self.broker.settings.connections_max_idle_ms / 1000
        if max_idle_s < 0 or self._is_closing:
            return
        idle_since = self.loop.time() - max_idle_s
        delayed_conns = {action.conn for _, action in self._delayed_responses}
        for connection in list(self._connections.values()):
            waits_for_response = connection.is_waiting or connection.conn in delayed_conns
            if connection.used_at <= idle_since and not waits_for_response:
                log.info(
                    "connection %s (%s) closed: idle for %g s", connection.conn, connection.peer, max_idle_s
                )
                connection.transport.abort()
        if self._connections:
            interval = max(max_idle_s * _IDLE_CHECK_FRACTION, 0.01)
            self._idle_timer = self.loop.call_later(interval, self.close_idle_connections)

    def on_connected(self, connection: SocketConnection, host: str) -> None:
        """Register a connection, and report it to the broker. With TLS, call this after the handshake."""
        connection.conn, connection.used_at = next(_CONNECTION_NUMBERS), self.loop.time()
        self._connections[connection.conn] = connection
        if self._idle_timer is None:
            self.close_idle_connections()
        user = principal(None if connection.tls is None else connection.tls.client_certificate)
        event = ClientConnected(connection.conn, host, connection.listener, user, connection.port)
        self.connection_step(connection, event)

    def on_disconnected(self, connection: SocketConnection) -> None:
        """Remove a connection, and report it to the broker if it was registered."""
        self.handshaking.discard(connection)
        self.waiting.discard(connection)
        if self._connections.pop(connection.conn, None) is not None:
            self.connection_step(connection, ClientDisconnected(connection.conn))
        if not self._connections and self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        if not self._connections and not self.handshaking:
            self._all_closed.set()

    def abort_connections(self) -> None:
        """Abort every connection."""
        for connection in [*self._connections.values(), *self.handshaking]:
            connection.transport.abort()

    async def close(self) -> None:
        """Drop the delayed responses, abort every connection, and wait until all are closed."""
        self._is_closing = True
        self.set_timer()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._delayed_responses.clear()
        self._send_delayed()  # Without delayed responses, the call only cancels the timer.
        self.abort_connections()
        self._all_closed.clear()
        if self._connections or self.handshaking:
            await self._all_closed.wait()

    def _on_timer(self) -> None:
        """Apply the deadlines that are due, then pass on requests that the broker now accepts."""
        self._timer = self._timer_deadline = None
        try:
            self.step(Tick())
        except Exception:
            log.exception("the broker failed to apply a tick")
        for connection in list(self.waiting):
            connection.feed()

    def _notify_observers(self, action: GroupCoordinatorStep | TransactionCoordinatorStep, now: int) -> None:
        for observer in self._observers:
            try:
                observer(action.event, action.actions, now)
            except Exception:
                log.exception("an observer of the broker failed")

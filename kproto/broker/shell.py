"""The broker between a start and its stop, in its event loop: connections, actions, one timer."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from .broker import Broker, Close, GroupCoordinatorStep, LogsCleaned, Reply, TransactionCoordinatorStep
from .connection import Client
from .machine import Connected, Disconnected, Event, Sent, Tick, next_deadline, step
from .security.principal import principal

Observer = Callable[[Any, tuple[Any, ...], int], object]
"""Hears an event of `group.classic` or of `txn.transaction`, what its coordinator did, and when (ms)."""

log: Final = logging.getLogger("kproto.broker")

_CONNS: Final = itertools.count(1)
# Turns of the loop until who was accepted has a transport, and as many until its protocol hears of it.
_TURNS: Final = 2
# Of the time that a connection may be idle: so often is looked for those.
_IDLE_LOOKS: Final = 0.1


class Clock:
    """Two times in ms: one at an even pace, for whoever waits, and that of the day, for what is dated."""

    def __init__(self) -> None:
        self._began = self.wall_clock() - time.monotonic_ns() // 1_000_000

    def now(self) -> int:
        """The time of day of the beginning, and what has passed since; it never goes back."""
        return self._began + time.monotonic_ns() // 1_000_000

    def wall_clock(self) -> int:
        """The time of day, which may be set anew, and goes on while the machine sleeps."""
        return time.time_ns() // 1_000_000


async def stop_listening(servers: Sequence[asyncio.Server]) -> None:
    """Close listeners with no half-open connection left: who was accepted is connected when this returns.

    `Server.close` alone forgets them: asyncio tells their protocols turns later, or never, and leaves them
    connected.
    """
    try:
        for server in servers:
            with contextlib.suppress(NotImplementedError):  # Windows: there they have a transport at once
                for sock in server.sockets:
                    server.get_loop().remove_reader(sock)
        for _ in range(_TURNS):
            await asyncio.sleep(0)
    finally:
        for server in servers:
            server.close()
    for _ in range(_TURNS):
        await asyncio.sleep(0)


class Shell:
    """The broker between a start and its stop, in its event loop: connections, actions, one timer."""

    def __init__(
        self, broker: Broker, loop: asyncio.AbstractEventLoop, clock: Clock, observers: list[Observer]
    ) -> None:
        self.broker = broker
        self.loop = loop
        self._clock = clock
        self._observers = observers
        self._clients: dict[int, Client] = {}
        self.pending: set[Client] = set()  # with requests that the broker has not been given
        self.shaking: set[Client] = set()  # in the middle of TLS's handshake, and not connected yet
        self._gone = asyncio.Event()
        self._closing = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: int | None = None
        self._idle: asyncio.TimerHandle | None = None  # the next look at who says nothing
        # Answers that the operator lets take longer, with the loop's time when they were ready.
        self._slow = 0.0
        self._held: deque[tuple[float, Reply]] = deque()
        self._release: asyncio.TimerHandle | None = None

    def step(self, event: Event) -> None:
        """One event, and the `Sent` that follow from it at once."""
        events = deque([event])
        while events:
            now = self._clock.now()
            self.broker.cluster.wall_clock_offset = self._clock.wall_clock() - now
            for action in step(self.broker, events.popleft(), now):
                if isinstance(action, Reply):
                    if self._slow or self._held:
                        self._held.append((self.loop.time(), action))
                        self._let_go()
                    elif self._send(action):
                        events.append(Sent(action.conn))
                elif isinstance(action, Close):
                    self.refuse(action.conn, action.reason)
                elif not isinstance(action, LogsCleaned):
                    self._tell(action, now)
        self.set_timer()

    def _send(self, reply: Reply) -> bool:
        """Send an answer; True when there is room for the next one."""
        client = self._clients.get(reply.conn)
        return client is not None and client.send(reply.frame)

    def slow(self, seconds: float) -> None:
        """Let each answer take so much longer from now on, those that are held already too."""
        self._slow = seconds
        self._let_go()

    def _let_go(self) -> None:
        """Send what was held for long enough."""
        if self._release is not None:
            self._release.cancel()
            self._release = None
        while self._held and self._held[0][0] + self._slow <= self.loop.time():
            _, reply = self._held.popleft()
            client = self._clients.get(reply.conn)
            if client is not None and self._send(reply):
                self.client_step(client, Sent(reply.conn))
        if self._held and self._slow < math.inf and not self._closing:
            self._release = self.loop.call_at(self._held[0][0] + self._slow, self._let_go)

    def client_step(self, client: Client, event: Event) -> None:
        """A step on behalf of a client: if the broker fails over it, only this client's connection breaks."""
        try:
            self.step(event)
        except Exception:
            log.exception("connection %s (%s): the broker failed; closing", client.conn, client.peer)
            client.transport.abort()

    def refuse(self, conn: int, reason: str) -> None:
        """Close a connection over what came in on it."""
        client = self._clients.get(conn)
        if client is not None:
            log.warning("connection %s (%s) closed: %s", conn, client.peer, reason)
            client.close()

    def set_timer(self) -> None:
        """Make the timer fit the broker's next deadline."""
        due = None if self._closing else next_deadline(self.broker)
        if due == self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = None, due
        if due is not None:
            # The clock cuts fractions of a millisecond off, so one more makes sure that the time is over.
            self._timer = self.loop.call_later(max(0, due - self._clock.now() + 1) / 1000, self._tick)

    def close_idle(self) -> None:
        """Close the connections on which nothing was said for connections.max.idle.ms: whoever is behind them
        may be gone without a word. Kafka closes those who wait for an answer, too.
        """
        self._idle = None
        longest = self.broker.settings.connections_max_idle_ms / 1000
        if longest < 0 or self._closing:
            return
        since, held = self.loop.time() - longest, {reply.conn for _, reply in self._held}
        for client in list(self._clients.values()):
            if client.used_at <= since and not client.is_waiting and client.conn not in held:
                log.info("connection %s (%s) closed: idle for %g s", client.conn, client.peer, longest)
                client.transport.abort()
        if self._clients:
            self._idle = self.loop.call_later(max(longest * _IDLE_LOOKS, 0.01), self.close_idle)

    def connected(self, client: Client, host: str) -> None:
        client.conn, client.used_at = next(_CONNS), self.loop.time()
        self._clients[client.conn] = client
        if self._idle is None:
            self.close_idle()
        named = principal(None if client.pipe is None else client.pipe.certificate)
        self.client_step(client, Connected(client.conn, host, client.listener, named))

    def disconnected(self, client: Client) -> None:
        self.shaking.discard(client)
        self.pending.discard(client)
        if self._clients.pop(client.conn, None) is not None:
            self.client_step(client, Disconnected(client.conn))
        if not self._clients and self._idle is not None:
            self._idle.cancel()
            self._idle = None
        if not self._clients and not self.shaking:
            self._gone.set()

    def drop(self) -> None:
        """Break every connection."""
        for client in [*self._clients.values(), *self.shaking]:
            client.transport.abort()

    async def close(self) -> None:
        """Break every connection, and wait until they are gone."""
        self._closing = True
        self.set_timer()
        if self._idle is not None:
            self._idle.cancel()
        self._held.clear()
        self._let_go()
        self.drop()
        self._gone.clear()
        if self._clients or self.shaking:
            await self._gone.wait()

    def _tick(self) -> None:
        self._timer = self._timer_at = None
        try:
            self.step(Tick())
        except Exception:
            log.exception("the broker failed over a tick")
        for client in list(self.pending):
            client.feed()

    def _tell(self, told: GroupCoordinatorStep | TransactionCoordinatorStep, now: int) -> None:
        for observer in self._observers:
            try:
                observer(told.event, told.actions, now)
            except Exception:
                log.exception("an observer failed")

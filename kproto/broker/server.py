"""The embedded broker on a socket: the only I/O of this package, around `broker.step`.

    async with Server(topics={"flights": 3}) as server:       # in a running event loop
        ... server.bootstrap ...

    with running(topics={"flights": 3}) as server:            # in a thread of its own
        ... server.bootstrap ...

Rules:
  * Bytes in, bytes out, one clock and one timer: everything else is decided by `broker.step`.
  * Nothing is buffered without bounds. A frame is at most `socket.request.max.bytes`; a connection with many
    waiting requests, or whose answers nobody reads, is not read from until that changes.
  * A connection that sends garbage is closed with a logged reason; all others go on.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import socket
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, cast

from ..errors import ConfigError, FrameError, IllegalState
from ..group import classic
from ..wire.frame import Frames, frame
from .broker import (
    Broker,
    Close,
    Connected,
    Coordinated,
    CreateTopic,
    Disconnected,
    ElectLeader,
    Event,
    GrowTopic,
    Received,
    Reply,
    Sent,
    Tick,
    next_deadline,
    step,
)
from .call import Node
from .settings import Settings, check_topic_config

Observer = Callable[[classic.Event, tuple[classic.Action, ...], int], None]

log: Final = logging.getLogger("kproto.broker")

# With this many bytes of requests waiting on one connection, it is not read from.
MAX_BACKLOG: Final = 1 << 20
# How long a call from another thread waits for the broker's loop, in seconds; it does milliseconds of work.
CALL_TIMEOUT: Final = 30.0
_EVERYWHERE: Final = ("", "0.0.0.0", "::")


class Server:
    """An embedded broker that listens on `host` and `port` (0: any free one).

    `topics` maps names to partition counts; `settings` are under Kafka's own names, such as
    "group.initial.rebalance.delay.ms". Clients are told `advertised_host`, which is `host` unless that means
    every address of the machine. Raises ConfigError at once for settings that are not allowed. Next:
    `async with`, or `start` and `stop`; a server that was stopped can be started again, and still has its
    records, offsets and groups.
    """

    def __init__(
        self,
        topics: Mapping[str, int] | None = None,
        settings: Mapping[str, str | int] | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        advertised_host: str | None = None,
    ) -> None:
        self._topics = dict(topics or {})
        self._settings = Settings.from_properties(settings or {})
        self._host = host
        self._port = port
        self._advertised = advertised_host or (socket.gethostname() if host in _EVERYWHERE else host)
        self._broker: Broker | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listener: asyncio.Server | None = None
        self._clients: dict[int, _Client] = {}
        self._gone = asyncio.Event()
        self._conns = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: int | None = None
        self._observers: list[Observer] = []
        self._wall = time.time_ns() // 1_000_000
        self._started = time.monotonic_ns() // 1_000_000

    @property
    def bootstrap(self) -> str:
        """What clients call bootstrap.servers: HOST:PORT. Raises IllegalState before the first start."""
        if self._broker is None:
            raise IllegalState("the broker has no address before it was started")
        return f"{self._advertised}:{self._port}"

    @property
    def broker(self) -> Broker:
        """The machine behind the socket, to look at; change it only through the methods here."""
        if self._broker is None:
            raise IllegalState("the broker was not started yet")
        return self._broker

    async def start(self) -> None:
        """Listen. Raises OSError when the address is taken, ConfigError when a topic can't be made."""
        if self._listener is not None:
            raise IllegalState("the broker is running already")
        loop = asyncio.get_running_loop()
        listener = await loop.create_server(lambda: _Client(self), self._host, self._port)
        try:
            self._port = listener.sockets[0].getsockname()[1]
            if self._broker is None:
                node = Node(self._settings.node_id, self._advertised, self._port)
                broker = Broker(self._settings, node, cluster_id=_text_id(uuid.uuid4()))
                for name, partitions in self._topics.items():
                    step(broker, CreateTopic(name, partitions, uuid.uuid4()), self._now())
                self._broker = broker
        except BaseException:
            listener.close()
            raise
        self._loop, self._listener = loop, listener
        self._set_timer()

    async def stop(self) -> None:
        """Close the listener and every connection, and wait until they are closed."""
        if self._listener is None:
            return
        listener, self._listener = self._listener, None
        listener.close()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._timer_at = None
        self._gone = asyncio.Event()
        self._abort_all()
        if self._clients:
            await self._gone.wait()
        await listener.wait_closed()
        self._loop = None

    async def __aenter__(self) -> Server:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # The operator's calls; from any thread.

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        """Make a topic. Raises ConfigError when it can't be made."""
        for config, value in (configs or {}).items():
            why = check_topic_config(config, value)
            if why is not None:
                raise ConfigError(config, value, why)
        self._operate(CreateTopic(name, partitions, uuid.uuid4(), dict(configs or {})))

    def grow_topic(self, name: str, partitions: int) -> None:
        """Let a topic have `partitions` in all. Raises ConfigError when that is fewer than it has."""
        self._operate(GrowTopic(name, partitions))

    def elect_leader(self, topic: str, partition: int) -> None:
        """Begin a new leader epoch, as after an election."""
        self._operate(ElectLeader(topic, partition))

    def drop_connections(self) -> None:
        """Break every connection there is, as a dying broker would; clients may come back at once."""
        self._in_loop(self._abort_all)

    def observe(self, observer: Observer) -> None:
        """Call `observer(event, actions, now)` in the broker's thread after each step of its coordinator."""
        self._observers.append(observer)

    def _abort_all(self) -> None:
        for client in list(self._clients.values()):
            client.transport.abort()

    def _operate(self, event: Event) -> None:
        self._in_loop(lambda: self._step(event))

    def _in_loop(self, work: Callable[[], object]) -> None:
        loop = self._loop
        if loop is None:
            raise IllegalState("the broker is not running")
        try:
            here = asyncio.get_running_loop() is loop
        except RuntimeError:
            here = False
        if here:
            work()
            return
        done: concurrent.futures.Future[None] = concurrent.futures.Future()

        def run() -> None:
            try:
                work()
            except Exception as error:
                done.set_exception(error)
            else:
                done.set_result(None)

        loop.call_soon_threadsafe(run)
        done.result(CALL_TIMEOUT)

    # The shell.

    def _now(self) -> int:
        """The time of day in ms, but never going back."""
        return self._wall + time.monotonic_ns() // 1_000_000 - self._started

    def _step(self, event: Event) -> None:
        """One event, and the `Sent` that follow from it at once."""
        events = deque([event])
        while events:
            now = self._now()
            for action in step(self.broker, events.popleft(), now):
                if isinstance(action, Reply):
                    client = self._clients.get(action.conn)
                    if client is not None and client.send(action.frame):
                        events.append(Sent(action.conn))
                elif isinstance(action, Close):
                    self._refuse(action.conn, action.reason)
                else:
                    self._tell(action, now)
        self._set_timer()

    def _client_step(self, client: _Client, event: Event) -> None:
        """A step on behalf of a client: if the broker fails over it, only this client's connection breaks."""
        try:
            self._step(event)
        except Exception:
            log.exception("connection %s (%s): the broker failed; closing", client.conn, client.peer)
            client.transport.abort()

    def _refuse(self, conn: int, reason: str) -> None:
        client = self._clients.get(conn)
        if client is not None:
            log.warning("connection %s (%s) closed: %s", conn, client.peer, reason)
            client.transport.close()

    def _tell(self, told: Coordinated, now: int) -> None:
        for observer in self._observers:
            try:
                observer(told.event, told.actions, now)
            except Exception:
                log.exception("an observer failed")

    def _set_timer(self) -> None:
        due = next_deadline(self.broker)
        if due == self._timer_at or self._loop is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = None, due
        if due is not None:
            self._timer = self._loop.call_later(max(0, due - self._now()) / 1000, self._tick)

    def _tick(self) -> None:
        self._timer = self._timer_at = None
        try:
            self._step(Tick())
        except Exception:
            log.exception("the broker failed over a tick")

    def _connected(self, client: _Client) -> int:
        self._conns += 1
        self._clients[self._conns] = client
        return self._conns

    def _disconnected(self, client: _Client) -> None:
        self._clients.pop(client.conn, None)
        self._client_step(client, Disconnected(client.conn))
        if not self._clients:
            self._gone.set()


class _Client(asyncio.Protocol):
    """One connection."""

    transport: asyncio.Transport

    def __init__(self, server: Server) -> None:
        self._server = server
        self._frames = Frames(server._settings.socket_request_max_bytes)
        self._full = False  # nobody reads our answers fast enough
        self._unsent = False  # `Sent` is due when that is over
        self.conn = 0
        self.peer = "?"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        peer: tuple[Any, ...] = transport.get_extra_info("peername") or ("", 0)
        self.peer = f"{peer[0]}:{peer[1]}"
        self.conn = self._server._connected(self)
        self._server._client_step(self, Connected(self.conn, str(peer[0])))

    def data_received(self, data: bytes) -> None:
        try:
            frames = self._frames.feed(data)
        except FrameError as error:
            self._server._refuse(self.conn, str(error))
            return
        for body in frames:
            self._server._client_step(self, Received(self.conn, body, uuid.uuid4()))
        if self._server.broker.backlog(self.conn) > MAX_BACKLOG:
            self.transport.pause_reading()

    def send(self, body: bytes) -> bool:
        """Send an answer; True when there is room for the next one."""
        self.transport.write(frame(body))
        if self._full:
            self._unsent = True
            return False
        if self._server.broker.backlog(self.conn):
            # Requests are waiting: let other connections have their turn first.
            asyncio.get_running_loop().call_soon(self._sent)
            return False
        return True

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        if self._unsent:
            self._unsent = False
            self._sent()

    def _sent(self) -> None:
        if self.transport.is_closing():
            return
        self._server._client_step(self, Sent(self.conn))
        if self._server.broker.backlog(self.conn) <= MAX_BACKLOG and not self.transport.is_closing():
            self.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._server._disconnected(self)


@contextlib.contextmanager
def running(
    topics: Mapping[str, int] | None = None,
    settings: Mapping[str, str | int] | None = None,
    host: str = "127.0.0.1",
    port: int = 0,
) -> Iterator[Server]:
    """A server in a thread and event loop of its own, for code that blocks; it stops with the block."""
    server = Server(topics, settings, host, port)
    started: concurrent.futures.Future[asyncio.Event] = concurrent.futures.Future()

    async def serve() -> None:
        ended = asyncio.Event()
        try:
            async with server:
                started.set_result(ended)
                await ended.wait()
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)

    loop = asyncio.new_event_loop()

    def run() -> None:
        try:
            loop.run_until_complete(serve())
        finally:
            loop.close()

    thread = threading.Thread(target=run, name="kproto broker", daemon=True)
    thread.start()
    try:
        ended = started.result()
        try:
            yield server
        finally:
            loop.call_soon_threadsafe(ended.set)
    finally:
        thread.join()


def _text_id(value: uuid.UUID) -> str:
    """A cluster id as Kafka writes them: 22 characters of URL-safe base64."""
    import base64

    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")

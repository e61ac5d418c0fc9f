"""asyncio I/O for the engines: sockets as protocols, nothing that knows Kafka but its frames.

The owner gives `Streams` a function that is told every `NetworkEvent`; it calls `perform` for every
action. All of it runs in one event loop; the rules are those of `sockets`.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from kproto.errors import FrameError
from kproto.wire.frame import ReceiveBuffer

from ..engine.network.transport import (
    COMING_S,
    Answer,
    Broken,
    Data,
    GetToken,
    GotToken,
    NetworkAction,
    NetworkEvent,
    Open,
    Opened,
    Reached,
    Shut,
    Write,
)
from ..resolver import PATIENCE, Failures, Found, Place, Resolver, reason
from ..security.failures import CLOSED, NoToken, TlsFailed

if TYPE_CHECKING:
    from ..security.tls import Pipe, Tls
    from ..security.tokens import Token, TokenSource

TLS_ROOM = 256 * 1024
"""Bytes of TLS that are read at once, whatever the connection: they are opened before the next are read."""

MOST_READS = 16
"""Reads of one connection before others have their turn."""

NOW = getattr(socket, "MSG_DONTWAIT", 0)
"""Where there is no such thing the transport may have a read under way."""

_ERRORS = (OSError, ValueError, OverflowError, RuntimeError)
"""What opening a connection may raise: no file, an address or port that is none."""


class _Way:
    """To one host: the address that is tried, and those that are left."""

    __slots__ = ("host", "place", "places", "tls")

    def __init__(self, host: tuple[str, int], tls: Tls | None, places: list[Place]) -> None:
        self.host = host
        self.tls = tls
        self.places = places
        self.place: Place | None = None


class _Protocol(asyncio.BufferedProtocol):
    def __init__(self, key: int, tell: Callable[[NetworkEvent], object]) -> None:
        self.key = key
        self.tell = tell
        self.silent = False
        self.heard = False  # an answer came
        self.way: _Way | None = None
        self.said = float("inf")  # when it was said that a long answer is coming, or began to
        self.receive_buffer = ReceiveBuffer()
        self.pipe: Pipe | None = None
        self._room: memoryview | None = None  # for TLS, which is read before anybody knows what it says
        self.transport: asyncio.Transport | None = None
        self.sock: socket.socket | None = None  # what the transport reads

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's are no children of it
        sock = transport.get_extra_info("socket")
        if sock is not None:
            with contextlib.suppress(OSError):  # dead already: connection_lost comes next
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def begin(self, pipe: Pipe, room: memoryview) -> None:
        """Shakes hands; `Opened` is told when that is over."""
        self.pipe = pipe
        self._room = room
        assert self.transport is not None
        self.transport.write(pipe.begin())

    def write(self, data: bytes) -> None:
        assert self.transport is not None
        if self.pipe is not None:
            try:
                data = self.pipe.seal(data)
            except TlsFailed as error:
                self._broke(str(error))
                return
        self.transport.write(data)

    def close(self) -> None:
        """Ends in good order, without another word to the owner."""
        self.silent = True
        if self.transport is not None:
            if self.pipe is not None and not self.transport.is_closing():
                self.transport.write(self.pipe.close())
            self.transport.close()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.receive_buffer.writable() if self._room is None else self._room

    def buffer_updated(self, nbytes: int) -> None:
        if self.pipe is not None and self._room is not None:
            try:
                self._through(self.pipe, self._room[:nbytes])
            except TlsFailed as error:
                self._broke(str(error), denied=error.final)
        else:
            self._took(nbytes)
            self._read_on()

    def _read_on(self) -> None:
        """Reads what else is there of a large answer: a round of the loop for each read costs more than the
        read."""
        for _ in range(MOST_READS if NOW and self.sock is not None else 0):
            if not self.receive_buffer.expects_more or self.silent or self.transport is None:
                return
            try:
                with self.receive_buffer.writable() as room:
                    size = self.sock.recv_into(room, 0, NOW) if self.sock is not None else 0
            except BlockingIOError:
                return
            except OSError as error:
                self._broke(reason(error))
                return
            if not size:  # the end, which the transport sees, too
                return
            self._took(size)

    def _through(self, pipe: Pipe, data: memoryview) -> None:
        was_secured = pipe.secured
        try:
            pipe.feed(data)
        finally:  # also the alert that says why
            out = pipe.outgoing()
            if out and self.transport is not None:
                self.transport.write(out)
        if pipe.secured and not was_secured and not self.silent:
            self.tell(Opened(self.key))
        while not self.silent:
            with self.receive_buffer.writable() as room:
                size = pipe.read_into(room)
            if not size:
                return
            self._took(size)

    def _took(self, nbytes: int) -> None:
        try:
            bodies = self.receive_buffer.received(nbytes)
        except FrameError as error:
            broken = Broken.no_frames(self.key, error)
            self._broke(broken.why, denied=broken.denied)
            return
        if bodies:
            self.heard = True
        for body in bodies:
            if not self.silent:
                self.tell(Answer(self.key, body))
        if bodies:
            self.said = float("inf")
        elif not self.silent:
            at = time.monotonic()
            if at >= self.said + COMING_S:
                self.tell(Data(self.key, b""))
                self.said = at
            self.said = min(self.said, at)

    def connection_lost(self, exc: Exception | None) -> None:
        end = CLOSED if self.pipe is None else self.pipe.end()
        self._broke(end if exc is None else reason(exc))

    def _broke(self, why: str, *, denied: bool = False) -> None:
        if not self.silent:
            self.silent = True
            self.tell(Broken(self.key, why, denied))
        if self.transport is not None:
            if denied:
                self.transport.close()  # the alert is still to be sent
            else:
                self.transport.abort()


class Streams:
    """The sockets of one engine."""

    def __init__(self, tell: Callable[[NetworkEvent], object]) -> None:
        self._tell = tell
        self._transports: dict[int, tuple[asyncio.Transport, _Protocol]] = {}
        self._opening: dict[int, asyncio.Task[None]] = {}
        self._early: dict[int, str] = {}  # why a connection broke before this knew that it was made
        self._failures = Failures()
        self._resolver = Resolver(self._found_more)
        self._asked: dict[int, asyncio.Future[Found]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None  # since it was first asked
        self._room: memoryview | None = None
        # What asks for a token, for all connections that want one.
        self._asking: asyncio.Task[Token] | None = None

    def perform(self, action: NetworkAction) -> None:
        match action:
            case Open(key=key, host=host, port=port, tls=tls):
                self._opening[key] = asyncio.get_running_loop().create_task(self._open(key, host, port, tls))
            case Write(key=key, data=data):
                if key in self._transports:
                    self._transports[key][1].write(data)
            case Shut(key=key):
                self._shut(key)
            case GetToken(key=key, source=source):
                self._opening[key] = asyncio.get_running_loop().create_task(self._get_token(key, source))

    async def _get_token(self, key: int, source: TokenSource) -> None:
        event: NetworkEvent
        if self._asking is None or self._asking.done():
            self._asking = asyncio.get_running_loop().create_task(source.awaited())
            self._asking.add_done_callback(_heard)
        try:
            event = GotToken(key, await asyncio.shield(self._asking))
        except NoToken as error:
            event = Broken(key, str(error), error.final)
        self._opening.pop(key, None)
        self._tell(event)

    async def _open(self, key: int, host: str, port: int, tls: Tls | None) -> None:
        self._loop = asyncio.get_running_loop()
        found = self._resolver.ask(key, host, port)
        if found is None:
            self._asked[key] = self._loop.create_future()
            try:
                found = await self._asked[key]
            finally:
                del self._asked[key]
        way = _Way((host, port), tls, self._failures.last((host, port), found.places))
        await self._go(key, way, found.why or "the name has no address")

    async def _go(self, key: int, way: _Way, why: str, broke: str = "") -> None:
        """Tries the addresses that are left, until one takes the connection. `broke`: how that of another one
        ended, which tells more."""
        while way.places:
            place = way.place = way.places.pop(0)
            try:
                opened = await self._connect(key, place, PATIENCE if way.places else None)
            except TimeoutError:
                why = f"no answer within {PATIENCE:g} s"
            except _ERRORS as error:
                why = reason(error)
            except asyncio.CancelledError:
                self._failures.failed(way.host, place)
                raise
            else:
                early = self._early.pop(key, None)
                if early is None:
                    self._opening.pop(key, None)
                    opened[1].way = way
                    self._transports[key] = opened
                    self._begin(key, way.host[0], opened[1], way.tls)
                    return
                broke = broke or early
            self._failures.failed(way.host, place)
        self._failed(key, broke or why)

    def _found_more(self) -> None:
        """In the resolver's thread; the loop's own threads end with the main thread, and it may go on."""
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # it is closed: nobody waits
            self._loop.call_soon_threadsafe(self._hand_found)

    def _hand_found(self) -> None:
        for found in self._resolver.take():
            waiter = self._asked.get(found.key)
            if waiter is not None and not waiter.done():  # else it was shut meanwhile
                waiter.set_result(found)

    def _begin(self, key: int, host: str, protocol: _Protocol, tls: Tls | None) -> None:
        if tls is None:
            self._tell(Opened(key))
            return
        self._tell(Reached(key))
        if key not in self._transports:
            return
        try:
            if self._room is None:
                self._room = memoryview(bytearray(TLS_ROOM))
            protocol.begin(tls.pipe(host), self._room)
        except TlsFailed as error:
            self._shut(key)
            self._tell(Broken(key, str(error), True))

    async def _connect(
        self, key: int, place: Place, patience: float | None
    ) -> tuple[asyncio.Transport, _Protocol]:
        loop = asyncio.get_running_loop()
        sock = socket.socket(place[0], socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            # Python 3.11's wait_for forgets a cancellation where what it waits for has just ended.
            async with asyncio.timeout(patience):
                await loop.sock_connect(sock, place[1])
            opened = await loop.create_connection(lambda: _Protocol(key, self._forward), sock=sock)
            opened[1].sock = sock
            return opened
        except BaseException:
            sock.close()
            raise

    def _forward(self, event: NetworkEvent) -> None:
        if isinstance(event, Broken):
            known = self._transports.pop(event.key, None)
            if known is None:
                if event.key in self._opening:
                    self._early[event.key] = event.why
                return
            protocol, way = known[1], known[1].way
            self._ended(protocol)
            if way is not None and way.places and not (protocol.heard or event.denied):
                going = self._go(event.key, way, "", event.why)
                self._opening[event.key] = asyncio.get_running_loop().create_task(going)
                return
        self._tell(event)

    def _ended(self, protocol: _Protocol) -> None:
        way = protocol.way
        if way is not None and way.place is not None and not protocol.heard:
            self._failures.failed(way.host, way.place)

    def _failed(self, key: int, why: str) -> None:
        self._opening.pop(key, None)
        self._tell(Broken(key, why))

    def _shut(self, key: int) -> None:
        opening = self._opening.pop(key, None)
        if opening is not None:
            opening.cancel()
        self._early.pop(key, None)
        known = self._transports.pop(key, None)
        if known is not None:
            self._ended(known[1])
            known[1].close()

    def close(self, *, abort: bool = False) -> None:
        """Closes everything; with `abort` without sending what is still to be sent."""
        if self._asking is not None:
            self._asking.cancel()
        for key in [*self._opening, *self._transports]:
            if abort and key in self._transports:
                transport, protocol = self._transports.pop(key)
                protocol.silent = True
                transport.abort()
            else:
                self._shut(key)


def _heard(task: asyncio.Task[Token]) -> None:
    """An error is no news any more: who wanted the token was told, or doesn't want it any longer."""
    if not task.cancelled():
        task.exception()

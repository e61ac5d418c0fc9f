"""A proxy between clients and a cluster; it reports requests and responses.

    async with WatchProxy("localhost:9092", listen=("127.0.0.1", 19092), tell=print) as proxy:
        ...                                    # clients use proxy.bootstrap

`tell` is called with each complete `Exchange`. When the client or the broker ends a connection,
`on_disconnected` is called with the number of the connection and the time (`now_ms`).

All traffic goes through the proxy. It opens a listener for every broker in a response, and replaces the
broker's address in the response with the listener's. No other bytes are changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import ssl
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final
from uuid import UUID

from consumer.resolver import describe_error
from consumer.security.tls import sentence

from ..addresses import address_text
from ..broker.acceptor import Acceptor, close_acceptors, listening_socket, stream_protocols
from ..broker.server import advertised
from ..errors import ConnectionFailed, IllegalState
from ..inspect.exchanges import Address, Conversation, Exchange, addresses_in, replace_addresses
from ..printable import Log
from .broker_address import parse_broker_address

log: Final = Log(logging.getLogger("kproto.proxy"), {})
_MAX_FRAME_SIZE: Final = 1 << 31
# Kafka's default of socket.request.max.bytes. A broker closes the connection on which a larger request
# arrives.
_MAX_REQUEST_SIZE: Final = 100 << 20
# The number of bytes of a frame that are written at a time.
_PIECE_SIZE: Final = 1 << 20
# The first two bytes of a TLS alert: its content type and the first byte of its version. A TLS broker sends
# an alert in response to a plaintext request. The alert then stands where the size of a frame is expected.
_TLS_ALERT: Final = 0x1503
# The first two bytes of a client's TLS handshake.
_TLS_HANDSHAKE: Final = 0x1603
# The type of `frames`, which is called for each frame. Arguments: the client's address (IP, port), the
# broker's address, whether the client sent the frame, and the frame without size and credentials, or None at
# the end of the connection.
Frames = Callable[[Address, Address, bool, bytes | None], object]


class WatchProxy:
    """A proxy that listens on `listen` for the broker at `bootstrap` (HOST:PORT).

    With port 0 in `listen`, the proxy uses any free port. For each other broker of the cluster, the proxy
    listens on a free port of the same host. If the host means all addresses, as 0.0.0.0 does, responses
    contain the name of this computer.

    `advertise` replaces the address `listen` in responses to Metadata requests. `tls` is the SSL context for
    connections to the cluster.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        listen: Address = ("127.0.0.1", 0),
        advertise: Address | None = None,
        tell: Callable[[Exchange], object],
        on_disconnected: Callable[[int, int], object] | None = None,
        frames: Frames | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._broker = parse_broker_address("bootstrap", bootstrap)
        self._listen = listen
        # The host in the listeners' addresses, as clients receive them if `advertise` is None.
        self._host = advertised(listen[0])
        self._advertise = advertise
        self._tell = tell
        self._on_disconnected = on_disconnected
        self._frames = frames
        self._tls = tls
        self._acceptors: dict[Address, Acceptor] = {}
        self._ports: dict[Address, int] = {}
        self._listener_tasks: dict[Address, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._topic_names: dict[UUID, str] = {}
        self._logged_warnings: set[tuple[Address, str]] = set()
        # Maps each broker that is currently unreachable to the reason.
        self._unreachable: dict[Address, str] = {}
        self._connection_numbers = itertools.count(1)

    @property
    def bootstrap(self) -> str:
        """HOST:PORT for the clients. Raises IllegalState before the proxy listens."""
        if self._broker not in self._ports:
            raise IllegalState("the proxy is not listening: use it in an async with statement")
        return address_text(self._host, self._ports[self._broker])

    async def __aenter__(self) -> WatchProxy:
        """Start listening.

        Raises OSError if the address is in use, and ConnectionFailed if the broker cannot be
        reached.
        """
        try:
            _, writer = await self._connect(self._broker)
        except OSError as error:
            why = _describe_failure(error, self._broker[0])
            raise ConnectionFailed(address_text(*self._broker), why) from None
        writer.close()
        try:
            await self._open_listener(self._broker, self._listen[1])
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop()

    async def _stop(self) -> None:
        # Repeat, because a client's connection may open another listener while this method closes listeners.
        while self._acceptors or self._tasks or self._listener_tasks:
            acceptors, self._acceptors = self._acceptors, {}
            await close_acceptors(acceptors.values())
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, *self._listener_tasks.values(), return_exceptions=True)

    async def _connect(self, broker: Address) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        name = broker[0].removesuffix(".") if self._tls else None
        return await asyncio.open_connection(*broker, ssl=self._tls, server_hostname=name, limit=1 << 20)

    async def _open_listener(self, broker: Address, port: int = 0) -> None:
        """Listen for clients of `broker`. With port 0, any free port is used."""

        async def serve_client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            try:
                with contextlib.suppress(asyncio.CancelledError):  # Stopping the proxy cancels this task.
                    await self._handle_client(broker, reader, writer)
            finally:
                writer.close()
                self._tasks.discard(task)

        sock = listening_socket(self._listen[0], port)
        acceptor = self._acceptors[broker] = Acceptor(sock, stream_protocols(serve_client))
        self._ports[broker] = acceptor.port

    async def _handle_client(
        self, broker: Address, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Forward requests and responses until the client or the broker ends the connection."""
        peer = address_text(*writer.get_extra_info("peername")[:2])
        number = next(self._connection_numbers)
        conversation = Conversation(peer, number, self._topic_names, address_text(*broker))
        try:
            source, sink = await self._connect(broker)
        except OSError as error:
            if (why := _describe_failure(error, broker[0])) != self._unreachable.get(broker):
                self._unreachable[broker] = why
                log.warning("%s:%s cannot be reached: %s", *broker, why)
            return
        self._unreachable.pop(broker, None)

        client = writer.get_extra_info("peername")[:2]
        broker_address = sink.get_extra_info("peername")[:2]

        def report_frame(asking: bool, frame: bytes | None) -> None:
            if self._frames is not None:
                self._frames(client, broker_address, asking, frame)

        async def forward_requests() -> None:
            while True:
                frame = await _read_frame(reader)
                exchange, gets_no_response = conversation.add_request(frame, now_ms())
                if self._frames is not None:
                    report_frame(True, conversation.without_credentials(frame, exchange, asking=True))
                if gets_no_response:
                    self._tell(exchange)
                await _write_frame(sink, frame)
                # Release the request now. Otherwise a large request would stay in memory until the next one
                # arrives.
                del exchange, frame

        async def forward_responses() -> None:
            while True:
                frame = await _read_frame(source, is_response=True)
                exchange = conversation.add_response(frame, now_ms())
                if self._frames is not None:
                    report_frame(False, conversation.without_credentials(frame, exchange, asking=False))
                forwarded = frame
                try:
                    if exchange is not None:
                        listeners = {
                            address: await self._listener_address(address)
                            for address in addresses_in(exchange)
                        }
                        forwarded = replace_addresses(frame, exchange, listeners)
                    await _write_frame(writer, forwarded)
                finally:  # The exchange is reported even if the client has disconnected.
                    if exchange is not None:
                        self._tell(exchange)
                del exchange, frame, forwarded

        tasks = [asyncio.ensure_future(forward_requests()), asyncio.ensure_future(forward_responses())]
        # The time at which a connection ended, or None if the proxy was stopped first.
        ended_at: int | None = None
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            ended_at = now_ms()
        finally:
            for task in tasks:
                task.cancel()
            for result in await asyncio.gather(*tasks, return_exceptions=True):
                self._log_failure(broker, peer, result)
            sink.close()
            report_frame(True, None)
            for exchange in conversation.close():
                self._tell(exchange)
            if ended_at is not None and self._on_disconnected is not None:
                self._on_disconnected(number, ended_at)

    def _log_failure(self, broker: Address, peer: str, error: BaseException | None) -> None:
        """Log the error that ended a connection, unless the client or the broker just disconnected."""
        if isinstance(error, ssl.SSLError):
            self._warn_once(broker, sentence(error, broker[0]))
        elif isinstance(error, _SpeaksTls):
            self._warn_once(broker, str(error))
        elif isinstance(error, _ClientSpeaksTls | _TooLarge):
            self._warn_once((self._listen[0], self._ports[broker]), str(error))
        elif isinstance(error, Exception) and not isinstance(error, EOFError | OSError):
            log.error("%s: the proxy failed", peer, exc_info=error)

    def _warn_once(self, address: Address, why: str) -> None:
        """Log a problem of a broker or of the proxy once, for all clients."""
        if (address, why) not in self._logged_warnings:
            self._logged_warnings.add((address, why))
            log.warning("%s:%s: %s", *address, why)

    async def _listener_address(self, broker: Address) -> Address:
        """Return the address of the proxy's listener for this broker. Create the listener if necessary.

        All clients share the listener. Its creation continues even if the client that first needed it
        disconnects.
        """
        if broker not in self._ports:
            task = self._listener_tasks.get(broker)
            if task is None:
                task = self._listener_tasks[broker] = asyncio.ensure_future(self._open_listener(broker))
                task.add_done_callback(lambda _: self._listener_tasks.pop(broker))
            try:
                await asyncio.shield(task)
            except OSError as error:
                self._warn_once(broker, f"no listener can be created for it: {error.strerror or error}")
                raise
        if self._advertise is not None:
            return self._advertise if broker == self._broker else (self._advertise[0], self._ports[broker])
        return self._host, self._ports[broker]


class _SpeaksTls(EOFError):
    """The error for a broker that answers a plaintext request with TLS."""


class _TooLarge(EOFError):
    """The error for a request that is too large to be forwarded."""


class _ClientSpeaksTls(EOFError):
    """The error for a client that starts a TLS handshake with the proxy."""


async def _read_frame(source: asyncio.StreamReader, *, is_response: bool = False) -> bytes:
    """Read a frame and return it without its size prefix.

    Raises an EOFError if the frame cannot be forwarded.
    """
    size = int.from_bytes(await source.readexactly(4), "big")
    if is_response and size >> 16 == _TLS_ALERT:
        raise _SpeaksTls("this port speaks TLS, but the proxy does not: set --tls or --command-config")
    if not is_response and size >> 16 == _TLS_HANDSHAKE:
        raise _ClientSpeaksTls(
            "clients must connect to this proxy without TLS: set PLAINTEXT or SASL_PLAINTEXT"
        )
    if size >= _MAX_FRAME_SIZE:
        raise EOFError(f"a frame of {size} bytes: this is not Kafka's protocol")
    if not is_response and size > _MAX_REQUEST_SIZE:
        raise _TooLarge(
            f"a request has more than {_MAX_REQUEST_SIZE} bytes, the most that the proxy forwards"
        )
    return await source.readexactly(size)


async def _write_frame(writer: asyncio.StreamWriter, frame: bytes) -> None:
    """Send a frame in pieces, so that the connection does not buffer a copy of a large frame."""
    prefix = len(frame).to_bytes(4, "big")
    if len(frame) <= _PIECE_SIZE:
        writer.write(prefix + frame)
    else:
        writer.write(prefix)
        for start in range(0, len(frame), _PIECE_SIZE):
            writer.write(memoryview(frame)[start : start + _PIECE_SIZE])
            await writer.drain()
    await writer.drain()


def now_ms() -> int:
    """Return the time of the proxy's clock in ms, which is not the time of day."""
    return time.monotonic_ns() // 1_000_000


def _describe_failure(error: OSError, host: str) -> str:
    """Return the message of a connection error.

    The message of a TLS error says what to change, as it does in kproto's clients.
    """
    if isinstance(error, ssl.SSLError):
        return sentence(error, host)
    if not error.strerror and not str(error):
        # asyncio raises an error without a message if the broker closes the connection during the TLS
        # handshake.
        return (
            "the broker closed the connection in the middle of the TLS handshake; does this port speak TLS?"
        )
    return describe_error(error)

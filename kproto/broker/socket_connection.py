"""The connection of one client on a socket: it splits received bytes into requests, and sends responses."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import deque
from typing import Any, Final, Protocol, cast

from ..errors import FrameError
from ..printable import Log
from ..wire.frame import Frames, frame
from .broker import Broker
from .machine import Event, FrameReceived, ResponseSent
from .security.authenticator import MAX_UNAUTHENTICATED_SIZE
from .security.tls import ServerTls, TlsError

log: Final = Log(logging.getLogger("kproto.broker"), {})

# The limit on the size of queued requests, in bytes: 1 MiB. Above the limit, the broker does not read from
# the connection.
MAX_BACKLOG: Final = 1 << 20
# The number of requests of one connection that the event loop serves before it serves other connections. A
# single read may contain thousands of requests.
REQUESTS_PER_TURN: Final = 32
# The number of bytes of a large response that are passed to the transport at a time: 256 KiB. asyncio copies
# the bytes that the socket does not accept, and a small piece keeps this copy small.
_PIECE_SIZE: Final = 1 << 18
# The maximum duration of a TLS handshake in seconds.
HANDSHAKE_TIMEOUT: Final = 15.0
# The time in seconds that a client has to read the alert of a failed handshake. If the socket were closed
# earlier, the kernel could discard the alert.
ALERT_TIMEOUT: Final = 1.0
# The first two bytes of a TLS handshake. A TLS client on a listener without TLS sends them where the broker
# expects a frame size.
_TLS_HANDSHAKE_PREFIX: Final = 0x1603
# The value of `SocketConnection.conn` after a failed handshake.
_FAILED_HANDSHAKE_CONN: Final = -1


class ConnectionOwner(Protocol):
    """The attributes and methods of `Shell` that a connection uses."""

    @property
    def broker(self) -> Broker:
        """The broker that serves the requests."""
        ...

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of the broker."""
        ...

    @property
    def handshaking(self) -> set[SocketConnection]:
        """Connections whose TLS handshake is in progress."""
        ...

    @property
    def waiting(self) -> set[SocketConnection]:
        """Connections with requests that were received but not yet passed to the broker."""
        ...

    def connection_step(self, connection: SocketConnection, event: Event) -> None:
        """Pass an event to the broker; if the broker fails to handle it, close only this connection."""

    def on_connected(self, connection: SocketConnection, host: str) -> None:
        """Register a connection, and report it to the broker; a TLS handshake must be complete."""

    def on_disconnected(self, connection: SocketConnection) -> None:
        """Remove a connection, and report it to the broker if it was registered."""

    def close_connection(self, conn: int, reason: str) -> None:
        """Close a connection and log the reason."""


class SocketConnection(asyncio.Protocol):
    """One connection.

    `conn` is the number of the connection: 0 before the connection is registered, and -1 after a failed
    handshake.
    """

    transport: asyncio.Transport

    def __init__(self, owner: ConnectionOwner, listener: str, tls: ServerTls | None) -> None:
        self._owner = owner
        self.listener = listener
        self.tls = tls
        # The timer of the TLS handshake: it aborts a slow handshake. After a failed handshake, it ends the
        # wait for the client to read the alert.
        self._handshake_timer: asyncio.TimerHandle | None = None
        # Whether the size limit for requests is the lower one, which applies until the login is complete.
        self._has_login_size_limit = listener.startswith("SASL")
        self._frames = Frames(
            MAX_UNAUTHENTICATED_SIZE
            if self._has_login_size_limit
            else owner.broker.settings.socket_request_max_bytes
        )
        # Whether the socket's send buffer is full, because the client reads too slowly.
        self._is_send_buffer_full = False
        # Whether a response was written while the buffer was full. `ResponseSent` follows when the socket is
        # writable again.
        self._must_report_sent = False
        # The bytes of a large response that have not been passed to the transport yet. While such bytes
        # exist, the send buffer is full.
        self._unsent = memoryview(b"")
        # Whether to close the connection after `_unsent` has been sent.
        self._closes_when_sent = False
        # Requests that have not been passed to the broker yet. The next one is passed as soon as the broker
        # has no queued request of this connection.
        self._request_bodies: deque[bytes] = deque()
        self._request_bytes = 0  # The size of `_request_bodies`.
        self._is_feeding = False
        self._next_turn: asyncio.Handle | None = None
        # Set if the client sent an invalid frame: the reason for closing the connection after the requests in
        # `_request_bodies` are served.
        self._frame_error: str | None = None
        # Whether the client has closed its side of the connection. If so, no more requests arrive.
        self._is_half_closed = False
        self.conn = 0
        self.peer = "?"
        self.port = 0
        # The time of the last traffic, by the event loop's clock.
        self.used_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register the connection; if it uses TLS, wait for its handshake first."""
        self.transport = cast(asyncio.Transport, transport)
        peer: tuple[Any, ...] = transport.get_extra_info("peername") or ("", 0)
        self._host, self.port = str(peer[0]), int(peer[1])
        self.peer = f"{peer[0]}:{peer[1]}"
        if self.tls is None:
            self._owner.on_connected(self, self._host)
            return
        self._owner.handshaking.add(self)
        self._handshake_timer = self._owner.loop.call_later(HANDSHAKE_TIMEOUT, self.transport.abort)

    def data_received(self, data: bytes) -> None:
        """Split received bytes into requests, after decrypting them if the connection uses TLS."""
        self.used_at = self._owner.loop.time()
        if self.tls is None:
            self._plaintext_received(data)
            return
        try:
            plaintext = self.tls.feed(data)
        except TlsError as error:
            self._on_tls_error(str(error))
            return
        if encrypted := self.tls.outgoing():
            self.transport.write(encrypted)
        if self.tls.is_handshake_complete and not self.conn:
            self._cancel_handshake_timer()
            self._owner.handshaking.discard(self)
            self._owner.on_connected(self, self._host)
        if plaintext:
            self._plaintext_received(plaintext)
        if self.tls.is_closed_by_client:
            self.close()

    def _on_tls_error(self, reason: str) -> None:
        """Close the connection; after a failed handshake, give the client time to read the alert."""
        assert self.tls is not None
        if self._is_closing or self.conn == _FAILED_HANDSHAKE_CONN:
            return
        log.warning("connection %s (%s) closed: %s", self.conn or "-", self.peer, reason)
        if self.conn:
            self.transport.abort()
            return
        self.conn = _FAILED_HANDSHAKE_CONN
        self._cancel_handshake_timer()
        self.transport.write(self.tls.outgoing())
        self.transport.write_eof()
        self._handshake_timer = self._owner.loop.call_later(ALERT_TIMEOUT, self.transport.abort)

    def _cancel_handshake_timer(self) -> None:
        if self._handshake_timer is not None:
            self._handshake_timer.cancel()
            self._handshake_timer = None

    def close(self) -> None:
        """Send the buffered bytes, then close the connection. No more requests are read or served."""
        if self._unsent:
            self._closes_when_sent = True
            self.transport.pause_reading()
            return
        if self.tls is not None and not self.transport.is_closing():
            self.transport.write(self.tls.close())
        self.transport.close()

    def _plaintext_received(self, data: bytes) -> None:
        """Split decrypted bytes into requests, and pass requests to the broker."""
        if self._has_login_size_limit and self._owner.broker.is_authenticated(self.conn):
            self._has_login_size_limit = False
            self._frames.max_size = self._owner.broker.settings.socket_request_max_bytes
        try:
            for body in self._frames.feed(data):
                self._request_bodies.append(body)
                self._request_bytes += len(body)
        except FrameError as error:
            self._frame_error = _frame_error_reason(error)
        self.feed()

    def feed(self) -> None:
        """Pass requests to the broker, as many as it accepts but at most `REQUESTS_PER_TURN`.

        When no request is left, the connection is closed in two cases: the client has sent an invalid frame,
        or it has closed its side and has got all responses.
        """
        if self._next_turn is not None or self._is_feeding:
            return
        broker, remaining = self._owner.broker, REQUESTS_PER_TURN
        self._is_feeding = True
        while self._request_bodies and not self._is_closing and not broker.backlog(self.conn):
            if not remaining:
                self._next_turn = self._owner.loop.call_soon(self._start_turn)
                break
            remaining -= 1
            body = self._request_bodies.popleft()
            self._request_bytes -= len(body)
            self._owner.connection_step(self, FrameReceived(self.conn, body, uuid.uuid4()))
        self._is_feeding = False
        if self._request_bodies:
            self._owner.waiting.add(self)
        else:
            self._owner.waiting.discard(self)
            if self._frame_error is not None:
                self._owner.close_connection(self.conn, self._frame_error)
            elif self._is_half_closed and not broker.backlog(self.conn):
                self.close()
        self._pause_or_resume_reading()

    def eof_received(self) -> bool:
        """Handle the end of the client's data; return whether pending work keeps the connection open.

        A producer with acks=0 may close its side of the connection right after a request. So a connection
        without TLS stays open until the received requests are served. Every connection stays open until the
        pieces of a large response are sent.
        """
        self._is_half_closed = bool(self._request_bodies) and self.tls is None
        if self._unsent and not self._is_half_closed:
            self.close()
        return self._is_half_closed or self._closes_when_sent

    @property
    def is_waiting(self) -> bool:
        """Whether the client waits for the broker, because one of its requests is not answered yet."""
        # If the buffer is full, the broker waits for the client, which has not read the responses yet.
        if self._is_send_buffer_full:
            return False
        return bool(self.backlog) or self._owner.broker.has_request_in_progress(self.conn)

    @property
    def backlog(self) -> int:
        """The size in bytes of the requests that were received but not yet served."""
        return self._request_bytes + self._owner.broker.backlog(self.conn)

    def _start_turn(self) -> None:
        self._next_turn = None
        self.feed()

    @property
    def _is_closing(self) -> bool:
        return self._closes_when_sent or self.transport.is_closing()

    def _pause_or_resume_reading(self) -> None:
        if self._is_closing or self._is_half_closed:
            return
        if self.backlog > MAX_BACKLOG or self._frame_error is not None:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def send(self, body: bytes) -> bool:
        """Send a response; return whether the broker may send the next one immediately.

        If the result is False, the broker receives `ResponseSent` as soon as it may send the next response.
        For a closing connection, it receives no `ResponseSent`.
        """
        if self._is_closing:
            return False
        self.used_at = self._owner.loop.time()
        if len(body) <= _PIECE_SIZE:
            self._write(frame(body))
        else:
            self._unsent = memoryview(body)
            self._write(len(body).to_bytes(4, "big", signed=True))
            self._write_pieces()
        if self._is_send_buffer_full:
            self._must_report_sent = True
            return False
        if not self._is_feeding and (self._request_bodies or self._owner.broker.backlog(self.conn)):
            # Let the event loop serve other connections before the next request of this connection.
            self._owner.loop.call_soon(self._report_sent)
            return False
        return True

    def _write(self, data: bytes | memoryview) -> None:
        self.transport.write(data if self.tls is None else self.tls.encrypt(data))

    def _write_pieces(self) -> None:
        """Pass pieces of a large response to the transport until the send buffer is full."""
        while self._unsent and not self._is_send_buffer_full:
            piece, unsent = self._unsent[:_PIECE_SIZE], self._unsent[_PIECE_SIZE:]
            # An empty view of the response would keep the whole response in memory.
            self._unsent = unsent or memoryview(b"")
            self._write(piece)

    def pause_writing(self) -> None:
        """Record that the socket's buffer is full, because the client reads too slowly."""
        self._is_send_buffer_full = True

    def resume_writing(self) -> None:
        """Record that the send buffer has space again, and report the last response as sent."""
        self.used_at = self._owner.loop.time()
        self._is_send_buffer_full = False
        self._write_pieces()
        if self._is_send_buffer_full:
            return
        if self._closes_when_sent:
            self._closes_when_sent = False
            self.close()
        if self._must_report_sent:
            self._must_report_sent = False
            self._report_sent()

    def _report_sent(self) -> None:
        """Pass `ResponseSent` and the next requests to the broker."""
        if self._is_closing:
            return
        self._owner.connection_step(self, ResponseSent(self.conn))
        self.feed()

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection."""
        self._cancel_handshake_timer()
        self._request_bodies.clear()
        self._unsent = memoryview(b"")
        self._owner.on_disconnected(self)


def _frame_error_reason(error: FrameError) -> str:
    """Return the reason for closing the connection, as it is logged."""
    first_two_bytes = None if error.size is None else error.size >> 16
    if first_two_bytes == _TLS_HANDSHAKE_PREFIX:
        return "the client uses TLS, but this listener does not"
    return str(error)

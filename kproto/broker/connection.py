"""One connection of the embedded broker: a socket's bytes to requests, and answers back, by TLS or not."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import deque
from typing import TYPE_CHECKING, Any, Final, cast

from ..errors import FrameError
from ..wire.frame import Frames, frame
from .machine import Received, Sent
from .security.authenticator import MOST_OUTSIDE
from .security.tls import Pipe, TlsBroken

if TYPE_CHECKING:
    from .shell import Shell

log: Final = logging.getLogger("kproto.broker")

# With this many bytes of requests waiting on one connection, it is not read from.
MAX_BACKLOG: Final = 1 << 20
# So many requests of one connection are served before others have their turn: what came in one piece may be
# thousands of them.
TURN: Final = 32
# Seconds that a client has for TLS: one that says nothing holds nothing for longer.
HANDSHAKE_TIMEOUT: Final = 15.0
# And for hearing why it was refused: who closes at once, unread bytes behind it, takes its own words back.
ALERT_TIMEOUT: Final = 1.0
# How a TLS handshake begins.
_TLS_HELLO: Final = 0x1603


class Client(asyncio.Protocol):
    """One connection."""

    transport: asyncio.Transport

    def __init__(self, shell: Shell, listener: str, pipe: Pipe | None) -> None:
        self._shell = shell
        self.listener = listener
        self.pipe = pipe
        self._patience: asyncio.TimerHandle | None = None  # with a handshake, or its end
        self._stranger = listener.startswith("SASL")  # of whom nothing long is even collected
        self._frames = Frames(
            MOST_OUTSIDE if self._stranger else shell.broker.settings.socket_request_max_bytes
        )
        self._full = False  # nobody reads our answers fast enough
        self._unsent = False  # `Sent` is due when that is over
        # Requests that came, and that the broker has not been given: it gets one when it took the one before.
        self._bodies: deque[bytes] = deque()
        self._bytes = 0
        self._feeding = False
        self._next_turn: asyncio.Handle | None = None
        self._refusal: str | None = None  # of what came behind them
        self._ended = False  # nothing more comes behind them
        self.conn = 0
        self.peer = "?"
        self.used_at = 0.0  # when something came or went, by the loop's time

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        peer: tuple[Any, ...] = transport.get_extra_info("peername") or ("", 0)
        self._host = str(peer[0])
        self.peer = f"{peer[0]}:{peer[1]}"
        if self.pipe is None:
            self._shell.connected(self, self._host)
            return
        self._shell.shaking.add(self)
        self._patience = self._shell.loop.call_later(HANDSHAKE_TIMEOUT, self.transport.abort)

    def data_received(self, data: bytes) -> None:
        self.used_at = self._shell.loop.time()
        if self.pipe is None:
            self._plain_received(data)
            return
        try:
            plain = self.pipe.feed(data)
        except TlsBroken as error:
            self._broken(str(error))
            return
        if sealed := self.pipe.outgoing():
            self.transport.write(sealed)
        if self.pipe.secured and not self.conn:
            self._enough_patience()
            self._shell.shaking.discard(self)
            self._shell.connected(self, self._host)
        if plain:
            self._plain_received(plain)
        if self.pipe.ended:
            self.close()

    def _broken(self, why: str) -> None:
        """TLS can't go on: the client hears why, if it listens."""
        assert self.pipe is not None
        if self.transport.is_closing() or self.conn < 0:
            return
        log.warning("connection %s (%s) closed: %s", self.conn or "-", self.peer, why)
        if self.conn:
            self.transport.abort()
            return
        self.conn = -1
        self._enough_patience()
        self.transport.write(self.pipe.outgoing())
        self.transport.write_eof()
        self._patience = self._shell.loop.call_later(ALERT_TIMEOUT, self.transport.abort)

    def _enough_patience(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def close(self) -> None:
        """Send what is to be sent, and close."""
        if self.pipe is not None and not self.transport.is_closing():
            self.transport.write(self.pipe.close())
        self.transport.close()

    def _plain_received(self, data: bytes) -> None:
        if self._stranger and self._shell.broker.is_authenticated(self.conn):
            self._stranger = False
            self._frames.max_size = self._shell.broker.settings.socket_request_max_bytes
        try:
            for body in self._frames.feed(data):
                self._bodies.append(body)
                self._bytes += len(body)
        except FrameError as error:
            self._refusal = _no_frame(error)
        self.feed()

    def feed(self) -> None:
        """Give the broker what came, as far as it takes it and it is this connection's turn."""
        if self._next_turn is not None or self._feeding:
            return
        broker, left = self._shell.broker, TURN
        self._feeding = True
        while self._bodies and not self.transport.is_closing() and not broker.backlog(self.conn):
            if not left:
                self._next_turn = self._shell.loop.call_soon(self._take_turn)
                break
            left -= 1
            body = self._bodies.popleft()
            self._bytes -= len(body)
            self._shell.client_step(self, Received(self.conn, body, uuid.uuid4()))
        self._feeding = False
        if self._bodies:
            self._shell.pending.add(self)
        else:
            self._shell.pending.discard(self)
            if self._refusal is not None:
                self._shell.refuse(self.conn, self._refusal)
            elif self._ended and not broker.backlog(self.conn):
                self.close()
        self._read_or_not()

    def eof_received(self) -> bool:
        """Who writes with acks=0 and closes has written all that arrived."""
        self._ended = bool(self._bodies) and self.pipe is None
        return self._ended

    @property
    def is_waiting(self) -> bool:
        """Does the client wait for something that the broker doesn't say yet?"""
        if self._full:  # something was said, and it doesn't listen
            return False
        return bool(self.backlog) or self._shell.broker.has_request_in_progress(self.conn)

    @property
    def backlog(self) -> int:
        """Bytes of requests that came and are not served."""
        return self._bytes + self._shell.broker.backlog(self.conn)

    def _take_turn(self) -> None:
        self._next_turn = None
        self.feed()

    def _read_or_not(self) -> None:
        if self.transport.is_closing() or self._ended:
            return
        if self.backlog > MAX_BACKLOG or self._refusal is not None:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def send(self, body: bytes) -> bool:
        """Send an answer; True when there is room for the next one."""
        if self.transport.is_closing():  # nobody hears it
            return False
        self.used_at = self._shell.loop.time()
        data = frame(body)
        self.transport.write(data if self.pipe is None else self.pipe.seal(data))
        if self._full:
            self._unsent = True
            return False
        if not self._feeding and (self._bodies or self._shell.broker.backlog(self.conn)):
            # Requests are waiting: let other connections have their turn first.
            self._shell.loop.call_soon(self._sent)
            return False
        return True

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self.used_at = self._shell.loop.time()
        self._full = False
        if self._unsent:
            self._unsent = False
            self._sent()

    def _sent(self) -> None:
        if self.transport.is_closing():
            return
        self._shell.client_step(self, Sent(self.conn))
        self.feed()

    def connection_lost(self, exc: Exception | None) -> None:
        self._enough_patience()
        self._bodies.clear()
        self._shell.disconnected(self)


def _no_frame(error: FrameError) -> str:
    if error.size is not None and error.size >> 16 == _TLS_HELLO:
        return "the client speaks TLS, and this listener does not"
    return str(error)

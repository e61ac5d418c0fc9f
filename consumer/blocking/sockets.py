"""Blocking I/O for the engines: sockets and a selector.

The module knows only one part of Kafka's protocol: the size that precedes each response.

    sockets = Sockets()
    for action in network.actions: sockets.perform(action)
    for event in sockets.wait(timeout): network.handle(event, sockets.now())

Rules:

* Every failure of a connection is reported as one event `Broken(key, why)`, and is never raised. Such
  failures are: no free file descriptor, no kernel buffers, no local port, a socket that broke between two
  calls, an invalid host name.
* Host names are resolved in another thread, and a host's addresses are tried in turn (`resolver`). If a
  connection breaks before the first response, the next address is tried, and a second `Opened` is reported
  when it has accepted the connection.
* If a connection has a dialer (a function of the application), the dialer runs in another thread and opens
  the connection (`dialers`).
* Bytes are received into their final buffer (`ReceiveBuffer`), so the engine gets whole responses. While a
  long response arrives, the engine gets a `Data` event without bytes once a second.
* A connection with TLS is first reported as `Reached`, and as `Opened` when the broker's certificate has been
  verified. Tokens are requested in another thread (`token_requests`).

`wake` may be called from any thread. `write_at_once` may be called while another thread is in `wait`. All
other methods must be called by one thread at a time.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import threading
import time
from collections import deque
from itertools import islice, repeat
from operator import attrgetter
from typing import TYPE_CHECKING

import msgspec

from kproto.errors import FrameError
from kproto.wire.frame import ReceiveBuffer

from .. import clock
from ..dialers import Dialed, DialThreads
from ..engine.network.transport import (
    PROGRESS_INTERVAL_S,
    Answer,
    Broken,
    Data,
    GetToken,
    NetworkAction,
    NetworkEvent,
    Open,
    Opened,
    Reached,
    Shut,
    Write,
)
from ..resolver import PATIENCE_S, Address, AddressFailures, Resolved, Resolver, describe_error
from ..security.failures import CLOSED, TlsFailed
from .socket_reads import NOW, prepare, receive
from .token_requests import TokenRequests

if TYPE_CHECKING:
    from ..security.tls import Pipe, Tls

# Size (bytes) of the buffer for encrypted bytes, and so the limit of one read.
TLS_BUFFER_BYTES = 256 * 1024
# Maximum number of reads from one connection before other connections are read.
MAX_READS = 16
# Longest timeout (s) of one `select`. A selector's timeout is a 32-bit number of milliseconds, and an engine
# may be idle for longer than that.
MAX_SELECT_S = 86_400.0

_DATA = attrgetter("data")
_NEVER = float("inf")
_Events = list[NetworkEvent]


class _Connection(msgspec.Struct, eq=False):
    host: tuple[str, int]
    tls: Tls | None
    receive_buffer: ReceiveBuffer
    pipe: Pipe | None = None
    sock: socket.socket | None = None
    connected: bool = False
    responded: bool = False  # Whether a response has arrived.
    # The bytes that the socket has not accepted yet.
    pending: deque[memoryview] = msgspec.field(default_factory=deque[memoryview])
    # Whether the kernel's send buffer is full. The selector reports when the socket accepts bytes again.
    full: bool = False
    addresses: deque[Address] = msgspec.field(default_factory=deque[Address])  # Those not tried yet.
    address: Address | None = None
    # When the first part of a long response arrived, or when its progress was last reported, in seconds of
    # `time.monotonic()`.
    last_progress_at: float = _NEVER
    # When the next address is tried, in seconds of `time.monotonic()`.
    next_address_at: float = _NEVER
    error: str = ""
    # The error of the last connection that broke after an address had accepted it. It is reported instead of
    # the errors of later addresses.
    accepted_error: str = ""


class Sockets:
    """The sockets of one engine. Creating them raises OSError if no file descriptor is free."""

    def __init__(self) -> None:
        self._connections: dict[int, _Connection] = {}
        # The events that the next `take` returns.
        self._events: _Events = []
        # Whether any connection uses TLS, which determines the thread that reads (`socket_owner`).
        self.uses_tls = False
        # The buffer for encrypted bytes, None until a connection uses TLS.
        self._tls_buffer: memoryview | None = None
        self._failures = AddressFailures()
        # Held while a socket is being closed, and while another thread writes to a socket, because the
        # descriptor of a closed socket may be reused immediately.
        self._closing = threading.Lock()
        self._resolver = Resolver(self.wake)
        self._dials = DialThreads(self.wake)
        self._tokens = TokenRequests(self.wake)
        self._selector = selectors.DefaultSelector()
        try:
            self._wake_sender, self._wake_receiver = socket.socketpair()
        except OSError:
            self._selector.close()
            raise
        self._wake_sender.setblocking(False)
        self._wake_receiver.setblocking(False)
        self._selector.register(self._wake_receiver, selectors.EVENT_READ, None)
        self._closed = False

    @staticmethod
    def now() -> int:
        """Return a monotonic clock's time in milliseconds."""
        return clock.now()

    def wake(self) -> None:
        """Make `wait` return. Any thread may call this method."""
        with contextlib.suppress(OSError):
            self._wake_sender.send(b"\0")

    def perform(self, action: NetworkAction) -> None:
        """Perform an action of the network client: open, write, close, or request a token."""
        match action:
            case Open(key=key, host=host, port=port, tls=tls, max_response=max_response, dialer=dialer):
                self._connections[key] = _Connection((host, port), tls, ReceiveBuffer(max_response))
                self.uses_tls = self.uses_tls or tls is not None
                if dialer is not None:
                    if (dialed := self._dials.dial(key, dialer, host, port)) is not None:
                        self._on_dialed(dialed, self._events)
                    return
                resolved = self._resolver.resolve(key, host, port)
                if resolved is not None:
                    self._on_resolved(resolved, self._events)
            case Write(key=key, data=data):
                self._write(key, data)
            case Shut(key=key):
                self._shut(key)
            case GetToken(key=key, source=source):
                self._events += self._tokens.request(key, source, self._connections)

    def write_at_once(self, todo: deque[NetworkAction]) -> bool:
        """Send the bytes of the first action in `todo`. Another thread may be in `wait` meanwhile.

        Return False if the action, or the rest of its bytes, must be passed to `perform`. This is the case if
        the action is not a `Write`, or if its connection uses TLS or does not accept all of the bytes now.
        """
        action = todo[0]
        if not isinstance(action, Write):
            return False
        with self._closing:
            conn = self._connections.get(action.key)
            if conn is None or conn.sock is None or conn.tls is not None:
                return False
            if not conn.connected or conn.pending:
                return False
            sent: list[int] = []
            try:
                # Ctrl-C cannot interrupt an expression that calls only C functions. So an action whose bytes
                # were sent is never left in `todo`, where it would be sent again.
                sent.extend(map(conn.sock.send, map(_DATA, islice(iter(todo.popleft, None), 1)), repeat(NOW)))
            # The caller then calls `perform(action)`. The send fails there, too, and the error is reported.
            except OSError:
                todo.appendleft(action)
                return False
        if sent[0] < len(action.data):
            todo.appendleft(Write(action.key, action.data[sent[0] :]))
            return False
        return True

    def wait(self, timeout: float | None) -> list[NetworkEvent]:
        """Wait at most `timeout` seconds (None: without a limit), and return the events.

        The method also returns after `wake`. Parts of responses are kept until the whole response has
        arrived.
        """
        self.poll(timeout)
        return self.take()

    def take(self) -> list[NetworkEvent]:
        """Remove and return the events that no call has returned yet."""
        events, self._events = self._events, []
        return events

    def poll(self, timeout: float | None) -> None:
        """Wait as `wait` does, and keep the events for `take`."""
        end = None if timeout is None else time.monotonic() + timeout
        while not self._select(0 if self._events else timeout) and not self._events:
            timeout = None if end is None else end - time.monotonic()
            if timeout is not None and timeout <= 0:
                break

    def _select(self, timeout: float | None) -> bool:
        """Call the selector once and handle its results. Return whether `wake` was called."""
        events, was_woken = self._events, False
        next_address_at = min([conn.next_address_at for conn in self._connections.values()], default=_NEVER)
        if next_address_at != _NEVER:
            wait_s = max(0.0, next_address_at - time.monotonic())
            timeout = wait_s if timeout is None else min(timeout, wait_s)
        for ready, mask in self._selector.select(None if timeout is None else min(timeout, MAX_SELECT_S)):
            key = ready.data
            if key is None:
                was_woken = True
                with contextlib.suppress(OSError):
                    self._wake_receiver.recv(4096)
                continue
            conn = self._connections.get(key)
            if conn is None or conn.sock is None:
                continue
            if not conn.connected:
                self._on_connect_ended(key, conn, conn.sock, events)
                continue
            if mask & selectors.EVENT_WRITE:
                self._send_pending(key, conn, conn.sock, events)
            if mask & selectors.EVENT_READ and key in self._connections:
                self._read(key, conn, conn.sock, events)
        for resolved in self._resolver.take():
            self._on_resolved(resolved, events)
        for dialed in self._dials.take():
            self._on_dialed(dialed, events)
        events += self._tokens.take()
        if next_address_at != _NEVER:
            self._try_next_addresses(events)
        return was_woken

    def close(self) -> None:
        """Close all connections."""
        if self._closed:
            return
        self._closed = True
        for key in list(self._connections):
            self._shut(key)
        self._selector.close()
        self._wake_sender.close()
        self._wake_receiver.close()

    def abandon(self) -> None:
        """Close this process's copies of the sockets after a fork, without a message to the brokers."""
        self._closed = True
        for conn in self._connections.values():
            if conn.sock is not None:
                conn.sock.close()
        self._connections.clear()
        self._selector.close()
        self._wake_sender.close()
        self._wake_receiver.close()

    # ---- connecting

    def _on_resolved(self, resolved: Resolved, events: _Events) -> None:
        conn = self._connections.get(resolved.key)
        if conn is None:
            return  # The connection was closed during the name lookup.
        conn.addresses.extend(self._failures.sort(conn.host, resolved.addresses))
        conn.error = resolved.error
        self._connect(resolved.key, conn, events)

    def _connect(self, key: int, conn: _Connection, events: _Events) -> None:
        """Connect to the next address. If the attempt fails immediately, try the following addresses."""
        while conn.addresses:
            family, address = conn.address = conn.addresses.popleft()
            try:
                conn.sock = sock = socket.socket(family, socket.SOCK_STREAM)
                sock.setblocking(False)
                with contextlib.suppress(OSError):
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._selector.register(sock, selectors.EVENT_WRITE, key)
                with contextlib.suppress(BlockingIOError):
                    sock.connect(address)
            except (OSError, ValueError, OverflowError) as error:
                self._on_address_failed(conn, describe_error(error))
                continue
            conn.next_address_at = time.monotonic() + PATIENCE_S if conn.addresses else _NEVER
            return
        self._on_broken(key, conn.accepted_error or conn.error or "the host name has no address", events)

    def _on_address_failed(self, conn: _Connection, why: str) -> None:
        """Close the socket, and record that its address failed."""
        conn.error = why
        conn.next_address_at = _NEVER
        self._close_socket(conn)
        if conn.address is not None:
            self._failures.add(conn.host, conn.address)

    def _try_next_addresses(self, events: _Events) -> None:
        """Abandon the addresses that have not accepted in time, and try the next ones."""
        at = time.monotonic()
        overdue = [pair for pair in self._connections.items() if pair[1].next_address_at <= at]
        for key, conn in overdue:
            self._on_address_failed(conn, f"no answer within {PATIENCE_S:g} s")
            self._connect(key, conn, events)

    def _on_connect_ended(self, key: int, conn: _Connection, sock: socket.socket, events: _Events) -> None:
        try:
            code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                raise OSError(code, os.strerror(code))
            self._selector.modify(sock, selectors.EVENT_READ, key)
            prepare(sock)
        except OSError as error:
            self._on_address_failed(conn, describe_error(error))
            self._connect(key, conn, events)
            return
        conn.next_address_at = _NEVER
        self._on_connected(key, conn, sock, events)

    def _on_dialed(self, dialed: Dialed, events: _Events) -> None:
        """Use the socket that the application's dialer has returned, or report the dialer's error."""
        key, sock = dialed.key, dialed.sock
        conn = self._connections.get(key)
        if conn is None or sock is None:
            if sock is not None:
                sock.close()
            if conn is not None:
                self._on_broken(key, dialed.error, events)
            return
        conn.sock = sock
        try:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._selector.register(sock, selectors.EVENT_READ, key)
            prepare(sock)
        except (OSError, ValueError) as error:
            self._on_broken(key, describe_error(error), events)
            return
        self._on_connected(key, conn, sock, events)

    def _on_connected(self, key: int, conn: _Connection, sock: socket.socket, events: _Events) -> None:
        """Report a connected socket, and start the TLS handshake if the connection uses TLS."""
        conn.connected = True
        if conn.tls is None:
            events.append(Opened(key))
            return
        events.append(Reached(key))
        try:
            conn.pipe = conn.tls.pipe(conn.host[0])
            client_hello = conn.pipe.begin()
        except TlsFailed as error:
            self._on_broken(key, str(error), events, denied=True)
            return
        self._send(key, conn, sock, client_hello, events)

    # ---- bytes

    def _write(self, key: int, data: bytes) -> None:
        conn = self._connections.get(key)
        if conn is None or conn.sock is None or not conn.connected:
            return
        if conn.pipe is not None:
            try:
                data = conn.pipe.seal(data)
            except TlsFailed as error:
                self._on_broken(key, str(error), self._events)
                return
        self._send(key, conn, conn.sock, data, self._events)

    def _send(self, key: int, conn: _Connection, sock: socket.socket, data: bytes, events: _Events) -> None:
        conn.pending.append(memoryview(data))
        if not conn.full:
            self._send_pending(key, conn, sock, events)

    def _send_pending(self, key: int, conn: _Connection, sock: socket.socket, events: _Events) -> None:
        """Send as many of the pending bytes as the socket accepts, without copying them."""
        pending = conn.pending
        try:
            while pending:
                sent = sock.send(pending[0], NOW)
                unsent = pending.popleft()[sent:]
                if unsent:
                    pending.appendleft(unsent)
                    break
        except BlockingIOError:
            pass
        except OSError as error:
            self._on_broken(key, describe_error(error), events)
            return
        if conn.full != bool(pending):
            conn.full = bool(pending)
            write_event = selectors.EVENT_WRITE if conn.full else 0
            self._watch_for(key, sock, selectors.EVENT_READ | write_event, events)

    def _watch_for(self, key: int, sock: socket.socket, mask: int, events: _Events) -> None:
        try:
            self._selector.modify(sock, mask, key)
        except (OSError, ValueError, KeyError) as error:
            self._on_broken(key, describe_error(error), events)

    def _read(self, key: int, conn: _Connection, sock: socket.socket, events: _Events) -> None:
        if conn.pipe is not None:
            self._read_tls(key, conn, conn.pipe, sock, events)
            return
        receive_buffer, event_count, size = conn.receive_buffer, len(events), 0
        try:
            for _ in range(MAX_READS):
                with receive_buffer.writable() as buffer:
                    size, may_have_more = receive(sock, buffer)
                if not size:
                    self._on_broken(key, CLOSED, events)
                    return
                if bodies := receive_buffer.received(size):
                    conn.responded = True
                    events.extend(Answer(key, body) for body in bodies)
                if not may_have_more:
                    break
        except BlockingIOError:
            pass
        except FrameError as error:
            broken = Broken.from_frame_error(key, error)
            self._on_broken(key, broken.why, events, denied=broken.denied)
        except (OSError, MemoryError) as error:
            self._on_broken(key, describe_error(error), events)
        if len(events) > event_count:
            conn.last_progress_at = _NEVER
        elif size:
            self._report_progress(key, conn, events)

    def _report_progress(self, key: int, conn: _Connection, events: _Events) -> None:
        """Report, at most once a second, that a part of a long response has arrived."""
        at = time.monotonic()
        if conn.last_progress_at == _NEVER:
            conn.last_progress_at = at
        elif at >= conn.last_progress_at + PROGRESS_INTERVAL_S:
            events.append(Data(key, b""))
            conn.last_progress_at = at

    def _read_tls(
        self, key: int, conn: _Connection, pipe: Pipe, sock: socket.socket, events: _Events
    ) -> None:
        if self._tls_buffer is None:
            self._tls_buffer = memoryview(bytearray(TLS_BUFFER_BYTES))
        event_count = len(events)
        try:
            size = sock.recv_into(self._tls_buffer, 0, NOW)
            if not size:
                self._on_broken(key, pipe.end(), events)
                return
            was_secured = pipe.secured
            try:
                pipe.feed(self._tls_buffer[:size])
            finally:  # After an error, TLS sends an alert with the reason to the broker.
                if (encrypted := pipe.outgoing()) and key in self._connections:
                    self._send(key, conn, sock, encrypted, events)
            if pipe.secured and not was_secured:
                events.append(Opened(key))
            while key in self._connections:
                with conn.receive_buffer.writable() as buffer:
                    size = pipe.read_into(buffer)
                if not size:
                    break
                if bodies := conn.receive_buffer.received(size):
                    conn.responded = True
                    events.extend(Answer(key, body) for body in bodies)
        except BlockingIOError:
            return
        except TlsFailed as error:
            if key in self._connections:
                self._on_broken(key, str(error), events, denied=error.final)
        except FrameError as error:
            broken = Broken.from_frame_error(key, error)
            self._on_broken(key, broken.why, events, denied=broken.denied)
        except (OSError, MemoryError) as error:
            if key in self._connections:
                self._on_broken(key, describe_error(error), events)
        if len(events) > event_count:
            conn.last_progress_at = _NEVER
        elif pipe.secured:
            self._report_progress(key, conn, events)

    # ---- the end

    def _on_broken(self, key: int, why: str, events: _Events, *, denied: bool = False) -> None:
        """Try the next address if no response has arrived; otherwise close and report `Broken`."""
        conn = self._connections.get(key)
        if conn is not None and conn.connected and conn.addresses and not (conn.responded or denied):
            self._on_address_failed(conn, why)
            conn.accepted_error, conn.connected, conn.full, conn.pipe = why, False, False, None
            conn.pending.clear()
            conn.receive_buffer = ReceiveBuffer(conn.receive_buffer.max_size)
            self._connect(key, conn, events)
            return
        self._shut(key)
        events.append(Broken(key, why, denied))

    def _shut(self, key: int) -> None:
        conn = self._connections.pop(key, None)
        if conn is None:
            return
        self._dials.forget(key)
        if conn.sock is not None and conn.pipe is not None and not conn.pending:
            with contextlib.suppress(OSError):
                conn.sock.send(conn.pipe.close(), NOW)
        if conn.sock is not None and not conn.responded:
            # A connection without a response counts as failed, so the next attempt starts with another
            # address.
            self._on_address_failed(conn, "")
        self._close_socket(conn)

    def _close_socket(self, conn: _Connection) -> None:
        with self._closing:
            sock, conn.sock = conn.sock, None
        if sock is not None:
            with contextlib.suppress(KeyError, ValueError, OSError):
                self._selector.unregister(sock)
            with contextlib.suppress(OSError):
                sock.close()

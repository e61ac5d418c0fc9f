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


class _Socket(msgspec.Struct, eq=False):
    host: tuple[str, int]
    tls: Tls | None
    receive_buffer: ReceiveBuffer
    pipe: Pipe | None = None
    sock: socket.socket | None = None
    connected: bool = False
    responded: bool = False  # Whether a response has arrived.
    pending: deque[memoryview] = msgspec.field(default_factory=deque[memoryview])
    # Whether the kernel's send buffer is full. The selector reports when the socket accepts bytes again.
    full: bool = False
    addresses: deque[Address] = msgspec.field(default_factory=deque[Address])
    address: Address | None = None
    # When a part of a long response was last reported, in seconds of `time.monotonic()`.
    arriving_since: float = _NEVER
    # When the next address is tried, in seconds of `time.monotonic()`.
    next_address_at: float = _NEVER
    error: str = ""
    # The error of the last connection that broke after an address had accepted it. It is reported instead of
    # the errors of later addresses.
    accepted_error: str = ""


class Sockets:
    """The sockets of one engine. Creating them raises OSError if no file descriptor is free."""

    def __init__(self) -> None:
        self._sockets: dict[int, _Socket] = {}
        # The events that the next `take` returns.
        self._events: list[NetworkEvent] = []
        # Whether any connection uses TLS, which determines the thread that reads (`socket_owner`).
        self.uses_tls = False
        # The buffer for encrypted bytes, None until a connection uses TLS.
        self._room: memoryview | None = None
        self._failures = AddressFailures()
        # Held while a socket is being closed, and while another thread writes to one, because the descriptor
        # of a closed socket may be reused immediately.
        self._closing = threading.Lock()
        self._resolver = Resolver(self.wake)
        self._dials = DialThreads(self.wake)
        self._tokens = TokenRequests(self.wake)
        self._selector = selectors.DefaultSelector()
        try:
            self._waker, self._woken = socket.socketpair()
        except OSError:
            self._selector.close()
            raise
        self._waker.setblocking(False)
        self._woken.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ, None)
        self._closed = False

    @staticmethod
    def now() -> int:
        """Return a monotonic clock's time in milliseconds."""
        return clock.now()

    def wake(self) -> None:
        """Make `wait` return. Any thread may call this method."""
        with contextlib.suppress(OSError):
            self._waker.send(b"\0")

    def perform(self, action: NetworkAction) -> None:
        """Perform an action of the network client: open, write, close, or request a token."""
        match action:
            case Open(key=key, host=host, port=port, tls=tls, max_response=max_response, dialer=dialer):
                self._sockets[key] = _Socket((host, port), tls, ReceiveBuffer(max_response))
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
                self._events += self._tokens.request(key, source, self._sockets)

    def write_at_once(self, todo: deque[NetworkAction]) -> bool:
        """Send the bytes of the first action in `todo`, while another thread may be in `wait`.

        Return False if the action, or the rest of its bytes, must be passed to `perform`. This is the case if
        the action is not a `Write`, or if its connection uses TLS or does not accept all of the bytes now.
        """
        action = todo[0]
        if not isinstance(action, Write):
            return False
        with self._closing:
            known = self._sockets.get(action.key)
            if known is None or known.sock is None or known.tls is not None:
                return False
            if not known.connected or known.pending:
                return False
            sent: list[int] = []
            try:
                # Ctrl-C cannot interrupt an expression that calls only C functions. So an action whose bytes
                # were sent is never left in `todo`, where it would be sent again.
                sent.extend(
                    map(known.sock.send, map(_DATA, islice(iter(todo.popleft, None), 1)), repeat(NOW))
                )
            # The caller passes the action to `perform`, which gets the same error and reports it.
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
        """Return the events since the last call."""
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
        events, woken = self._events, False
        until = min([known.next_address_at for known in self._sockets.values()], default=_NEVER)
        if until != _NEVER:
            wait_s = max(0.0, until - time.monotonic())
            timeout = wait_s if timeout is None else min(timeout, wait_s)
        for ready, mask in self._selector.select(None if timeout is None else min(timeout, MAX_SELECT_S)):
            key = ready.data
            if key is None:
                woken = True
                with contextlib.suppress(OSError):
                    self._woken.recv(4096)
                continue
            known = self._sockets.get(key)
            if known is None or known.sock is None:
                continue
            if not known.connected:
                self._finish_connect(key, known, known.sock, events)
                continue
            if mask & selectors.EVENT_WRITE:
                self._flush(key, known, known.sock, events)
            if mask & selectors.EVENT_READ and key in self._sockets:
                self._read(key, known, known.sock, events)
        for resolved in self._resolver.take():
            self._on_resolved(resolved, events)
        for dialed in self._dials.take():
            self._on_dialed(dialed, events)
        events += self._tokens.take()
        if until != _NEVER:
            self._try_next_addresses(events)
        return woken

    def close(self) -> None:
        """Close all connections."""
        if self._closed:
            return
        self._closed = True
        for key in list(self._sockets):
            self._shut(key)
        self._selector.close()
        self._waker.close()
        self._woken.close()

    def abandon(self) -> None:
        """Close this process's copies of the sockets after a fork, without a message to the brokers."""
        self._closed = True
        for known in self._sockets.values():
            if known.sock is not None:
                known.sock.close()
        self._sockets.clear()
        self._selector.close()
        self._waker.close()
        self._woken.close()

    # ---- connecting

    def _on_resolved(self, resolved: Resolved, events: list[NetworkEvent]) -> None:
        known = self._sockets.get(resolved.key)
        if known is None:
            return  # The connection was closed during the name lookup.
        known.addresses.extend(self._failures.sort(known.host, resolved.addresses))
        known.error = resolved.error
        self._connect(resolved.key, known, events)

    def _connect(self, key: int, known: _Socket, events: list[NetworkEvent]) -> None:
        """Connect to the next address. If the attempt fails immediately, try the following addresses."""
        while known.addresses:
            family, address = known.address = known.addresses.popleft()
            try:
                known.sock = sock = socket.socket(family, socket.SOCK_STREAM)
                sock.setblocking(False)
                with contextlib.suppress(OSError):
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._selector.register(sock, selectors.EVENT_WRITE, key)
                with contextlib.suppress(BlockingIOError):
                    sock.connect(address)
            except (OSError, ValueError, OverflowError) as error:
                self._on_address_failed(known, describe_error(error))
                continue
            known.next_address_at = time.monotonic() + PATIENCE_S if known.addresses else _NEVER
            return
        self._on_broken(key, known.accepted_error or known.error or "the host name has no address", events)

    def _on_address_failed(self, known: _Socket, why: str) -> None:
        """Close the socket, and record that its address failed."""
        known.error = why
        known.next_address_at = _NEVER
        self._close_socket(known)
        if known.address is not None:
            self._failures.add(known.host, known.address)

    def _try_next_addresses(self, events: list[NetworkEvent]) -> None:
        at = time.monotonic()
        late = [pair for pair in self._sockets.items() if pair[1].next_address_at <= at]
        for key, known in late:
            self._on_address_failed(known, f"no answer within {PATIENCE_S:g} s")
            self._connect(key, known, events)

    def _finish_connect(
        self, key: int, known: _Socket, sock: socket.socket, events: list[NetworkEvent]
    ) -> None:
        try:
            code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                raise OSError(code, os.strerror(code))
            self._selector.modify(sock, selectors.EVENT_READ, key)
            prepare(sock)
        except OSError as error:
            self._on_address_failed(known, describe_error(error))
            self._connect(key, known, events)
            return
        known.next_address_at = _NEVER
        self._begin(key, known, sock, events)

    def _on_dialed(self, dialed: Dialed, events: list[NetworkEvent]) -> None:
        """Use the socket that the application's dialer has returned, or report the dialer's error."""
        key, sock = dialed.key, dialed.sock
        known = self._sockets.get(key)
        if known is None or sock is None:
            if sock is not None:
                sock.close()
            if known is not None:
                self._on_broken(key, dialed.error, events)
            return
        known.sock = sock
        try:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._selector.register(sock, selectors.EVENT_READ, key)
            prepare(sock)
        except (OSError, ValueError) as error:
            self._on_broken(key, describe_error(error), events)
            return
        self._begin(key, known, sock, events)

    def _begin(self, key: int, known: _Socket, sock: socket.socket, events: list[NetworkEvent]) -> None:
        """Report a connected socket, and start the TLS handshake if the connection uses TLS."""
        known.connected = True
        if known.tls is None:
            events.append(Opened(key))
            return
        events.append(Reached(key))
        try:
            known.pipe = known.tls.pipe(known.host[0])
            first = known.pipe.begin()
        except TlsFailed as error:
            self._on_broken(key, str(error), events, denied=True)
            return
        self._send(key, known, sock, first, events)

    # ---- bytes

    def _write(self, key: int, data: bytes) -> None:
        known = self._sockets.get(key)
        if known is None or known.sock is None or not known.connected:
            return
        if known.pipe is not None:
            try:
                data = known.pipe.seal(data)
            except TlsFailed as error:
                self._on_broken(key, str(error), self._events)
                return
        self._send(key, known, known.sock, data, self._events)

    def _send(
        self, key: int, known: _Socket, sock: socket.socket, data: bytes, events: list[NetworkEvent]
    ) -> None:
        known.pending.append(memoryview(data))
        if not known.full:
            self._flush(key, known, sock, events)

    def _flush(self, key: int, known: _Socket, sock: socket.socket, events: list[NetworkEvent]) -> None:
        """Send as many of the pending bytes as the socket accepts, without copying them."""
        pending = known.pending
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
        if known.full != bool(pending):
            known.full = bool(pending)
            also = selectors.EVENT_WRITE if known.full else 0
            self._watch(key, sock, selectors.EVENT_READ | also, events)

    def _watch(self, key: int, sock: socket.socket, mask: int, events: list[NetworkEvent]) -> None:
        try:
            self._selector.modify(sock, mask, key)
        except (OSError, ValueError, KeyError) as error:
            self._on_broken(key, describe_error(error), events)

    def _read(self, key: int, known: _Socket, sock: socket.socket, events: list[NetworkEvent]) -> None:
        if known.pipe is not None:
            self._read_tls(key, known, known.pipe, sock, events)
            return
        receive_buffer, before, size = known.receive_buffer, len(events), 0
        try:
            for _ in range(MAX_READS):
                with receive_buffer.writable() as room:
                    size, more = receive(sock, room)
                if not size:
                    self._on_broken(key, CLOSED, events)
                    return
                if bodies := receive_buffer.received(size):
                    known.responded = True
                    events.extend(Answer(key, body) for body in bodies)
                if not more:
                    break
        except BlockingIOError:
            pass
        except FrameError as error:
            broken = Broken.from_frame_error(key, error)
            self._on_broken(key, broken.why, events, denied=broken.denied)
        except (OSError, MemoryError) as error:
            self._on_broken(key, describe_error(error), events)
        if len(events) > before:
            known.arriving_since = _NEVER
        elif size:
            self._report_arriving(key, known, events)

    def _report_arriving(self, key: int, known: _Socket, events: list[NetworkEvent]) -> None:
        """Report, at most once a second, that a part of a long response has arrived."""
        at = time.monotonic()
        if at >= known.arriving_since + PROGRESS_INTERVAL_S:
            events.append(Data(key, b""))
            known.arriving_since = at
        known.arriving_since = min(known.arriving_since, at)

    def _read_tls(
        self, key: int, known: _Socket, pipe: Pipe, sock: socket.socket, events: list[NetworkEvent]
    ) -> None:
        if self._room is None:
            self._room = memoryview(bytearray(TLS_BUFFER_BYTES))
        before = len(events)
        try:
            size = sock.recv_into(self._room, 0, NOW)
            if not size:
                self._on_broken(key, pipe.end(), events)
                return
            was_secured = pipe.secured
            try:
                pipe.feed(self._room[:size])
            finally:  # After an error, TLS sends an alert with the reason to the broker.
                if (out := pipe.outgoing()) and key in self._sockets:
                    self._send(key, known, sock, out, events)
            if pipe.secured and not was_secured:
                events.append(Opened(key))
            while key in self._sockets:
                with known.receive_buffer.writable() as room:
                    size = pipe.read_into(room)
                if not size:
                    break
                if bodies := known.receive_buffer.received(size):
                    known.responded = True
                    events.extend(Answer(key, body) for body in bodies)
        except BlockingIOError:
            return
        except TlsFailed as error:
            if key in self._sockets:
                self._on_broken(key, str(error), events, denied=error.final)
        except FrameError as error:
            broken = Broken.from_frame_error(key, error)
            self._on_broken(key, broken.why, events, denied=broken.denied)
        except (OSError, MemoryError) as error:
            if key in self._sockets:
                self._on_broken(key, describe_error(error), events)
        if len(events) > before:
            known.arriving_since = _NEVER
        elif pipe.secured:
            self._report_arriving(key, known, events)

    # ---- the end

    def _on_broken(self, key: int, why: str, events: list[NetworkEvent], *, denied: bool = False) -> None:
        known = self._sockets.get(key)
        if known is not None and known.connected and known.addresses and not (known.responded or denied):
            self._on_address_failed(known, why)
            known.accepted_error, known.connected, known.full, known.pipe = why, False, False, None
            known.pending.clear()
            known.receive_buffer = ReceiveBuffer(known.receive_buffer.max_size)
            self._connect(key, known, events)
            return
        self._shut(key)
        events.append(Broken(key, why, denied))

    def _shut(self, key: int) -> None:
        known = self._sockets.pop(key, None)
        if known is None:
            return
        self._dials.forget(key)
        if known.sock is not None and known.pipe is not None and not known.pending:
            with contextlib.suppress(OSError):
                known.sock.send(known.pipe.close(), NOW)
        if known.sock is not None and not known.responded:
            # A connection without a response counts as failed, so the next attempt starts with another
            # address.
            self._on_address_failed(known, "")
        self._close_socket(known)

    def _close_socket(self, known: _Socket) -> None:
        with self._closing:
            sock, known.sock = known.sock, None
        if sock is not None:
            with contextlib.suppress(KeyError, ValueError, OSError):
                self._selector.unregister(sock)
            with contextlib.suppress(OSError):
                sock.close()

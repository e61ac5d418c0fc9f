"""Blocking I/O for the engines: sockets and a selector, nothing that knows Kafka but its frames.

    sockets = Sockets()
    for action in network.actions: sockets.perform(action)
    for event in sockets.wait(timeout): network.handle(event, sockets.now())

Rules that hold here:

* Whatever goes wrong with a connection is `Broken(key, why)`, once, and never an exception: also no free file
  descriptor, no buffers, no local port, a socket that died between two calls, a name that is none.
* Names are looked up in another thread, and each of a host's addresses is tried in turn (`resolving`). A
  connection is `Opened` again where another one is tried after it was.
* Bytes are received where they stay (`ReceiveBuffer`), so the engine sees whole answers, and once a second
  that a long one is coming (`Data` without bytes).

* Through TLS a connection is `Reached` first, and `Opened` when the broker has shown its certificate. Tokens
  are asked for in a thread of their own: one at a time, for all connections that want one.

`wake` may be called from any thread, and `write_at_once` beside a thread that is in `wait`; everything else
belongs to one thread at a time.
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
from .socket_reads import NOW, prepare, receive

if TYPE_CHECKING:
    from ..security.tls import Pipe, Tls
    from ..security.tokens import Token, TokenSource

TLS_ROOM = 256 * 1024
"""Bytes of TLS that are read at once."""

MOST_READS = 16
"""Reads of one connection before the others have their turn."""

LONGEST_S = 86_400.0
"""Seconds of one look: a selector counts milliseconds in 32 bits, and a session may last for months."""

_DATA = attrgetter("data")
_NEVER = float("inf")


class _Socket(msgspec.Struct, eq=False):
    host: tuple[str, int]
    tls: Tls | None
    pipe: Pipe | None = None
    sock: socket.socket | None = None
    connected: bool = False
    heard: bool = False  # an answer came
    pending: deque[memoryview] = msgspec.field(default_factory=deque[memoryview])
    full: bool = False  # it takes no more, and is watched for when it does
    receive_buffer: ReceiveBuffer = msgspec.field(default_factory=ReceiveBuffer)
    places: deque[Place] = msgspec.field(default_factory=deque[Place])
    tried: Place | None = None
    said: float = _NEVER  # when it was said that a long answer is coming, or began to
    until: float = _NEVER  # when the next address is tried
    why: str = ""
    broke: str = ""  # the same, of an address that had taken the connection: it tells more


class Sockets:
    """The sockets of one engine. Raises OSError where not even these few files can be had."""

    def __init__(self) -> None:
        self._sockets: dict[int, _Socket] = {}
        self._events: list[NetworkEvent] = []  # that nobody has taken
        self._tokens: deque[Token | NoToken] = deque()  # from the threads that ask for them
        self._wants: list[int] = []  # the connections that one is being asked for
        self._asking = False
        # Some are read through TLS: opening it takes the interpreter's time, and a CPU's.
        self.sealed = False
        self._room: memoryview | None = None  # for TLS, which is read before anybody knows what it says
        self._failures = Failures()
        # Held while a socket is closed, or written to by another thread: its number is soon another's.
        self._closing = threading.Lock()
        self._resolver = Resolver(self.wake)
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
        """Milliseconds of a clock that never goes back."""
        return clock.now()

    def wake(self) -> None:
        """Makes `wait` return; from any thread."""
        with contextlib.suppress(OSError):
            self._waker.send(b"\0")

    def perform(self, action: NetworkAction) -> None:
        match action:
            case Open(key=key, host=host, port=port, tls=tls):
                self._sockets[key] = _Socket((host, port), tls)
                self.sealed = self.sealed or tls is not None
                found = self._resolver.ask(key, host, port)
                if found is not None:
                    self._found(found, self._events)
            case Write(key=key, data=data):
                self._write(key, data)
            case Shut(key=key):
                self._shut(key)
            case GetToken(key=key, source=source):
                self._get_token(key, source)

    def write_at_once(self, todo: deque[NetworkAction]) -> bool:
        """Writes what is first in `todo` here and now, while another thread is in `wait`. False: it, or what
        is left of it, has to come through `perform`, as its connection isn't ready, or it is no `Write`."""
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
                # One call, which Ctrl-C can't divide: what was written is not there to be written again.
                sent.extend(
                    map(known.sock.send, map(_DATA, islice(iter(todo.popleft, None), 1)), repeat(NOW))
                )
            except OSError:  # it comes again, and is told then
                todo.appendleft(action)
                return False
        if sent[0] < len(action.data):
            todo.appendleft(Write(action.key, action.data[sent[0] :]))
            return False
        return True

    def wait(self, timeout: float | None) -> list[NetworkEvent]:
        """What happened, after at most `timeout` seconds (None: until something does). Parts of answers are
        nothing that happened; a `wake` ends the wait."""
        self.look(timeout)
        return self.take()

    def take(self) -> list[NetworkEvent]:
        """What happened since it was asked last."""
        events, self._events = self._events, []
        return events

    def look(self, timeout: float | None) -> None:
        """What `wait` does before it takes."""
        end = None if timeout is None else time.monotonic() + timeout
        while not self._look(0 if self._events else timeout) and not self._events:
            timeout = None if end is None else end - time.monotonic()
            if timeout is not None and timeout <= 0:
                break

    def _look(self, timeout: float | None) -> bool:
        """Looks once, and says whether somebody called `wake`."""
        events, woken = self._events, False
        until = min([known.until for known in self._sockets.values()], default=_NEVER)
        if until != _NEVER:
            left = max(0.0, until - time.monotonic())
            timeout = left if timeout is None else min(timeout, left)
        for ready, mask in self._selector.select(None if timeout is None else min(timeout, LONGEST_S)):
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
        for found in self._resolver.take():
            self._found(found, events)
        while self._tokens:
            self._got_token(self._tokens.popleft(), events)
        if until != _NEVER:
            self._next_places(events)
        return woken

    def close(self) -> None:
        """Closes everything, without a word to anybody."""
        if self._closed:
            return
        self._closed = True
        for key in list(self._sockets):
            self._shut(key)
        self._selector.close()
        self._waker.close()
        self._woken.close()

    def abandon(self) -> None:
        """In the child of a fork: lets go of everything, and leaves the parent's as it is."""
        self._closed = True
        for known in self._sockets.values():
            if known.sock is not None:
                known.sock.close()
        self._sockets.clear()
        self._selector.close()
        self._waker.close()
        self._woken.close()

    # ---- connecting

    def _found(self, found: Found, events: list[NetworkEvent]) -> None:
        known = self._sockets.get(found.key)
        if known is None:
            return  # given up meanwhile
        known.places.extend(self._failures.last(known.host, found.places))
        known.why = found.why
        self._connect(found.key, known, events)

    def _connect(self, key: int, known: _Socket, events: list[NetworkEvent]) -> None:
        """Tries the next address, and the ones behind it as long as each fails at once."""
        while known.places:
            family, address = known.tried = known.places.popleft()
            try:
                known.sock = sock = socket.socket(family, socket.SOCK_STREAM)
                sock.setblocking(False)
                with contextlib.suppress(OSError):
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._selector.register(sock, selectors.EVENT_WRITE, key)
                with contextlib.suppress(BlockingIOError):
                    sock.connect(address)
            except (OSError, ValueError, OverflowError) as error:
                self._failed(known, reason(error))
                continue
            known.until = time.monotonic() + PATIENCE if known.places else _NEVER
            return
        self._broke(key, known.broke or known.why or "the name has no address", events)

    def _failed(self, known: _Socket, why: str) -> None:
        """One address doesn't work."""
        known.why = why
        known.until = _NEVER
        self._let_go(known)
        if known.tried is not None:
            self._failures.failed(known.host, known.tried)

    def _next_places(self, events: list[NetworkEvent]) -> None:
        at = time.monotonic()
        late = [pair for pair in self._sockets.items() if pair[1].until <= at]
        for key, known in late:
            self._failed(known, f"no answer within {PATIENCE:g} s")
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
            self._failed(known, reason(error))
            self._connect(key, known, events)
            return
        known.connected = True
        known.until = _NEVER
        if known.tls is None:
            events.append(Opened(key))
            return
        events.append(Reached(key))
        try:
            known.pipe = known.tls.pipe(known.host[0])
            first = known.pipe.begin()
        except TlsFailed as error:
            self._broke(key, str(error), events, denied=True)
            return
        self._send(key, known, sock, first, events)

    # ---- tokens

    def _get_token(self, key: int, source: TokenSource) -> None:
        self._wants = [*(one for one in self._wants if one in self._sockets), key]
        if self._asking:
            return

        def ask() -> None:
            try:
                self._tokens.append(source.blocking())
            except NoToken as error:
                self._tokens.append(error)
            self.wake()

        try:
            threading.Thread(target=ask, name="kproto-token", daemon=True).start()
        except RuntimeError as error:  # no more threads
            self._got_token(NoToken(f"no token: {error}", final=False), self._events)
        else:
            self._asking = True

    def _got_token(self, token: Token | NoToken, events: list[NetworkEvent]) -> None:
        wants, self._wants, self._asking = self._wants, [], False
        for key in wants:
            if isinstance(token, NoToken):
                events.append(Broken(key, str(token), token.final))
            else:
                events.append(GotToken(key, token))

    # ---- bytes

    def _write(self, key: int, data: bytes) -> None:
        known = self._sockets.get(key)
        if known is None or known.sock is None or not known.connected:
            return
        if known.pipe is not None:
            try:
                data = known.pipe.seal(data)
            except TlsFailed as error:
                self._broke(key, str(error), self._events)
                return
        self._send(key, known, known.sock, data, self._events)

    def _send(
        self, key: int, known: _Socket, sock: socket.socket, data: bytes, events: list[NetworkEvent]
    ) -> None:
        known.pending.append(memoryview(data))
        if not known.full:
            self._flush(key, known, sock, events)

    def _flush(self, key: int, known: _Socket, sock: socket.socket, events: list[NetworkEvent]) -> None:
        """Writes what is pending; what the socket doesn't take is not copied."""
        pending = known.pending
        try:
            while pending:
                sent = sock.send(pending[0], NOW)
                left = pending.popleft()[sent:]
                if left:
                    pending.appendleft(left)
                    break
        except BlockingIOError:
            pass
        except OSError as error:
            self._broke(key, reason(error), events)
            return
        if known.full != bool(pending):
            known.full = bool(pending)
            also = selectors.EVENT_WRITE if known.full else 0
            self._watch(key, sock, selectors.EVENT_READ | also, events)

    def _watch(self, key: int, sock: socket.socket, mask: int, events: list[NetworkEvent]) -> None:
        try:
            self._selector.modify(sock, mask, key)
        except (OSError, ValueError, KeyError) as error:
            self._broke(key, reason(error), events)

    def _read(self, key: int, known: _Socket, sock: socket.socket, events: list[NetworkEvent]) -> None:
        if known.pipe is not None:
            self._read_tls(key, known, known.pipe, sock, events)
            return
        receive_buffer, before, size = known.receive_buffer, len(events), 0
        try:
            for _ in range(MOST_READS):
                with receive_buffer.writable() as room:
                    size, more = receive(sock, room)
                if not size:
                    self._broke(key, CLOSED, events)
                    return
                if bodies := receive_buffer.received(size):
                    known.heard = True
                    events.extend(Answer(key, body) for body in bodies)
                if not more:
                    break
        except BlockingIOError:
            pass
        except FrameError as error:
            broken = Broken.no_frames(key, error)
            self._broke(key, broken.why, events, denied=broken.denied)
        except (OSError, MemoryError) as error:
            self._broke(key, reason(error), events)
        if len(events) > before:
            known.said = _NEVER
        elif size:
            self._coming(key, known, events)

    def _coming(self, key: int, known: _Socket, events: list[NetworkEvent]) -> None:
        """Part of an answer came, and no whole one."""
        at = time.monotonic()
        if at >= known.said + COMING_S:
            events.append(Data(key, b""))
            known.said = at
        known.said = min(known.said, at)

    def _read_tls(
        self, key: int, known: _Socket, pipe: Pipe, sock: socket.socket, events: list[NetworkEvent]
    ) -> None:
        if self._room is None:
            self._room = memoryview(bytearray(TLS_ROOM))
        before = len(events)
        try:
            size = sock.recv_into(self._room, 0, NOW)
            if not size:
                self._broke(key, pipe.end(), events)
                return
            was_secured = pipe.secured
            try:
                pipe.feed(self._room[:size])
            finally:  # also the alert that says why
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
                    known.heard = True
                    events.extend(Answer(key, body) for body in bodies)
        except BlockingIOError:
            return
        except TlsFailed as error:
            if key in self._sockets:
                self._broke(key, str(error), events, denied=error.final)
        except FrameError as error:
            broken = Broken.no_frames(key, error)
            self._broke(key, broken.why, events, denied=broken.denied)
        except (OSError, MemoryError) as error:
            if key in self._sockets:
                self._broke(key, reason(error), events)
        if len(events) > before:
            known.said = _NEVER
        elif pipe.secured:
            self._coming(key, known, events)

    # ---- the end

    def _broke(self, key: int, why: str, events: list[NetworkEvent], *, denied: bool = False) -> None:
        known = self._sockets.get(key)
        if known is not None and known.connected and known.places and not (known.heard or denied):
            self._failed(known, why)
            known.broke, known.connected, known.full, known.pipe = why, False, False, None
            known.pending.clear()
            known.receive_buffer = ReceiveBuffer()
            self._connect(key, known, events)
            return
        self._shut(key)
        events.append(Broken(key, why, denied))

    def _shut(self, key: int) -> None:
        known = self._sockets.pop(key, None)
        if known is None:
            return
        if known.sock is not None and known.pipe is not None and not known.pending:
            with contextlib.suppress(OSError):
                known.sock.send(known.pipe.close(), NOW)
        if known.sock is not None and not known.heard:
            self._failed(known, "")  # the next try begins with another address
        self._let_go(known)

    def _let_go(self, known: _Socket) -> None:
        with self._closing:
            sock, known.sock = known.sock, None
        if sock is not None:
            with contextlib.suppress(KeyError, ValueError, OSError):
                self._selector.unregister(sock)
            with contextlib.suppress(OSError):
                sock.close()

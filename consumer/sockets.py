"""Blocking I/O for the engines: sockets and a selector, nothing that knows Kafka.

    sockets = Sockets()
    for action in network.actions: sockets.perform(action)
    for event in sockets.wait(timeout): network.happened(event, sockets.now())

`wake` may be called from any thread; everything else belongs to one thread at a time. TLS and SASL would wrap
`_connect`; they are not here yet.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket

from . import clock
from .engine.network import Broken, Data, NetworkAction, NetworkEvent, Open, Opened, Shut, Write

# One read: large enough that a full fetch answer takes few of them.
READ_SIZE = 256 * 1024


class _Socket:
    __slots__ = ("connected", "pending", "sock")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.connected = False
        self.pending = bytearray()


class Sockets:
    """The sockets of one engine."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._sockets: dict[int, _Socket] = {}
        self._early: list[NetworkEvent] = []
        self._waker, self._woken = socket.socketpair()
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
            case Open(key=key, host=host, port=port):
                self._connect(key, host, port)
            case Write(key=key, data=data):
                self._write(key, data)
            case Shut(key=key):
                self._shut(key)

    def wait(self, timeout: float | None) -> list[NetworkEvent]:
        """What happened, after at most `timeout` seconds (None: until something does)."""
        events = self._early
        self._early = []
        for ready, mask in self._selector.select(0 if events else timeout):
            key = ready.data
            if key is None:
                with contextlib.suppress(BlockingIOError):
                    self._woken.recv(4096)
                continue
            known = self._sockets.get(key)
            if known is None:
                continue
            if not known.connected:
                self._finish_connect(key, known, events)
                continue
            if mask & selectors.EVENT_WRITE:
                self._flush(key, known, events)
            if mask & selectors.EVENT_READ and key in self._sockets:
                self._read(key, known, events)
        return events

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

    # ---- inside

    def _connect(self, key: int, host: str, port: int) -> None:
        # Name resolution blocks; it is done once for each connection.
        try:
            places = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            self._early.append(Broken(key, f"the name can't be resolved ({error.strerror or error})"))
            return
        # IPv4 first: brokers that listen on one family nearly always listen on that one.
        places.sort(key=lambda place: place[0] != socket.AF_INET)
        family, kind, proto, _, address = places[0]
        sock = socket.socket(family, kind, proto)
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        known = _Socket(sock)
        self._sockets[key] = known
        self._selector.register(sock, selectors.EVENT_WRITE, key)
        try:
            sock.connect(address)
        except BlockingIOError:
            return
        except OSError as error:
            self._broke(key, error, self._early)

    def _finish_connect(self, key: int, known: _Socket, events: list[NetworkEvent]) -> None:
        code = known.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._broke(key, OSError(code, os.strerror(code)), events)
            return
        known.connected = True
        self._selector.modify(known.sock, selectors.EVENT_READ, key)
        events.append(Opened(key))

    def _write(self, key: int, data: bytes) -> None:
        known = self._sockets.get(key)
        if known is None:
            return
        if known.pending:
            known.pending += data
            return
        sent = 0
        try:
            sent = known.sock.send(data)
        except BlockingIOError:
            pass
        except OSError as error:
            self._broke(key, error, self._early)
            return
        if sent < len(data):
            known.pending += data[sent:]
            self._selector.modify(known.sock, selectors.EVENT_READ | selectors.EVENT_WRITE, key)

    def _flush(self, key: int, known: _Socket, events: list[NetworkEvent]) -> None:
        try:
            sent = known.sock.send(known.pending)
        except BlockingIOError:
            return
        except OSError as error:
            self._broke(key, error, events)
            return
        del known.pending[:sent]
        if not known.pending:
            self._selector.modify(known.sock, selectors.EVENT_READ, key)

    def _read(self, key: int, known: _Socket, events: list[NetworkEvent]) -> None:
        try:
            data = known.sock.recv(READ_SIZE)
        except BlockingIOError:
            return
        except OSError as error:
            self._broke(key, error, events)
            return
        if data:
            events.append(Data(key, data))
        else:
            self._shut(key)
            events.append(Broken(key, "the broker closed the connection"))

    def _broke(self, key: int, error: OSError, events: list[NetworkEvent]) -> None:
        self._shut(key)
        events.append(Broken(key, (error.strerror or str(error)).lower()))

    def _shut(self, key: int) -> None:
        known = self._sockets.pop(key, None)
        if known is not None:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(known.sock)
            known.sock.close()

"""asyncio I/O for the engines: sockets as protocols, nothing that knows Kafka.

The owner gives `Streams` a function that is told every `NetworkEvent`; it calls `perform` for every
action. All of it runs in one event loop.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from .engine.network import Broken, Data, NetworkAction, NetworkEvent, Open, Opened, Shut, Write


class _Protocol(asyncio.Protocol):
    def __init__(self, key: int, tell: Callable[[NetworkEvent], object]) -> None:
        self.key = key
        self.tell = tell
        self.silent = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        if not self.silent:
            self.tell(Data(self.key, data))

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.silent:
            why = "the broker closed the connection" if exc is None else str(exc).lower()
            self.tell(Broken(self.key, why))


class Streams:
    """The sockets of one engine."""

    def __init__(self, tell: Callable[[NetworkEvent], object]) -> None:
        self._tell = tell
        self._transports: dict[int, tuple[asyncio.Transport, _Protocol]] = {}
        self._opening: dict[int, asyncio.Task[None]] = {}

    def perform(self, action: NetworkAction) -> None:
        match action:
            case Open(key=key, host=host, port=port):
                self._opening[key] = asyncio.get_running_loop().create_task(self._open(key, host, port))
            case Write(key=key, data=data):
                if key in self._transports:
                    self._transports[key][0].write(data)
            case Shut(key=key):
                self._shut(key)

    async def _open(self, key: int, host: str, port: int) -> None:
        protocol = _Protocol(key, self._tell)
        try:
            transport, _ = await asyncio.get_running_loop().create_connection(lambda: protocol, host, port)
        except socket.gaierror as error:
            self._failed(key, f"the name can't be resolved ({error.strerror or error})")
            return
        except OSError as error:
            self._failed(key, (error.strerror or str(error)).lower())
            return
        self._opening.pop(key, None)
        self._transports[key] = (transport, protocol)
        self._tell(Opened(key))

    def _failed(self, key: int, why: str) -> None:
        self._opening.pop(key, None)
        self._tell(Broken(key, why))

    def _shut(self, key: int) -> None:
        opening = self._opening.pop(key, None)
        if opening is not None:
            opening.cancel()
        known = self._transports.pop(key, None)
        if known is not None:
            known[1].silent = True
            known[0].close()

    def close(self, *, abort: bool = False) -> None:
        """Closes everything; with `abort` without sending what is still to be sent."""
        for key in [*self._opening, *self._transports]:
            if abort and key in self._transports:
                transport, protocol = self._transports.pop(key)
                protocol.silent = True
                transport.abort()
            else:
                self._shut(key)

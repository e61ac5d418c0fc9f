"""Accepts the connections of listening sockets, as the Acceptor of Kafka's SocketServer does.

`asyncio.Server` is not used, because it floods the log when no file descriptor is free (CPython 3.11). Each
attempt to accept then logs `backlog` tracebacks, and schedules `backlog` further attempts.

* While no connection can be accepted, the reason is logged once per second. Connections that were accepted
  earlier are still served.

* `close` returns after `connection_made` has been called for every accepted connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from ..addresses import address_text
from ..printable import Log

# The listen backlog of a socket. If it is full, the client's operating system retries the connection only
# after a second. Kafka's default of 50 suffices for a separate thread that accepts connections. Here, new
# connections wait while the event loop runs other tasks.
BACKLOG: Final = 1024
# The `limit` of each StreamReader in bytes. Reading from a connection pauses while more than twice this
# number of bytes is buffered.
STREAM_LIMIT: Final = 1 << 20
# The time in seconds from a failure to accept a connection until the next attempt.
RETRY_S: Final = 1.0
# The maximum number of connections to accept before other tasks run.
_ACCEPTS_PER_TURN: Final = 64

log: Final = Log(logging.getLogger("kproto.broker"), {})


def listening_socket(host: str, port: int) -> socket.socket:
    """Return a listening socket. Port 0 means any free port. Raises OSError if the address is in use.

    As in Kafka, a socket bound to the address `::` also accepts IPv4 connections.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    dual_stack = host == "::" and socket.has_dualstack_ipv6()
    sock = socket.create_server((host, port), family=family, backlog=BACKLOG, dualstack_ipv6=dual_stack)
    sock.setblocking(False)
    return sock


def stream_protocols(
    on_connected: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> Callable[[], asyncio.StreamReaderProtocol]:
    """Return a factory of protocols that call `on_connected` with the streams of each connection."""

    def make_protocol() -> asyncio.StreamReaderProtocol:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=STREAM_LIMIT, loop=loop)
        return asyncio.StreamReaderProtocol(reader, on_connected, loop=loop)

    return make_protocol


class Acceptor:
    """Accepts the connections of the listening socket `sock`, and creates a protocol for each.

    Create an acceptor in a running event loop. `close` also closes `sock`.
    """

    def __init__(self, sock: socket.socket, make_protocol: Callable[[], asyncio.BaseProtocol]) -> None:
        self._sock = sock
        self._make_protocol = make_protocol
        self._loop = asyncio.get_running_loop()
        self._is_closing = False
        self._connect_tasks: set[asyncio.Task[None]] = set()
        self._accept_task = self._loop.create_task(self._accept_connections())

    @property
    def port(self) -> int:
        """The port of the socket."""
        port: int = self._sock.getsockname()[1]
        return port

    async def _accept_connections(self) -> None:
        """Accept connections until `close` is called. After a failure, retry every `RETRY_S` seconds."""
        accepted = 0
        while not self._is_closing:
            try:
                # The connection is not assigned to a local variable: the variable would keep a closed
                # connection in memory until the next one is accepted.
                self._start_connecting((await self._loop.sock_accept(self._sock))[0])
            except ConnectionAbortedError:  # The client closed the connection before it was accepted.
                continue
            except OSError as error:
                address = address_text(*self._sock.getsockname()[:2])
                log.warning("%s cannot accept connections, retrying: %s", address, error.strerror or error)
                await asyncio.sleep(RETRY_S)
                continue
            accepted += 1
            if accepted % _ACCEPTS_PER_TURN == 0:
                await asyncio.sleep(0)

    def _start_connecting(self, sock: socket.socket) -> None:
        """Start the task that creates the protocol of an accepted connection."""
        task = self._loop.create_task(self._connect_protocol(sock))
        self._connect_tasks.add(task)
        task.add_done_callback(self._connect_tasks.discard)

    async def _connect_protocol(self, sock: socket.socket) -> None:
        """Create the protocol of an accepted connection. If this fails, close the connection."""
        try:
            await self._loop.connect_accepted_socket(self._make_protocol, sock)
        except OSError as error:
            log.warning("an accepted connection was closed: %s", error.strerror or error)
            sock.close()

    async def close(self) -> None:
        """Close the listening socket. The accepted connections stay open.

        Returns when `_connect_protocol` has finished for every accepted connection.
        """
        self._is_closing = True
        # The proactor event loop of Windows does not implement `remove_reader`.
        with contextlib.suppress(NotImplementedError):
            self._loop.remove_reader(self._sock)
        try:
            # The event loop may have accepted a connection before `remove_reader`. `_accept_connections`
            # receives it during this sleep.
            await asyncio.sleep(0)
        finally:
            self._accept_task.cancel()
            self._sock.close()
            await asyncio.wait([self._accept_task, *self._connect_tasks])


async def close_acceptors(acceptors: Iterable[Acceptor]) -> None:
    """Close several acceptors concurrently."""
    await asyncio.gather(*(acceptor.close() for acceptor in acceptors))

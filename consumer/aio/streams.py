"""asyncio I/O for the engines: transports and protocols.

Of Kafka's protocol, the module knows only the size that precedes each response.

The runtime calls `perform` for every action, and gives `Streams` a function that receives every
`NetworkEvent`. All calls are made in one event loop. Failures, host names, dialers, responses and tokens are
handled as in `blocking.sockets`, whose docstring lists the rules.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, cast

from kproto.errors import FrameError
from kproto.wire.frame import ReceiveBuffer

from ..dialers import Dialed, Dialer, DialThreads, connected_socket, dialer_error, is_coroutine_dialer
from ..engine.network.transport import (
    PROGRESS_INTERVAL_S,
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
from ..resolver import PATIENCE_S, Address, AddressFailures, Resolved, Resolver, describe_error
from ..security.failures import CLOSED, NoToken, TlsFailed

if TYPE_CHECKING:
    from ..security.kerberos import KerberosLogin, KerberosSource
    from ..security.tls import Pipe, Tls
    from ..security.tokens import Token, TokenSource

# Size (bytes) of the buffer for encrypted bytes, and so the limit of one read. All connections can share the
# buffer, because its bytes are decrypted before the next read.
TLS_BUFFER_BYTES = 256 * 1024
# Maximum number of reads from one connection before other connections are read.
MAX_READS = 16
# The flag for reads that do not wait, or 0 on a system without such a flag, for example on Windows. With 0,
# only the transport reads the socket. (On Windows, other reads would be wrong even with such a flag, because
# the transport may have a read in progress.)
NOW = getattr(socket, "MSG_DONTWAIT", 0)
# The exceptions that opening a connection may raise, for example because the port is invalid.
_ERRORS = (OSError, ValueError, OverflowError, RuntimeError)


class _Route:
    """The addresses to which a broker's host name resolves: the current one, and the untried ones.

    `host` is the pair of host name and port. `address` is None before the first attempt, and if a dialer
    opens the connection.
    """

    __slots__ = ("address", "addresses", "host", "max_response", "tls")

    def __init__(
        self, host: tuple[str, int], tls: Tls | None, max_response: int, addresses: list[Address]
    ) -> None:
        self.host = host
        self.max_response = max_response
        self.tls = tls
        self.addresses = addresses
        self.address: Address | None = None


class _Protocol(asyncio.BufferedProtocol):
    """Decrypts the bytes that one connection receives, and reports its responses and its end."""

    def __init__(self, key: int, max_response: int, report: Callable[[NetworkEvent], object]) -> None:
        self.key = key
        self.report = report
        self.silent = False  # Whether the connection reports no more events.
        # Whether the broker has responded. Until then, a failure counts as a failure of the address.
        self.responded = False
        self.route: _Route | None = None
        # The time of the last progress report about an incomplete response. Before the first report, the time
        # at which the response began to arrive (seconds of `time.monotonic()`). Infinite between responses.
        self.arriving_since = float("inf")
        self.receive_buffer = ReceiveBuffer(max_response)
        self.pipe: Pipe | None = None
        self._tls_buffer: memoryview  # The buffer for encrypted bytes, if the connection uses TLS.
        self.transport: asyncio.Transport  # Set by `connection_made`, which the loop calls first.
        self.sock: socket.socket | None = None  # The transport's own socket, for direct reads.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # The cast is needed because uvloop's transports do not inherit from asyncio.Transport.
        self.transport = cast("asyncio.Transport", transport)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            with contextlib.suppress(OSError):  # The socket is broken: the loop calls connection_lost next.
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def start_tls(self, pipe: Pipe, tls_buffer: memoryview) -> None:
        """Start the TLS handshake. `Opened` is reported when the handshake has succeeded."""
        self.pipe = pipe
        self._tls_buffer = tls_buffer
        self.transport.write(pipe.begin())

    def write(self, data: bytes) -> None:
        """Send bytes, encrypted if the connection uses TLS."""
        if self.pipe is not None:
            try:
                data = self.pipe.seal(data)
            except TlsFailed as error:
                self._on_broken(str(error))
                return
        self.transport.write(data)

    def close(self) -> None:
        """Close the connection and report no more events. With TLS, send close_notify first."""
        self.silent = True
        if self.pipe is not None and not self.transport.is_closing():
            self.transport.write(self.pipe.close())
        self.transport.close()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.receive_buffer.writable() if self.pipe is None else self._tls_buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self.pipe is not None:
            try:
                self._decrypt(self.pipe, self._tls_buffer[:nbytes])
            except TlsFailed as error:
                self._on_broken(str(error), denied=error.final)
        else:
            self._on_bytes(nbytes)
            self._read_rest()

    def _read_rest(self) -> None:
        """Read the rest of a large response directly from the socket.

        Without these direct reads, a large response would take many iterations of the event loop. Each
        iteration costs more than a direct read.
        """
        sock = self.sock
        if sock is None or not NOW:
            return
        for _ in range(MAX_READS):
            if not self.receive_buffer.expects_more or self.silent:
                return
            try:
                with self.receive_buffer.writable() as buffer:
                    size = sock.recv_into(buffer, 0, NOW)
            except BlockingIOError:
                return
            except (OSError, MemoryError) as error:
                self._on_broken(describe_error(error))
                return
            if not size:  # The peer has closed the connection. The transport will report this.
                return
            self._on_bytes(size)

    def _decrypt(self, pipe: Pipe, data: memoryview) -> None:
        """Decrypt received bytes, and handle the decrypted ones. Report the end of the TLS handshake."""
        was_secured = pipe.secured
        try:
            pipe.feed(data)
        finally:  # After an error, TLS sends an alert with the reason to the broker.
            outgoing = pipe.outgoing()
            if outgoing:
                self.transport.write(outgoing)
        if pipe.secured and not was_secured and not self.silent:
            self.report(Opened(self.key))
        while not self.silent:
            with self.receive_buffer.writable() as buffer:
                size = pipe.read_into(buffer)
            if not size:
                return
            self._on_bytes(size)

    def _on_bytes(self, nbytes: int) -> None:
        """Report the responses that these bytes complete.

        While a response is incomplete, report at most once a second that bytes of it have arrived.
        """
        try:
            bodies = self.receive_buffer.received(nbytes)
        except FrameError as error:
            broken = Broken.from_frame_error(self.key, error)
            self._on_broken(broken.why, denied=broken.denied)
            return
        if bodies:
            self.responded = True
        for body in bodies:
            if not self.silent:
                self.report(Answer(self.key, body))
        if bodies:
            self.arriving_since = float("inf")
        elif not self.silent:
            at = time.monotonic()
            if at >= self.arriving_since + PROGRESS_INTERVAL_S:
                self.report(Data(self.key, b""))
                self.arriving_since = at
            self.arriving_since = min(self.arriving_since, at)

    def connection_lost(self, exc: Exception | None) -> None:
        closed_by_peer = CLOSED if self.pipe is None else self.pipe.end()
        self._on_broken(closed_by_peer if exc is None else describe_error(exc))

    def _on_broken(self, why: str, *, denied: bool = False) -> None:
        """Close the transport. Report `Broken`, unless the connection no longer reports events."""
        if not self.silent:
            self.silent = True
            self.report(Broken(self.key, why, denied))
        if denied:
            self.transport.close()  # `close` still sends the TLS alert, which `abort` would drop.
        else:
            self.transport.abort()


class Streams:
    """The sockets of one engine."""

    def __init__(self, tell: Callable[[NetworkEvent], object]) -> None:
        self._report = tell
        # The following dicts are keyed by connection (`Open.key`).
        self._transports: dict[int, tuple[asyncio.Transport, _Protocol]] = {}
        # The tasks that open a connection or get a token for it.
        self._opening: dict[int, asyncio.Task[None]] = {}
        # The errors of connections that broke before they were added to `_transports`.
        self._early_errors: dict[int, str] = {}
        self._failures = AddressFailures()
        self._resolver = Resolver(self._on_resolved)
        self._resolving: dict[int, asyncio.Future[Resolved]] = {}
        self._dials = DialThreads(self._on_resolved)
        self._dialing: dict[int, asyncio.Future[Dialed]] = {}
        # The event loop. It is set when the first connection is opened.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tls_buffer: memoryview | None = None
        # The task that requests a token for all connections that need one.
        self._token_task: asyncio.Task[Token | KerberosLogin] | None = None

    def perform(self, action: NetworkAction) -> None:
        """Perform an action of the network client."""
        match action:
            case Open(key=key):
                self._opening[key] = asyncio.get_running_loop().create_task(self._open_connection(action))
            case Write(key=key, data=data):
                if key in self._transports:
                    self._transports[key][1].write(data)
            case Shut(key=key):
                self._close_connection(key)
            case GetToken(key=key, source=source):
                self._opening[key] = asyncio.get_running_loop().create_task(self._get_token(key, source))

    async def _get_token(self, key: int, source: TokenSource | KerberosSource) -> None:
        """Get a token for a connection, and report it or the failure.

        If `source.shared` is true, connections that wait at the same time share one request for a token.
        """
        event: NetworkEvent
        task = self._token_task
        if task is None or task.done() or not source.shared:
            task = asyncio.get_running_loop().create_task(source.awaited())
            task.add_done_callback(_retrieve_error)
        if source.shared:
            self._token_task = task
        try:
            event = GotToken(key, await asyncio.shield(task))
        except NoToken as error:
            event = Broken(key, str(error), error.final)
        self._opening.pop(key, None)
        self._report(event)

    async def _open_connection(self, action: Open) -> None:
        """Call the dialer, if one is set. Otherwise connect to one of the addresses of the host name."""
        key, host, port = action.key, action.host, action.port
        self._loop = asyncio.get_running_loop()
        if action.dialer is not None:
            await self._open_with_dialer(action, action.dialer)
            return
        resolved = self._resolver.resolve(key, host, port)
        if resolved is None:
            self._resolving[key] = self._loop.create_future()
            try:
                resolved = await self._resolving[key]
            finally:
                del self._resolving[key]
        addresses = self._failures.sort((host, port), resolved.addresses)
        route = _Route((host, port), action.tls, action.max_response, addresses)
        await self._try_addresses(key, route, resolved.error or "the host name has no address")

    async def _open_with_dialer(self, action: Open, dialer: Dialer) -> None:
        """Open a connection with the application's dialer.

        A coroutine function runs in this task. An ordinary function may block, so it runs in a thread.
        """
        key, host, port = action.key, action.host, action.port
        route = _Route((host, port), action.tls, action.max_response, [])
        try:
            if is_coroutine_dialer(dialer):
                sock = connected_socket(await cast("Awaitable[socket.socket]", dialer(host, port)))
            else:
                dialed = await self._dial(key, dialer, host, port)
                if dialed.sock is None:
                    self._report_failure(key, dialed.error)
                    return
                sock = dialed.sock
            # The connection was closed while the dialer ran, but the dialer ignored its cancellation.
            if key not in self._opening:
                sock.close()
                return
            connection = await self._create_transport(key, sock, action.max_response)
        except (GeneratorExit, KeyboardInterrupt):
            raise
        # A dialer may raise any exception, even SystemExit. If it were not caught here, the connection
        # attempt would never end.
        except BaseException as error:
            task = asyncio.current_task()
            is_cancelled = isinstance(error, asyncio.CancelledError)
            if is_cancelled and (task is None or task.cancelling()):
                raise  # The connection was closed, or the event loop is shutting down.
            if key in self._opening:
                self._report_failure(key, dialer_error(dialer, error))
        else:
            early_error = self._start_using(key, connection, route)
            if early_error is not None:
                self._report_failure(key, early_error)

    async def _dial(self, key: int, dialer: Dialer, host: str, port: int) -> Dialed:
        """Call a dialer in a thread, and return its result."""
        assert self._loop is not None
        dialed = self._dials.dial(key, dialer, host, port)
        if dialed is not None:
            return dialed
        waiter: asyncio.Future[Dialed] = self._loop.create_future()
        self._dialing[key] = waiter
        try:
            return await waiter
        except asyncio.CancelledError:
            self._dials.forget(key)
            if waiter.done() and not waiter.cancelled() and (sock := waiter.result().sock) is not None:
                sock.close()
            raise
        finally:
            del self._dialing[key]

    async def _try_addresses(self, key: int, route: _Route, why: str, broken_why: str = "") -> None:
        """Connect to the remaining addresses in turn, until one accepts the connection.

        If all attempts fail, the error of the last attempt is reported. If no address remained before the
        first attempt, `why` is reported.

        `broken_why` is the error of a connection that broke after an address had accepted it. It is reported
        instead of the errors of the addresses that are tried later.
        """
        while route.addresses:
            address = route.address = route.addresses.pop(0)
            timeout_s = PATIENCE_S if route.addresses else None
            try:
                connection = await self._connect(key, address, route.max_response, timeout_s)
            except TimeoutError:
                why = f"no answer within {PATIENCE_S:g} s"
            except _ERRORS as error:
                why = describe_error(error)
            except asyncio.CancelledError:
                self._failures.add(route.host, address)
                raise
            else:
                early_error = self._start_using(key, connection, route)
                if early_error is None:
                    return
                broken_why = broken_why or early_error
            self._failures.add(route.host, address)
        self._report_failure(key, broken_why or why)

    def _start_using(
        self, key: int, connection: tuple[asyncio.Transport, _Protocol], route: _Route
    ) -> str | None:
        """Start using an established connection. If it is already broken, return its error."""
        early_error = self._early_errors.pop(key, None)
        if early_error is None:
            _, protocol = connection
            self._opening.pop(key, None)
            protocol.route = route
            self._transports[key] = connection
            self._start_handshake(key, route.host[0], protocol, route.tls)
        return early_error

    def _on_resolved(self) -> None:
        """Pass resolved addresses and dialed sockets to the event loop. The resolver and dialer threads call
        this method.

        The resolver does not use the loop's executor, which accepts no work after the main thread has ended,
        although the loop may still run in another thread.
        """
        assert self._loop is not None
        # A RuntimeError means that the loop is closed, so no task waits.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._complete_waiters)

    def _complete_waiters(self) -> None:
        for resolved in self._resolver.take():
            waiter = self._resolving.get(resolved.key)
            # If the future is missing or done, the connection was closed during the name lookup.
            if waiter is not None and not waiter.done():
                waiter.set_result(resolved)
        for dialed in self._dials.take():
            dialing = self._dialing.get(dialed.key)
            if dialing is not None and not dialing.done():
                dialing.set_result(dialed)
            elif dialed.sock is not None:
                dialed.sock.close()

    def _start_handshake(self, key: int, host: str, protocol: _Protocol, tls: Tls | None) -> None:
        """Report a new connection, and start its TLS handshake if it uses TLS."""
        if tls is None:
            self._report(Opened(key))
            return
        self._report(Reached(key))
        if key not in self._transports:  # The engine has closed the connection in response to `Reached`.
            return
        try:
            if self._tls_buffer is None:
                self._tls_buffer = memoryview(bytearray(TLS_BUFFER_BYTES))
            protocol.start_tls(tls.pipe(host), self._tls_buffer)
        except TlsFailed as error:
            self._close_connection(key)
            self._report(Broken(key, str(error), denied=True))

    async def _connect(
        self, key: int, address: Address, max_response: int, timeout_s: float | None
    ) -> tuple[asyncio.Transport, _Protocol]:
        """Connect to an address.

        Raises TimeoutError after `timeout_s` seconds, or another of the errors in `_ERRORS` after a failure.
        """
        family, socket_address = address
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            # `wait_for` is not used: in Python 3.11 it loses a cancellation if the awaited task has just
            # ended.
            async with asyncio.timeout(timeout_s):
                await asyncio.get_running_loop().sock_connect(sock, socket_address)
        except BaseException:
            sock.close()
            raise
        return await self._create_transport(key, sock, max_response)

    async def _create_transport(
        self, key: int, sock: socket.socket, max_response: int
    ) -> tuple[asyncio.Transport, _Protocol]:
        """Return a transport for a connected socket. If an error occurs, the socket is closed."""
        try:
            transport, protocol = await asyncio.get_running_loop().create_connection(
                lambda: _Protocol(key, max_response, self._on_event), sock=sock
            )
            protocol.sock = sock
            return transport, protocol
        except BaseException:
            sock.close()
            raise

    def _on_event(self, event: NetworkEvent) -> None:
        """Report the event of a connection.

        If the connection broke before its first response, and was not denied, the method tries the host's
        other addresses. It then reports the break only if none of these addresses accepts a connection.
        """
        if isinstance(event, Broken):
            connection = self._transports.pop(event.key, None)
            if connection is None:
                if event.key in self._opening:
                    self._early_errors[event.key] = event.why
                return
            _, protocol = connection
            route = protocol.route
            self._record_failure(protocol)
            if route is not None and route.addresses and not (protocol.responded or event.denied):
                attempt = self._try_addresses(event.key, route, "", broken_why=event.why)
                self._opening[event.key] = asyncio.get_running_loop().create_task(attempt)
                return
        self._report(event)

    def _record_failure(self, protocol: _Protocol) -> None:
        """Count the address of an ended connection as failed if the broker has never responded on it."""
        route = protocol.route
        if route is not None and route.address is not None and not protocol.responded:
            self._failures.add(route.host, route.address)

    def _report_failure(self, key: int, why: str) -> None:
        """Report that a connection could not be opened."""
        self._opening.pop(key, None)
        self._report(Broken(key, why))

    def _close_connection(self, key: int) -> None:
        """Close a connection, or end the task that opens it. No event is reported."""
        opening = self._opening.pop(key, None)
        if opening is not None:
            opening.cancel()
        self._early_errors.pop(key, None)
        connection = self._transports.pop(key, None)
        if connection is not None:
            _, protocol = connection
            self._record_failure(protocol)
            protocol.close()

    def close(self, *, abort: bool = False) -> None:
        """Close all connections without reporting events. With `abort`, unsent bytes are dropped."""
        if self._token_task is not None:
            self._token_task.cancel()
        for key in [*self._opening, *self._transports]:
            if abort and key in self._transports:
                transport, protocol = self._transports.pop(key)
                protocol.silent = True
                transport.abort()
            else:
                self._close_connection(key)


def _retrieve_error(task: asyncio.Task[Token | KerberosLogin]) -> None:
    """Retrieve the error of a token request, so that asyncio does not log it as unhandled.

    Each connection that still waits for the token handles the error.
    """
    if not task.cancelled():
        task.exception()

"""Dialers: functions of the application that open connections to brokers, for example through a proxy.

    def through_tunnel(host, port):
        return tunnel.connect(host, port)  # a connected socket

    Consumer("broker:9092", dialer=through_tunnel)

Rules:

* A dialer is called with the host and port of a broker. It resolves the host name, and returns a connected
  socket.

* The client owns the returned socket, and performs the TLS handshake and the SASL authentication on it.

* A dialer may block, because it runs in a separate thread.

* The dialer of an asyncio client may be a coroutine function, which runs in the event loop.

* The connection setup timeout includes the time that the dialer takes.

* A dialer in a thread cannot be stopped. If it returns a socket too late, the next attempt for the same
  broker uses the socket.

* If a dialer raises an exception, or does not return a socket, the connection fails with an error that names
  the dialer.

* After a failure of the dialer the client retries with a backoff.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from inspect import iscoroutinefunction
from typing import Any, TypeAlias

import msgspec

from kproto.errors import ConfigError

from .serializers import close_coroutine, describe

# A function of (host, port) that returns a connected socket.
Dialer: TypeAlias = Callable[[str, int], socket.socket | Awaitable[socket.socket]]
# An error message quotes at most this many characters of a dialer's exception.
_MAX_ERROR_CHARS = 300


class Dialed(msgspec.Struct):
    """The result of a dialer for the connection `key`: a connected socket, or why the dialer failed."""

    key: int
    sock: socket.socket | None
    error: str = ""


def dialer_name(dialer: Any) -> str:
    """Return a dialer's name for error messages: its attribute `name`, or its function or class name."""
    name = getattr(dialer, "name", None) or getattr(dialer, "__qualname__", None) or type(dialer).__qualname__
    return f"the dialer {name}"


def is_coroutine_dialer(dialer: Any) -> bool:
    """Return whether a dialer is a coroutine function, which only an asyncio client can call."""
    return iscoroutinefunction(dialer) or iscoroutinefunction(getattr(dialer, "__call__", None))  # noqa: B004


def check_dialer(dialer: Any, *, awaits: bool) -> None:
    """Raise ConfigError for a coroutine function if this client cannot await it."""
    if dialer is not None and not awaits and is_coroutine_dialer(dialer):
        raise ConfigError(
            "dialer",
            dialer,
            "set it to a plain function, because only asyncio clients can await a coroutine",
        )


def connected_socket(answer: object) -> socket.socket:
    """Convert the socket of a dialer into a plain, non-blocking socket.

    Raises TypeError unless `answer` is a socket without TLS. Raises OSError if the socket is not connected.
    A rejected socket is closed.
    """
    if not isinstance(answer, socket.socket):
        close_coroutine(answer)
        raise TypeError(f"it returned {answer!r:.80} instead of a connected socket")
    try:
        # A TLS socket can only exist if the application has imported `ssl`.
        if (ssl := sys.modules.get("ssl")) is not None and isinstance(answer, ssl.SSLSocket):
            raise TypeError("it returned a socket with TLS; set security_protocol instead")
        answer.getpeername()
        # A subclass of `socket`, such as `socksocket` of PySocks, may override methods. So the descriptor is
        # moved to a plain socket.
        plain = socket.socket(fileno=answer.detach())
    except BaseException:
        with contextlib.suppress(OSError):
            answer.close()
        raise
    plain.setblocking(False)
    return plain


def dialer_error(dialer: Any, error: BaseException) -> str:
    """Return the error message for a dialer that failed with `error`."""
    return f"{dialer_name(dialer)} failed: {describe(error):.{_MAX_ERROR_CHARS}}"


class DialThreads:
    """Calls a dialer in threads. One of these threads calls `on_dialed` when `take` has a result."""

    def __init__(self, on_dialed: Callable[[], object]) -> None:
        self._on_dialed = on_dialed
        self._results: deque[Dialed] = deque()
        self._lock = threading.Lock()
        # (host, port) -> the keys of the connections that wait for a socket.
        self._waiting: dict[tuple[str, int], deque[int]] = {}
        # (host, port) -> the number of threads in which the dialer runs.
        self._running: dict[tuple[str, int], int] = {}

    def dial(self, key: int, dialer: Dialer, host: str, port: int) -> Dialed | None:
        """Call the dialer in a thread, for the connection `key`. Return an error if no thread can start."""
        address = host, port
        with self._lock:
            waiting = self._waiting.setdefault(address, deque())
            waiting.append(key)
            if self._running.get(address, 0) >= len(waiting):
                # A thread is still calling the dialer for a connection that was closed. The new connection
                # gets this thread's socket.
                return None
            self._running[address] = self._running.get(address, 0) + 1
        try:
            name = f"kproto-dialer-{host}"
            threading.Thread(
                target=self._run_dialer, args=(dialer, host, port), name=name, daemon=True
            ).start()
        except RuntimeError as error:  # The system cannot start another thread.
            with self._lock:
                waiting.remove(key)
                self._running[address] -= 1
            return Dialed(key, None, dialer_error(dialer, error))
        return None

    def forget(self, key: int) -> None:
        """Forget a closed connection.

        If the closed connection's dialer returns a socket later, the next waiting connection to the same
        broker uses the socket. If no connection waits, the socket is closed.
        """
        with self._lock:
            for waiting in self._waiting.values():
                if key in waiting:
                    waiting.remove(key)

    def take(self) -> list[Dialed]:
        """Return the results that have arrived since the last call."""
        results: list[Dialed] = []
        while self._results:
            results.append(self._results.popleft())
        return results

    def _run_dialer(self, dialer: Dialer, host: str, port: int) -> None:
        """Call the dialer, and pass its result to the connection that has waited longest for `host:port`."""
        sock, failure = None, ""
        try:
            sock = connected_socket(dialer(host, port))
        # An exception in the dialer must not end this thread without a result.
        except BaseException as error:
            failure = dialer_error(dialer, error)
        with self._lock:
            self._running[host, port] -= 1
            waiting = self._waiting[host, port]
            key = waiting.popleft() if waiting else None
        if key is not None:
            self._results.append(Dialed(key, sock, failure))
            self._on_dialed()
        elif sock is not None:
            sock.close()

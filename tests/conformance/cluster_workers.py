"""Clients in threads or event loops during an operator's actions, and the time that they take to close."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from types import TracebackType
from typing import Any

from kproto.errors import KprotoError

# The timeout of each close, in seconds.
CLOSE_S = 15.0


class Closes:
    """The longest time (s) that a client took to close, and the errors of all closes."""

    def __init__(self) -> None:
        self.longest = 0.0
        self.errors: list[str] = []

    @contextmanager
    def closing(self, client: Any) -> Iterator[Any]:
        """Close the client at the end of the `with` block, within CLOSE_S seconds, and measure the time."""
        try:
            yield client
        finally:
            began = time.monotonic()
            try:
                client.close(timeout=CLOSE_S)
            except KprotoError as error:
                self.errors.append(f"close: {type(error).__name__}: {error}")
            self.longest = max(self.longest, time.monotonic() - began)

    @asynccontextmanager
    async def closing_async(self, client: Any) -> AsyncIterator[Any]:
        """Close an asyncio client at the end of the `async with` block, as `closing` does, and check that
        none of its tasks remains.
        """
        try:
            yield client
        finally:
            began = time.monotonic()
            try:
                await client.close(timeout=CLOSE_S)
            except KprotoError as error:
                self.errors.append(f"close: {type(error).__name__}: {error}")
            self.longest = max(self.longest, time.monotonic() - began)
            await asyncio.sleep(0)
            remaining = asyncio.all_tasks() - {asyncio.current_task()}
            self.errors += [f"close left the task {task.get_coro()}" for task in remaining]


class InThread:
    """The base class of clients in threads. The subclass's `_work` runs during the `with` block."""

    errors: list[str]

    def __init__(self) -> None:
        self.errors = []
        self.closes = Closes()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Any:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join(200)
        assert error is not None or not self._thread.is_alive(), f"{type(self).__name__} hangs"

    def _run(self) -> None:
        try:
            self._work()
        except Exception as error:
            self.errors.append(f"{type(error).__name__}: {error}")
        self.errors += self.closes.errors

    def _work(self) -> None:
        raise NotImplementedError


def open_resources() -> set[str]:
    """Return a unique name for each thread of a kproto client and each open socket of this process.

    Sockets to the JVM of a Spark session are left out: pyspark opens and closes them at any time.
    """
    threads = {
        f"{thread.name} ({thread.ident})"
        for thread in threading.enumerate()
        if thread.name.startswith("kproto")
    }
    files = {socket_at(int(entry)) for entry in os.listdir("/proc/self/fd")}
    return threads | files - {""}


def socket_at(file: int) -> str:
    """Return the name and the peer of the socket with this file descriptor, or "" for other files."""
    with suppress(OSError):
        target = os.readlink(f"/proc/self/fd/{file}")
        if target.startswith("socket:"):
            with socket.socket(fileno=os.dup(file)) as copy:
                own, peer = copy.getsockname(), _peer(copy)
            return "" if {own, peer} & _addresses_of_spark() else f"{target} to {peer}"
    return ""


def _peer(connected: socket.socket) -> Any:
    with suppress(OSError):  # A listening socket has no peer.
        return connected.getpeername()
    return None


def _addresses_of_spark() -> set[Any]:
    """Return the addresses of this process's Spark session: the JVM's and the accumulator server's."""
    pyspark = sys.modules.get("pyspark")
    if pyspark is None or (context := pyspark.SparkContext._active_spark_context) is None:
        return set()
    gateway = context._gateway.gateway_parameters
    return {(gateway.address, gateway.port), context._accumulatorServer.server_address}

"""Who works in a thread, or in an event loop of its own, while an operator works on the brokers; and how its
clients are closed.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from types import TracebackType
from typing import Any

from kproto.errors import KprotoError

# How long who closes a client waits at most.
CLOSE_S = 15.0


class Closes:
    """How long closing took, of every client; and what it raised."""

    def __init__(self) -> None:
        self.longest = 0.0
        self.errors: list[str] = []

    @contextmanager
    def closing(self, client: Any) -> Iterator[Any]:
        """The client's block: its close is given CLOSE_S, and timed."""
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
        """The same; and no task of the client's is left."""
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
            left = asyncio.all_tasks() - {asyncio.current_task()}
            self.errors += [f"close left the task {task.get_coro()}" for task in left]


class InThread:
    """Runs `_work` in a thread of its own while its block lasts, a coroutine in an event loop."""

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


def at_hand() -> set[str]:
    """Our clients' threads and the sockets that this process has open, each by a name that no other has."""
    threads = {f"{one.name} ({one.ident})" for one in threading.enumerate() if one.name.startswith("kproto")}
    files = {socket_at(int(entry)) for entry in os.listdir("/proc/self/fd")}
    return threads | files - {""}


def socket_at(file: int) -> str:
    """The socket with this number; "" for other files, and where none is open any more."""
    with suppress(OSError):
        if (found := os.readlink(f"/proc/self/fd/{file}")).startswith("socket:"):
            return found
    return ""

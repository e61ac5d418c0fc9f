"""An event loop in its own thread, for a client that other threads call."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from typing import Any, Generic, Protocol, TypeVar

from kproto.errors import IllegalState

from .. import lifecycle
from ..blocking.signals import Held

T = TypeVar("T")
R = TypeVar("R")

# Seconds for which `close` waits until iterators have ended.
END_S = 0.05
# Seconds between two checks of a waiting thread whether the loop still runs.
CHECK_S = 1.0


class Source(Protocol[R]):
    """The source that `LoopThread.iterate` reads: a `Channel` or a `RecordQueue`."""

    items: deque[R]

    async def ready(self) -> bool:
        """Wait for an item; False if there are no more."""
        ...


class LoopThread(Generic[T]):
    """Runs an event loop until `close`. `make` creates `client` in the loop. Its exceptions are raised here.

    The child of a fork does not have this thread. There every call raises IllegalState, and closing does
    nothing.

    Ctrl-C ends any wait without losing items. Locks that both threads use are taken while signals are held: a
    Condition that Ctrl-C interrupts may stay locked, and the loop's thread would wait for it without end.
    """

    def __init__(self, name: str, make: Callable[[], T]) -> None:
        self._loop = asyncio.new_event_loop()
        self._stopping: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=_run_loop, args=(self._loop,), name=name, daemon=True)
        self._thread.start()
        self._forked = False
        lifecycle.register(self)

        async def make_client() -> T:
            return make()

        try:
            self.client = self.run(make_client())
        except BaseException:
            self._stop()
            raise

    @property
    def ended(self) -> bool:
        """Whether the loop has stopped."""
        return self._forked or self._loop.is_closed()

    def check_usable(self, closed: str = "this client is closed; make a new one") -> None:
        """Raise IllegalState if the loop has stopped."""
        if self._forked:
            raise IllegalState(
                "this client was opened before the process forked and belongs to the parent; "
                "make a new one in the child"
            )
        if self._loop.is_closed():
            raise IllegalState(closed)

    def run(self, work: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine in the loop, and wait for its result. Raises IllegalState if the loop has ended."""
        try:
            self.check_usable()
        except IllegalState:
            work.close()
            raise
        try:
            return self._run(work)
        except CancelledError:
            raise IllegalState("this client was closed meanwhile") from None

    def _run(self, work: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine; raise CancelledError if the loop ends before it does."""
        done = threading.Lock()
        done.acquire()
        future: Future[R] | None = None
        try:
            with Held():
                future = self._start(work)
                future.add_done_callback(lambda _: done.release())
            # A loop that has stopped, and is not closed yet, accepts coroutines that it never runs.
            while not done.acquire(timeout=CHECK_S) and not self.ended:
                pass
            with Held():
                if future.done():
                    return future.result()
                if inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
                    work.close()
                raise CancelledError
        except CancelledError:
            raise
        except BaseException:  # After Ctrl-C the coroutine ends in the background, and close() waits for it.
            with Held():
                if future is None:
                    work.close()
                elif not future.done():
                    future.cancel()
            raise

    def _start(self, work: Coroutine[Any, Any, R]) -> Future[R]:
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:  # The loop has ended in the meantime.
            work.close()
            raise CancelledError from None

    def call(self, function: Callable[[], R]) -> R:
        """Call a function in the loop, and return its result."""

        async def work() -> R:
            return function()

        return self.run(work())

    def iterate(self, source: Source[R]) -> Iterator[R]:
        """Yield the items of `source` in this thread, until it ends or the loop does."""
        if self._forked:
            self.check_usable()
        more = True
        while not self._forked:
            taken_items = _take_first(source.items)
            if not taken_items and not more:
                return
            yield from taken_items
            if not taken_items:
                try:
                    more = self.run(source.ready())
                except IllegalState:  # The last items of the source can still be read.
                    more = False

    def close(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a last coroutine, and end the thread.

        A second call, at the same time or after Ctrl-C, waits for the same end.
        """
        if self.ended:
            work.close()
            return
        try:
            self._run(work)
        except CancelledError:  # Another thread closed the loop first.
            pass
        finally:
            self._stop()

    def on_fork(self) -> None:
        """Reject all calls in the child of a fork."""
        self._forked = True

    def on_exit(self) -> str:
        """Return nothing: the client in the loop reports what it loses."""
        return ""

    def _stop(self) -> None:
        """Stop the loop, and wait for its thread.

        The thread itself closes the loop, whichever thread waits.
        """
        lifecycle.unregister(self)

        async def stop() -> None:
            await asyncio.sleep(END_S)
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:  # Otherwise a thread that waits for one of them would never return.
                task.cancel()
            if tasks:
                await asyncio.wait(tasks, timeout=CHECK_S)
            self._loop.stop()

        def start_to_stop() -> None:
            self._stopping = self._stopping or self._loop.create_task(stop())

        with Held(), contextlib.suppress(RuntimeError):  # The loop has ended in the meantime.
            self._loop.call_soon_threadsafe(start_to_stop)
        self._thread.join()


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


def _take_first(items: deque[R]) -> list[R]:
    """Take the first item, if there is one. If Ctrl-C interrupts the caller, the item is put back."""
    items_taken: list[R] = []
    try:
        # The queue is empty, or another thread has taken the item.
        with Held(), contextlib.suppress(IndexError):
            items_taken.append(items.popleft())
    except BaseException:
        items.extendleft(items_taken)
        raise
    return items_taken

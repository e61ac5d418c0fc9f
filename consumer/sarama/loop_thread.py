"""An event loop in its own thread, for an asyncio client that is called by other threads."""

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

# Time (s) that `close` waits for the remaining tasks, such as tasks of iterators, before it cancels them.
END_S = 0.05
# Interval (s) at which a waiting thread checks whether the loop is still running.
CHECK_S = 1.0


class Source(Protocol[R]):
    """A source of items for `LoopThread.iterate`: a `Channel` or a `RecordQueue`."""

    items: deque[R]

    async def ready(self) -> bool:
        """Wait for an item. Return False if the source has ended and is empty."""
        ...


class LoopThread(Generic[T]):
    """Runs an event loop in a thread until `close` is called.

    The function `make` creates `client` in the loop. The constructor raises the exceptions of `make`.

    The child process of a fork does not have this thread. In the child, every call raises IllegalState, and
    `close` does nothing.

    Ctrl-C can interrupt any wait, and no item is lost.

    Signals are delayed (`Held`) while a lock is acquired that the loop's thread also uses. If Ctrl-C
    interrupted a Condition and left it locked, the loop's thread would wait forever.
    """

    def __init__(self, name: str, make: Callable[[], T]) -> None:
        self._loop = asyncio.new_event_loop()
        self._stop_task: asyncio.Task[None] | None = None
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
        """Whether the loop has stopped, or this process is the child of a fork."""
        return self._forked or self._loop.is_closed()

    def check_usable(self, closed: str = "this client is closed; make a new one") -> None:
        """Raise IllegalState if the loop has stopped, or if this process is the child of a fork."""
        if self._forked:
            raise IllegalState(
                "this client was opened before the process forked and belongs to the parent; "
                "make a new one in the child"
            )
        if self._loop.is_closed():
            raise IllegalState(closed)

    def run(self, work: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine in the loop, and return its result. Raises IllegalState if the loop has ended."""
        try:
            self.check_usable()
        except IllegalState:
            work.close()
            raise
        try:
            return self._run(work)
        except CancelledError:
            raise IllegalState("this client was closed during the call") from None

    def _run(self, work: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine in the loop, and return its result. Raise CancelledError if the loop ends first."""
        done = threading.Lock()  # The loop's thread releases this lock when the coroutine has ended.
        done.acquire()
        future: Future[R] | None = None
        try:
            with Held():
                future = self._start_coroutine(work)
                future.add_done_callback(lambda _: done.release())
            # A loop that has stopped but is not closed yet accepts coroutines that it never runs.
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

    def _start_coroutine(self, work: Coroutine[Any, Any, R]) -> Future[R]:
        """Schedule a coroutine in the loop. Raise CancelledError if the loop is closed."""
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:  # RuntimeError: another thread has closed the loop.
            work.close()
            raise CancelledError from None

    def call(self, function: Callable[[], R]) -> R:
        """Call a function in the loop, and return its result."""

        async def call_function() -> R:
            return function()

        return self.run(call_function())

    def iterate(self, source: Source[R]) -> Iterator[R]:
        """Yield the items of `source` in the calling thread, until the source or the loop ends.

        If the event loop ends, the items that the source still holds are yielded first.
        """
        if self._forked:
            self.check_usable()
        may_continue = True
        while not self._forked:
            popped_items = _pop_first(source.items)
            if not popped_items and not may_continue:
                return
            yield from popped_items
            if not popped_items:
                try:
                    may_continue = self.run(source.ready())
                except IllegalState:
                    may_continue = False

    def close(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a last coroutine in the loop, then end the loop and its thread.

        A second call, from another thread or after Ctrl-C, also waits for the thread to end.
        """
        if self.ended:
            work.close()
            return
        try:
            self._run(work)
        except CancelledError:  # The loop was closed by another thread before the coroutine ended.
            pass
        finally:
            self._stop()

    def on_fork(self) -> None:
        """Reject all calls in the child of a fork."""
        self._forked = True

    def on_exit(self) -> str:
        """Return no warning. The client that runs in the loop has its own `on_exit`, and warns there."""
        return ""

    def _stop(self) -> None:
        """Stop the loop, and wait for its thread.

        The loop's own thread closes the loop. The calling thread only waits for the end of that thread.
        """
        lifecycle.unregister(self)

        async def stop() -> None:
            await asyncio.sleep(END_S)
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            # If a task were not cancelled, a thread that waits for it in `run` would never return.
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks, timeout=CHECK_S)
            self._loop.stop()

        def start_stop_task() -> None:
            # The task is created only once, because several threads may call `close`.
            self._stop_task = self._stop_task or self._loop.create_task(stop())

        # A RuntimeError means that another thread has closed the loop.
        with Held(), contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(start_stop_task)
        self._thread.join()


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


def _pop_first(items: deque[R]) -> list[R]:
    """Remove the first item of the queue, and return it in a list. If the queue is empty, return [].

    If Ctrl-C interrupts the function after it has removed the item, the item is put back.
    """
    popped_items: list[R] = []
    try:
        # An IndexError means that the queue is empty.
        with Held(), contextlib.suppress(IndexError):
            popped_items.append(items.popleft())
    except BaseException:
        items.extendleft(popped_items)
        raise
    return popped_items

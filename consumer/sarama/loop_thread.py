"""An event loop in a thread of its own, for what lives there and is called from other threads."""

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

END_S = 0.05
"""In which iterators come to their end by themselves."""
LOOK_S = 1.0
"""How often who waits for an item looks whether the loop is still there."""


class Source(Protocol[R]):
    """What is told there, for `LoopThread.iterate`."""

    kept: deque[R]

    async def ready(self) -> bool:
        """Waits until something is kept. False: nothing more comes."""
        ...


class LoopThread(Generic[T]):
    """Runs until `close`. `made` is what `make` returned in there; when it raises, that is raised here.

    The child of a fork has no such thread: there every call raises IllegalState, and closing does nothing.

    Ctrl-C ends any wait here and loses nothing. What both threads lock is locked where signals are held: a
    Condition that Ctrl-C interrupts may stay locked, and the loop's thread would stand in it for ever.
    """

    def __init__(self, name: str, make: Callable[[], T]) -> None:
        self._loop = asyncio.new_event_loop()
        self._stopping: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=_run, args=(self._loop,), name=name, daemon=True)
        self._thread.start()
        self._forked = False
        lifecycle.opened(self)

        async def made() -> T:
            return make()

        try:
            self.made = self.do(made())
        except BaseException:
            self._stop()
            raise

    @property
    def ended(self) -> bool:
        return self._forked or self._loop.is_closed()

    def usable(self, otherwise: str = "this client is closed; make a new one") -> None:
        """Raises IllegalState when nothing runs there any more."""
        if self._forked:
            raise IllegalState(
                "this client was opened before the process forked and belongs to the parent; "
                "make a new one in the child"
            )
        if self._loop.is_closed():
            raise IllegalState(otherwise)

    def do(self, work: Coroutine[Any, Any, R]) -> R:
        """Lets it run there and waits for it. Raises IllegalState when the loop has ended."""
        try:
            self.usable()
        except IllegalState:
            work.close()
            raise
        try:
            return self._done(work)
        except CancelledError:
            raise IllegalState("this client was closed meanwhile") from None

    def _done(self, work: Coroutine[Any, Any, R]) -> R:
        """Raises CancelledError when the loop ends before it does."""
        over = threading.Lock()
        over.acquire()
        future: Future[R] | None = None
        try:
            with Held():
                future = self._begun(work)
                future.add_done_callback(lambda _: over.release())
            # A loop that has stopped, and isn't closed yet, takes work that it never does.
            while not over.acquire(timeout=LOOK_S) and not self.ended:
                pass
            with Held():
                if future.done():
                    return future.result()
                if inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
                    work.close()
                raise CancelledError
        except CancelledError:
            raise
        except BaseException:  # Ctrl-C: it ends behind our back, and close() waits for it
            with Held():
                if future is None:
                    work.close()
                elif not future.done():
                    future.cancel()
            raise

    def _begun(self, work: Coroutine[Any, Any, R]) -> Future[R]:
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:  # it ended just now
            work.close()
            raise CancelledError from None

    def there(self, what: Callable[[], R]) -> R:
        """Calls it there."""

        async def work() -> R:
            return what()

        return self.do(work())

    def iterate(self, source: Source[R]) -> Iterator[R]:
        """What comes there, here; ends when that does, or the loop."""
        if self._forked:
            self.usable()
        more = True
        while not self._forked:
            taken = _taken(source.kept)
            if not taken and not more:
                return
            yield from taken
            if not taken:
                try:
                    more = self.do(source.ready())
                except IllegalState:  # what it has told before its end is still there
                    more = False

    def close(self, work: Coroutine[Any, Any, None]) -> None:
        """Lets the last thing run there, and ends the thread. Whoever else closes meanwhile, or again behind
        Ctrl-C, waits for the same end.
        """
        if self.ended:
            work.close()
            return
        try:
            self._done(work)
        except CancelledError:  # somebody else was quicker
            pass
        finally:
            self._stop()

    def on_fork(self) -> None:
        self._forked = True

    def on_exit(self) -> str:
        return ""  # what lives there says it

    def _stop(self) -> None:
        """Asks for the end, and waits for it: the thread itself closes its loop, whoever waits."""
        lifecycle.ended(self)

        async def stop() -> None:
            await asyncio.sleep(END_S)
            rest = asyncio.all_tasks() - {asyncio.current_task()}
            for task in rest:  # who waits for one would wait for ever
                task.cancel()
            if rest:
                await asyncio.wait(rest, timeout=LOOK_S)
            self._loop.stop()

        def asked() -> None:
            self._stopping = self._stopping or self._loop.create_task(stop())

        with Held(), contextlib.suppress(RuntimeError):  # it ended just now
            self._loop.call_soon_threadsafe(asked)
        self._thread.join()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


def _taken(kept: deque[R]) -> list[R]:
    """The first one, if there is one. What Ctrl-C keeps from its caller is for whoever asks next."""
    taken: list[R] = []
    try:
        with Held(), contextlib.suppress(IndexError):  # there is none, or another thread was quicker
            taken.append(kept.popleft())
    except BaseException:
        kept.extendleft(taken)
        raise
    return taken

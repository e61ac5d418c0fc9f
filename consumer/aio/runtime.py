"""Runs the engine of an asyncio client in the event loop.

Code that blocks the loop also blocks heartbeats and fetches. Callbacks may be coroutine functions. Each
callback runs to completion in its own task, even if the call that started the callback is cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import weakref
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from functools import partial
from types import TracebackType
from typing import Any

from kproto.errors import IllegalState

from .. import lifecycle
from ..clock import now
from ..engine import events as ev
from ..engine.network.transport import NetworkAction, NetworkEvent
from ..logs import log
from ..runtime import CLOSE, NO_CLAIM, Driver, Runtime
from .streams import Streams
from .waiters import TaskWaiters, current_task


class AsyncRuntime(Runtime):
    """Runs an engine in an event loop: the loop in which the client is first used."""

    awaits_callbacks = True

    def __init__(self, driver: Driver, *, exclusive: bool = False) -> None:
        self.waiters = TaskWaiters()
        super().__init__(driver, self.waiters, exclusive=exclusive)
        # The streams and the timer refer to the runtime only weakly, so a dropped client is freed.
        self._ref: weakref.ref[AsyncRuntime] = weakref.ref(self)
        self.streams = Streams(partial(_on_event, self._ref))
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: int | None = None
        # The task that is running a method which may call callbacks, and the name of this method.
        self._serving_call: tuple[asyncio.Task[Any] | None, str] | None = None
        self.callback_task: asyncio.Task[None] | None = None
        lifecycle.register(self)

    # ---- the event loop

    def on_event(self, event: NetworkEvent | ev.Tick) -> None:
        """Pass an event of the network or of the timer to the engine."""
        if self.closed or self.forked or self.failure is not None:
            return
        try:
            # If the client fails, `_apply_events` wakes the waiting tasks before it raises IllegalState.
            with contextlib.suppress(IllegalState):
                self._apply_events((event,))
        # After an exception other than IllegalState, the client cannot be used, because the engine's state
        # may be only partly updated. The exception propagates to the event loop.
        except BaseException as error:
            self._fail_client(error)
            raise
        finally:
            self._set_timer()
            self._report_and_complete()

    def _set_timer(self) -> None:
        """Set the timer to the engine's next deadline, or cancel the timer if there is no deadline."""
        due = None if self.closed or self.failure is not None else self.driver.due()
        if due == self._timer_at and self._timer is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_at = due
        if due is not None and self._loop is not None:
            self._timer = self._loop.call_later(max(0, due - now()) / 1000, _on_timer, self._ref)

    def __del__(self) -> None:
        loop = getattr(self, "_loop", None)
        if loop is None or self.closed or self.forked:
            return
        lifecycle.unregister(self)
        with contextlib.suppress(RuntimeError):  # A RuntimeError means that the loop is closed.
            loop.call_soon_threadsafe(abandon, self.streams, self._timer)
        if loss := self.driver.loss():
            # Pass a string, not the runtime, because a log record keeps its arguments alive.
            log.warning("%s was dropped without close()%s", str(self), loss)

    # ---- the application's tasks

    def apply(self, *events: ev.Event, last: ev.Event | None = None) -> list[ev.Action]:
        self.check_usable()
        try:
            return self._apply_events(events, last)
        finally:
            self._set_timer()
            self._report_and_complete()

    def wakeup(self) -> None:
        self.woken = True
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # The loop is closed.
                self._loop.call_soon_threadsafe(self.notify)

    async def wait(self, last_change: int, deadline: int) -> bool:
        return await self.waiters.wait(last_change, deadline)

    async def pause(self) -> None:
        await self.waiters.pause(delivering=self.delivering is not None)

    def caller(self) -> object:
        return current_task()

    def locked(self) -> AbstractContextManager[Any]:
        return NO_CLAIM

    async def result(self, future: asyncio.Future[Any]) -> Any:
        return await future

    # ---- callbacks and futures

    async def callback_finished(self, deadline: int | None = None) -> bool:
        task = self.callback_task
        if task is None:
            return True
        await asyncio.wait([task], timeout=None if deadline is None else max(0, deadline - now()) / 1000)
        # If the task that started the callback was cancelled, the next task that calls this method raises the
        # callback's exception.
        if not task.done():
            return False
        if self.callback_task is task:
            self.callback_task = None
        # The callback's CancelledError is replaced by IllegalState, because CancelledError would cancel the
        # task that waits for the callback.
        if task.cancelled():
            raise IllegalState(f"{task.get_name()} was cancelled before it ended")
        task.result()
        return True

    async def finish_callback(
        self, answer: Awaitable[Any], on_end: Callable[[], None], deadline: int | None
    ) -> None:
        callback_name = self.current_callback() or "a callback"

        async def await_answer() -> None:
            with self.callback(callback_name):
                await answer

        def on_task_done(task: asyncio.Task[None]) -> None:
            if inspect.iscoroutine(answer):
                # If the task was cancelled before it began, the coroutine was never started. Without `close`,
                # Python would warn that it was never awaited.
                answer.close()
            on_end()

        self.callback_task = asyncio.get_running_loop().create_task(await_answer(), name=callback_name)
        self.callback_task.add_done_callback(on_task_done)
        await self.callback_finished(deadline)

    def _new_future(self) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._open_futures.add(future)
        return future

    def _complete(self, future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
        if future.done() or future.get_loop().is_closed():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(value)

    def _perform(self, action: NetworkAction) -> None:
        self.streams.perform(action)

    # ---- checks whether a call is allowed

    def call(self, method: str, *, waits: bool = True, serves: bool = False) -> AbstractContextManager[None]:
        if self.forked and method == CLOSE:
            return NO_CLAIM
        self.check_process()
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise IllegalState(
                f"{method}() needs a running event loop of asyncio (trio is not supported): call it from a "
                "coroutine, or use the blocking client"
            ) from None
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise IllegalState(
                f"this {self.driver.kind} belongs to another event loop, the one in which it was first used; "
                f"create one {self.driver.kind} for each loop"
            )
        self.check_callback(method, serves=serves)
        if not serves:
            return NO_CLAIM
        if self._serving_call is not None:
            if method == CLOSE:
                return NO_CLAIM
            raise IllegalState(
                f"another task is inside {self._serving_call[1]}() of this {self.driver.kind}; only one "
                "task at a time may wait for records"
            )
        self._serving_call = (asyncio.current_task(), method)
        return _ServingCall(self)

    def is_callers(self) -> bool:
        return self._serving_call is None or self._serving_call[0] is asyncio.current_task()

    def served(self) -> None:
        """Record the end of the method that runs callbacks, so that another task may call such a method."""
        self._serving_call = None

    # ---- the end

    def _fail_client(self, error: BaseException) -> None:
        """Mark the client as failed, fail its waiting calls and futures, and abort its connections."""
        super()._fail_client(error)
        self.streams.close(abort=True)

    def end(self, deadline: int = 0, *, abort: bool = False) -> None:
        """Close the client without waiting. If `abort` is true, bytes that are not sent yet are dropped."""
        self.closed = True
        lifecycle.unregister(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        with contextlib.suppress(RuntimeError):  # A RuntimeError means that the loop is closed.
            self.streams.close(abort=abort)
        self._fail_futures(IllegalState(f"this {self.driver.kind} was closed during the call"))
        self.notify()
        self._report_and_complete()

    def kill(self) -> None:
        if not self.forked:
            self.end(abort=True)

    def on_timer(self) -> None:
        """Apply a `Tick`, because the timer has fired."""
        self._timer = self._timer_at = None
        self.on_event(ev.Tick())


class _ServingCall:
    """A context manager that calls `served` when a method that may run callbacks has ended."""

    def __init__(self, runtime: AsyncRuntime) -> None:
        self._runtime = runtime

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._runtime.served()


def _on_event(ref: weakref.ref[AsyncRuntime], event: NetworkEvent) -> None:
    if (runtime := ref()) is not None:
        runtime.on_event(event)


def _on_timer(ref: weakref.ref[AsyncRuntime]) -> None:
    if (runtime := ref()) is not None:
        runtime.on_timer()


def abandon(streams: Streams, timer: asyncio.TimerHandle | None) -> None:
    """Close the streams and the timer of a client that was dropped without `close`."""
    if timer is not None:
        timer.cancel()
    streams.close(abort=True)

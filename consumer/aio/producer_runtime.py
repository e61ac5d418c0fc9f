"""Runs the engine of an asyncio producer in the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from asyncio import get_running_loop
from collections.abc import Callable, Generator, Hashable, Iterable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from kproto.errors import IllegalState

from .. import lifecycle
from ..callbacks import run_callback
from ..clock import now
from ..delivery import Delivery
from ..engine import events as ev
from ..engine.network.transport import GetToken, NetworkEvent, Open, Shut, Write
from ..engine.producer.batches import ProducerBatch
from ..engine.producer.engine import step
from ..logs import log
from ..operations.producer import CLOSED
from ..producer_options import ProducerConfig
from ..producer_runtime import ProducerRuntime
from ..runtime import NO_CLAIM
from .runtime import abandon
from .streams import Streams
from .waiters import TaskWaiters, current_task


class AsyncProducerRuntime(ProducerRuntime):
    """Runs a producer's engine in the running event loop."""

    awaits_callbacks = True
    has_lines = True

    def __init__(self, bootstrap_servers: str | Iterable[str], config: ProducerConfig[Any, Any]) -> None:
        try:
            self.loop = get_running_loop()
        except RuntimeError:
            raise IllegalState(
                "an AsyncProducer needs a running event loop of asyncio (trio is not supported): create the "
                "producer in a coroutine, or use Producer"
            ) from None
        self.waiters = TaskWaiters()
        super().__init__(bootstrap_servers, config, self.waiters, None)
        # The timer and the streams refer to this list, which contains the runtime only while records are
        # pending. So a producer that is dropped without close() first delivers its records, and is then
        # freed.
        self._keep_alive: list[AsyncProducerRuntime] = []
        self._ref: weakref.ref[AsyncProducerRuntime] = weakref.ref(self)
        self.streams = Streams(partial(_on_event, self._ref, self._keep_alive))
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: int | None = None
        lifecycle.register(self)

    def check_loop(self) -> None:
        """Raise IllegalState in an event loop other than the producer's."""
        if get_running_loop() is not self.loop:
            raise IllegalState(
                "this producer belongs to another event loop, the one in which it was created; "
                "create a producer for each loop"
            )

    # ---- waiting

    async def wait(self, last_change: int, deadline: int) -> bool:
        return await self.waiters.wait(last_change, deadline)

    async def wait_in_line(self, line: Hashable, last_change: int, deadline: int, *, place: int) -> bool:
        return await self.waiters.wait_in_line(line, last_change, deadline, place=place)

    def leave_line(self, line: Hashable) -> None:
        self.waiters.leave_line(line)

    async def pause(self) -> None:
        await self.waiters.pause(delivering=False)

    def caller(self) -> object:
        return current_task()

    def locked(self) -> AbstractContextManager[Any]:
        return NO_CLAIM

    def check_call(self, *, waits: bool) -> None:
        # In a forked child process this check is omitted: close() does nothing there, and every other method
        # itself checks for the fork.
        if not self.forked:
            self.check_loop()

    def wake(self) -> None:
        if not self.forked:
            self.on_event(None)

    # ---- deliveries

    async def wait_for_batch(self, batch: ProducerBatch, last_change: int, deadline: int) -> bool:
        future: asyncio.Future[None] = self.loop.create_future()
        if not self.records.add_callback(batch, 0, partial(_complete, future), is_known=False):
            return True
        try:
            async with asyncio.timeout((deadline - now()) / 1000):
                await future
        except TimeoutError:
            return False
        return True

    def wait_for_delivery(self, delivery: Delivery, timeout: float | None) -> None:
        raise IllegalState("await the delivery; result() would block the event loop")

    def await_delivery(self, delivery: Delivery) -> Generator[Any, None, None]:
        while (place := delivery._open_place()) is not None:  # pyright: ignore[reportPrivateUsage]
            self.check_loop()
            future: asyncio.Future[None] = self.loop.create_future()
            wake = partial(_complete, future)
            if self.records.add_callback(*place, wake):
                try:
                    yield from future.__await__()
                except BaseException:  # For example, the task was cancelled.
                    self.records.remove_callback(*place, wake)
                    raise

    def _queue_call(self, call: Callable[[], object]) -> None:
        try:
            self.loop.call_soon(run_callback, call)
        except RuntimeError:  # The loop is closed, so the callback is called directly.
            run_callback(call)

    # ---- the event loop

    def on_event(self, event: NetworkEvent | ev.Tick | None, at: int | None = None) -> None:
        """Pass an event of the network or of the timer to the engine.

        `event` is None after a call by the application: the engine then handles the changes made by the call.
        `at` is the time of the event in ms, by default the current time. An exception of the engine ends the
        producer.
        """
        try:
            self._perform(step(self.engine, event, now() if at is None else at))
            self._set_timer()
        except Exception as error:  # An unlogged exception would stop the producer without a message.
            log.exception("the producer failed")
            self._finish("the producer failed; see the log", error)

    def _perform(self, actions: list[ev.Action]) -> None:
        for action in actions:
            match action:
                case Open() | Write() | Shut() | GetToken():
                    self.streams.perform(action)
                case ev.CallBack(callback=callback):
                    run_callback(callback)
                case ev.Wake():
                    self.notify()
                case ev.Report(change=change):
                    self._on_report(change)
                case _:
                    pass

    def _set_timer(self) -> None:
        """Set the timer to the engine's next deadline, and keep the runtime alive while batches are open."""
        self._keep_alive[:] = [self] if self.records.open_batches else []
        has_ended = self.records.why_closed and not self.records.open_batches
        due = None if has_ended else self.engine.due()
        if due == self._timer_at and self._timer is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_at = due
        if due is not None:
            seconds = max(0, due - now()) / 1000
            self._timer = self.loop.call_later(seconds, _on_timer, self._ref, self._keep_alive)

    def on_timer(self) -> None:
        """Schedule the `Tick` for the next iteration of the event loop.

        The `Tick` is delayed by one iteration, because responses may have arrived while the loop was blocked.
        The loop reads these responses first.
        """
        self._timer = self.loop.call_later(0, _on_tick, self._ref, self._keep_alive, now())

    def on_tick(self, at: int) -> None:
        """Apply the `Tick` that was due at the time `at` (ms)."""
        self._timer = self._timer_at = None
        self.on_event(ev.Tick(), at)

    # ---- the end

    def __del__(self) -> None:
        # `_keep_alive` is missing if the constructor raised an exception.
        if self.forked or self.ended or getattr(self, "_keep_alive", None) is None:
            return
        with contextlib.suppress(RuntimeError):  # A RuntimeError means that the loop is closed.
            self.loop.call_soon_threadsafe(abandon, self.streams, self._timer)
        self._on_drop()

    def shut_down(self, deadline: int) -> None:
        """End the engine immediately.

        `_finish` calls the pending callbacks, so this method does not wait for them.
        """
        self._finish(CLOSED)
        self.ended = True

    def _finish(self, reason: str, failure: BaseException | None = None) -> None:
        """Fail the open deliveries, call their callbacks, and close the connections and the timer."""
        for action in self._close_engine(reason, failure):
            if isinstance(action, ev.CallBack):
                run_callback(action.callback)
            elif isinstance(action, ev.Report):
                self._on_report(action.change)
        with contextlib.suppress(RuntimeError):  # A RuntimeError means that the loop is closed.
            self.streams.close()
        self.engine.close_connections()
        self.notify()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._keep_alive.clear()

    def on_exit(self) -> str:
        """Fail the open deliveries without calling their callbacks.

        Return a log message about lost records and an open transaction; "" if nothing is lost.
        """
        loss = self.loss()
        self.closing = True
        self._close_engine("the process ends")
        return f"the producer {self.options.client_id!r} was not closed, and {loss}" if loss else ""


def _complete(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _on_event(
    ref: weakref.ref[AsyncProducerRuntime], keep_alive: list[AsyncProducerRuntime], event: NetworkEvent
) -> None:
    if (runtime := ref()) is not None:
        runtime.on_event(event)


def _on_timer(ref: weakref.ref[AsyncProducerRuntime], keep_alive: list[AsyncProducerRuntime]) -> None:
    if (runtime := ref()) is not None:
        runtime.on_timer()


def _on_tick(ref: weakref.ref[AsyncProducerRuntime], keep_alive: list[AsyncProducerRuntime], at: int) -> None:
    if (runtime := ref()) is not None:
        runtime.on_tick(at)

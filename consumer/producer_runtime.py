"""The part of a producer's runtime that threads and asyncio share: deliveries, calls and shutdown.

`blocking.producer_runtime` and `aio.producer_runtime` implement how calls wait and how bytes are sent.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Generator, Hashable, Iterable
from contextlib import AbstractContextManager
from functools import partial
from inspect import iscoroutinefunction
from random import Random
from typing import Any

from kproto.errors import ConfigError, NotDelivered, RequestTimedOut

from . import clock, lifecycle
from .addresses import addresses
from .callbacks import run_callback
from .delivery import Delivery
from .engine import events as ev
from .engine.producer.batches import ProducerBatch
from .engine.producer.engine import ProducerEngine
from .logs import log
from .options import producer_options
from .producer_options import ProducerConfig
from .records import EventCallback, GroupChange
from .runtime import Waiters

# Longest time (s) that the exit of the interpreter waits for the deliveries of an unclosed producer.
EXIT_SECONDS = 5.0


class ProducerRuntime:
    """A producer's engine, its deliveries, and the calls that wait for them."""

    ended = False
    forked = False
    # Whether a serializer may return an awaitable.
    awaits_callbacks = False
    # Whether a change wakes only the first waiting call of a line (`wait_in_line`), instead of all calls.
    has_lines = False

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str],
        config: ProducerConfig[Any, Any],
        waiters: Waiters,
        guard: AbstractContextManager[Any] | None,
    ) -> None:
        self.options = producer_options(config)
        self.engine = ProducerEngine(
            addresses(bootstrap_servers, self.options.security),
            self.options,
            random=Random(),
            wall=clock.wall,
            guard=guard,
            clock=clock.now,
        )
        self.records = self.engine.records
        self.records.owner = self
        self._waiters = waiters
        self.failure: BaseException | None = None
        # The thread or task that is in `close`; None if no call of `close` is running.
        self.closer: object = None
        # Whether close or kill was called.
        self.closing = False
        self.event_callbacks: list[EventCallback] = []
        self._has_reported_end = False

    def describe(self, kind: str) -> str:
        """Return the producer's repr.

        No lock is taken, because a debugger may call this method at any moment.
        """
        closed = ", closed" if self.records.why_closed else ""
        count = self.engine.open_records
        return f"<{kind} {self.options.client_id!r}: {count} records on their way{closed}>"

    # ---- how to wait: blocking or asyncio

    @property
    def changes(self) -> int:
        """A counter that increases when waiting calls have to check their conditions again."""
        return self._waiters.changes

    def notify(self) -> None:
        """Wake the waiting calls, so that they check their conditions again."""
        self._waiters.notify()

    async def wait(self, last_change: int, deadline: int) -> bool:
        """Wait until `changes` differs from `last_change`.

        Return False if `deadline` (ms) is reached first.
        """
        raise NotImplementedError

    async def wait_in_line(self, line: Hashable, last_change: int, deadline: int, *, place: int) -> bool:
        """Wait for memory. The result and the arguments are those of `wait`.

        In asyncio, a change wakes only the first task in `line`, and not all tasks that wait for memory.
        The first task is the one with the lowest `place`. When the task no longer has to wait, it must call
        `leave_line`, which wakes the next tasks. In a blocking producer a change wakes all waiting threads,
        because they are few.
        """
        return await self.wait(last_change, deadline)

    def leave_line(self, line: Hashable) -> None:
        """Remove the calling task from `line`, and wake the next two tasks of the line."""

    async def pause(self) -> None:
        """Let other tasks run."""
        raise NotImplementedError

    def caller(self) -> object:
        """Return the calling thread or task."""
        raise NotImplementedError

    def locked(self) -> AbstractContextManager[Any]:
        """Return a context manager that locks the engine."""
        raise NotImplementedError

    def check_call(self, *, waits: bool) -> None:
        """Raise IllegalState if a method is not allowed now. `waits` says whether the method can wait."""
        raise NotImplementedError

    def wake(self) -> None:
        """Make the engine process the application's calls immediately. The engine must be locked."""
        raise NotImplementedError

    def shut_down(self, deadline: int) -> None:
        """End the engine immediately, then wait for the queued callbacks.

        If the callbacks do not end, the wait lasts until `deadline` (ms), but at least 1 s.
        """
        raise NotImplementedError

    def wait_for_callbacks(self, deadline: int) -> None:
        """Wait at most until `deadline` (ms) for the queued callbacks. In a callback, return immediately."""

    # ---- deliveries

    async def wait_for_batch(self, batch: ProducerBatch, last_change: int, deadline: int) -> bool:
        """Wait until the delivery of `batch` ends, or until `changes` differs from `last_change`.

        If `batch` was split, wait for the part with the first record of `batch`. Return False if `deadline`
        (ms) is reached first.
        """
        return await self.wait(last_change, deadline)

    def wait_for_delivery(self, delivery: Delivery, timeout: float | None) -> None:
        """Block until a delivery has succeeded or failed."""
        raise NotImplementedError

    def await_delivery(self, delivery: Delivery) -> Generator[Any, None, None]:
        """Suspend the task until a delivery has succeeded or failed."""
        raise NotImplementedError

    def mark_retrieved(self, delivery: Delivery) -> None:
        """Record that the application knows the outcome of a delivery."""
        self.records.mark_failure_known(delivery._batch, delivery._index)  # pyright: ignore[reportPrivateUsage]

    def add_callback(self, delivery: Delivery, callback: Callable[[Delivery], object]) -> None:
        """Call `callback` when a delivery has ended, or immediately if it has already ended."""
        if not callable(callback) or iscoroutinefunction(callback):
            raise ConfigError("callback", callback, "a plain function that takes a delivery")
        queue = partial(self._queue_callback, callback, delivery)
        if not self._await_end(delivery, queue, is_known=True):
            delivery._mark_retrieved()  # pyright: ignore[reportPrivateUsage]
            run_callback(lambda: callback(delivery))

    def add_observer(self, delivery: Delivery, callback: Callable[[Delivery], object]) -> None:
        """Call `callback` when the delivery ends. `flush` still raises NotDelivered for a failed delivery."""
        queue = partial(self._queue_callback, callback, delivery)
        if not self._await_end(delivery, queue, is_known=False):
            queue()

    def _await_end(self, delivery: Delivery, on_end: Callable[[], object], *, is_known: bool) -> bool:
        """Call `on_end` once all rows of a delivery have ended. If they already have, return False instead.

        `is_known` is that of `RecordAccumulator.add_callback`.
        """

        def on_batch_end() -> None:
            if not self._await_end(delivery, on_end, is_known=is_known):
                on_end()

        while (place := delivery._open_place()) is not None:  # pyright: ignore[reportPrivateUsage]
            if self.records.add_callback(*place, on_batch_end, is_known=is_known):
                return True
        return False

    def _queue_callback(self, callback: Callable[[Delivery], object], delivery: Delivery) -> None:
        """Queue a delivery callback. The callback runs while no lock is held."""
        self._queue_call(lambda: callback(delivery))

    def _queue_call(self, call: Callable[[], object]) -> None:
        """Queue a call to a function of the application.

        Queued functions run without a lock, one after the other.
        """
        raise NotImplementedError

    # ---- errors

    def no_room(self) -> RequestTimedOut:
        """Return the error of a `send` that timed out. The error says what the call waited for."""
        unreachable_reason = self.engine.metadata.why_unreachable
        waiting_reason = self.records.why_waiting
        reason = f"{waiting_reason}; {unreachable_reason}" if unreachable_reason else waiting_reason
        return RequestTimedOut("send", self.options.max_block_ms, reason)

    def not_flushed(self, limit: int, pending: list[ProducerBatch]) -> RequestTimedOut:
        """Return the error of a `flush` that timed out."""
        count = sum(map(len, pending))
        open_reason = f"; {pending[0].partition}: {self.engine.open_reason(pending[0])}" if pending else ""
        return RequestTimedOut("flush", limit, f"{count} records are still open{open_reason}")

    def raise_not_delivered(self) -> None:
        """Raise NotDelivered if the application has not yet seen the errors of all failed deliveries.

        Further calls raise NotDelivered only for later failures. The engine must be locked.
        """
        failures = self.records.take_failures()
        if failures.count > 0 and failures.first_error is not None:
            raise NotDelivered(failures.count, failures.first_error) from failures.first_error

    def _on_report(self, change: GroupChange) -> None:
        """Log a change, and pass it to the callbacks of `events`."""
        level = logging.INFO if change.kind in ("reachable", "closed") else logging.WARNING
        log.log(level, "%s %s %s", self.options.client_id, change.kind, change.reason)
        for callback in self.event_callbacks:
            self._queue_call(partial(_call_event_callback, callback, change))

    # ---- the end

    def _close_engine(self, reason: str, failure: BaseException | None = None) -> list[ev.Action]:
        """Close the engine, and fail every open delivery and call.

        Return the actions to perform, which include the callbacks.
        """
        if not self.records.why_closed:
            self.failure = failure
        if not self._has_reported_end:
            self._has_reported_end = True
            self.engine.core.report("closed", reason="" if failure is None else reason)
        self.records.close(reason)
        self.engine.fail(reason)
        lifecycle.unregister(self)
        return self.engine.take_actions()

    def loss(self) -> str:
        """Return what is lost if the producer ends without `close`, or "" if nothing is lost."""
        open_records, transactions = self.engine.open_records, self.engine.transactions
        losses = [f"{open_records} records are lost"] if open_records else []
        if transactions is not None and transactions.started:
            timeout_s = self.options.transaction_timeout_ms / 1000
            losses.append(f"the transaction of {transactions.id!r} stays open for up to {timeout_s:g} s")
        return " and ".join(losses)

    def _on_drop(self) -> None:
        """Log what is lost because a producer was garbage-collected without `close`."""
        lifecycle.unregister(self)
        if loss := self.loss():
            log.warning("the producer %r was dropped without close(), and %s", self.options.client_id, loss)

    def on_fork(self) -> None:
        """Reject all calls in the child of a fork, because the producer belongs to the parent.

        The child does not send the buffered records. Their deliveries fail in the child.
        """
        self.records.guard = contextlib.nullcontext()
        self.closing = self.ended = self.forked = True
        self._close_engine("this producer was opened before the process forked and belongs to the parent")

    def on_exit(self) -> str:
        """Stop the producer when the interpreter exits.

        Return a log message about lost records and an open transaction; "" if nothing is lost.
        """
        raise NotImplementedError


def _call_event_callback(callback: EventCallback, change: GroupChange) -> None:
    try:
        callback(change)
    except Exception:
        log.exception("a callback of events() failed on %r", change.kind)


def undecided(batches: Iterable[ProducerBatch]) -> list[ProducerBatch]:
    """Return the batches whose outcome is not known yet. A split batch is replaced by its parts."""
    open_batches: dict[ProducerBatch, None] = {}
    for batch in batches:
        if batch.record_locations is not None:
            open_batches.update(dict.fromkeys(undecided({part: None for part, _ in batch.record_locations})))
        elif not batch.done:
            open_batches[batch] = None
    return list(open_batches)

"""What drives a producer's engine, however its callers wait: its deliveries, its calls, and how it ends.

`blocking.producer_runtime` and `aio.producer_runtime` say how to wait, and how to move bytes.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager
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
from .options import ProducerConfig, producer_options
from .runtime import Waiters

# How long the exit of the interpreter is delayed for records of a producer that was not closed.
EXIT_SECONDS = 5.0


class ProducerRuntime:
    """A producer's engine, and the calls that wait for it. Deliveries belong to it."""

    ended = False
    forked = False

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str],
        config: ProducerConfig,
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
        self.closer: object = None  # the thread or task that closes the producer
        self.closing = False  # close or kill was called

    def describe(self, kind: str) -> str:
        """Return the producer's repr. No lock is taken: a debugger may ask at any moment."""
        closed = ", closed" if self.records.closed else ""
        count = self.engine.open_records
        return f"<{kind} {self.options.client_id!r}: {count} records on their way{closed}>"

    # ---- how to wait: blocking or asyncio

    @property
    def changes(self) -> int:
        """A number that grows whenever a waiting call may find something new."""
        return self._waiters.changes

    def notify(self) -> None:
        """Wake the waiting calls: something changed."""
        self._waiters.notify()

    async def wait(self, last_change: int, deadline: int) -> bool:
        """Wait until `changes` is no longer `last_change`; False at `deadline`."""
        raise NotImplementedError

    async def pause(self) -> None:
        """Let other tasks run."""
        raise NotImplementedError

    def caller(self) -> object:
        """Return the thread or task that calls."""
        raise NotImplementedError

    def locked(self) -> AbstractContextManager[Any]:
        """Return a block in which the engine does not change."""
        raise NotImplementedError

    def check_call(self, *, waits: bool) -> None:
        """Raise IllegalState if a method may not be called now; `waits`: the method may wait."""
        raise NotImplementedError

    def wake(self) -> None:
        """Let the engine see at once what the application did; the engine is locked."""
        raise NotImplementedError

    def shut_down(self, deadline: int) -> None:
        """End everything at once. Callbacks that are queued may run until `deadline`."""
        raise NotImplementedError

    def wait_for_callbacks(self, deadline: int) -> None:
        """Wait until `deadline` for the callbacks that are queued; not at all in a callback."""

    # ---- deliveries

    def wait_for_delivery(self, delivery: Delivery, timeout: float | None) -> None:
        """Block until a delivery is decided."""
        raise NotImplementedError

    def await_delivery(self, delivery: Delivery) -> Generator[Any, None, None]:
        """Suspend the task until a delivery is decided."""
        raise NotImplementedError

    def mark_retrieved(self, delivery: Delivery) -> None:
        """Note that the application knows the outcome of a delivery."""
        self.records.mark_failure_known(delivery._batch, delivery._index)  # pyright: ignore[reportPrivateUsage]

    def add_callback(self, delivery: Delivery, callback: Callable[[Delivery], object]) -> None:
        """Call `callback` when a delivery is decided; at once if it is."""
        if not callable(callback) or iscoroutinefunction(callback):
            raise ConfigError("callback", callback, "a plain function that takes a delivery")
        batch, index = delivery._batch, delivery._index  # pyright: ignore[reportPrivateUsage]
        if not self.records.add_callback(batch, index, lambda: self._queue_callback(callback, delivery)):
            run_callback(lambda: callback(delivery))

    def _queue_callback(self, callback: Callable[[Delivery], object], delivery: Delivery) -> None:
        raise NotImplementedError

    # ---- errors

    def no_room(self) -> RequestTimedOut:
        """Return the error of a `send` that waited for too long, and what it waited for."""
        trouble = self.engine.metadata.trouble
        reason = f"{self.records.why}; {trouble}" if trouble else self.records.why
        return RequestTimedOut("send", self.options.max_block_ms, reason)

    def not_flushed(self, limit: int, pending: list[ProducerBatch]) -> RequestTimedOut:
        """Return the error of a `flush` that waited for too long."""
        count = sum(map(len, pending))
        excuse = f"; {pending[0].partition}: {self.engine.open_reason(pending[0])}" if pending else ""
        return RequestTimedOut("flush", limit, f"{count} records are still open{excuse}")

    def raise_not_delivered(self) -> None:
        """Raise NotDelivered if records failed of which the application does not know."""
        ledger = self.records.take_failures()
        if ledger.count > 0 and ledger.first is not None:
            raise NotDelivered(ledger.count, ledger.first) from ledger.first

    def _log_report(self, action: ev.Report) -> None:
        change = action.change
        level = logging.INFO if change.kind == "reachable" else logging.WARNING
        log.log(level, "%s %s %s", self.options.client_id, change.kind, change.reason)

    # ---- the end

    def _end(self, reason: str, failure: BaseException | None = None) -> list[ev.Action]:
        """Complete every delivery. Return the actions that still have callbacks."""
        if not self.records.closed:
            self.failure = failure
        self.records.close(reason)
        self.engine.fail(reason)
        lifecycle.ended(self)
        return self.engine.take_actions()

    def loss(self) -> str:
        """Say what is lost if the producer ends without `close`; "" for nothing."""
        open_records, transactions = self.engine.open_records, self.engine.transactions
        losses = [f"{open_records} records are lost"] if open_records else []
        if transactions is not None and transactions.started:
            limit = self.options.transaction_timeout_ms / 1000
            losses.append(f"the transaction of {transactions.id!r} stays open for up to {limit:g} s")
        return " and ".join(losses)

    def _on_drop(self) -> None:
        """Log what a producer loses that was dropped without `close`."""
        lifecycle.ended(self)
        if loss := self.loss():
            log.warning("the producer %r was dropped without close(), and %s", self.options.client_id, loss)

    def on_fork(self) -> None:
        """Refuse all calls: the producer belongs to the parent, and nothing of it is sent here."""
        self.records.guard = contextlib.nullcontext()
        self.closing = self.ended = self.forked = True
        self._end("this producer was opened before the process forked and belongs to the parent")

    def on_exit(self) -> str:
        """Stop; return what is lost, for the log."""
        raise NotImplementedError


def undecided(batches: Iterable[ProducerBatch]) -> list[ProducerBatch]:
    """Return the batches, or the parts that they were split into, that are not decided."""
    open_batches: dict[ProducerBatch, None] = {}
    for batch in batches:
        if batch.places is not None:
            open_batches.update(dict.fromkeys(undecided({part: None for part, _ in batch.places})))
        elif not batch.done:
            open_batches[batch] = None
    return list(open_batches)

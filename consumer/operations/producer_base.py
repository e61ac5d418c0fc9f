"""What the blocking and the asyncio producer stand on: an engine, its deliveries, and how it ends."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from inspect import iscoroutinefunction
from random import Random
from typing import Any

from kproto.errors import ConfigError, NotDelivered, RequestTimedOut

from .. import clock, lifecycle
from ..addresses import addresses
from ..callbacks import guarded
from ..delivery import Delivery
from ..engine import events as ev
from ..engine.producer.batches import ProducerBatch
from ..engine.producer.engine import ProducerEngine
from ..logs import log
from ..options import ProducerConfig, producer_options
from ..waiting import Waiting

# How long the interpreter's end is held up for records of a producer that nobody closed.
EXIT_SECONDS = 5.0


class Sender(Waiting, lifecycle.OfThisProcess):
    """An engine, and how it ends."""

    _what = "producer"
    # Who closes it now, and that it is done.
    _closer: object = None
    _is_over = False
    _forked = False

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str],
        config: ProducerConfig,
        guard: AbstractContextManager[Any] | None,
    ) -> None:
        self.options = producer_options(config)
        self._engine = ProducerEngine(
            addresses(bootstrap_servers, self.options.security),
            self.options,
            random=Random(),
            wall=clock.wall,
            guard=guard,
            clock=clock.now,
        )
        self._records = self._engine.records
        self._records.owner = self
        self._crash: BaseException | None = None
        self._closed = False

    def __repr__(self) -> str:
        """Takes no lock: a debugger may ask at any moment."""
        ended = ", closed" if self._records.closed else ""
        name = f"{type(self).__name__} {self.options.client_id!r}"
        return f"<{name}: {self._engine.open_records} records on their way{ended}>"

    # ---- for deliveries

    def looked_at(self, delivery: Delivery) -> None:
        """Somebody knows what became of it."""
        self._records.looked_at(delivery._batch, delivery._index)  # pyright: ignore[reportPrivateUsage]

    def call_back(self, delivery: Delivery, callback: Callable[[Delivery], object]) -> None:
        """For `Delivery.add_done_callback`."""
        if not callable(callback) or iscoroutinefunction(callback):
            raise ConfigError("callback", callback, "a plain function that takes a delivery")
        batch, index = delivery._batch, delivery._index  # pyright: ignore[reportPrivateUsage]
        if not self._records.call_back(batch, index, lambda: self._call(callback, delivery)):
            guarded(lambda: callback(delivery))

    def _call(self, callback: Callable[[Delivery], object], delivery: Delivery) -> None:
        raise NotImplementedError

    # ---- inside

    def _note(self, action: ev.Report) -> None:
        change = action.change
        level = logging.INFO if change.kind == "reachable" else logging.WARNING
        log.log(level, "%s %s %s", self.options.client_id, change.kind, change.reason)

    def _no_room(self) -> RequestTimedOut:
        """What a send waited for, and what stands behind it."""
        trouble = self._engine.metadata.trouble
        why = f"{self._records.why}; {trouble}" if trouble else self._records.why
        return RequestTimedOut("send", self.options.max_block_ms, why)

    def _milliseconds(self, timeout: float | None) -> int:
        return self.options.delivery_timeout_ms + 1000 if timeout is None else int(timeout * 1000)

    def _still_open(self, limit: int, pending: list[ProducerBatch]) -> RequestTimedOut:
        records = sum(map(len, pending))
        excuse = f"; {pending[0].partition}: {self._engine.excuse(pending[0])}" if pending else ""
        return RequestTimedOut("flush", limit, f"{records} records are still open{excuse}")

    def _tell(self) -> None:
        """Raises NotDelivered when there is something to tell."""
        ledger = self._records.tell()
        if ledger.count > 0 and ledger.first is not None:
            raise NotDelivered(ledger.count, ledger.first) from ledger.first

    def _end(self, why: str, crash: BaseException | None = None) -> list[ev.Action]:
        """No delivery stays open. Returns what is still to be called back."""
        if not self._records.closed:
            self._crash = crash
        self._records.close(why)
        self._engine.fail(why)
        lifecycle.ended(self)
        return self._engine.take_actions()

    # ---- for lifetimes

    def _lost(self) -> str:
        """What is lost when it ends now, without close(); "" for nothing."""
        open_records, transactions = self._engine.open_records, self._engine.transactions
        lost = [f"{open_records} records are lost"] if open_records else []
        if transactions is not None and transactions.started:
            limit = self.options.transaction_timeout_ms / 1000
            lost.append(f"the transaction of {transactions.id!r} stays open for up to {limit:g} s")
        return " and ".join(lost)

    def _dropped(self) -> None:
        """Nobody has it any more, and nobody closed it."""
        lifecycle.ended(self)
        if lost := self._lost():
            log.warning("the producer %r was dropped without close(), and %s", self.options.client_id, lost)

    def _in_the_child(self) -> None:
        """In the child: the producer is the parent's; nothing of it is sent here."""
        self._records.guard = contextlib.nullcontext()
        self._closed = self._is_over = self._forked = True
        self._end("this producer was opened before the process forked and belongs to the parent")

    def _at_the_end(self) -> str:
        raise NotImplementedError


def unsettled(batches: Iterable[ProducerBatch]) -> list[ProducerBatch]:
    """Those of the batches, or of what became of them, that are not decided."""
    found: dict[ProducerBatch, None] = {}
    for batch in batches:
        if batch.places is not None:
            found.update(dict.fromkeys(unsettled({part: None for part, _ in batch.places})))
        elif not batch.done:
            found[batch] = None
    return list(found)

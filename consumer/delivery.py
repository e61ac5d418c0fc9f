"""What `send` returns: a record's way to its offset."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Protocol

from .engine.producing import OutBatch


@dataclass(frozen=True, slots=True)
class RecordMetadata:
    """Where a record is. `offset` is None with acks=0, where nobody says; `timestamp` is in ms."""

    topic: str
    partition: int
    offset: int | None
    timestamp: int


class Waiter(Protocol):
    """A producer, as a delivery sees it."""

    def wait_for(self, batch: OutBatch, timeout: float | None) -> None: ...
    def await_batch(self, batch: OutBatch) -> Generator[Any, None, None]: ...


class Delivery:
    """One record on its way: like a Future, but made a hundred thousand times a second.

    `result()` blocks (a Producer's), `await delivery` waits (an AsyncProducer's); both return a
    `RecordMetadata` or raise what went wrong. It always ends, at the latest after delivery_timeout_ms.
    """

    __slots__ = ("_batch", "_index", "_producer", "_timestamp")

    def __init__(self, producer: Waiter, batch: OutBatch, index: int, timestamp: int) -> None:
        self._producer = producer
        self._batch = batch
        self._index = index
        self._timestamp = timestamp

    def done(self) -> bool:
        return self._batch.done

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """The record's place; raises RequestTimedOut after `timeout` seconds, or the delivery's own error."""
        if not self._batch.done:
            self._producer.wait_for(self._batch, timeout)
        return self._metadata()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        if not self._batch.done:
            self._producer.wait_for(self._batch, timeout)
        return self._batch.error

    def add_done_callback(self, callback: Callable[[Delivery], None]) -> None:
        """Calls back when it is decided: from the producer's thread, or at once when it is already."""
        batch = self._batch
        if batch.done:
            callback(self)
            return
        if batch.callbacks is None:
            batch.callbacks = []
        batch.callbacks.append(lambda batch: callback(self))

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        if not self._batch.done:
            yield from self._producer.await_batch(self._batch)
        return self._metadata()

    def _metadata(self) -> RecordMetadata:
        batch = self._batch
        if batch.error is not None:
            raise batch.error
        offset = None if batch.base_offset is None else batch.base_offset + self._index
        timestamp = self._timestamp if batch.log_append_time is None else batch.log_append_time
        return RecordMetadata(batch.partition.topic, batch.partition.partition, offset, timestamp)

"""The results of `send`: a delivery for each record, and the place where the record was written."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import msgspec

from kproto.group.subscription import TopicPartition

from .engine.producer.batches import ALL_ROWS, ProducerBatch, current_location
from .errors import without_traceback
from .other_clients import unknown_method
from .validation import seconds


class RecordMetadata(msgspec.Struct, frozen=True):
    """Where a record was written; `timestamp` is in ms since 1970.

    `offset` is None with acks=0, because the broker then sends no response.
    """

    topic: str
    partition: int
    offset: int | None
    timestamp: int


class Owner(Protocol):
    """The methods of a producer's runtime that its deliveries call."""

    def wait_for_delivery(self, delivery: Delivery, timeout: float | None) -> None: ...
    def await_delivery(self, delivery: Delivery) -> Generator[Any, None, None]: ...
    def add_callback(self, delivery: Delivery, callback: Callable[[Delivery], object]) -> None: ...
    def mark_retrieved(self, delivery: Delivery) -> None: ...


class Delivery(msgspec.Struct, eq=False):
    """The pending or final result of sending one record.

    A delivery resembles a Future, but needs less memory and time, because a producer may create 100,000
    deliveries per second.

    `result()` of a Producer's delivery blocks until the delivery has ended. With an AsyncProducer, use
    `await delivery` instead.

    `result()` and `await` return the record's `RecordMetadata`, or raise the error of the delivery.

    Every delivery succeeds or fails within delivery_timeout_ms.

    A delivery also fails if the producer is closed or killed before the broker has acknowledged the record.
    After a fork, every pending delivery fails in the child process.

    Deliveries take part in cyclic garbage collection, because an object that a delivery refers to may refer
    back to it.
    """

    _batch: ProducerBatch
    _index: int

    @property
    def _owner(self) -> Owner:
        owner: Owner = self._batch.queue.owner
        return owner

    def done(self) -> bool:
        """Return whether the delivery has ended, successfully or not."""
        return current_location(self._batch, self._index)[0].done

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Return where the record was written.

        Raises the error of the delivery, or RequestTimedOut after `timeout` seconds.
        """
        error = self.exception(timeout)
        if error is not None:
            raise without_traceback(error)
        return self._metadata()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the error of the delivery, or None if the delivery has succeeded.

        Raises RequestTimedOut after `timeout` seconds.
        """
        if timeout is not None:
            timeout = seconds("timeout", timeout)
        if not self.done():
            self._owner.wait_for_delivery(self, timeout)
        return self._take_error()

    def add_done_callback(self, callback: Callable[[Delivery], object]) -> None:
        """Call `callback` when the delivery has ended, or immediately if it has already ended.

        A Producer runs callbacks in a separate thread, and an AsyncProducer runs them in its event loop.

        The callback may call any method, including send, flush and close. An exception that it raises is
        logged.
        """
        self._owner.add_callback(self, callback)

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        yield from self._owner.await_delivery(self)
        error = self._take_error()
        if error is not None:
            raise without_traceback(error)
        return self._metadata()

    def _take_error(self) -> BaseException | None:
        """Return the error of the ended delivery, or None if the delivery succeeded.

        A failure is marked as handled (see `outcome`).
        """
        batch, _ = current_location(self._batch, self._index)
        if batch.error is not None:
            self._mark_retrieved()
        return batch.error

    def _mark_retrieved(self) -> None:
        """Record that the application knows the outcome of each row."""
        self._owner.mark_retrieved(self)

    def _open_place(self) -> tuple[ProducerBatch, int] | None:
        """Return a batch of this delivery that has not ended, and the record's index in it.

        The index is `ALL_ROWS` if the delivery is of all records of the batch. After the end, the result is
        None.
        """
        batch, index = current_location(self._batch, self._index)
        return None if batch.done else (batch, index)

    def _metadata(self) -> RecordMetadata:
        """Return where the record was written. Call this method only after a successful delivery."""
        batch, index = current_location(self._batch, self._index)
        offset = None if batch.base_offset is None else batch.base_offset + index
        timestamp = batch.log_append_time
        if timestamp is None:
            timestamp = int(batch.timestamps[index])
        return RecordMetadata(batch.partition.topic, batch.partition.partition, offset, timestamp)

    def outcome(self) -> tuple[TopicPartition, RecordMetadata | None, BaseException | None]:
        """Return the partition, the RecordMetadata (None after a failure), and the error (None after a
        success).

        Call this method only after the delivery has ended. Unlike `exception`, it does not mark the failure
        as handled by the application, so `flush` still raises NotDelivered.
        """
        batch, _ = current_location(self._batch, self._index)
        return batch.partition, self._metadata() if batch.error is None else None, batch.error

    def __repr__(self) -> str:
        batch, _ = current_location(self._batch, self._index)
        if not batch.done:
            return f"<Delivery to {batch.partition}: open>"
        return f"<Delivery to {batch.partition}: {batch.error or self._metadata()}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            """Raise AttributeError. For a method of another library, the error names kproto's equivalent."""
            raise unknown_method(self, "delivery", name)


class PieceDelivery(Delivery, eq=False):
    """The delivery of table rows that were sent together. `rows` is an int64 array of row numbers.

    The delivery ends when each of its rows has been delivered or has failed.

    `result()` returns the offset of the first row, or raises the first error.

    The rows are contiguous in the log, unless their batch was too large for the broker and was split.
    """

    rows: Any

    def done(self) -> bool:
        return all(batch.done for batch in self._final_batches())

    def __len__(self) -> int:
        return len(self.rows)

    def _final_batches(self) -> list[ProducerBatch]:
        """Return the batches that contain the rows: more than one if their batch was split."""
        if self._batch.record_locations is None:
            return [self._batch]
        return list({current_location(self._batch, index)[0]: None for index in range(len(self.rows))})

    def _take_error(self) -> BaseException | None:
        failed_batch = next((batch for batch in self._final_batches() if batch.error is not None), None)
        if failed_batch is None:
            return None
        self._mark_retrieved()
        return failed_batch.error

    def _mark_retrieved(self) -> None:
        for index in range(len(self.rows)):
            self._owner.mark_retrieved(Delivery(self._batch, index))

    def _open_place(self) -> tuple[ProducerBatch, int] | None:
        open_batch = next((batch for batch in self._final_batches() if not batch.done), None)
        return None if open_batch is None else (open_batch, ALL_ROWS)

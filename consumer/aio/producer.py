"""The producer for asyncio.

    async with AsyncProducer("localhost:9092") as producer:
        delivery = await producer.send("flights", key=b"UA", value=b"...")
        print((await delivery).offset)

`await send(...)` waits only until the buffer has room and the topic's metadata is known, for at most
max_block_ms. Awaiting the returned delivery waits for the broker's response. Leaving the `async with` block
sends all records and waits for their deliveries.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio import get_running_loop
from collections.abc import Iterable, Mapping
from functools import partial
from time import time
from typing import TYPE_CHECKING, Any, Generic, Never, NoReturn, Unpack
from uuid import UUID

from kproto.group.subscription import TopicPartition
from kproto.records.batch import preload_crc32c

from ..clock import moment
from ..context_managers import AsyncBlock, AsyncTransaction
from ..delivery import Delivery, PieceDelivery
from ..engine.metrics import Metrics
from ..engine.producer.accumulator import RECORD_OVERHEAD
from ..engine.producer.batches import TopicRoute
from ..engine.requests import Offset
from ..engine.telemetry.application import ApplicationMetric
from ..lifecycle import BoundToProcess
from ..operations.producer import ProducerOperations
from ..operations.send_hooks import send_hooks
from ..option_docs import producer_docs, with_options
from ..other_clients import hide_secrets, unknown_argument, unknown_method
from ..producer_options import ProducerConfig
from ..records import EventCallback, GroupMetadata
from ..serializers import SentK, SentV
from ..validation import (
    LAST_SECONDS,
    MAX_TIMESTAMP,
    NO_HEADERS,
    Headers,
    header_pairs,
    partition_index,
    record_bytes,
    timestamp_ms,
    topic_name,
)
from .producer_runtime import AsyncProducerRuntime

# The names of the arguments of `send`, for the error about an unknown argument.
_SEND_ARGUMENTS = ("topic", "value", "key", "partition", "timestamp", "headers")


@with_options(producer_docs())
class AsyncProducer(BoundToProcess, AsyncBlock, Generic[SentK, SentV]):
    """The asyncio version of `Producer`, with the same options. A producer can be used in one event loop
    only.
    """

    @hide_secrets
    def __init__(
        self, bootstrap_servers: str | Iterable[str], **config: Unpack[ProducerConfig[SentK, SentV]]
    ) -> None:
        self._runtime = AsyncProducerRuntime(bootstrap_servers, config)
        self._operations = ProducerOperations(self._runtime)
        self.options = self._runtime.options
        # Calls the application's interceptors, serializers and partitioner; None if none of them is set.
        self._hooks = send_hooks(self._operations)
        self._loop = self._runtime.loop
        self._records = records = self._runtime.records
        # Whether `send` may add a record to a batch without calling `append`.
        self._has_fast_path = self._hooks is None and not records.append_is_guarded
        self._routes: dict[str, TopicRoute] = records.routes
        self._current_millisecond = moment()  # (start in s, end in s, timestamp in ms)
        self._pause_due = False  # Whether the next `send` lets other tasks run before it queues its record.
        preload_crc32c()

    # ---- sending

    async def send(
        self,
        topic: str,
        value: SentV | None = None,
        key: SentK | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = NO_HEADERS,
        **unknown: Never,
    ) -> Delivery:
        """Queue a record, and return its delivery, which can be awaited; see `Producer.send`."""
        if unknown:
            raise unknown_argument("send", unknown, _SEND_ARGUMENTS)
        records = self._records
        if get_running_loop() is not self._loop:
            self._runtime.check_loop()
        # Without this pause, a task that calls `send` in a loop would keep the event loop from reading
        # responses. If the task is cancelled during the pause, the record is not queued.
        if self._pause_due:
            self._pause_due = False
            await asyncio.sleep(0)
        if timestamp is None:
            if (
                key is None
                and partition is None
                and headers is NO_HEADERS
                and type(value) is bytes
                and self._has_fast_path
                and not records.sender_notified
            ):
                # `Producer.send` has the same statements, with comments that explain them. They are repeated
                # here because a shared function would cost a call for each record.
                try:
                    batch = self._routes[topic].sticky.filling
                except (KeyError, TypeError):  # `topic` is not known yet, or is not a string.
                    pass
                else:
                    size = RECORD_OVERHEAD + len(value)
                    current_time = time()
                    remaining_bytes = batch.free_bytes - size
                    if remaining_bytes >= 0 and batch.run_start <= current_time < batch.run_end:
                        batch.free_bytes = remaining_bytes
                        index = batch.count
                        batch.count = index + 1
                        batch.rows.append(value)
                        return Delivery(batch, index)
            start, end, timestamp = self._current_millisecond
            if not start <= time() < end:
                self._current_millisecond = _, _, timestamp = moment()
        elif type(timestamp) is not int or not LAST_SECONDS <= timestamp <= MAX_TIMESTAMP:
            timestamp = timestamp_ms(timestamp)
        if partition is not None:
            partition = partition_index(partition)
        headers = header_pairs(headers) if headers is not NO_HEADERS else headers
        if type(topic) is not str or not topic:
            topic = topic_name(topic)
        if self._hooks is not None:
            self._pause_due = True
            return await self._hooks.send(topic, value, key, partition, timestamp, headers)
        key_bytes: Any = key
        value_bytes: Any = value
        if type(value_bytes) is not bytes and value_bytes is not None:
            value_bytes = record_bytes("value", value_bytes)
        if type(key_bytes) is not bytes and key_bytes is not None:
            key_bytes = record_bytes("key", key_bytes)
        delivery = records.append(topic, key_bytes, value_bytes, partition, timestamp, headers)
        # No thread runs the engine, so `send` runs it itself if the record requires a step of the engine.
        if records.sender_notified:
            records.sender_notified = False
            self._pause_due = records.needs_sender_now()
            self._runtime.on_event(None)
        if delivery is None:
            append = partial(records.append, topic, key_bytes, value_bytes, partition, timestamp, headers)
            return await self._operations.retry_until_ready(append)
        return delivery

    async def send_columns(self, topic: str, batch: Any) -> list[PieceDelivery]:
        """Queue the rows of an Arrow RecordBatch or Table, or of a dict of columns.

        The columns are value, and optionally key, headers, timestamp (ms) and partition. The rows are not
        converted to Python objects. Each row goes to the partition that `send` would choose, and rows of one
        partition keep their order. This method does not call the producer's `partitioner`. If the producer
        has one, the column partition is required. Returns one delivery for each batch. Raises the errors of
        `send`, and MissingExtra if numpy or pyarrow is not installed.
        """
        return await self._operations.send_columns(topic, batch)

    def events(self, callback: EventCallback) -> None:
        """Call `callback` with a `GroupChange` for each change of this producer's state.

        The callback runs where delivery callbacks run: in their own thread, or in the event loop of an
        AsyncProducer. `GroupChange` lists the kinds of changes, and `GroupChange.at` is the time of the
        change. Exceptions of the callback are logged and not raised. A change never describes the failure of
        an individual record: the Delivery of the record does.
        """
        self._operations.events(callback)

    def metrics(self) -> Metrics:
        """Return a snapshot of this producer's metrics.

        The metrics have the names, groups and tags of Java's `KafkaProducer.metrics`. The reference page
        "Metrics" lists them with their units. Rates, averages, maxima and minima cover the last 30 to 60 s.
        The method sends no request and does not wait, so it may be called from any thread.
        """
        return self._operations.metrics()

    def register_metric_for_subscription(self, metric: ApplicationMetric) -> None:
        """Register a metric of the application, to be pushed with this producer's metrics (KIP-1076).

        The metric replaces a registered one with the same name, group and tags. It is pushed if a broker's
        subscription selects it; with enable_metrics_push=False nothing is pushed. Any thread may call the
        method. Java: registerMetricForSubscription.
        """
        self._operations.register_metric_for_subscription(metric)

    def unregister_metric_from_subscription(self, metric: ApplicationMetric) -> None:
        """Stop pushing a metric of the application. A metric that is not registered is ignored (KIP-1076).

        The method may be called from any thread. Java: unregisterMetricFromSubscription.
        """
        self._operations.unregister_metric_from_subscription(metric)

    async def client_instance_id(self, timeout: float | None = None) -> UUID:
        """Return the id that a broker has assigned to this client for its telemetry (KIP-714).

        The id identifies this client in the metrics that it pushes (see the option `enable_metrics_push`).
        The client connects to a broker if necessary. Raises RequestTimedOut after `timeout` seconds (by
        default `max_block_ms`), IllegalState if the client pushes no metrics, and UnsupportedVersion if the
        broker does not support client telemetry.
        """
        return await self._operations.client_instance_id(timeout)

    async def flush(self, timeout: float | None = None, **unknown: Never) -> None:
        """Send all buffered records now, and wait until each delivery has succeeded or failed.

        Raises RequestTimedOut after `timeout` seconds. Raises NotDelivered if a record has failed since the
        last flush, unless the application has called `result` or `exception` on the record's delivery.
        """
        if unknown:
            raise unknown_argument("flush", unknown, ("timeout",))
        await self._operations.flush(timeout)

    async def purge(self) -> int:
        """Drop all records that have not been sent yet, and return their number (librdkafka: rd_kafka_purge).

        The deliveries of dropped records fail with IllegalState, and `flush` does not raise an error for
        them. Records that were sent at least once are not dropped, because the broker may have written them.
        Raises IllegalState for a producer with a transactional_id: its records are dropped by `abort`.
        """
        return await self._operations.purge()

    # ---- transactions

    async def begin(self, timeout: float | None = None) -> None:
        """Begin a transaction. The first call requests a producer id from the coordinator.

        The first call fences an older producer with the same transactional id, and aborts its open
        transaction. Raises RequestTimedOut after `timeout` seconds, by default max_block_ms; the method may
        then be called again. Raises Fenced, NotAuthorized or BrokerError if the producer has failed, and
        IllegalState while a transaction is open.
        """
        await self._operations.transact("begin", timeout)

    async def commit(self, timeout: float | None = None) -> None:
        """Send all buffered records, wait until they are acknowledged, and commit the transaction.

        Raises the error of the first record or offset that was not written; then call `abort`. If the call
        stops waiting (RequestTimedOut, Ctrl-C, a cancelled task), the outcome is unknown; then call `commit`
        again. Also raises Fenced, NotAuthorized or BrokerError if the producer has failed.
        """
        await self._operations.transact("commit", timeout)

    async def abort(self, timeout: float | None = None) -> None:
        """Abort the transaction: its records are not returned to `read_committed` consumers.

        Records that have not been sent are dropped, and their deliveries fail with IllegalState. Raises the
        errors of `begin`.
        """
        await self._operations.transact("abort", timeout)

    def send_offsets(self, group: str | GroupMetadata, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Add a group's offsets to the transaction. They are committed only with the transaction's records.

        The method does not wait, so it is not a coroutine, even in `AsyncProducer`. `commit` waits until
        the offsets are written, and raises the error if they are not. With `consumer.group_metadata()` as
        `group`, the coordinator rejects the offsets if it has removed the member, or if the member's
        generation is old. With the group's name as `group`, the coordinator does not check the member.
        """
        self._operations.send_offsets(group, offsets)

    def transaction(self) -> AsyncTransaction:
        """Return a context manager that commits a transaction at the end of its block, or aborts it on an
        exception.

        The `async with` block raises the errors of `begin` and `commit`. An exception in the block, including
        CancelledError, aborts the transaction and is raised again. A commit whose task is cancelled continues
        in the background.
        """
        return AsyncTransaction(self._operations)

    # ---- the end

    async def close(self, timeout: float | None = None, **unknown: Never) -> None:
        """Send all buffered records, wait for their deliveries, and close the producer.

        The wait takes at most `timeout` seconds. A second call waits until the first one has ended, and
        raises RequestTimedOut if this takes longer than the second call's `timeout`. An open transaction is
        aborted, but a commit in progress is completed, within the same `timeout`.

        After the producer has closed and all callbacks have been called, the method raises at most one error.
        The error of a commit takes precedence if no `commit` call still waits for it, for example after a
        timeout. Otherwise the method raises RequestTimedOut if records were not sent, or else NotDelivered if
        records failed.

        If Ctrl-C or, in asyncio, the cancellation of the task interrupts this call, the producer closes
        immediately, and logs a warning with the number of records that are lost.
        """
        if unknown:
            raise unknown_argument("close", unknown, ("timeout",))
        await self._operations.close(timeout)

    def kill(self) -> None:
        """Close the producer immediately. Buffered records are dropped, and their deliveries fail with
        IllegalState.
        """
        self._operations.kill()

    # ---- inside

    def __repr__(self) -> str:
        return self._runtime.describe(type(self).__name__)

    # The class has `__getattr__` only in Python 3.12 and newer. In Python 3.11 the method would make each
    # access to an attribute 60 ns slower, and thus `send` 40 % slower.
    if not TYPE_CHECKING and sys.version_info >= (3, 12):

        def __getattr__(self, name: str) -> NoReturn:
            """Raise AttributeError. For a method of another library, the error names kproto's equivalent."""
            raise unknown_method(self, "producer", name)

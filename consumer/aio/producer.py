"""The producer for asyncio.

    async with AsyncProducer("localhost:9092") as producer:
        delivery = await producer.send("flights", key=b"UA", value=b"...")
        print((await delivery).offset)

`await send` waits only for room and for the topic's metadata, for at most max_block_ms; awaiting what it
returned waits for the broker. Leaving the `async with` block flushes.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio import get_running_loop
from collections.abc import Iterable, Mapping
from functools import partial
from time import time
from typing import TYPE_CHECKING, Any, Never, NoReturn, Unpack

from kproto.group.subscription import TopicPartition
from kproto.records.crc32c import preload

from ..clock import moment
from ..context_managers import AsyncBlock, AsyncTransaction
from ..delivery import Delivery, PieceDelivery
from ..engine.requests import Offset
from ..lifecycle import BoundToProcess
from ..operations.producer import ProducerOperations
from ..option_docs import producer_docs, with_options
from ..options import ProducerConfig
from ..other_clients import hide_secrets, unknown_argument, unknown_method
from ..records import GroupMetadata
from ..validation import (
    LAST_SECONDS,
    MAX_TIMESTAMP,
    NO_HEADERS,
    Buffer,
    Headers,
    header_pairs,
    partition_index,
    record_bytes,
    timestamp_ms,
    topic_name,
)
from .producer_runtime import AsyncProducerRuntime

# The arguments of `send`, for the error about another one.
_SEND_ARGUMENTS = ("topic", "value", "key", "partition", "timestamp", "headers")


@with_options(producer_docs())
class AsyncProducer(BoundToProcess, AsyncBlock):
    """The asyncio twin of `Producer`: same options. It belongs to one running event loop."""

    @hide_secrets
    def __init__(self, bootstrap_servers: str | Iterable[str], **config: Unpack[ProducerConfig]) -> None:
        self._runtime = AsyncProducerRuntime(bootstrap_servers, config)
        self._operations = ProducerOperations(self._runtime)
        self.options = self._runtime.options
        self._loop = self._runtime.loop
        self._records = self._runtime.records
        self._moment = moment()
        self._pause_due = False  # the next send lets other tasks run
        preload()

    # ---- sending

    async def send(
        self,
        topic: str,
        value: Buffer | None = None,
        key: Buffer | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = NO_HEADERS,
        **unknown: Never,
    ) -> Delivery:
        """Queue a record and return its delivery, to be awaited; see `Producer.send`."""
        if unknown:
            raise unknown_argument("send", unknown, _SEND_ARGUMENTS)
        runtime, records = self._runtime, self._records
        if get_running_loop() is not self._loop:
            runtime.check_loop()
        if self._pause_due:  # so that a loop of sends lets responses in; if cancelled here, nothing is sent
            self._pause_due = False
            await asyncio.sleep(0)
        if type(value) is not bytes and value is not None:
            value = record_bytes("value", value)
        if type(key) is not bytes and key is not None:
            key = record_bytes("key", key)
        if timestamp is None:
            since, until, timestamp = self._moment
            if not since <= time() < until:
                self._moment = _, _, timestamp = moment()
        elif type(timestamp) is not int or not LAST_SECONDS <= timestamp <= MAX_TIMESTAMP:
            timestamp = timestamp_ms(timestamp)
        if partition is not None:
            partition = partition_index(partition)
        headers = header_pairs(headers) if headers is not NO_HEADERS else headers
        if type(topic) is not str or not topic:
            topic = topic_name(topic)
        delivery = records.take(topic, key, value, partition, timestamp, headers)
        if records.sender_notified:
            records.sender_notified = False
            self._pause_due = records.needs_sender_now()
            runtime.on_event(None)
        if delivery is None:
            take = partial(records.take, topic, key, value, partition, timestamp, headers)
            return await self._operations.wait_for_room(take)
        return delivery

    async def send_columns(self, topic: str, batch: Any) -> list[PieceDelivery]:
        """Queue the rows of an Arrow RecordBatch or Table, or of a dict of columns, without an object for
        each.

        The columns are value, and optionally key, headers, timestamp (ms) and partition. A row goes to the
        partition that `send` would choose; rows of one partition keep their order. Returns one delivery for
        each batch. Raises as `send`, and MissingExtra without numpy and pyarrow.
        """
        return await self._operations.send_columns(topic, batch)

    async def flush(self, timeout: float | None = None, **unknown: Never) -> None:
        """Send everything now, and wait until each open delivery is decided.

        Raises RequestTimedOut after `timeout` seconds, and NotDelivered if records failed since the last
        flush and the application has not looked at their deliveries.
        """
        if unknown:
            raise unknown_argument("flush", unknown, ("timeout",))
        await self._operations.flush(timeout)

    # ---- transactions

    async def begin(self, timeout: float | None = None) -> None:
        """Begin a transaction. The first one initializes the producer's id.

        That fences an older producer with the same transactional id, and aborts its open transaction. Raises
        RequestTimedOut after `timeout` seconds (max_block_ms), and then it may be called again; Fenced,
        NotAuthorized or BrokerError for a producer that can do nothing any more; IllegalState while a
        transaction is open.
        """
        await self._operations.transact("begin", timeout)

    async def commit(self, timeout: float | None = None) -> None:
        """Send everything, wait until it is acknowledged, and commit.

        Raises the error of the first record that was not delivered, or of an offset: then `abort`. After
        RequestTimedOut, Ctrl-C or a cancelled task the outcome is unknown: call it again. Raises Fenced and
        others as `begin`.
        """
        await self._operations.transact("commit", timeout)

    async def abort(self, timeout: float | None = None) -> None:
        """End the transaction so that its records are not read by `read_committed` consumers.

        Records that were not sent yet are dropped, and their deliveries fail with IllegalState. Raises as
        `begin`.
        """
        await self._operations.transact("abort", timeout)

    def send_offsets(self, group: str | GroupMetadata, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Commit a group's offsets with the transaction, or not at all.

        It returns at once, also in asyncio: `commit` waits for the offsets, and raises what was wrong. With
        `consumer.group_metadata()` the group rejects a member that was replaced meanwhile; with a group's
        name it does not check.
        """
        self._operations.send_offsets(group, offsets)

    def transaction(self) -> AsyncTransaction:
        """Return a block whose records are seen all or not at all: its end commits, an exception aborts.

        Raises as `begin` and `commit` do; an exception of the block is raised again. So is CancelledError:
        the transaction is aborted then, unless the commit was cancelled, which continues on its own.
        """
        return AsyncTransaction(self._operations)

    # ---- the end

    async def close(self, timeout: float | None = None, **unknown: Never) -> None:
        """Flush within `timeout` seconds, and close.

        A second call waits for the first, and raises RequestTimedOut after its own timeout. An open
        transaction is aborted; one that is being committed gets the same time.

        Raises what went wrong, after the producer has closed: what `commit` raises, unless another call
        waits for that; what `flush` raises, RequestTimedOut for records that were not sent, NotDelivered
        for those that failed. Callbacks have been called then.
        """
        if unknown:
            raise unknown_argument("close", unknown, ("timeout",))
        await self._operations.close(timeout)

    def kill(self) -> None:
        """Close immediately; what is still buffered is dropped, and its deliveries fail with IllegalState."""
        self._operations.kill()

    # ---- inside

    def __repr__(self) -> str:
        return self._runtime.describe(type(self).__name__)

    # In Python 3.11 a `__getattr__` makes each access to an attribute 60 ns slower, and `send` 40 %.
    if not TYPE_CHECKING and sys.version_info >= (3, 12):

        def __getattr__(self, name: str) -> NoReturn:
            """Raise AttributeError, which says what another library's method is called here."""
            raise unknown_method(self, "producer", name)

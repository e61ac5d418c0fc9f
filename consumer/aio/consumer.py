"""The asyncio consumer, `AsyncConsumer`.

    async with AsyncConsumer("localhost:9092", group_id="g") as consumer:
        consumer.subscribe(["flights"])
        async for record in consumer:
            ...

Heartbeats and fetch requests are sent in the event loop, so code that blocks the loop also delays them.
Rebalance callbacks may be coroutine functions. They run inside poll, unsubscribe and close. Callbacks of
`events` run inside commit, too. A callback runs to completion even if the task that called the method is
cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from functools import partial
from time import time
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Never, NoReturn, Self, TypeVar, Unpack
from uuid import UUID

from kproto.group.subscription import TopicPartition
from kproto.records.batch import preload_crc32c

from ..consumer_options import ConsumerConfig
from ..engine.admin.plan import Plan
from ..engine.admin.records import OffsetAt
from ..engine.metrics import Metrics
from ..engine.requests import CommittedOffset, Offset
from ..engine.telemetry.application import ApplicationMetric
from ..lifecycle import BoundToProcess
from ..listener import RebalanceListener
from ..operations.consumer import CLOSE_TIMEOUT, ConsumerOperations
from ..option_docs import consumer_docs, with_options
from ..other_clients import hide_secrets, unknown_argument, unknown_method
from ..records import ColumnBatch, ConsumerRecord, DeliveryStatus, EventCallback, GroupMetadata
from ..serializers import K, V
from .runtime import AsyncRuntime

R = TypeVar("R")


@with_options(consumer_docs())
class AsyncConsumer(BoundToProcess, Generic[K, V]):
    """The asyncio version of `Consumer`. Options and methods are the same; methods that wait are coroutines.

    A consumer may be created outside an event loop. All later calls must be made in one running event loop.
    """

    @hide_secrets
    def __init__(
        self, bootstrap_servers: str | Iterable[str], **config: Unpack[ConsumerConfig[K, V]]
    ) -> None:
        make_runtime = partial(AsyncRuntime, exclusive=True)
        self._operations = ConsumerOperations(bootstrap_servers, config, make_runtime)
        self._runtime = self._operations.runtime
        self._record_iterator: AsyncRecordIterator[K, V] = AsyncRecordIterator(self._operations)
        self.options = self._operations.options
        preload_crc32c()

    # ---- methods that send no request

    def assignment(self) -> set[TopicPartition]:
        """Return the partitions that are assigned to this consumer now."""
        return self._operations.assignment()

    def assignment_lost(self) -> bool:
        """Return whether another member may already own the assigned partitions.

        The result is True if the coordinator has removed or fenced the member, if a rebalance has failed, if
        poll has not been called for `max_poll_interval_ms`, or if the coordinator has not responded to the
        member for `session_timeout_ms` (except with `policy="java"`). Time during which the process was
        suspended counts towards both timeouts. The rebalance listener is called only by the next poll. This
        method is for applications that process records outside the polling thread (librdkafka:
        rd_kafka_assignment_lost).
        """
        return self._operations.assignment_lost()

    def subscription(self) -> set[str]:
        """Return the subscribed topics; with a pattern, the topics that match it now."""
        return self._operations.subscription()

    def paused(self) -> set[TopicPartition]:
        """Return the partitions that are paused."""
        return self._operations.paused()

    def lag(self, partition: TopicPartition) -> int | None:
        """Return the number of offsets from the position to the log's end; None before the first fetch.

        The log's end comes from the last fetch response: the high watermark or, with read_committed, the last
        stable offset. So the lag does not grow while no broker responds. `events` reports "unreachable" if no
        broker responds, and "reachable" when a broker responds again.
        """
        return self._operations.lag(partition)

    def why(self, partition: TopicPartition) -> DeliveryStatus:
        """Return the reason why `poll` currently returns no records from a partition.

        The method sends no request and does not wait, so it may be called from any thread, even while a poll
        or a callback hangs. `DeliveryStatus` lists all possible reasons.
        """
        return self._operations.why(partition)

    def metrics(self) -> Metrics:
        """Return a snapshot of this consumer's metrics.

        The metrics have the names, groups and tags of Java's `KafkaConsumer.metrics`. The reference page
        "Metrics" lists them with their units. Rates, averages, maxima and minima cover the last 30 to 60 s.
        The method sends no request and does not wait, so it may be called from any thread, even while a poll
        or a callback hangs. It may also be called after `close`.
        """
        return self._operations.metrics()

    def register_metric_for_subscription(self, metric: ApplicationMetric) -> None:
        """Register a metric of the application, to be pushed with this consumer's metrics (KIP-1076).

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
        default `default_api_timeout_ms`), IllegalState if the client pushes no metrics, and
        UnsupportedVersion if the broker does not support client telemetry.
        """
        return await self._operations.client_instance_id(timeout)

    def high_watermark(self, partition: TopicPartition) -> int | None:
        """Return the partition's high watermark as of the last fetch, or None before the first fetch."""
        return self._operations.high_watermark(partition)

    def group_metadata(self) -> GroupMetadata:
        """Return the member id and the generation as of the last assignment.

        Pass the result to a producer's `send_offsets`, so that the coordinator rejects the offsets if it has
        removed the member from the group, or if the generation is old. Before the first assignment, and after
        `assign`, the generation is -1 and the member id is empty.
        """
        return self._operations.group_metadata()

    def events(self, callback: EventCallback) -> None:
        """Call `callback` with a `GroupChange` for each change of this consumer's membership or state.

        The callback runs in the application's thread, inside the next poll, commit, unsubscribe or close.
        `GroupChange.at` is the time of the change. Exceptions of the callback are logged and not raised.
        """
        self._operations.events(callback)

    # ---- subscriptions

    def subscribe(
        self,
        topics: Iterable[str] | str = (),
        listener: RebalanceListener | None = None,
        *,
        pattern: str | None = None,
        **unknown: Never,
    ) -> None:
        """Join the group for these topics, or for all topics that match `pattern`.

        `pattern` is a regular expression, which must match the whole name of a topic.
        """
        if unknown:
            raise unknown_argument("subscribe", unknown, ("topics", "listener", "pattern"))
        self._operations.subscribe(topics, listener, pattern)

    def assign(self, partitions: Iterable[TopicPartition] | Mapping[TopicPartition, int | None]) -> None:
        """Read these partitions, without joining a group.

        A mapping maps each partition to its start offset. If the offset is None, or `partitions` is
        not a mapping, the partition starts at its committed offset. If it has no committed offset, it starts
        at the offset of the reset policy.
        """
        self._operations.assign(partitions)

    async def unsubscribe(self, timeout: float | None = None) -> None:
        """Release all partitions and leave the group; the listener's `revoked` runs inside this call.

        A static member sends no LeaveGroup: the group keeps it until its session timeout has passed.

        If auto commit is enabled, the offsets of processed records are committed first. The records that the
        last poll returned, and the last record that an iteration yielded, do not count as processed. If the
        application has processed them, it must call `commit` before this method.
        """
        await self._operations.unsubscribe(timeout)

    # ---- records

    async def poll(
        self, timeout: float = 1.0, max_records: int | None = None, **unknown: Never
    ) -> list[ConsumerRecord[K, V]]:
        """Return the next records, at most max_poll_records.

        The list is empty if no record arrives within `timeout` seconds.

        Each poll marks the records of earlier polls as processed. It raises BrokerError and its subclasses,
        and the exceptions of a rebalance listener. After a malformed batch, polls raise RecordError until a
        `seek` moves the position past the batch. If other partitions have records, every second poll returns
        these records instead of raising the error.
        """
        if unknown:
            raise unknown_argument("poll", unknown, ("timeout", "max_records"))
        return await self._operations.poll(timeout, max_records)

    async def poll_columns(self, timeout: float = 1.0) -> list[ColumnBatch]:
        """Return the next records as columns, one `ColumnBatch` for each partition of each Fetch response.

        The columns are described in `kproto.records.columns`.
        """
        return await self._operations.poll_columns(timeout)

    def __aiter__(self) -> AsyncIterator[ConsumerRecord[K, V]]:
        return self._record_iterator

    async def __anext__(self) -> ConsumerRecord[K, V]:
        """Wait indefinitely for the next record, and return it.

        Each call marks the record of the previous call as processed. The progress is reported at intervals of
        up to a second, so an auto commit may omit records that were processed since the last report.
        """
        return await anext(self._record_iterator)

    # ---- positions

    async def position(self, partition: TopicPartition, timeout: float | None = None) -> int:
        """Wait until the offset of the next record to read is known, and return this offset.

        While the method waits, it raises the errors that a poll would raise, because such an error may be the
        reason why the position is unknown.
        """
        return await self._operations.position(partition, timeout)

    def seek(self, partition: TopicPartition, offset: int | CommittedOffset) -> None:
        """Continue reading a partition at `offset`.

        A seek supersedes offset lookups and fetches that are in progress.

        If `offset` is a CommittedOffset, as `committed` returns it, the leader is first asked whether its log
        still contains this offset with this leader epoch (KIP-320). If the log does not contain it, poll
        treats this as a truncation of the log. The metadata of the CommittedOffset is ignored, as in Java.

        Before the first assignment, and during a rebalance, the seek of an unassigned partition waits for its
        assignment. If the group assigns the partition to another member, the seek is dropped, and `events`
        reports "unsought". At other times the seek of an unassigned partition raises IllegalState.
        """
        self._operations.seek(partition, offset)

    def seek_to(self, where: str | int, partitions: TopicPartition | Iterable[TopicPartition] = ()) -> None:
        """Continue reading at a position, for example "earliest", "committed" or a time.

        `where` is "earliest", "latest", "committed", a time in ms since 1970, or another position that
        `list_offsets` accepts.

        Without `partitions`, the method seeks in all assigned partitions. If all records are older than the
        time `where`, reading continues at the end of the log.
        """
        self._operations.seek_to(where, partitions)

    def pause(self, partitions: TopicPartition | Iterable[TopicPartition]) -> None:
        """Stop returning records of these partitions until `resume` is called. Records that are already
        fetched are kept.

        A partition that is revoked or lost is no longer paused when it is assigned again. With the default
        assignors a rebalance is eager and revokes all partitions. In a cooperative rebalance, partitions that
        the member keeps stay paused.
        """
        self._operations.pause(partitions)

    def resume(self, partitions: TopicPartition | Iterable[TopicPartition]) -> None:
        """Resume these partitions, so that polls return their records again."""
        self._operations.resume(partitions)

    # ---- commits

    async def commit(
        self,
        offsets: Mapping[TopicPartition, Offset] | None = None,
        timeout: float | None = None,
        **unknown: Never,
    ) -> None:
        """Commit offsets, by default the offset after each partition's last returned record.

        Each offset is the *next* offset to read. `commit` may be called at any time. During a
        rebalance the method waits for the rebalance to end. Raises CommitFailed if a partition was revoked
        or lost, UnknownTopic if a topic was deleted, and Fenced, NotAuthorized, RequestTimedOut.
        """
        if unknown:
            raise unknown_argument("commit", unknown, ("offsets", "timeout"))
        await self._operations.commit(offsets, timeout)

    def commit_async(
        self, offsets: Mapping[TopicPartition, Offset] | None = None, timeout: float | None = None
    ) -> asyncio.Future[None]:
        """Start a commit without waiting for its result; see `commit`. Commits are sent in the order of the
        calls.

        Callbacks of the returned future (`add_done_callback`) run in the event loop, and must not block it.
        """
        future: asyncio.Future[None] = self._operations.commit_async(offsets, timeout)
        return future

    def store_offsets(self, offsets: Mapping[TopicPartition, Offset] | ConsumerRecord[K, V]) -> None:
        """Store offsets for the next auto commit or `commit()`.

        Each offset is the *next* offset to read. The option `enable_auto_offset_store` must be False.
        For a record, the method stores the record's offset plus one, and its leader epoch. The call sends no
        request. A later call for the same partition replaces the stored offset, even by a lower offset. As
        with librdkafka's rd_kafka_offsets_store, `seek` keeps the stored offset, a revocation commits it
        after the listener's `revoked`, and the loss of a partition discards it. Raises IllegalState if the
        consumer has no group, if a partition is not assigned, or if a partition is being revoked and its last
        commit has already been sent. In the last two cases, the offsets of the other partitions are stored.
        """
        self._operations.store_offsets(offsets)

    async def committed(
        self, partitions: Iterable[TopicPartition] | None = None, timeout: float | None = None
    ) -> dict[TopicPartition, CommittedOffset | None]:
        """Return the group's committed offsets for these partitions, by default for the assigned partitions.

        A partition without a committed offset has the value None.
        """
        return await self._operations.committed(partitions, timeout)

    # ---- the cluster

    async def run(self, plan: Plan[R], timeout: float | None = None) -> R:
        """Run a plan of requests over this consumer's connections, and return its result.

        The functions of `consumer.engine.admin` create plans.
        """
        return await self._operations.run(plan, timeout)

    async def list_offsets(
        self, wants: Mapping[TopicPartition, str | int], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAt]:
        """Return each partition's offset for the requested position, for example "earliest".

        A position is "earliest", "latest", a time in ms since 1970, "max_timestamp", "earliest_local" or
        "latest_tiered".

        "latest" means the high watermark or, with read_committed, the last stable offset. An offset is None
        if the requested position does not exist in the log.
        """
        return await self._operations.list_offsets(wants, timeout)

    async def partitions_for(self, topic: str, timeout: float | None = None) -> list[TopicPartition]:
        """Return a topic's partitions, from fresh metadata. Raises UnknownTopic if the topic is missing."""
        return await self._operations.partitions_for(topic, timeout)

    def rejoin(self, reason: str = "the application asked for it") -> None:
        """Request a rebalance of the group. `reason` is sent with JoinGroup (KIP-800)."""
        self._operations.rejoin(reason)

    def wakeup(self) -> None:
        """Interrupt the running poll, or the next poll if none is running. That poll raises WokenUp.

        Any thread may call this method, as in Java, and also any signal handler. The records that earlier
        polls returned count as processed, so with auto commit, `close` commits their offsets. An iteration
        over the consumer raises WokenUp after it has yielded all records of its last poll.
        """
        self._operations.runtime.wakeup()

    # ---- the end

    async def close(self, leave: bool = True, timeout: float = CLOSE_TIMEOUT, **unknown: Never) -> None:
        """Close the consumer: run the listener's `revoked`, commit, and leave the group.

        The consumer commits if auto commit is enabled. All steps together take at most `timeout` seconds.

        With `leave=False`, and for a static member, no LeaveGroup is sent: the group keeps the member until
        its session timeout has passed. The consumer closes in any case, and then raises the first error of a
        commit or of a callback. A second call waits until the first one has ended, and raises RequestTimedOut
        if this takes longer than the second call's `timeout`.

        Another thread or task may call `close` during a poll. The poll then raises IllegalState, and the
        records that the previous poll returned are not committed.

        If Ctrl-C or, in asyncio, the cancellation of the task interrupts this call, the consumer closes
        immediately, and logs a warning if it has not left its group yet. After such an interruption, the last
        commit may be missing.
        """
        if unknown:
            raise unknown_argument("close", unknown, ("leave", "timeout"))
        await self._operations.close(leave, timeout)

    def kill(self) -> None:
        """Stop as if the process had died: without a commit and without LeaveGroup. For tests and demos."""
        self._runtime.kill()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the consumer.

        If the `async with` block has raised an error, the offsets of the records returned last are not
        committed.
        """
        await self._operations.leave_block(error)

    # ---- inside

    def __str__(self) -> str:
        return str(self._runtime)

    def __repr__(self) -> str:
        return self._operations.describe(type(self).__name__)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            """Raise AttributeError. For a method of another library, the error names kproto's equivalent."""
            raise unknown_method(self, "consumer", name)


class AsyncRecordIterator(AsyncIterator[ConsumerRecord[K, V]]):
    """An iterator over the records of an `AsyncConsumer`; see `RecordIterator`."""

    __slots__ = ("_iteration", "_operations")

    def __init__(self, operations: ConsumerOperations) -> None:
        self._operations = operations
        self._iteration = operations.iteration

    async def __anext__(self) -> ConsumerRecord[K, V]:
        iteration = self._iteration
        # To save time, return a record of the last poll without a further function call, if its partition
        # certainly still belongs to this consumer (see `Iteration`).
        if iteration.owned_from <= time() < iteration.owned_until:
            for record in iteration.remaining:
                return record
        return await self._operations.next_record()

"""The blocking clients: `Consumer`, and `Cluster`, which is defined in `cluster`.

    with Consumer("localhost:9092", group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["flights"])
        for record in consumer:
            ...

A thread moves bytes, sends heartbeats and fetches ahead while the application computes. Callbacks never run
in this thread: they run inside poll, commit, unsubscribe and close, in the caller's thread.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import Future
from functools import partial
from time import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Never, NoReturn, Self, TypeVar, Unpack

from kproto.group.subscription import TopicPartition

from ..engine.admin.plan import Plan
from ..engine.admin.records import OffsetAt
from ..engine.requests import CommittedOffset, Offset
from ..lifecycle import BoundToProcess
from ..listener import RebalanceListener
from ..operations.consumer import CLOSE_TIMEOUT, ConsumerOperations
from ..option_docs import consumer_docs, with_options
from ..options import ConsumerConfig
from ..other_clients import hide_secrets, unknown_argument, unknown_method
from ..records import ColumnBatch, ConsumerRecord, EventCallback, GroupMetadata
from ..runtime import run_to_end
from .cluster import Cluster as Cluster
from .runtime import BlockingRuntime

R = TypeVar("R")


@with_options(consumer_docs())
class Consumer(BoundToProcess):
    """Reads records, alone (`assign`) or in a group (`subscribe`). The options are listed below.

    Raises ConfigError for wrong options immediately, and connects in the background after the first subscribe
    or assign. One thread at a time may use the consumer; any thread may `close` it.
    """

    @hide_secrets
    def __init__(self, bootstrap_servers: str | Iterable[str], **config: Unpack[ConsumerConfig]) -> None:
        make_runtime = partial(BlockingRuntime, exclusive=True)
        self._operations = ConsumerOperations(bootstrap_servers, config, make_runtime)
        self._runtime = self._operations.runtime
        self._records = RecordIterator(self._operations)
        self.options = self._operations.options

    # ---- what is known without a request

    def assignment(self) -> set[TopicPartition]:
        """Return the partitions that are assigned to this consumer now."""
        return self._operations.assignment()

    def assignment_lost(self) -> bool:
        """Return whether another member may own the assigned partitions, and the listener was not called yet.

        The result is True if the coordinator has not responded for `session_timeout_ms`, or poll was not
        called for `max_poll_interval_ms`, even while the process was stopped. The listener is called by the
        next poll. The method is for applications that process records outside the polling thread (librdkafka:
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
        """Return the records between the position and the end of the last fetch; None before the first fetch.

        The lag does not change while no broker responds. `events` reports this as "unreachable", and its end
        as "reachable".
        """
        return self._operations.lag(partition)

    def high_watermark(self, partition: TopicPartition) -> int | None:
        """Return the offset after the last record, as of the last fetch; None before the first fetch."""
        return self._operations.high_watermark(partition)

    def group_metadata(self) -> GroupMetadata:
        """Return the member id and generation under which partitions were last assigned.

        A transaction commits offsets with this identity. If the group has removed the member in the meantime,
        it rejects them. Before the first assignment, and with `assign`, the generation is -1 and the member
        id is empty.
        """
        return self._operations.group_metadata()

    def events(self, callback: EventCallback) -> None:
        """Call `callback` with a `GroupChange` for everything that happens to this consumer's membership.

        The callback runs in the caller's thread, inside the next poll, commit, unsubscribe or close.
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
    ) -> None:
        """Join the group for these topics, or for all topics whose whole name matches `pattern`."""
        self._operations.subscribe(topics, listener, pattern)

    def assign(self, partitions: Iterable[TopicPartition] | Mapping[TopicPartition, int | None]) -> None:
        """Read these partitions without a group's assignment; a mapping gives the offsets to start at."""
        self._operations.assign(partitions)

    def unsubscribe(self, timeout: float | None = None) -> None:
        """Release all partitions and leave the group; the revoked callback runs inside this call.

        With auto commit, processed offsets are committed first. The records of the last poll, and the last
        record of an iteration, do not count as processed. If they are processed, call `commit` before.
        """
        run_to_end(self._operations.unsubscribe(timeout))

    # ---- records

    def poll(
        self, timeout: float = 1.0, max_records: int | None = None, **unknown: Never
    ) -> list[ConsumerRecord]:
        """Return the next records, at most max_poll_records; an empty list after `timeout` seconds.

        Each poll marks the records of earlier polls as processed. It raises BrokerError and its subclasses,
        and the exceptions of a rebalance listener. For a malformed batch each poll raises RecordError until a
        `seek` passes the batch; in between, polls return the records of other partitions.
        """
        if unknown:
            raise unknown_argument("poll", unknown, ("timeout", "max_records"))
        return _run_poll(self._operations, self._operations.poll(timeout, max_records))

    def poll_columns(self, timeout: float = 1.0) -> list[ColumnBatch]:
        """Return the next records as columns, one batch for each fetched piece;

        see `kproto.records.columns`.
        """
        return _run_poll(self._operations, self._operations.poll_columns(timeout))

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return self._records

    def __next__(self) -> ConsumerRecord:
        """Return the next record, however long it takes.

        The record before it counts as processed. Auto commit commits it within a second.
        """
        return next(self._records)

    # ---- positions

    def position(self, partition: TopicPartition, timeout: float | None = None) -> int:
        """Return the offset of the next record; wait until it is known.

        While it waits, this method raises what a poll would raise, because that may be the reason why the
        position is unknown.
        """
        return run_to_end(self._operations.position(partition, timeout))

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at `offset`. The last seek replaces every look-up and fetch in progress.

        A seek before the assignment sets the start offset of the partition. If the group has assigned the
        partition to another member, IllegalState is raised.
        """
        self._operations.seek(partition, offset)

    def seek_to(self, where: str | int, partitions: TopicPartition | Iterable[TopicPartition] = ()) -> None:
        """Continue at "earliest", "latest", "committed", a time in ms or another position that `list_offsets`
        accepts.

        Without `partitions`, the method seeks in all assigned partitions. A time after the last record means
        the end of the log.
        """
        self._operations.seek_to(where, partitions)

    def pause(self, partitions: TopicPartition | Iterable[TopicPartition]) -> None:
        """Return no records of these partitions until `resume`. Buffered records are kept.

        A partition that is revoked or lost is not paused when it is assigned again. An eager rebalance, as
        with the default assignors, revokes all partitions; in a cooperative one, retained partitions stay
        paused.
        """
        self._operations.pause(partitions)

    def resume(self, partitions: TopicPartition | Iterable[TopicPartition]) -> None:
        """Return records of these partitions again."""
        self._operations.resume(partitions)

    # ---- commits

    def commit(
        self,
        offsets: Mapping[TopicPartition, Offset] | None = None,
        timeout: float | None = None,
        **unknown: Never,
    ) -> None:
        """Commit these offsets (of the *next* record to read), or those after the records returned so far.

        This method may be called at any time. During a rebalance it waits; it raises CommitFailed only if a
        partition was assigned to another member. Raises Fenced, NotAuthorized, RequestTimedOut.
        """
        if unknown:
            raise unknown_argument("commit", unknown, ("offsets", "timeout"))
        run_to_end(self._operations.commit(offsets, timeout))

    def commit_async(
        self, offsets: Mapping[TopicPartition, Offset] | None = None, timeout: float | None = None
    ) -> Future[None]:
        """Commit without waiting; see `commit`. Commits are sent in the order of the calls.

        Callbacks of the future (`add_done_callback`) run in the consumer's own thread, and may not wait
        there.
        """
        future: Future[None] = self._operations.commit_async(offsets, timeout)
        return future

    def committed(
        self, partitions: Iterable[TopicPartition] | None = None, timeout: float | None = None
    ) -> dict[TopicPartition, CommittedOffset | None]:
        """Return the group's committed offsets of these partitions, or of the assigned ones;

        None for none.
        """
        return run_to_end(self._operations.committed(partitions, timeout))

    # ---- the cluster

    def run(self, plan: Plan[R], timeout: float | None = None) -> R:
        """Run a plan of `consumer.engine.admin` over this consumer's connections."""
        return run_to_end(self._operations.run(plan, timeout))

    def list_offsets(
        self, wants: Mapping[TopicPartition, str | int], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAt]:
        """Return where "earliest", "latest", a time in ms, "max_timestamp", "earliest_local" or
        "latest_tiered" is.

        The offsets are those of the consumer's isolation level. An offset is None if the position does not
        exist.
        """
        return run_to_end(self._operations.list_offsets(wants, timeout))

    def partitions_for(self, topic: str, timeout: float | None = None) -> list[TopicPartition]:
        """Return the topic's partitions, as of now; raises UnknownTopic."""
        return run_to_end(self._operations.partitions_for(topic, timeout))

    def rejoin(self, reason: str = "the application asked for it") -> None:
        """Make the group rebalance."""
        self._operations.rejoin(reason)

    # ---- the end

    def close(self, leave: bool = True, timeout: float = CLOSE_TIMEOUT, **unknown: Never) -> None:
        """Run the revoked callback, commit (with auto commit) and leave the group, within `timeout` seconds.

        `leave=False` keeps the membership: the group waits for the session timeout before it rebalances. The
        consumer closes in any case, and then raises the first error, of a commit or of a callback. A second
        call waits for the first one, and raises RequestTimedOut after its own timeout. Other threads or tasks
        may call `close` during a poll. The poll then raises IllegalState, and the records that it returned
        last are not committed.
        """
        if unknown:
            raise unknown_argument("close", unknown, ("leave", "timeout"))
        run_to_end(self._operations.close(leave, timeout))

    def kill(self) -> None:
        """Stop as if the process had died: no commit, no LeaveGroup. For tests and demos."""
        self._runtime.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close. After an exception, the records that were being processed are not committed."""
        run_to_end(self._operations.leave_block(error))

    # ---- inside

    def __str__(self) -> str:
        return str(self._runtime)

    def __repr__(self) -> str:
        return self._operations.describe(type(self).__name__)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            """Raise AttributeError, which translates the method names of other libraries."""
            raise unknown_method(self, "consumer", name)


class RecordIterator(Iterator[ConsumerRecord]):
    """The records of a consumer, one at a time.

    This class has no `__getattr__`: in Python 3.11 it would make each access to an attribute 60 ns slower.
    """

    __slots__ = ("_iteration", "_operations")

    def __init__(self, operations: ConsumerOperations) -> None:
        self._operations = operations
        self._iteration = operations.iteration

    def __next__(self) -> ConsumerRecord:
        iteration = self._iteration
        if iteration.owned_from <= time() < iteration.owned_until:
            for record in iteration.remaining:
                return record
        return _run_poll(self._operations, self._operations.next_record())


def _run_poll(operations: ConsumerOperations, operation: Coroutine[Any, Any, R]) -> R:
    """Run an operation that returns records. After Ctrl-C the records go back to the engine."""
    runtime = operations.runtime
    try:
        result = run_to_end(operation)
        runtime.delivering = False
        return result
    except BaseException:
        if runtime.delivering:  # Ctrl-C came after the records had left the engine.
            runtime.delivering = False
            operations.take_back()
        raise

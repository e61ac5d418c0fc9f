"""Reads the records of a slice as Arrow batches on an executor, without a Python object for each record.

Rules:

* If the batch was planned for the current action, a range with an open end is read to the planned end.
  Otherwise it is read to the end that the log has when reading begins.

* The end of a slice is an offset, not a number of records. Compaction, transaction markers and aborted
  transactions leave gaps, so a slice may have fewer records than offsets.

* Brokers send whole batches, so records outside of the slice are dropped.

* If a slice cannot be read completely, an error is raised: DataLoss, or a timeout that names the partition.
  With failOnDataLoss=false, only deleted or truncated records may be missing.

* Topics are compared by id. If a topic is re-created after the slice was planned, the records of the new
  topic are not read. There is one exception: if a later action of the query reads a whole log again, it finds
  the topic by name, and so reads the new topic.

* Every wait has a timeout: if no records arrive for kafkaConsumer.pollTimeoutMs, an error is raised.

* One fetch is always in flight while the records of the previous fetch are decoded and passed to the JVM.

* Connections remain open until the worker process ends. Spark reuses a worker process for many slices. A
  forked process opens its own connections.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from kproto.error_codes import ErrorCode
from kproto.errors import ConnectionFailed, KprotoError, RecordError, RequestTimedOut, Retriable, UnknownTopic
from kproto.group.subscription import TopicPartition
from kproto.records.batch import Data

from ..blocking.admin import Admin
from ..engine.admin.records import FetchedBytes
from ..errors import broker_error, is_retriable
from .arrow import Aborted, Builder, RecordBatch, batches_before, split_compressed
from .offset_reader import connect, report_losses, retry_while_unreachable
from .options import Options
from .ranges import Range
from .security import kafka_option_names_in_errors
from .slices import Slice

T = TypeVar("T")

# The size limit of one fetch: 16 MiB. Kafka's consumers have a default of 1 MiB for each partition, because
# one fetch may contain many partitions. A slice reads a single partition, and larger responses need fewer
# round trips.
FETCH_BYTES = 16 * 1024 * 1024

# The assumed size of a record in bytes, used until records of the partition have been read and measured. The
# size limits a fetch near the end of a slice, because the records after the end belong to another slice. A
# limit that is too low costs only another fetch: brokers always send at least one whole batch.
GUESSED_RECORD_BYTES = 200
LEAST_FETCH_BYTES = 64 * 1024

# The pause between a failed fetch and the next attempt.
PAUSE_S = 0.1


def read(partition: InputPartition, schema: StructType, options: Options) -> Iterator[RecordBatch]:
    """Yield the records of a slice, in batches of at most 50,000 rows with the columns of `schema`."""
    if not isinstance(partition, Slice):
        return  # If a plan has no slices, Spark still runs a task, for a partition that is not a `Slice`.
    check_crcs = options.client.get("check.crcs") is not False
    with kafka_option_names_in_errors():
        range_ = _current_range(partition, options)
        builder = Builder(schema, range_, check_crcs=check_crcs, formats=options.formats)
        for chunk in _chunks(range_, options):
            for piece, aborted in split_compressed(chunk.records, chunk.aborted):
                yield from builder.batches(piece, aborted, chunk.position)
    _freeze_imported_objects()


# ---- fetching


@dataclass(slots=True)
class _Worker:
    """The objects that a worker process keeps between slices.

    `record_bytes` maps each partition to the average number of bytes per offset in its last fetch.
    """

    cluster: Admin
    fetch_executor: ThreadPoolExecutor
    record_bytes: dict[TopicPartition, float]


_workers: dict[tuple[object, ...], _Worker] = {}


def _connected_worker(options: Options) -> _Worker:
    """Return the objects that slices with these options share. The first call connects to the cluster."""
    worker = _workers.get(options.key)
    if worker is None:
        executor = ThreadPoolExecutor(1, thread_name_prefix="kproto-fetch")
        worker = _workers[options.key] = _Worker(connect(options), executor, {})
    return worker


# The ids of the processes that have called gc.freeze(). gc.get_freeze_count() is not used, because it
# traverses the frozen objects.
_frozen_pids: set[int] = set()


def _freeze_imported_objects() -> None:
    """Exclude all objects that exist now, such as imported modules, from garbage collection.

    Only the first call in each worker process of Spark has an effect.

    Spark's workers run the garbage collector after every task, and the collector traverses all imported
    modules. For a small task, this takes ten times the CPU time of the task.
    """
    if "pyspark.worker" in sys.modules and os.getpid() not in _frozen_pids:
        _frozen_pids.add(os.getpid())
        gc.collect()
        gc.freeze()


class _Fetches:
    """The fetches of one slice. While records are decoded, the next fetch is already in flight."""

    def __init__(self, range_: Range, options: Options) -> None:
        self.range = range_
        self.partition = TopicPartition(range_.topic, range_.partition)
        self.name = f"{range_.topic}-{range_.partition}"
        self.options = options
        self.worker = _connected_worker(options)
        self.isolation = options.text("isolation.level", "read_uncommitted")
        self.max_bytes = options.number("max.partition.fetch.bytes", FETCH_BYTES)

    def start(self, position: int) -> Future[FetchedBytes]:
        """Start a fetch at `position` in the background.

        The result has records or a final error code. The future raises RequestTimedOut if neither arrives in
        time, and LogDeleted if the topic was deleted or re-created.
        """
        return self.worker.fetch_executor.submit(self._fetch, position)

    def _fetch(self, position: int) -> FetchedBytes:
        """Fetch until there are records or a final error, for at most kafkaConsumer.pollTimeoutMs."""
        deadline = time.monotonic() + self.options.poll_timeout_ms / 1000
        record_bytes = self.worker.record_bytes.get(self.partition, GUESSED_RECORD_BYTES)
        remaining_bytes = int((self.range.end - position) * record_bytes * 1.1)
        max_bytes = min(self.max_bytes, max(LEAST_FETCH_BYTES, remaining_bytes))
        reason = ""  # Why an attempt returned neither records nor a final error.
        while (remaining_s := deadline - time.monotonic()) > 0:
            try:
                response = self._fetch_once(position, max_bytes, remaining_s)
                if response.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    reason = self._out_of_range_contradiction(position)
                    if reason:
                        time.sleep(PAUSE_S)
                        continue
            except UnknownTopic:
                raise LogDeleted(f"{self.name} was deleted") from None
            except (ConnectionFailed, RequestTimedOut, Retriable) as e:
                # If little time was left, this attempt may have failed only for lack of time, so keep the
                # reason of the earlier error.
                if remaining_s > PAUSE_S or not reason:
                    reason = str(e)
                time.sleep(PAUSE_S)
                continue
            if response.records or (response.error_code and not is_retriable(response.error_code)):
                return response
            reason = "the broker sends no records"
            if response.error_code:
                reason = f"the broker answers with error {response.error_code}"
                time.sleep(PAUSE_S)
        reason = reason or "the timeout is too short for a request"
        detail = f"{self.name} at offset {position}, in a slice up to {self.range.end}: {reason}"
        timeout_ms = self.options.poll_timeout_ms
        raise RequestTimedOut("Fetch", timeout_ms, f"{detail}; see kafkaConsumer.pollTimeoutMs")

    def _fetch_once(self, position: int, max_bytes: int, timeout: float) -> FetchedBytes:
        """Send one fetch and return its response. `timeout` is in seconds.

        Raises LogDeleted if the topic has been re-created since the slice was planned, and Retriable if the
        leader does not know the topic id yet.
        """
        topic = self.range.topic
        response = self.worker.cluster.fetch(
            {self.partition: position},
            isolation=self.isolation,
            max_wait_ms=self.options.number("fetch.max.wait.ms", 500),
            min_bytes=self.options.number("fetch.min.bytes", 1),
            max_bytes=min(max_bytes, self.options.number("fetch.max.bytes", max_bytes)),
            partition_max_bytes=max_bytes,
            lent=True,
            timeout=timeout,
        ).get(self.partition)
        if response is not None and self.range.topic_id in (None, self._topic_id()):
            return response
        # Request the metadata again, because the cached metadata may be older than the plan.
        self.worker.cluster.metadata([topic], timeout=timeout)
        if self._topic_id() not in (None, self.range.topic_id):
            ids = f"its id was {self.range.topic_id}, and is {self._topic_id()}"
            raise LogDeleted(f"topic {topic} was deleted and re-created ({ids})")
        raise Retriable(
            ErrorCode.UNKNOWN_TOPIC_ID, "Fetch", f"the leader of {self.name} does not know the topic id yet"
        )

    def _out_of_range_contradiction(self, position: int) -> str:
        """Return why OFFSET_OUT_OF_RANGE is wrong for `position`, or "" if it is right.

        The start and end of the log are requested from the broker.
        """
        start = _log_edge(self.range, "earliest", self.options)
        end = _log_edge(self.range, "latest", self.options, "read_uncommitted")
        contradiction = f"the broker reports OFFSET_OUT_OF_RANGE, although the log is from {start} to {end}"
        return contradiction if start <= position < end else ""

    def _topic_id(self) -> str | None:
        """Return the topic's id in the cached metadata, or None if the metadata has no id."""
        id_ = self.worker.cluster.view.topic_id(self.range.topic)
        return None if id_ is None else str(id_)


class LogDeleted(KprotoError):
    """Raised if the log for which a slice was planned no longer exists. The message contains the reason."""


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Fetched record batches. Records below `position` are skipped: they were already read, or they were
    deleted.
    """

    records: Data
    aborted: Aborted
    position: int


def _current_range(slice_: Slice, options: Options) -> Range:
    """Return the range that a task must read for this slice.

    If the slice was planned for another Spark action and its range has an open end, the range is extended or
    shortened to the log's current end.
    """
    range_ = slice_.range
    if not range_.open_end or (slice_.plan is not None and slice_.plan.is_of_this_action()):
        return range_
    try:
        if range_.open_start:
            range_ = _range_of_recreated_topic(range_, options)
        end = _log_edge(range_, "latest", options)
    except UnknownTopic:
        # Ignore the error here, because the fetch that follows determines whether the topic was deleted or
        # re-created.
        return range_
    if end < range_.end:
        name = f"{range_.topic}-{range_.partition}"
        report_losses(
            [f"the log of {name} ends at {end}, and reached to {range_.end} when the batch was planned"],
            options,
        )
    return replace(range_, end=end)


def _range_of_recreated_topic(range_: Range, options: Options) -> Range:
    """Return `range_`, or an empty range at the start of the log if the topic was re-created.

    The caller passes only ranges that covered the whole log when they were planned.
    """
    cluster = _connected_worker(options).cluster
    view = _retry_while_unreachable(
        lambda timeout: cluster.metadata([range_.topic], timeout=timeout), options
    )
    topic = view.topics.get(range_.topic)
    if topic is None or topic.id is None or range_.topic_id in (None, str(topic.id)):
        return range_
    start = _log_edge(range_, "earliest", options)
    return replace(range_, topic_id=str(topic.id), start=start, end=start)


def _log_edge(range_: Range, edge: str, options: Options, isolation: str | None = None) -> int:
    """Request the first offset ("earliest") or the end offset ("latest") of a range's log.

    The default of `isolation` is the query's isolation level.
    """
    cluster, partition = _connected_worker(options).cluster, TopicPartition(range_.topic, range_.partition)
    isolation = isolation or options.text("isolation.level", "read_uncommitted")
    results = _retry_while_unreachable(
        lambda timeout: cluster.list_offsets({partition: edge}, isolation=isolation, timeout=timeout), options
    )
    return results[partition].offset or 0


def _retry_while_unreachable(request: Callable[[float], T], options: Options) -> T:
    """Call `request` with a timeout in seconds, and repeat it while the cluster is unreachable."""
    timeout = options.poll_timeout_ms / 1000
    return retry_while_unreachable(lambda: request(timeout), timeout, "kafkaConsumer.pollTimeoutMs")


def _chunks(range_: Range, options: Options) -> Iterator[_Chunk]:
    """Yield the record batches that contain the records of a slice, in order.

    The next fetch starts before a chunk is yielded. Lost records are reported. If the log was deleted, no
    further chunk is yielded.
    """
    if range_.size <= 0:
        return
    fetches = _Fetches(range_, options)
    position = range_.start
    pending_fetch = fetches.start(position)
    while position < range_.end:
        try:
            response = pending_fetch.result()
        except LogDeleted as e:
            report_losses([str(e)], options)
            return
        if response.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            position = _resume_position(fetches, position)
            if position < range_.end:
                pending_fetch = fetches.start(position)
            continue
        if response.error_code:
            raise broker_error(response.error_code, "Fetch", f"{fetches.name} at offset {position}")
        records, next_position = batches_before(response.records, range_.end)
        if next_position is None or next_position <= position:
            raise RecordError(
                "FetchResponse",
                -1,
                "records",
                0,
                f"the response has no records for {fetches.name} at {position}",
            )
        fetches.worker.record_bytes[fetches.partition] = len(records) / (next_position - position)
        if next_position < range_.end:
            pending_fetch = fetches.start(next_position)
        if records:
            yield _Chunk(records, response.aborted, position)
        position = next_position


def _resume_position(fetches: _Fetches, position: int) -> int:
    """Return the offset at which to continue if the log no longer contains `position`.

    If records were lost, the loss is reported first. The offset is at most the end of the slice. If the slice
    begins at the start of the log, records that were deleted before the slice's first fetch do not count as
    lost.
    """
    range_ = fetches.range
    log_start = _log_edge(range_, "earliest", fetches.options)
    if log_start <= position:
        loss = f"the log of {fetches.name} ends before {position}, which was not read yet"
        report_losses([loss], fetches.options)
        return range_.end
    begins_at_log_start = range_.open_start and position == range_.start
    if not begins_at_log_start:
        loss = f"the log of {fetches.name} begins at {log_start}, after {position}, which was not read yet"
        report_losses([loss], fetches.options)
    return min(log_start, range_.end)

"""Fetch (key 1): read batches, immediately or when enough bytes are available.

Rules, as in Kafka's ReplicaManager.fetchMessages:

* The response is sent immediately if it has at least `min_bytes`, if a partition has an error or a diverging
  epoch, if no partition is requested, or if `max_wait_ms` is not positive.

* A fetch that is not answered immediately waits in the purgatory until the response has at least `min_bytes`,
  a partition has an error or a diverging epoch, or `max_wait_ms` has passed.

* With `read_committed`, only records before the last stable offset are returned. The response lists the
  aborted transactions that overlap the returned offsets (X5).

* Batches are sent whole, the first one even if it exceeds a limit. The limits are `max_bytes` and
  `partition_max_bytes` of the request, `fetch.max.bytes`, and `MAX_UNSENT_BYTES`.

* A throttled client (`Server.throttle`) receives no records, and cannot open a fetch session.

Each Produce checks the delayed fetches of its partition. A check needs only the sizes of the batches. Records
are copied only into a response that is sent.

The permission for a partition is checked when the partition is read, because a fetch session also reads
partitions that the request does not list.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ...error_codes import ErrorCode
from ...messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from ..broker import Broker
from ..call import PARKED, Call, Result
from ..fetch_sessions import FetchContext, FetchSession, Key, TopicKey
from ..log import BatchRange, Log
from ..security.acls import Operation, Resource
from ..topics import NO_ID, Partition, Topic
from .api import Api
from .authorization import TOPIC_FAILED, Access, Authorization, Authorized, topic_requirement
from .partitions import find_partition, leader_epoch_error, missing_topic

# IsolationLevel
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
# The first version of Fetch with topic ids (KIP-516).
BY_ID_SINCE: Final = 13
# The first version in which a rejected request is answered with a top-level error.
TOP_LEVEL_ERROR_SINCE: Final = 13
# The first version in which a partition's error contains the current leader (KIP-951).
LEADER_SINCE: Final = 16
# The maximum size of all unsent responses: 256 MiB. If it is reached, a fetch returns only one batch. Kafka
# needs no limit, because it sends records directly from its log files.
MAX_UNSENT_BYTES: Final = 1 << 28


class FoundBatches(NamedTuple):
    """The batches of one partition that the fetch would return if it were completed now."""

    partition: Partition
    # The fetch offset of the request.
    offset: int
    batches: BatchRange
    # Whether the fetch is `read_committed`: the response then lists aborted transactions.
    read_committed: bool


@dataclass(slots=True)
class DelayedFetch:
    """A fetch that waits until enough records are available or `deadline` has passed.

    `try_complete` is called whenever one of the objects in `waits_for` changes.
    """

    broker: Broker
    call: Call
    request: FetchRequest
    context: FetchContext
    deadline: int
    waits_for: set[Partition | FetchSession] = field(default_factory=set[Partition | FetchSession])
    # The batches that the last call of `_find_batches` found.
    _found: dict[Key, FoundBatches] = field(default_factory=dict[Key, "FoundBatches"])

    def try_complete(self, *, force: bool = False) -> FetchResponse | None:
        """Return the response if enough data is available or `force` is set, else None.

        The call updates `waits_for`. A returned response must be sent, because the fetch
        session records the response as sent.
        """
        max_bytes = self._max_bytes()
        results, size = self._find_batches(max_bytes)
        is_complete = (
            size >= min(self.request.min_bytes, max_bytes)
            or not self.context.all_partitions
            or any(data.error_code or data.diverging_epoch.epoch >= 0 for data in results.values())
        )
        if not is_complete and not force:
            return None
        for key, found in self._found.items():
            _add_batches(results[key], found)
        return self._build_response(results)

    def _build_response(self, results: dict[Key, PartitionData]) -> FetchResponse:
        """Return the response with the results that have to be sent, grouped by topic."""
        topics: dict[TopicKey, FetchableTopicResponse] = {}
        for (topic, _), data in self._partitions_to_send(results).items():
            if topic not in topics:
                topics[topic] = FetchableTopicResponse(
                    topic=topic if isinstance(topic, str) else "",
                    topic_id=NO_ID if isinstance(topic, str) else topic,
                    partitions=[],
                )
            topics[topic].partitions.append(data)
        # The result of a partition contains the current leader only together with an error.
        leaders = [
            data.current_leader.leader_id
            for topic in topics.values()
            for data in topic.partitions
            if data.error_code
        ]
        return FetchResponse(
            throttle_time_ms=0,
            session_id=self.context.session_id,
            responses=list(topics.values()),
            node_endpoints=[
                NodeEndpoint(node_id=node.id, host=host, port=port, rack=node.rack)
                for node, host, port in self.broker.cluster.endpoints(leaders, self.call.listener)
            ],
        )

    def _partitions_to_send(self, results: dict[Key, PartitionData]) -> dict[Key, PartitionData]:
        """Return the elements of `results` that go into the response.

        The response to a throttled Fetch contains no results. The response to an incremental fetch contains
        only the results that have changed since the last response. Any other response contains all results.
        """
        if self.broker.throttle_times.get(self.call.api_key):
            self.broker.fetch_sessions.decline_session(self.context)
            return {}
        return self.context.changed_partitions(results)

    def _find_batches(self, max_bytes: int) -> tuple[dict[Key, PartitionData], int]:
        """Find the batches of partitions that may have changed since the last response of the session.

        `max_bytes` is the maximum size of the response's records. Returns each partition's result, without
        its batches, and the total size of all batches in bytes. The batches are stored in `_found`.
        """
        self.waits_for.clear()
        self._found.clear()
        if self.context.session is not None:
            self.waits_for.add(self.context.session)
        results: dict[Key, PartitionData] = {}
        total_size = 0
        remaining_bytes = max_bytes
        for key, requested in self.context.partitions_to_read(self._reader()).items():
            topic = self._find_topic(key[0])
            data = self._find_in_partition(
                key, topic, requested, remaining_bytes, at_least_one=total_size == 0
            )
            size = self._found[key].batches.size if key in self._found else 0
            total_size += size
            if topic is not None and topic.partition(requested.partition) is not None:
                # A negative `max_bytes` in the request causes an error for the first existing partition. As
                # in Kafka, the following partitions are then read with a limit of 0 bytes.
                remaining_bytes = max(remaining_bytes - size, 0)
            results[key] = data
        return results, total_size

    def _reader(self) -> Hashable:
        """Return what determines the readable records: the isolation level, and the caller's permissions."""
        call, acls = self.call, self.broker.acls
        acls_version = None if acls is None else acls.version
        return self.request.isolation_level, call.principal, call.host, acls_version, call.injected_error

    def _max_bytes(self) -> int:
        """Return the maximum total size (bytes) of the records in the response."""
        max_unsent = max(MAX_UNSENT_BYTES - self.broker.cluster.unsent, 0)
        return min(self.request.max_bytes, self.broker.settings.fetch_max_bytes, max_unsent)

    def _find_topic(self, key: TopicKey) -> Topic | None:
        """Return the topic with this name or id, or None if it does not exist.

        The name of a topic that is found by its id is stored in the context.
        """
        topics = self.broker.topics
        if isinstance(key, str):
            return topics.named(key)
        topic = topics.with_id(key)
        if topic is not None:
            self.context.topic_names[key] = topic.name
        return topic

    def _find_in_partition(
        self, key: Key, topic: Topic | None, requested: FetchPartition, max_bytes: int, *, at_least_one: bool
    ) -> PartitionData:
        """Find and store the batches of one partition; return the partition's result without them.

        The result is an error in four cases: the caller may not read the topic, the partition does not exist,
        this node is not the partition's leader, or the requested epoch, offset or size is invalid.
        """
        topic_key, index = key
        # The name is empty if the client fetches by id, and the id was never resolved to a name.
        name = topic_key if isinstance(topic_key, str) else self.context.topic_names.get(topic_key, "")
        if name and not self.broker.is_authorized(self.call, Operation.READ, Resource.TOPIC, name):
            return _refuse_partition(index, TOPIC_FAILED)
        if topic is None and find_partition(self.broker.topics, name, index) is not None:
            # The client has the id of a deleted topic, whose name now belongs to a new topic.
            return _refuse_partition(index, ErrorCode.INCONSISTENT_TOPIC_ID)
        if topic is None:
            return _missing_partition(index, missing_topic(by_id=self.context.by_id and not name))
        partition = topic.partition(index)
        if partition is None:
            return _missing_partition(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self.waits_for.add(partition)
        log = partition.log
        # Kafka treats every negative epoch as -1, and does not check the epoch -1.
        error = leader_epoch_error(log, max(requested.current_leader_epoch, -1))
        if not self.broker.is_leader(partition, index):
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if error is not ErrorCode.NONE:
            return self._refuse_with_leader(partition, index, error)
        return self._find_from_offset(key, partition, requested, max_bytes, at_least_one=at_least_one)

    def _find_from_offset(
        self, key: Key, partition: Partition, requested: FetchPartition, max_bytes: int, *, at_least_one: bool
    ) -> PartitionData:
        """Find and store the batches from the fetch offset on; return the result without them."""
        index, log, offset = key[1], partition.log, requested.fetch_offset
        diverging = _diverging_epoch(log, requested)
        # If the client's log diverged from this log, an offset after the end of this log is not out of range:
        # the response has the epoch and offset at which the logs diverged.
        max_offset = log.end_offset if diverging is None else offset
        is_unknown_epoch = diverging is not None and diverging.epoch < 0
        if is_unknown_epoch or not log.start_offset <= offset <= max_offset:
            return _refuse_partition(index, ErrorCode.OFFSET_OUT_OF_RANGE)
        read_committed = self.request.isolation_level == READ_COMMITTED
        stable_offset = partition.stable_offset
        readable_end = stable_offset if read_committed else log.end_offset
        if diverging is None:
            limit = min(requested.partition_max_bytes, max_bytes)
            if limit < 0 and offset < readable_end:
                return _refuse_partition(index, ErrorCode.UNKNOWN_SERVER_ERROR)
            before = stable_offset if read_committed else None
            batches = log.find(offset, limit, at_least_one=at_least_one, before=before)
            if batches.size:
                self._found[key] = FoundBatches(partition, offset, batches, read_committed)
        data = PartitionData(
            partition_index=index,
            error_code=0,
            high_watermark=log.end_offset,
            last_stable_offset=stable_offset,
            log_start_offset=log.start_offset,
            diverging_epoch=diverging or EpochEndOffset(),
            aborted_transactions=[] if read_committed and diverging is None else None,
            records=b"",
        )
        if diverging is None and offset >= readable_end:
            self.context.on_read_to_end(key, partition, data)
        return data

    def _refuse_with_leader(self, partition: Partition, index: int, error: ErrorCode) -> PartitionData:
        """Return an error for a partition, with the partition's current leader and leader epoch (KIP-951)."""
        data = _refuse_partition(index, error)
        leader = self.broker.cluster.leader(partition, index)
        if self.call.version >= LEADER_SINCE and error is not ErrorCode.UNKNOWN_LEADER_EPOCH and leader >= 0:
            epoch = partition.log.leader_epoch
            data.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
        return data


def handle_fetch(broker: Broker, call: Call) -> Result:
    """Respond immediately, or keep the fetch in the purgatory until it is complete."""
    request = call.request
    assert isinstance(request, FetchRequest)
    by_id = call.version >= BY_ID_SINCE
    context = broker.fetch_sessions.create_context(request, by_id, call.now)
    if isinstance(context, ErrorCode):
        return FetchResponse(throttle_time_ms=0, error_code=context, responses=[])
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED) and any(
        _partition_exists(broker, topic, index) for topic, index in context.all_partitions
    ):
        return call.refuse(ErrorCode.UNKNOWN_SERVER_ERROR)
    delayed = DelayedFetch(broker, call, request, context, deadline=call.now + request.max_wait_ms)
    response = delayed.try_complete(force=request.max_wait_ms <= 0)
    if response is None:
        broker.park(delayed)
        return PARKED
    return response


def _partition_exists(broker: Broker, key: TopicKey, index: int) -> bool:
    topic = broker.topics.named(key) if isinstance(key, str) else broker.topics.with_id(key)
    return topic is not None and topic.partition(index) is not None


def refuse(request: FetchRequest, error: ErrorCode, version: int) -> FetchResponse:
    """Return a response with a top-level error; before v13, also with the error in every partition."""
    topics = [] if version >= TOP_LEVEL_ERROR_SINCE else request.topics
    return FetchResponse(
        throttle_time_ms=0,
        error_code=error,
        session_id=request.session_id,
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                partitions=[_missing_partition(partition.partition, error) for partition in topic.partitions],
            )
            for topic in topics
        ],
    )


def _add_batches(data: PartitionData, found: FoundBatches) -> None:
    """Add batches to a partition's result, with the aborted transactions that overlap the batches."""
    log, batches = found.partition.log, found.batches
    data.records = b"".join(log.batches_of(batches))
    if found.read_committed:
        end = log.base_after(found.offset, batches.stop - batches.first)
        data.aborted_transactions = [
            AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
            for aborted in found.partition.transactions.aborted(found.offset, end)
        ]


def _diverging_epoch(log: Log, requested: FetchPartition) -> EpochEndOffset | None:
    """Return where the client's log diverged from `log`, or None if it did not (KIP-595)."""
    if requested.last_fetched_epoch < 0:
        return None
    end = log.epoch_end(requested.last_fetched_epoch)
    if end.leader_epoch == requested.last_fetched_epoch and end.end_offset >= requested.fetch_offset:
        return None
    return EpochEndOffset(epoch=end.leader_epoch, end_offset=end.end_offset)


def _missing_partition(index: int, error: ErrorCode) -> PartitionData:
    """Return a partition's error, with an empty list of aborted transactions.

    Kafka: FetchResponse.partitionResponse.
    """
    data = _refuse_partition(index, error)
    data.aborted_transactions = []
    return data


def _refuse_partition(index: int, error: ErrorCode) -> PartitionData:
    """Return a partition's error, with null aborted transactions, as for Kafka's failed reads."""
    return PartitionData(
        partition_index=index, error_code=error, high_watermark=-1, aborted_transactions=None, records=b""
    )


def _authorize(access: Access, request: Any) -> Authorized:
    """Return the call unchanged: `DelayedFetch` checks the permission of each partition."""
    return access.call


API = Api(
    request=FetchRequest,
    handle=handle_fetch,
    authorization=Authorization((topic_requirement(Operation.READ),), _authorize),
    refuse=refuse,
)

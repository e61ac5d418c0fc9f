"""Fetch (key 1): read batches, at once or when there are enough of them.

Rules, as Kafka's ReplicaManager.fetchMessages:
  * The answer goes out at once when it holds `min_bytes`, when a partition is in error, when nothing is
    wanted or no wait is allowed; else the fetch is parked until records come or `max_wait_ms` is over.
  * Who reads only what is committed gets nothing from the last stable offset on, and hears which of the
    transactions in what it gets were aborted (X5).
  * Batches go out whole. The first batch of the whole answer is sent however large it is; after that the
    limits of the request, of the partition and `fetch.max.bytes` hold, and one for all answers that nobody
    takes.
  * To a client that is above a quota it brings nothing: no records, no news, and no session to one that asked
    for a session.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

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
from ..log import Log
from ..security.acls import Operation, Resource
from ..topics import NO_ID, Partition, Topic
from .lookup import epoch_error, find_partition, missing_topic

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
ERRORS_ABOVE_SINCE = 13
LEADER_SINCE = 16  # KIP-951
# A bound of ours: Kafka sends from its files, and this broker's answers take memory until they are taken.
# With so many bytes of them a fetch gets one batch.
MOST_UNSENT = 1 << 28


@dataclass(slots=True)
class DelayedFetch:
    """A fetch that is looked at again when one changes of those it waits for, and answered at `deadline`."""

    broker: Broker
    call: Call
    request: FetchRequest
    plan: FetchContext
    deadline: int
    waits_for: set[Partition | FetchSession] = field(default_factory=set[Partition | FetchSession])

    def try_complete(self, *, force: bool = False) -> FetchResponse | None:
        """The answer, if there is enough to read, or if it has to go out `force` is set."""
        answers, stored = self._read()
        enough = (
            stored >= min(self.request.min_bytes, self._room())
            or not self.plan.about
            or any(data.error_code or data.diverging_epoch.epoch >= 0 for data in answers.values())
        )
        if not enough and not force:
            return None
        topics: dict[TopicKey, FetchableTopicResponse] = {}
        for (topic, _), data in self._news(answers).items():
            if topic not in topics:
                topics[topic] = FetchableTopicResponse(
                    topic=topic if isinstance(topic, str) else "",
                    topic_id=NO_ID if isinstance(topic, str) else topic,
                    partitions=[],
                )
            topics[topic].partitions.append(data)
        leaders = [
            data.current_leader.leader_id
            for topic in topics.values()
            for data in topic.partitions
            if data.error_code  # only who is refused hears who leads
        ]
        return FetchResponse(
            throttle_time_ms=0,
            session_id=self.plan.session_id,
            responses=list(topics.values()),
            node_endpoints=[
                NodeEndpoint(node_id=node.id, host=host, port=port)
                for node, host, port in self.broker.cluster.endpoints(leaders, self.call.listener)
            ],
        )

    def _news(self, answers: dict[Key, PartitionData]) -> dict[Key, PartitionData]:
        if self.broker.throttle_times.get(self.call.envelope.header.request_api_key):
            self.broker.fetch_sessions.open_none(self.plan)
            return {}
        return self.plan.news(answers)

    def _read(self) -> tuple[dict[Key, PartitionData], int]:
        """What each partition answers now, if it may be news, and how many bytes of records that is."""
        self.waits_for.clear()
        if self.plan.session is not None:
            self.waits_for.add(self.plan.session)
        room = self._room()
        answers: dict[Key, PartitionData] = {}
        total = 0
        for key, wanted in self.plan.look(self._reader()).items():
            topic = self._topic(key[0])
            data = self._read_partition(key[0], topic, wanted, room, at_least_one=total == 0)
            size = len(data.records or b"")
            total += size
            if topic is not None and topic.partition(wanted.partition) is not None:
                room = max(room - size, 0)  # so one below 0 concerns the first alone
            answers[key] = data
        return answers, total

    def _reader(self) -> Hashable:
        """All that decides what a fetch may see, but for its partitions."""
        call, acls = self.call, self.broker.acls
        rules = None if acls is None else acls.version
        return self.request.isolation_level, call.principal, call.host, rules, call.injected_error

    def _room(self) -> int:
        """How many bytes of records the answer may have."""
        left = max(MOST_UNSENT - self.broker.cluster.unsent, 0)
        return min(self.request.max_bytes, self.broker.settings.fetch_max_bytes, left)

    def _topic(self, key: TopicKey) -> Topic | None:
        topics = self.broker.topics
        if isinstance(key, str):
            return topics.named(key)
        topic = topics.with_id(key)
        if topic is not None:
            self.plan.names[key] = topic.name
        return topic

    def _read_partition(
        self, key: TopicKey, topic: Topic | None, wanted: FetchPartition, room: int, at_least_one: bool
    ) -> PartitionData:
        known = key if isinstance(key, str) else self.plan.names.get(key, "")
        if known and not self.broker.is_authorized(self.call, Operation.READ, Resource.TOPIC, known):
            return _failed(wanted.partition, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if topic is None and find_partition(self.broker.topics, known, wanted.partition) is not None:  # anew
            return _failed(wanted.partition, ErrorCode.INCONSISTENT_TOPIC_ID)
        if topic is None:
            return _missing(wanted.partition, missing_topic(by_id=self.plan.by_id and not known))
        partition = topic.partition(wanted.partition)
        if partition is None:
            return _missing(wanted.partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self.waits_for.add(partition)
        log = partition.log
        stale = epoch_error(log, max(wanted.current_leader_epoch, -1))  # below -1 is nothing said, too
        if not self.broker.is_leader(partition, wanted.partition):
            stale = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if stale is not ErrorCode.NONE:
            return self._led_elsewhere(partition, wanted.partition, stale)
        diverging = _diverging(log, wanted)
        # Behind the end is out of range; but who says what epoch it read there is told where to go.
        last = log.end_offset if diverging is None else wanted.fetch_offset
        unknown = diverging is not None and diverging.epoch < 0
        if unknown or not log.start_offset <= wanted.fetch_offset <= last:
            return _failed(wanted.partition, ErrorCode.OFFSET_OUT_OF_RANGE)
        read: list[bytes] = []
        committed = self.request.isolation_level == READ_COMMITTED
        stable = partition.stable_offset
        before = stable if committed else None
        if diverging is None:
            limit = min(wanted.partition_max_bytes, room)
            if limit < 0 and wanted.fetch_offset < (log.end_offset if before is None else before):
                return _failed(wanted.partition, ErrorCode.UNKNOWN_SERVER_ERROR)
            read = log.read(wanted.fetch_offset, limit, at_least_one=at_least_one, before=before)
        answer = PartitionData(
            partition_index=wanted.partition,
            error_code=0,
            high_watermark=log.end_offset,
            last_stable_offset=stable,
            log_start_offset=log.start_offset,
            diverging_epoch=diverging or EpochEndOffset(),
            aborted_transactions=_aborted(partition, wanted.fetch_offset, len(read))
            if committed and diverging is None
            else None,
            records=b"".join(read),
        )
        if diverging is None and wanted.fetch_offset >= (log.end_offset if before is None else before):
            self.plan.read_to_the_end((key, wanted.partition), partition, answer)
        return answer

    def _led_elsewhere(self, partition: Partition, index: int, error: ErrorCode) -> PartitionData:
        """A refusal that says who leads now, and in which epoch (KIP-951)."""
        failed = _failed(index, error)
        leader = self.broker.cluster.leader(partition, index)
        if self.call.version >= LEADER_SINCE and error is not ErrorCode.UNKNOWN_LEADER_EPOCH and leader >= 0:
            epoch = partition.log.leader_epoch
            failed.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
        return failed


def fetch(broker: Broker, call: Call) -> Result:
    request = call.envelope.request
    assert isinstance(request, FetchRequest)
    by_id = call.version >= 13  # KIP-516
    plan = broker.fetch_sessions.plan(request, by_id, call.now)
    if isinstance(plan, ErrorCode):
        return FetchResponse(throttle_time_ms=0, error_code=plan, responses=[])
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED) and any(
        _exists(broker, topic, partition) for topic, partition in plan.about
    ):
        return _refused(request, call.version, ErrorCode.UNKNOWN_SERVER_ERROR)
    parked = DelayedFetch(broker, call, request, plan, call.now + request.max_wait_ms)
    response = parked.try_complete(force=request.max_wait_ms <= 0)
    if response is None:
        broker.park(parked)
        return PARKED
    return response


def _exists(broker: Broker, key: TopicKey, index: int) -> bool:
    topic = broker.topics.named(key) if isinstance(key, str) else broker.topics.with_id(key)
    return topic is not None and topic.partition(index) is not None


def _refused(request: FetchRequest, version: int, error: ErrorCode) -> FetchResponse:
    """A refusal of the whole; older clients look for it in the partitions."""
    told = [] if version >= ERRORS_ABOVE_SINCE else request.topics
    return FetchResponse(
        throttle_time_ms=0,
        error_code=error,
        session_id=request.session_id,
        responses=[
            FetchableTopicResponse(
                topic=topic.topic, partitions=[_missing(one.partition, error) for one in topic.partitions]
            )
            for topic in told
        ],
    )


def _aborted(partition: Partition, offset: int, batches: int) -> list[AbortedTransaction]:
    """The aborted transactions that have a part in so many batches from `offset` on."""
    if not batches:
        return []
    return [
        AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset)
        for one in partition.transactions.aborted(offset, partition.log.base_after(offset, batches))
    ]


def _diverging(log: Log, wanted: FetchPartition) -> EpochEndOffset | None:
    """Where this log left what the client read last (KIP-595); None: it didn't, or nothing was said."""
    if wanted.last_fetched_epoch < 0:
        return None
    end = log.epoch_end(wanted.last_fetched_epoch)
    if end.leader_epoch == wanted.last_fetched_epoch and end.end_offset >= wanted.fetch_offset:
        return None
    return EpochEndOffset(epoch=end.leader_epoch, end_offset=end.end_offset)


def _missing(index: int, error: ErrorCode) -> PartitionData:
    failed = _failed(index, error)
    failed.aborted_transactions = []
    return failed


def _failed(index: int, error: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=index, error_code=error, high_watermark=-1, aborted_transactions=None, records=b""
    )

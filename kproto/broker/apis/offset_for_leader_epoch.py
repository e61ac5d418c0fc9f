"""OffsetForLeaderEpoch (key 23): the offset at which a leader epoch ended (KIP-320)."""

from __future__ import annotations

from ...error_codes import ErrorCode
from ...messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
    OffsetForLeaderTopicResult,
)
from ..broker import Broker
from ..call import Call, Result
from ..security.acls import Operation
from .api import Api
from .authorization import (
    TOPIC_FAILED,
    Access,
    Authorization,
    Authorized,
    narrow_topics,
    topic_requirement,
)
from .partitions import find_partition, leader_epoch_error


def handle_offset_for_leader_epoch(broker: Broker, call: Call) -> Result:
    """Return the end offset of the requested epoch in each partition."""
    request = call.request
    assert isinstance(request, OffsetForLeaderEpochRequest)
    return OffsetForLeaderEpochResponse(
        throttle_time_ms=0,
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_epoch_end(broker, topic.topic, partition) for partition in topic.partitions],
            )
            for topic in request.topics
        ],
    )


def _epoch_end(broker: Broker, topic_name: str, requested: OffsetForLeaderPartition) -> EpochEndOffset:
    """Return the end offset of the requested epoch in one partition, or an error."""
    index = requested.partition
    partition = find_partition(broker.topics, topic_name, index)
    if partition is None:
        return EpochEndOffset(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, partition=index)
    if not broker.is_leader(partition, index):
        return EpochEndOffset(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, partition=index)
    error = leader_epoch_error(partition.log, requested.current_leader_epoch)
    if error is not ErrorCode.NONE:
        return EpochEndOffset(error_code=error, partition=index)
    epoch, offset = partition.log.epoch_end(requested.leader_epoch)
    return EpochEndOffset(error_code=0, partition=index, leader_epoch=epoch, end_offset=offset)


def _authorize(access: Access, request: OffsetForLeaderEpochRequest) -> Authorized:
    permitted: list[OffsetForLeaderTopic] = []
    denied: list[OffsetForLeaderTopic] = []
    for topic in request.topics:
        (permitted if access.allows_topic(Operation.DESCRIBE, topic.topic) else denied).append(topic)
    return narrow_topics(access, permitted, denied, _refuse_topic)


def _refuse_topic(topic: OffsetForLeaderTopic) -> OffsetForLeaderTopicResult:
    return OffsetForLeaderTopicResult(
        topic=topic.topic,
        partitions=[
            EpochEndOffset(error_code=TOPIC_FAILED, partition=partition.partition)
            for partition in topic.partitions
        ],
    )


API = Api(
    request=OffsetForLeaderEpochRequest,
    handle=handle_offset_for_leader_epoch,
    authorization=Authorization((topic_requirement(Operation.DESCRIBE),), _authorize),
    divided=("topics",),
)

"""OffsetForLeaderEpoch (key 23): where an epoch ended, so that clients see that a log was cut (KIP-320)."""

from __future__ import annotations

from ...error_codes import ErrorCode
from ...messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from ..broker import Broker
from ..call import Call, Result
from .lookup import epoch_error, find_partition


def offset_for_leader_epoch(broker: Broker, call: Call) -> Result:
    request = call.envelope.request
    assert isinstance(request, OffsetForLeaderEpochRequest)

    def answer(topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
        partition = find_partition(broker.topics, topic, asked.partition)
        if partition is None:
            return EpochEndOffset(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, partition=asked.partition)
        if not broker.is_leader(partition, asked.partition):
            return EpochEndOffset(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, partition=asked.partition)
        stale = epoch_error(partition.log, asked.current_leader_epoch)
        if stale is not ErrorCode.NONE:
            return EpochEndOffset(error_code=stale, partition=asked.partition)
        epoch, offset = partition.log.epoch_end(asked.leader_epoch)
        return EpochEndOffset(error_code=0, partition=asked.partition, leader_epoch=epoch, end_offset=offset)

    return OffsetForLeaderEpochResponse(
        throttle_time_ms=0,
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic, partitions=[answer(topic.topic, one) for one in topic.partitions]
            )
            for topic in request.topics
        ],
    )

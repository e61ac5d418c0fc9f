"""DeleteRecords (key 21): move the log start offset of partitions forward."""

from __future__ import annotations

from typing import Final

from ...error_codes import ErrorCode
from ...messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
)
from ..broker import Broker
from ..call import Call, Result
from ..security.acls import Operation
from .api import Api
from .authorization import TOPIC_FAILED, on_each_topic
from .partitions import find_partition

HIGH_WATERMARK: Final = -1  # The requested offset that means the high watermark: all records are deleted.


def handle_delete_records(broker: Broker, call: Call) -> Result:
    """Delete the records before the requested offset of each partition.

    If the request names a partition twice, the offset of its last entry is used.
    """
    request = call.request
    assert isinstance(request, DeleteRecordsRequest)
    # Topic name -> partition index -> the last entry of the request for this partition.
    topics: dict[str, dict[int, DeleteRecordsPartition]] = {}
    for topic in request.topics:
        for partition in topic.partitions:
            topics.setdefault(topic.name, {})[partition.partition_index] = partition
    return DeleteRecordsResponse(
        throttle_time_ms=0,
        topics=[
            DeleteRecordsTopicResult(
                name=name,
                partitions=[_delete_records(broker, name, partition) for partition in partitions.values()],
            )
            for name, partitions in topics.items()
        ],
    )


def _delete_records(
    broker: Broker, topic_name: str, requested: DeleteRecordsPartition
) -> DeleteRecordsPartitionResult:
    """Delete the records of a partition before the requested offset.

    Return an error if the partition is unknown, the topic is only compacted, or the offset is out of range.
    """
    index = requested.partition_index
    topic = broker.topics.named(topic_name)
    partition = find_partition(broker.topics, topic_name, index)
    if topic is None or partition is None:
        return _refuse_partition(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    policy = topic.config("cleanup.policy", broker.settings)
    if policy and "delete" not in policy:
        return _refuse_partition(index, ErrorCode.POLICY_VIOLATION)
    log = partition.log
    offset = log.end_offset if requested.offset == HIGH_WATERMARK else requested.offset
    if not 0 <= offset <= log.end_offset:
        return _refuse_partition(index, ErrorCode.OFFSET_OUT_OF_RANGE)
    partition.delete_before(offset)
    broker.on_partitions_changed([partition])
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=log.start_offset, error_code=0)


def _refuse_partition(index: int, error: ErrorCode) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=-1, error_code=error)


def _refuse_topic(topic: DeleteRecordsTopic) -> DeleteRecordsTopicResult:
    return DeleteRecordsTopicResult(
        name=topic.name,
        partitions=[
            _refuse_partition(partition.partition_index, TOPIC_FAILED) for partition in topic.partitions
        ],
    )


API = Api(
    request=DeleteRecordsRequest,
    handle=handle_delete_records,
    authorization=on_each_topic(Operation.DELETE, _refuse_topic),
    divided=("topics",),
)

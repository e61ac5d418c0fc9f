"""ListOffsets (key 2): each partition's start offset, end offset, or offset at a timestamp.

With `read_committed`, the end of a partition is its last stable offset (X5). A search by timestamp then finds
only records before that offset.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from ...error_codes import ErrorCode
from ...errors import MissingExtra, RecordError
from ...messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from ..broker import Broker
from ..call import Call, Result
from ..log import TimestampOffset
from ..security.acls import Operation
from ..topics import Partition
from .api import Api
from .authorization import TOPIC_FAILED, on_each_topic
from .fetch import READ_COMMITTED, READ_UNCOMMITTED
from .partitions import find_partition, leader_epoch_error

# Special timestamps of ListOffsetsRequest.
LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6

# Special timestamp -> the version of ListOffsets that introduced it.
_SPECIAL_SINCE: Final = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
# Brokers that serve at least this version of ListOffsets reject a special timestamp if the version of the
# request is below the one in `_SPECIAL_SINCE`. Older brokers do not check the version, and treat an unknown
# negative timestamp as a time before 1970. Observed with Kafka 2.1 to 4.4.
_CHECKED_SINCE: Final = 9
# The first version with leader epochs (KIP-320). In earlier versions, the field leader_epoch must not be set.
_LEADER_EPOCH_SINCE: Final = 4

_NOT_FOUND: Final = TimestampOffset(offset=-1, timestamp=-1, leader_epoch=-1)


def handle_list_offsets(broker: Broker, call: Call) -> Result:
    """Look up one offset in each partition.

    A partition that the request lists twice has a single result, which is an error.
    """
    request = call.request
    assert isinstance(request, ListOffsetsRequest)
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        return call.refuse(ErrorCode.UNKNOWN_SERVER_ERROR)
    counts = Counter(
        (topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions
    )
    read_committed = request.isolation_level == READ_COMMITTED

    def look_up_once(name: str, requested: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
        if counts[name, requested.partition_index] > 1:
            return _refuse_partition(requested.partition_index, ErrorCode.INVALID_REQUEST)
        return _look_up(broker, call, name, requested, read_committed=read_committed)

    topics: dict[str, dict[int, ListOffsetsPartition]] = {}
    for topic in request.topics:
        for partition in topic.partitions:
            topics.setdefault(topic.name, {})[partition.partition_index] = partition
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=name, partitions=[look_up_once(name, partition) for partition in partitions.values()]
            )
            for name, partitions in topics.items()
        ]
    )


def _look_up(
    broker: Broker, call: Call, name: str, requested: ListOffsetsPartition, *, read_committed: bool
) -> ListOffsetsPartitionResponse:
    """Return the offset for the requested timestamp in one partition, or an error."""
    index, timestamp = requested.partition_index, requested.timestamp
    max_version = broker.apis[API.key].max_version
    # From version `_CHECKED_SINCE` on, an unknown negative timestamp is special, too, and is rejected.
    is_special = timestamp < 0 and max_version >= _SPECIAL_SINCE.get(timestamp, _CHECKED_SINCE)
    is_known = timestamp in _SPECIAL_SINCE and call.version >= _SPECIAL_SINCE[timestamp]
    if is_special and max_version >= _CHECKED_SINCE and not is_known:
        return _refuse_partition(index, ErrorCode.UNSUPPORTED_VERSION)
    partition = find_partition(broker.topics, name, index)
    if partition is None:
        return _refuse_partition(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if not broker.is_leader(partition, index):
        return _refuse_partition(index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    error = leader_epoch_error(partition.log, requested.current_leader_epoch)
    if error is not ErrorCode.NONE:
        return _refuse_partition(index, error)
    readable_end = partition.stable_offset if read_committed else partition.log.end_offset
    search = _find_special_offset if is_special else _find_by_timestamp
    try:
        found = search(partition, timestamp, readable_end) or _NOT_FOUND
    except MissingExtra:
        return _refuse_partition(index, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    except RecordError:
        return _refuse_partition(index, ErrorCode.CORRUPT_MESSAGE)
    response = ListOffsetsPartitionResponse(
        partition_index=index, error_code=0, timestamp=found.timestamp, offset=found.offset
    )
    if call.version >= _LEADER_EPOCH_SINCE:
        response.leader_epoch = found.leader_epoch
    return response


def refuse(request: ListOffsetsRequest, error: ErrorCode, version: int) -> ListOffsetsResponse:
    """Return a response with an error for every partition of the request."""
    return ListOffsetsResponse(topics=[_refuse_topic(topic, error) for topic in request.topics])


def _find_by_timestamp(partition: Partition, timestamp: int, end: int) -> TimestampOffset | None:
    """Return the first record before `end` that is not older than `timestamp`, or None."""
    return _if_before(end, partition.log.first_at(timestamp))


def _find_special_offset(partition: Partition, timestamp: int, end: int) -> TimestampOffset | None:
    """Return the offset that a special timestamp stands for, or None if the partition has no such offset.

    `end` is the last stable offset for read_committed, and otherwise the log end offset.
    """
    log = partition.log
    if timestamp == LATEST:
        return TimestampOffset(offset=end, timestamp=-1, leader_epoch=log.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start_epoch = log.epoch_at(log.start_offset)
        return TimestampOffset(offset=log.start_offset, timestamp=-1, leader_epoch=start_epoch)
    if timestamp == MAX_TIMESTAMP:
        return _if_before(end, log.latest_timestamp())
    return None  # The remaining special timestamps refer to remote storage, which this broker does not have.


def _if_before(end: int, record: TimestampOffset | None) -> TimestampOffset | None:
    """Return `record`, or None if its offset is not before `end`."""
    return None if record is None or record.offset >= end else record


def _refuse_topic(topic: ListOffsetsTopic, error: ErrorCode = TOPIC_FAILED) -> ListOffsetsTopicResponse:
    return ListOffsetsTopicResponse(
        name=topic.name,
        partitions=[_refuse_partition(partition.partition_index, error) for partition in topic.partitions],
    )


def _refuse_partition(index: int, error: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=index, error_code=error)


API = Api(
    request=ListOffsetsRequest,
    handle=handle_list_offsets,
    authorization=on_each_topic(Operation.DESCRIBE, _refuse_topic),
    refuse=refuse,
    divided=("topics",),
)

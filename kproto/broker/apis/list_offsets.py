"""ListOffsets (key 2): the offset at the start, at the end, or at a time.

For who reads only what is committed the end is the last stable offset (X5), and nothing behind it is found.
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
    ListOffsetsTopicResponse,
)
from ..broker import Broker
from ..call import Call, Result
from ..log import Found
from ..topics import Partition
from .fetch import READ_COMMITTED, READ_UNCOMMITTED
from .lookup import epoch_error, find_partition

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6

# The version from which each of the times that are no time may be asked (ListOffsetsRequest).
_SINCE: Final = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}


def list_offsets(broker: Broker, call: Call) -> Result:
    request = call.envelope.request
    assert isinstance(request, ListOffsetsRequest)
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        return _refused(request)
    asked = Counter(
        (topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions
    )

    def end(partition: Partition) -> int:
        committed = request.isolation_level == READ_COMMITTED
        return partition.stable_offset if committed else partition.log.end_offset

    def answer(name: str, partition: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
        index = partition.partition_index
        if asked[name, index] > 1:
            return _failed(index, ErrorCode.INVALID_REQUEST)
        if partition.timestamp < 0 and call.version < _SINCE.get(partition.timestamp, call.version + 1):
            return _failed(index, ErrorCode.UNSUPPORTED_VERSION)
        found = find_partition(broker.topics, name, index)
        if found is None:
            return _failed(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if not broker.is_leader(found, index):
            return _failed(index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        stale = epoch_error(found.log, partition.current_leader_epoch)
        if stale is not ErrorCode.NONE:
            return _failed(index, stale)
        try:
            offset, timestamp, epoch = _search(found, partition.timestamp, end(found)) or Found(-1, -1, -1)
        except MissingExtra:
            return _failed(index, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        except RecordError:
            return _failed(index, ErrorCode.CORRUPT_MESSAGE)
        response = ListOffsetsPartitionResponse(
            partition_index=index, error_code=0, timestamp=timestamp, offset=offset
        )
        if call.version >= 4:  # KIP-320: not ignorable before
            response.leader_epoch = epoch
        return response

    # A partition that is asked for twice is refused, once.
    wanted: dict[str, dict[int, ListOffsetsPartition]] = {}
    for topic in request.topics:
        for one in topic.partitions:
            wanted.setdefault(topic.name, {})[one.partition_index] = one
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(name=name, partitions=[answer(name, one) for one in found.values()])
            for name, found in wanted.items()
        ]
    )


def _refused(request: ListOffsetsRequest) -> ListOffsetsResponse:
    """What Kafka answers when it can't read the request's level of isolation."""
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    _failed(one.partition_index, ErrorCode.UNKNOWN_SERVER_ERROR) for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _search(partition: Partition, timestamp: int, end: int) -> Found | None:
    log = partition.log
    if timestamp == LATEST:
        return Found(end, -1, log.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return Found(log.start_offset, -1, log.epoch_at(log.start_offset))
    if timestamp == MAX_TIMESTAMP:
        return _before(end, log.latest_timestamp())
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):  # there is no remote storage
        return None
    return _before(end, log.first_at(timestamp))


def _before(end: int, found: Found | None) -> Found | None:
    return None if found is None or found.offset >= end else found


def _failed(index: int, error: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=index, error_code=error)

"""WriteTxnMarkers (key 27): write commit or abort markers into the partitions of transactions.

Only admin clients send this request to this broker, to abort a hanging transaction that no coordinator knows
(Java's Admin.abortTransaction).

In Kafka, transaction coordinators send the request, too: to the leaders of their transactions' partitions.

`__consumer_offsets` is not a topic of this broker. A marker for one of its partitions commits or discards the
pending offsets of the producer.
"""

from __future__ import annotations

from typing import Final

from ...error_codes import ErrorCode
from ...messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ...transactions.state import OFFSETS_TOPIC
from ..broker import Broker
from ..call import Call, Result
from ..security.acls import Operation
from ..topics import Partition
from .api import Api
from .authorization import CLUSTER_FAILED, Access, Authorization, Authorized, cluster_requirement

# The first transaction version in which a marker's epoch must be higher than the epoch of the records
# (KIP-1228).
_STRICT_EPOCH_SINCE: Final = 2

# Producer id -> topic -> partition -> error.
_Results = dict[int, dict[str, dict[int, ErrorCode]]]


def handle_write_txn_markers(broker: Broker, call: Call) -> Result:
    """Write each marker of the request to its partitions.

    If a marker names a partition twice, it is written once. Kafka 4.4 never responds to such a request.
    """
    request = call.request
    assert isinstance(request, WriteTxnMarkersRequest)
    # Kafka responds with UNKNOWN_SERVER_ERROR, because it cannot build a marker batch with a negative
    # producer id or epoch.
    if any(marker.producer_id < 0 or marker.producer_epoch < 0 for marker in request.markers):
        return call.refuse(ErrorCode.UNKNOWN_SERVER_ERROR)
    results: _Results = {}
    changed: list[Partition] = []
    for marker in request.markers:
        partitions = [(topic.name, index) for topic in marker.topics for index in topic.partition_indexes]
        for name, index in dict.fromkeys(partitions):
            topics = results.setdefault(marker.producer_id, {})
            topics.setdefault(name, {})[index] = _write_marker(broker, call.now, marker, name, index, changed)
    broker.on_partitions_changed(changed)
    return _response(results)


def _write_marker(
    broker: Broker, now: int, marker: WritableTxnMarker, name: str, index: int, changed: list[Partition]
) -> ErrorCode:
    """Write a marker to a partition and add the partition to `changed`. Return the error code."""
    committed = bool(marker.transaction_result)
    if name == OFFSETS_TOPIC and broker.cluster.has_offsets_partition(index):
        broker.end_pending_offsets(marker.producer_id, index, now, committed=committed)
        return ErrorCode.NONE
    topic = broker.topics.named(name)
    partition = None if topic is None else topic.partition(index)
    if topic is None or partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not broker.is_leader(partition, index):
        is_replica = broker.node.id in broker.cluster.replicas_of(partition, index)
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if is_replica else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    error = _epoch_error(partition, marker)
    if error is not ErrorCode.NONE:
        return error
    partition.write_marker(
        marker.producer_id,
        marker.producer_epoch,
        broker.wall_clock,
        committed=committed,
        coordinator_epoch=marker.coordinator_epoch,
        limits=topic.limits(broker.settings),
    )
    changed.append(partition)
    return ErrorCode.NONE


def _epoch_error(partition: Partition, marker: WritableTxnMarker) -> ErrorCode:
    """Return the error if the marker's producer epoch or coordinator epoch is too low, else NONE."""
    state = partition.producers.entry(marker.producer_id)
    if state is None:
        return ErrorCode.NONE
    is_ongoing = partition.transactions.start_of(marker.producer_id) is not None
    is_strict = is_ongoing and marker.transaction_version >= _STRICT_EPOCH_SINCE
    if marker.producer_epoch < (state.epoch + 1 if is_strict else state.epoch):
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if marker.coordinator_epoch < state.coordinator_epoch:
        return ErrorCode.TRANSACTION_COORDINATOR_FENCED
    return ErrorCode.NONE


def _response(results: _Results) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(partition_index=index, error_code=error)
                            for index, error in partitions.items()
                        ],
                    )
                    for name, partitions in topics.items()
                ],
            )
            for producer_id, topics in results.items()
        ]
    )


def _authorize(access: Access, request: WriteTxnMarkersRequest) -> Authorized:
    """Require ALTER, which admin clients have, or CLUSTER_ACTION, which brokers have."""
    if access.allows_cluster(Operation.ALTER) or access.allows_cluster(Operation.CLUSTER_ACTION):
        return access.call
    return access.call.refuse(CLUSTER_FAILED)


def refuse(request: WriteTxnMarkersRequest, error: ErrorCode, version: int) -> WriteTxnMarkersResponse:
    """Return a response with an error for every partition of every marker."""
    results: _Results = {}
    for marker in request.markers:
        for topic in marker.topics:
            partitions = results.setdefault(marker.producer_id, {}).setdefault(topic.name, {})
            partitions.update(dict.fromkeys(topic.partition_indexes, error))
    return _response(results)


API = Api(
    request=WriteTxnMarkersRequest,
    handle=handle_write_txn_markers,
    authorization=Authorization(
        (cluster_requirement(Operation.ALTER), cluster_requirement(Operation.CLUSTER_ACTION)), _authorize
    ),
    refuse=refuse,
)

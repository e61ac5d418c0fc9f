"""DescribeProducers (key 61): idempotent producers and their ongoing transactions."""

from __future__ import annotations

from ...error_codes import ErrorCode
from ...messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicRequest,
    TopicResponse,
)
from ..broker import Broker
from ..call import Call, Result
from ..security.acls import Operation
from ..topics import bad_name
from .api import Api
from .authorization import TOPIC_FAILED, on_each_topic
from .partitions import find_partition


def handle_describe_producers(broker: Broker, call: Call) -> Result:
    """Describe the producers of each partition of the request."""
    request = call.request
    assert isinstance(request, DescribeProducersRequest)
    return DescribeProducersResponse(
        throttle_time_ms=0,
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[
                    _describe_partition(broker, topic.name, index) for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ],
    )


def _describe_partition(broker: Broker, topic_name: str, index: int) -> PartitionResponse:
    partition = find_partition(broker.topics, topic_name, index)
    if partition is None:
        name_fault = bad_name(topic_name)
        error = ErrorCode.INVALID_TOPIC_EXCEPTION if name_fault else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return PartitionResponse(
            partition_index=index, error_code=error, error_message=name_fault, active_producers=[]
        )
    if not broker.is_leader(partition, index):
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return PartitionResponse(partition_index=index, error_code=error, active_producers=[])
    active: list[ProducerState] = []
    for producer_id, state in partition.producers.active():
        start = partition.transactions.start_of(producer_id)
        active.append(
            ProducerState(
                producer_id=producer_id,
                producer_epoch=state.epoch,
                last_sequence=state.last_sequence,
                last_timestamp=state.last_timestamp,
                coordinator_epoch=state.coordinator_epoch,
                current_txn_start_offset=-1 if start is None else start,
            )
        )
    return PartitionResponse(partition_index=index, error_code=0, active_producers=active)


def _refuse_topic(topic: TopicRequest) -> TopicResponse:
    return TopicResponse(
        name=topic.name,
        partitions=[
            PartitionResponse(partition_index=index, error_code=TOPIC_FAILED, active_producers=[])
            for index in topic.partition_indexes
        ],
    )


API = Api(
    request=DescribeProducersRequest,
    handle=handle_describe_producers,
    authorization=on_each_topic(Operation.READ, _refuse_topic),
    divided=("topics",),
)

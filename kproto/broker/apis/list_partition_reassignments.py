"""ListPartitionReassignments (key 46): no reassignment is ever ongoing, because replicas move immediately."""

from __future__ import annotations

from ...error_codes import ErrorCode
from ...messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from ..broker import Broker
from ..call import Call, Result
from ..security.acls import Operation
from .api import Api
from .authorization import AUTHORIZATION_FAILED, on_cluster


def handle_list_partition_reassignments(broker: Broker, call: Call) -> Result:
    """Return an empty list."""
    return ListPartitionReassignmentsResponse(throttle_time_ms=0, error_code=0, error_message=None, topics=[])


def refuse(
    request: ListPartitionReassignmentsRequest, error: ErrorCode, version: int
) -> ListPartitionReassignmentsResponse:
    """Return a response with a top-level error and, as Kafka does, the requested partitions."""
    topics = [
        OngoingTopicReassignment(
            name=topic.name,
            partitions=[
                OngoingPartitionReassignment(
                    partition_index=index, replicas=[], adding_replicas=[], removing_replicas=[]
                )
                for index in topic.partition_indexes
            ],
        )
        for topic in request.topics or ()
    ]
    return ListPartitionReassignmentsResponse(
        throttle_time_ms=0, error_code=error, error_message=AUTHORIZATION_FAILED, topics=topics
    )


API = Api(
    request=ListPartitionReassignmentsRequest,
    handle=handle_list_partition_reassignments,
    authorization=on_cluster(Operation.DESCRIBE),
    refuse=refuse,
)

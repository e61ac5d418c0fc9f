"""Who may look after replicas: all of it is about the cluster."""

from __future__ import annotations

from typing import Any

from ....messages.describe_log_dirs import DescribeLogDirsResponse
from ....messages.list_partition_reassignments import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from ....wire.message import Message
from ..authorization import CLUSTER_FAILED, SAID, Gated, May, Op
from ..replicas import elections_refused


def elect_leaders(may: May, request: Any) -> Gated:
    if may.cluster(Op.ALTER):
        return may.call
    return elections_refused(request, may.call.version, CLUSTER_FAILED, SAID)


def describe_log_dirs(request: Any) -> Message:
    return DescribeLogDirsResponse(throttle_time_ms=0, error_code=CLUSTER_FAILED, results=[])


def list_partition_reassignments(request: Any) -> Message:
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
        throttle_time_ms=0, error_code=CLUSTER_FAILED, error_message=SAID, topics=topics
    )

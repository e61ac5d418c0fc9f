"""CreatePartitions (key 37): add partitions to topics."""

from __future__ import annotations

from collections import Counter

from ...error_codes import ErrorCode
from ...messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from ..broker import Broker
from ..call import Call, Result
from ..security.acls import Operation
from ..topics import MAX_PARTITIONS, Topic, grow
from .api import Api
from .authorization import TOPIC_FAILED, on_each_topic
from .replica_assignment import MAX_PARTITIONS_PER_REQUEST, assignment_fault

Fault = tuple[ErrorCode, str]


def handle_create_partitions(broker: Broker, call: Call) -> Result:
    """Add partitions to topics; with `validate_only`, only check the request."""
    request = call.request
    assert isinstance(request, CreatePartitionsRequest)
    occurrences = Counter(topic.name for topic in request.topics)
    results: list[CreatePartitionsTopicResult] = []
    for requested in {topic.name: topic for topic in request.topics}.values():
        topic = broker.topics.named(requested.name)
        if occurrences[requested.name] > 1:
            fault: Fault | None = (ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        else:
            fault = _topic_fault(broker, topic, requested)
        if fault is None and topic is not None and not request.validate_only:
            _add_partitions(broker, topic, requested)
        error, message = fault or (ErrorCode.NONE, None)
        results.append(
            CreatePartitionsTopicResult(name=requested.name, error_code=error, error_message=message)
        )
    return CreatePartitionsResponse(throttle_time_ms=0, results=results)


def _add_partitions(broker: Broker, topic: Topic, requested: CreatePartitionsTopic) -> None:
    """Add partitions up to the requested count. Choose the replicas that the request does not name."""
    first_added = len(topic.partitions)
    grow(topic, requested.count)
    factor = len(topic.partitions[0].replicas) or 1
    requested_replicas = [tuple(assignment.broker_ids) for assignment in requested.assignments or ()]
    if requested_replicas:
        for index, replicas in enumerate(requested_replicas, first_added):
            topic.partitions[index].replicas = replicas
    elif factor > 1:
        for index in range(first_added, requested.count):
            topic.partitions[index].replicas = broker.cluster.choose_replicas(index, factor)
    broker.cluster.assign_leaders(topic)


def _topic_fault(broker: Broker, topic: Topic | None, requested: CreatePartitionsTopic) -> Fault | None:
    """Return the error and its message if the requested partitions cannot be added, otherwise None."""
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{requested.name}' does not exist."
    count = len(topic.partitions)
    added = requested.count - count
    if added == 0:
        return ErrorCode.INVALID_PARTITIONS, f"Topic already has {count} partition(s)."
    if added < 0:
        return (
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} has {count} partition(s) now; "
            f"{requested.count} would not be an increase.",
        )
    if added > MAX_PARTITIONS_PER_REQUEST:
        # Kafka adds as many partitions as the limit allows, and then returns this error. This broker adds no
        # partition.
        message = f"No more than {MAX_PARTITIONS_PER_REQUEST} partitions can be added immediately."
        return ErrorCode.UNKNOWN_SERVER_ERROR, message
    if requested.count > MAX_PARTITIONS:
        return ErrorCode.INVALID_PARTITIONS, f"No topic may have more than {MAX_PARTITIONS} partitions."
    if requested.assignments is None:
        return None
    if len(requested.assignments) != added:
        return (
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {added} additional partition(s), "
            f"but only {len(requested.assignments)} assignment(s) were specified.",
        )
    factor = len(topic.partitions[0].replicas) or 1
    fault = assignment_fault(broker, [assignment.broker_ids for assignment in requested.assignments], factor)
    return None if fault is None else (ErrorCode.INVALID_REPLICA_ASSIGNMENT, fault)


def _refuse_topic(topic: CreatePartitionsTopic) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name=topic.name, error_code=TOPIC_FAILED)


API = Api(
    request=CreatePartitionsRequest,
    handle=handle_create_partitions,
    authorization=on_each_topic(
        Operation.ALTER, _refuse_topic, lambda response: response.results, pass_duplicates=True
    ),
)

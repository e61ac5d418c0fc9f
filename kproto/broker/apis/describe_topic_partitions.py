"""DescribeTopicPartitions (key 75): topics by name, page by page (KIP-966)."""

from __future__ import annotations

from typing import Final

from ...error_codes import ErrorCode
from ...messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseCursor,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    TopicRequest,
)
from ..broker import Broker
from ..call import Call, Result
from ..security.acls import Operation
from ..topics import NO_ID, Topic, bad_name
from .api import Api
from .authorization import (
    TOPIC_FAILED,
    TOPIC_OPERATIONS,
    Access,
    Authorization,
    Authorized,
    restrict_topic_operations,
    topic_requirement,
)
from .partitions import partition_replicas

MAX_PARTITIONS_PER_RESPONSE: Final = 2000  # Kafka's default of max.request.partition.size.limit


def handle_describe_topic_partitions(broker: Broker, call: Call) -> Result:
    """Describe the requested topics, or all topics if the request names none.

    A response that is not complete has a cursor: the topic and partition at which the next request continues.
    """
    request = call.request
    assert isinstance(request, DescribeTopicPartitionsRequest)
    if any(not topic.name for topic in request.topics):
        return call.refuse(ErrorCode.UNKNOWN_SERVER_ERROR)
    if _has_invalid_cursor(request):
        return call.refuse(ErrorCode.INVALID_REQUEST)
    cursor = request.cursor
    names = set(_names_from_cursor(broker, request))
    # The number of partitions for which the response still has space.
    remaining = max(1, min(request.response_partition_limit, MAX_PARTITIONS_PER_RESPONSE))
    response = DescribeTopicPartitionsResponse(throttle_time_ms=0, topics=[])
    for name in sorted(names):
        start = 0
        if cursor is not None and name == cursor.topic_name:
            start = cursor.partition_index
        if remaining == 0:
            response.next_cursor = _cursor_at(name, start)
            break
        topic = broker.topics.named(name)
        if topic is None:
            response.topics.append(_describe_missing(name))
            continue
        stop = min(len(topic.partitions), start + remaining)
        response.topics.append(_describe_topic(broker, topic, range(start, stop)))
        remaining -= max(stop - start, 0)
        if stop < len(topic.partitions):
            response.next_cursor = _cursor_at(name, stop)
            break
    return response


def _has_invalid_cursor(request: DescribeTopicPartitionsRequest) -> bool:
    """Return whether the cursor names a topic that is not requested, or a negative partition."""
    cursor, names = request.cursor, {topic.name for topic in request.topics}
    return cursor is not None and (
        cursor.partition_index < 0 or bool(names and cursor.topic_name not in names)
    )


def _names_from_cursor(broker: Broker, request: DescribeTopicPartitionsRequest) -> list[str]:
    """Return the requested topics' names from the cursor's topic on. An empty request means all topics."""
    first_name = request.cursor.topic_name if request.cursor is not None else ""
    topics = request.topics or broker.topics
    return [topic.name for topic in topics if topic.name >= first_name]


def _cursor_at(topic_name: str, index: int) -> DescribeTopicPartitionsResponseCursor:
    return DescribeTopicPartitionsResponseCursor(topic_name=topic_name, partition_index=index)


def _describe_missing(name: str) -> DescribeTopicPartitionsResponseTopic:
    is_valid = bad_name(name) is None
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_valid else ErrorCode.INVALID_TOPIC_EXCEPTION
    topic = _refuse_topic(name, error)
    topic.topic_authorized_operations = TOPIC_OPERATIONS
    return topic


def _describe_topic(broker: Broker, topic: Topic, indexes: range) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=0,
        name=topic.name,
        topic_id=topic.id,
        partitions=[_describe_partition(broker, topic, index) for index in indexes],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _describe_partition(broker: Broker, topic: Topic, index: int) -> DescribeTopicPartitionsResponsePartition:
    partition = topic.partitions[index]
    state = partition_replicas(broker, partition, index)
    return DescribeTopicPartitionsResponsePartition(
        error_code=state.error,
        partition_index=index,
        leader_id=state.leader,
        leader_epoch=partition.log.leader_epoch,
        replica_nodes=state.replicas,
        isr_nodes=state.in_sync,
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=state.offline,
    )


def _refuse_topic(name: str | None, error: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=error, name=name, topic_id=NO_ID, partitions=[])


def refuse(
    request: DescribeTopicPartitionsRequest, error: ErrorCode, version: int
) -> DescribeTopicPartitionsResponse:
    """Return a response with an error for every topic of the request."""
    return DescribeTopicPartitionsResponse(
        throttle_time_ms=0, topics=[_refuse_topic(topic.name, error) for topic in request.topics]
    )


def _authorize(access: Access, request: DescribeTopicPartitionsRequest) -> Authorized:
    if _has_invalid_cursor(request):
        return access.call
    names = _names_from_cursor(access.broker, request)
    permitted = [name for name in names if access.allows_topic(Operation.DESCRIBE, name)]
    denied = dict.fromkeys(name for name in names if request.topics and name not in permitted)

    def restrict_operations_and_add_refusals(response: DescribeTopicPartitionsResponse) -> None:
        for topic in response.topics:
            restrict_topic_operations(access, topic)
        response.topics.extend(_refuse_topic(name, TOPIC_FAILED) for name in denied)

    # If no topic is permitted, the handler must not run: an empty list of topics would request all topics.
    if not permitted:
        response = DescribeTopicPartitionsResponse(throttle_time_ms=0, topics=[])
        restrict_operations_and_add_refusals(response)
        return response
    # The handler rejects a cursor whose topic is not requested, so this function drops a cursor at a denied
    # topic. All topics of `permitted` are after the cursor anyway.
    cursor = request.cursor if request.cursor is not None and request.cursor.topic_name in permitted else None
    return access.narrow(
        restrict_operations_and_add_refusals,
        topics=[TopicRequest(name=name) for name in permitted],
        cursor=cursor,
    )


API = Api(
    request=DescribeTopicPartitionsRequest,
    handle=handle_describe_topic_partitions,
    authorization=Authorization((topic_requirement(Operation.DESCRIBE),), _authorize),
    refuse=refuse,
)

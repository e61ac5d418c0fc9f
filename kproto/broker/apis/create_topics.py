"""CreateTopics (key 19)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final
from uuid import uuid5

from ...error_codes import ErrorCode
from ...messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ..broker import Broker
from ..call import Call, Result
from ..security.acls import Operation, Resource
from ..topic_configs import check_topic_configs
from ..topics import CLUSTER_METADATA, Topic, count_refusal
from .api import Api
from .authorization import (
    AUTHORIZATION_FAILED,
    TOPIC_FAILED,
    Access,
    Authorization,
    Authorized,
    Requirement,
    topic_requirement,
)
from .configs import describe_topic_configs
from .replica_assignment import MAX_PARTITIONS_PER_REQUEST, assignment_fault

# The value in a request that means the broker's default partition count or replication factor.
DEFAULT: Final = -1

Fault = tuple[ErrorCode, str]


def handle_create_topics(broker: Broker, call: Call) -> Result:
    """Create topics; with `validate_only`, only check them.

    In the names of its metrics, Kafka replaces the dots of topic names with underscores. So a topic is
    rejected if its name is equal to the name of an existing topic after this replacement: `a.b` collides with
    `a_b`.

    Names of the same request are not compared: a request for `a.b` and `a_b` creates both topics.
    """
    request = call.request
    assert isinstance(request, CreateTopicsRequest)
    occurrences = Counter(topic.name for topic in request.topics)
    topics = {topic.name: topic for topic in request.topics}
    faults: dict[str, Fault | None] = {}
    for name, topic in topics.items():
        if occurrences[name] > 1:
            faults[name] = ErrorCode.INVALID_REQUEST, "Duplicate topic name."
        else:
            faults[name] = _topic_fault(broker, topic)
    counted_topics = [
        topic for name, topic in topics.items() if occurrences[name] == 1 and name != CLUSTER_METADATA
    ]
    valid_topics = [topic for topic in counted_topics if faults[topic.name] is None]
    size_fault = _request_size_fault(broker, counted_topics, valid_topics)
    # An error for the whole request is returned once for each entry, so several times for a duplicate name.
    if size_fault is not None:
        refusals = [_refuse_topic(topic.name, *size_fault) for topic in request.topics]
        return CreateTopicsResponse(throttle_time_ms=0, topics=refusals)
    results: list[CreatableTopicResult] = []
    for name, topic in topics.items():
        fault = faults[name]
        if fault is not None:
            results.append(_refuse_topic(name, *fault))
        else:
            results.append(_create_topic(broker, call, topic, validate_only=request.validate_only))
    return CreateTopicsResponse(throttle_time_ms=0, topics=results)


def _refuse_topic(name: str, error: ErrorCode, message: str) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=error, error_message=message, configs=[])


def _request_size_fault(
    broker: Broker, counted_topics: Sequence[CreatableTopic], valid_topics: Sequence[CreatableTopic]
) -> Fault | None:
    """Return the error if a request is too large, and otherwise None.

    The limit on partitions applies to all `counted_topics`, and the limit on metadata records only to the
    valid topics.

    Kafka's ReplicationControlManager and QuorumController have the same limits.
    """
    error = ErrorCode.POLICY_VIOLATION
    partitions = sum(max(_partition_count(broker, topic), 0) for topic in counted_topics)
    if partitions > MAX_PARTITIONS_PER_REQUEST:
        return error, "Excessively large number of partitions per request."
    # The number of records that Kafka's controller writes: one for each topic, each config and each
    # partition.
    records = sum(
        1 + len({config.name for config in topic.configs}) + _partition_count(broker, topic)
        for topic in valid_topics
    )
    if records > MAX_PARTITIONS_PER_REQUEST:
        return error, "Unable to perform excessively large batch operation."
    return None


def _create_topic(
    broker: Broker, call: Call, requested: CreatableTopic, *, validate_only: bool
) -> CreatableTopicResult:
    """Create a valid topic, and describe it; with `validate_only`, only describe it."""
    count, factor = _partition_count(broker, requested), _replication_factor(requested)
    configs = {config.name: config.value or "" for config in requested.configs}
    if validate_only:
        topic = Topic(requested.name, uuid5(call.random_id, requested.name), 0, configs)
    else:
        topic = broker.create_topic(requested.name, count, call.random_id, configs)
        _assign_replicas(broker, topic, requested, factor)
        broker.cluster.assign_leaders(topic)
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic.id,
        error_code=0,
        error_message=None,
        num_partitions=count,
        replication_factor=factor,
        configs=[
            CreatableTopicConfigs(
                name=config.name,
                value=config.value,
                read_only=config.read_only,
                config_source=config.config_source,
                is_sensitive=False,
            )
            for config in describe_topic_configs(broker, topic)
        ],
    )


def _partition_count(broker: Broker, topic: CreatableTopic) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return broker.settings.num_partitions if topic.num_partitions == DEFAULT else topic.num_partitions


def _replication_factor(topic: CreatableTopic) -> int:
    if topic.assignments:
        return len(topic.assignments[0].broker_ids)
    return 1 if topic.replication_factor == DEFAULT else topic.replication_factor


def _assign_replicas(broker: Broker, topic: Topic, requested: CreatableTopic, factor: int) -> None:
    """Set the replicas of a new topic's partitions; by default, the leader is the only replica."""
    requested_replicas = {
        assignment.partition_index: tuple(assignment.broker_ids) for assignment in requested.assignments
    }
    if not requested_replicas and factor == 1:
        return
    for index, partition in enumerate(topic.partitions):
        replicas = requested_replicas.get(index)
        partition.replicas = replicas or broker.cluster.choose_replicas(index, factor)


def _topic_fault(broker: Broker, topic: CreatableTopic) -> Fault | None:
    """Return the error and message for a topic that cannot be created; None for other topics."""
    name_refusal = broker.topics.name_refusal(topic.name)
    if name_refusal is not None:
        return name_refusal
    without_value = [config.name for config in topic.configs if config.value is None]
    if without_value:
        names = ",".join(without_value)
        return ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {names}"
    config_fault = check_topic_configs({config.name: config.value or "" for config in topic.configs})
    if config_fault is not None:
        return ErrorCode.INVALID_CONFIG, config_fault
    if topic.assignments:
        fault = _assignment_fault(broker, topic)
        if fault is not None:
            return fault
    elif topic.replication_factor == 0 or topic.replication_factor < DEFAULT:
        message = "Replication factor must be larger than 0, or -1 to use the default value."
        return ErrorCode.INVALID_REPLICATION_FACTOR, message
    count_fault = count_refusal(_partition_count(broker, topic))
    if count_fault is not None:
        return count_fault
    brokers = len(broker.cluster.nodes)
    if topic.replication_factor > brokers:
        return (
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor {topic.replication_factor} is not possible: "
            f"there {'is 1 broker' if brokers == 1 else f'are {brokers} brokers'}.",
        )
    return None


def _assignment_fault(broker: Broker, topic: CreatableTopic) -> Fault | None:
    if topic.num_partitions != DEFAULT or topic.replication_factor != DEFAULT:
        return (
            ErrorCode.INVALID_REQUEST,
            "With a manual partition assignment, number of partitions and replication factor must be -1.",
        )
    indexes = sorted(assignment.partition_index for assignment in topic.assignments)
    if indexes != list(range(len(topic.assignments))):
        return (
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The partitions of the assignment must be 0, 1, 2 and so on.",
        )
    fault = assignment_fault(broker, [assignment.broker_ids for assignment in topic.assignments])
    return None if fault is None else (ErrorCode.INVALID_REPLICA_ASSIGNMENT, fault)


def _authorize(access: Access, request: CreateTopicsRequest) -> Authorized:
    """Require CREATE on the cluster or on each topic.

    The response shows the configs of a topic only to callers with DESCRIBE_CONFIGS.
    """
    may_create_all = access.allows_cluster(Operation.CREATE)
    occurrences = Counter(topic.name for topic in request.topics)
    denied = {
        name
        for name in occurrences
        # Permissions for duplicate names are not checked, because the handler rejects these names for every
        # caller.
        if occurrences[name] == 1 and not may_create_all and not access.allows_topic(Operation.CREATE, name)
    }

    def restrict_response(response: CreateTopicsResponse) -> None:
        for topic in response.topics:
            if not topic.error_code and not access.allows_topic(Operation.DESCRIBE_CONFIGS, topic.name):
                topic.topic_config_error_code = TOPIC_FAILED
                topic.num_partitions = topic.replication_factor = -1
                topic.configs = []
        response.topics.extend(_refuse_topic(name, TOPIC_FAILED, AUTHORIZATION_FAILED) for name in denied)

    permitted = [topic for topic in request.topics if topic.name not in denied]
    return access.narrow(restrict_response, topics=permitted)


API = Api(
    request=CreateTopicsRequest,
    handle=handle_create_topics,
    authorization=Authorization(
        (
            Requirement(Operation.CREATE, Resource.CLUSTER, TOPIC_FAILED),
            topic_requirement(Operation.CREATE),
            topic_requirement(Operation.DESCRIBE_CONFIGS),
        ),
        _authorize,
    ),
)

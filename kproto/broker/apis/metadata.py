"""Metadata (key 3): the nodes of the cluster, and the leaders and replicas of topics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ...error_codes import ErrorCode
from ...messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ..broker import Broker
from ..call import Call, Result
from ..security.acls import Operation, Resource
from ..topics import NO_ID, Partition, Topic, bad_name
from .api import Api
from .authorization import (
    CLUSTER_OPERATIONS,
    OPERATIONS_NOT_REQUESTED,
    TOPIC_FAILED,
    TOPIC_OPERATIONS,
    Access,
    Authorization,
    Authorized,
    Requirement,
    restrict_cluster_operations,
    restrict_topic_operations,
    topic_requirement,
)
from .partitions import partition_replicas

# The first version that accepts topic ids (KIP-516). v10 and v11 declare the field, but Kafka rejects
# requests that set it.
BY_ID_SINCE: Final = 12


def handle_metadata(broker: Broker, call: Call) -> Result:
    """Describe the cluster and the requested topics.

    A topic that is requested by name may be auto-created. This broker creates the topic before it responds.
    Kafka answers with UNKNOWN_TOPIC_OR_PARTITION, and creates the topic in the background.
    """
    request = call.request
    assert isinstance(request, MetadataRequest)
    topic_operations = cluster_operations = OPERATIONS_NOT_REQUESTED
    if request.include_topic_authorized_operations:
        topic_operations = TOPIC_OPERATIONS
    if request.include_cluster_authorized_operations:
        cluster_operations = CLUSTER_OPERATIONS
    if _uses_ids_too_early(request, call.version):
        return call.refuse(ErrorCode.INVALID_REQUEST)
    if _requests_all_topics(request, call.version):
        topics = [_describe_topic(broker, topic, topic_operations) for topic in broker.topics]
    else:
        may_create = request.allow_auto_topic_creation and broker.settings.auto_create_topics_enable
        topics = [
            _describe_requested_topic(broker, call, requested, topic_operations, may_create=may_create)
            for requested in _without_duplicates(request.topics or ())
        ]
    nodes = broker.cluster.nodes.values()
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node.id, host=host, port=port, rack=node.rack)
            for node in nodes
            for host, port in [node.address(call.listener)]
        ],
        cluster_id=broker.cluster_id,
        controller_id=min(node.id for node in nodes),
        topics=topics,
        cluster_authorized_operations=cluster_operations,
    )


def _requests_all_topics(request: MetadataRequest, version: int) -> bool:
    """Return whether the request is for all topics: its list of topics is null or, in v0, empty."""
    return request.topics is None or (version == 0 and not request.topics)


def _uses_ids_too_early(request: MetadataRequest, version: int) -> bool:
    """Return whether a request before v12 has a topic id: Kafka rejects such a request as a whole."""
    topics = request.topics or ()
    return version < BY_ID_SINCE and any(topic.name is None or topic.topic_id != NO_ID for topic in topics)


def _without_duplicates(topics: Iterable[MetadataRequestTopic]) -> list[MetadataRequestTopic]:
    """Return each requested topic once.

    As in Kafka, if at least one topic is requested by id, the topics that are requested by name are ignored.
    """
    by_id = {topic.topic_id: topic for topic in topics if topic.topic_id != NO_ID}
    return list(by_id.values()) or list({topic.name: topic for topic in topics}.values())


def _describe_requested_topic(
    broker: Broker, call: Call, requested: MetadataRequestTopic, operations: int, *, may_create: bool
) -> MetadataResponseTopic:
    """Describe a topic that is requested by id or by name.

    With `may_create`, a missing topic that is requested by name is created, if `Topics.refusal` allows it.
    """
    if requested.topic_id != NO_ID:
        topic = broker.topics.with_id(requested.topic_id)
        if topic is not None:
            return _describe_topic(broker, topic, operations)
        return MetadataResponseTopic(
            error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=requested.topic_id, partitions=[]
        )
    name = requested.name or ""
    topic = broker.topics.named(name)
    partition_count = broker.settings.num_partitions
    if topic is None and may_create and broker.topics.refusal(name, partition_count) is None:
        topic = broker.create_topic(name, partition_count, call.random_id)
        broker.cluster.assign_leaders(topic)
    if topic is not None:
        return _describe_topic(broker, topic, operations)
    error = (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if bad_name(name) is None else ErrorCode.INVALID_TOPIC_EXCEPTION
    )
    return MetadataResponseTopic(
        error_code=error, name=name, partitions=[], topic_authorized_operations=operations
    )


def _describe_topic(broker: Broker, topic: Topic, operations: int) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=0,
        name=topic.name,
        topic_id=topic.id,
        partitions=[
            _describe_partition(broker, partition, index) for index, partition in enumerate(topic.partitions)
        ],
        topic_authorized_operations=operations,
    )


def _describe_partition(broker: Broker, partition: Partition, index: int) -> MetadataResponsePartition:
    state = partition_replicas(broker, partition, index)
    return MetadataResponsePartition(
        error_code=state.error,
        partition_index=index,
        leader_id=state.leader,
        leader_epoch=partition.log.leader_epoch,
        replica_nodes=state.replicas,
        isr_nodes=state.in_sync,
        offline_replicas=state.offline,
    )


def refuse(request: MetadataRequest, error: ErrorCode, version: int) -> MetadataResponse:
    """Return a response without brokers, with an error for each requested topic."""
    topics = [
        MetadataResponseTopic(error_code=error, name=topic.name or "", topic_id=topic.topic_id, partitions=[])
        for topic in request.topics or ()
    ]
    return MetadataResponse(brokers=[], topics=topics)


def _refuse_topic(topic: MetadataRequestTopic) -> MetadataResponseTopic:
    # The result for a topic that was requested by id does not reveal the topic's name.
    return MetadataResponseTopic(
        error_code=TOPIC_FAILED,
        name=topic.name if topic.topic_id == NO_ID else None,
        topic_id=topic.topic_id,
        partitions=[],
    )


def _authorize(access: Access, request: MetadataRequest) -> Authorized:
    """Require DESCRIBE on each topic, and CREATE for auto-creation.

    The response contains an error for each denied topic, or omits denied topics if the request is for all
    topics. The bit fields of authorized operations are restricted to the caller's permissions.
    """
    if _uses_ids_too_early(request, access.call.version):
        return access.call
    all_topics = _requests_all_topics(request, access.call.version)
    permitted, denied = access.split_topics(Operation.DESCRIBE, request.topics or [])
    if request.allow_auto_topic_creation and not access.allows_cluster(Operation.CREATE):
        for topic in list(permitted):
            name = topic.name or ""
            is_missing = topic.topic_id == NO_ID and access.broker.topics.named(name) is None
            if is_missing and not access.allows_topic(Operation.CREATE, name):
                permitted.remove(topic)
                denied.append(topic)

    def restrict_response(response: MetadataResponse) -> None:
        if all_topics:
            response.topics = [
                topic
                for topic in response.topics
                if access.allows_topic(Operation.DESCRIBE, topic.name or "")
            ]
        # If no topic is permitted, the narrowed request lists no topics. In version 0 such a request is for
        # all topics, so the response contains topics to remove.
        elif not permitted:
            response.topics = []
        unique_denied = {(topic.name, topic.topic_id): topic for topic in denied}
        response.topics.extend(map(_refuse_topic, unique_denied.values()))
        for described in response.topics:
            restrict_topic_operations(access, described)
        restrict_cluster_operations(access, response)

    if all_topics:
        return access.narrow(restrict_response)
    return access.narrow(restrict_response, topics=permitted)


API = Api(
    request=MetadataRequest,
    handle=handle_metadata,
    authorization=Authorization(
        (
            topic_requirement(Operation.DESCRIBE),
            Requirement(Operation.CREATE, Resource.CLUSTER, TOPIC_FAILED),
            topic_requirement(Operation.CREATE),
        ),
        _authorize,
    ),
    refuse=refuse,
    divided=("topics",),
)

"""Metadata (key 3), DescribeCluster (60) and DescribeTopicPartitions (75): the nodes and who leads what."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ...error_codes import ErrorCode
from ...messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from ...messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseCursor,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
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
from ..topics import NO_ID, Partition, Topic, bad_name
from .lookup import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS

BY_ID_SINCE: Final = 12  # KIP-516; versions 10 and 11 have the field, but brokers refuse what is in it
BROKERS, CONTROLLERS = 1, 2  # DescribeCluster's endpoint types
MAX_DESCRIBED_PARTITIONS: Final = 2000  # max.request.partition.size.limit


def metadata(broker: Broker, call: Call) -> Result:
    """Describe the cluster and the topics asked for; a topic asked for by name may come into being here.

    Kafka creates it in the background and says UNKNOWN_TOPIC_OR_PARTITION to the first request; here it is
    there at once.
    """
    request = call.envelope.request
    assert isinstance(request, MetadataRequest)
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED
    if asks_by_id_too_early(request, call.version):
        return _refused(request)
    # Version 0 has no null: there the empty list asks for all topics.
    everything = request.topics is None or (call.version == 0 and not request.topics)
    if everything:
        topics = [_described(broker, topic, operations) for topic in broker.topics]
    else:
        create = request.allow_auto_topic_creation and broker.settings.auto_create_topics_enable
        topics = [
            _asked(broker, call, asked, operations, create) for asked in _each_once(request.topics or ())
        ]
    rack = broker.settings.broker_rack or None
    nodes = broker.cluster.nodes.values()
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node.id, host=host, port=port, rack=rack)
            for node in nodes
            for host, port in [node.at(call.listener)]
        ],
        cluster_id=broker.cluster_id,
        controller_id=min(node.id for node in nodes),
        topics=topics,
        cluster_authorized_operations=CLUSTER_OPERATIONS
        if request.include_cluster_authorized_operations
        else NOT_ASKED,
    )


def _each_once(topics: Iterable[MetadataRequestTopic]) -> list[MetadataRequestTopic]:
    """The topics that are asked for: where one is by its id, none is by its name."""
    ids = {one.topic_id: one for one in topics if one.topic_id != NO_ID}
    return list(ids.values()) or list({one.name: one for one in topics}.values())


def _asked(
    broker: Broker, call: Call, asked: MetadataRequestTopic, operations: int, create: bool
) -> MetadataResponseTopic:
    """One topic that was asked for, by id or by name."""
    if asked.topic_id != NO_ID:
        topic = broker.topics.with_id(asked.topic_id)
        if topic is not None:
            return _described(broker, topic, operations)
        return MetadataResponseTopic(
            error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=asked.topic_id, partitions=[]
        )
    name = asked.name or ""
    topic = broker.topics.named(name)
    count = broker.settings.num_partitions
    if topic is None and create and broker.topics.refusal(name, count) is None:
        topic = broker.create_topic(name, count, call.random_id)
        broker.cluster.assign_leaders(topic)
    if topic is not None:
        return _described(broker, topic, operations)
    error = (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if bad_name(name) is None else ErrorCode.INVALID_TOPIC_EXCEPTION
    )
    return MetadataResponseTopic(
        error_code=error, name=name, partitions=[], topic_authorized_operations=operations
    )


def asks_by_id_too_early(request: MetadataRequest, version: int) -> bool:
    """Whether a version that has ids and can't use them asks by one: Kafka refuses that as a whole."""
    topics = request.topics or ()
    return version < BY_ID_SINCE and any(one.name is None or one.topic_id != NO_ID for one in topics)


def _refused(request: MetadataRequest) -> MetadataResponse:
    """What Kafka answers when it refuses the request as a whole."""
    topics = [
        MetadataResponseTopic(
            error_code=ErrorCode.INVALID_REQUEST, name=one.name or "", topic_id=one.topic_id, partitions=[]
        )
        for one in request.topics or ()
    ]
    return MetadataResponse(brokers=[], topics=topics)


def _described(broker: Broker, topic: Topic, operations: int) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=0,
        name=topic.name,
        topic_id=topic.id,
        partitions=[_led(broker, partition, index) for index, partition in enumerate(topic.partitions)],
        topic_authorized_operations=operations,
    )


def _led(broker: Broker, partition: Partition, index: int) -> MetadataResponsePartition:
    leader = broker.cluster.leader(partition, index)
    replicas = broker.cluster.replicas_of(partition, index)
    up = [one for one in replicas if one in broker.cluster.nodes]
    return MetadataResponsePartition(
        error_code=0 if leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=index,
        leader_id=leader,
        leader_epoch=partition.log.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=up,
        offline_replicas=[one for one in replicas if one not in up],
    )


def describe_cluster(broker: Broker, call: Call) -> Result:
    request = call.envelope.request
    assert isinstance(request, DescribeClusterRequest)
    if request.endpoint_type != BROKERS:
        known = request.endpoint_type == CONTROLLERS
        return DescribeClusterResponse(
            throttle_time_ms=0,
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="The request was sent to an endpoint of type BROKER.",
            cluster_id="",
            brokers=[],
        )
    rack = broker.settings.broker_rack or None
    nodes = broker.cluster.nodes.values()
    return DescribeClusterResponse(
        throttle_time_ms=0,
        error_code=0,
        cluster_id=broker.cluster_id,
        controller_id=min(node.id for node in nodes),
        brokers=[
            DescribeClusterBroker(broker_id=node.id, host=host, port=port, rack=rack)
            for node in nodes
            for host, port in [node.at(call.listener)]
        ],
        cluster_authorized_operations=CLUSTER_OPERATIONS
        if request.include_cluster_authorized_operations
        else NOT_ASKED,
    )


def describe_topic_partitions(broker: Broker, call: Call) -> Result:
    """Describe topics in the order of their names, page by page; `cursor` says where to go on (KIP-966)."""
    request = call.envelope.request
    assert isinstance(request, DescribeTopicPartitionsRequest)
    if any(not topic.name for topic in request.topics):
        return _none_described(request)
    names = {topic.name for topic in request.topics} or {topic.name for topic in broker.topics}
    first = 0
    if request.cursor is not None:
        names = {name for name in names | {request.cursor.topic_name} if name >= request.cursor.topic_name}
        first = max(request.cursor.partition_index, 0)
    room = max(1, min(request.response_partition_limit, MAX_DESCRIBED_PARTITIONS))
    answer = DescribeTopicPartitionsResponse(throttle_time_ms=0, topics=[])
    for name in sorted(names):
        start = first if request.cursor is not None and name == request.cursor.topic_name else 0
        topic = broker.topics.named(name)
        if room == 0:
            answer.next_cursor = DescribeTopicPartitionsResponseCursor(topic_name=name, partition_index=start)
            break
        if topic is None:
            error = (
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if bad_name(name) is None
                else ErrorCode.INVALID_TOPIC_EXCEPTION
            )
            answer.topics.append(
                DescribeTopicPartitionsResponseTopic(
                    error_code=error,
                    name=name,
                    topic_id=NO_ID,
                    partitions=[],
                    topic_authorized_operations=TOPIC_OPERATIONS,
                )
            )
            continue
        stop = min(len(topic.partitions), start + room)
        answer.topics.append(
            DescribeTopicPartitionsResponseTopic(
                error_code=0,
                name=name,
                topic_id=topic.id,
                partitions=[_detailed(broker, topic, index) for index in range(start, stop)],
                topic_authorized_operations=TOPIC_OPERATIONS,
            )
        )
        room -= max(stop - start, 0)
        if stop < len(topic.partitions):
            answer.next_cursor = DescribeTopicPartitionsResponseCursor(topic_name=name, partition_index=stop)
            break
    return answer


def _none_described(request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    """What Kafka answers when one of the topics has no name."""
    return DescribeTopicPartitionsResponse(
        throttle_time_ms=0,
        topics=[
            DescribeTopicPartitionsResponseTopic(
                error_code=ErrorCode.UNKNOWN_SERVER_ERROR, name=topic.name, topic_id=NO_ID, partitions=[]
            )
            for topic in request.topics
        ],
    )


def _detailed(broker: Broker, topic: Topic, index: int) -> DescribeTopicPartitionsResponsePartition:
    led = _led(broker, topic.partitions[index], index)
    return DescribeTopicPartitionsResponsePartition(
        error_code=led.error_code,
        partition_index=index,
        leader_id=led.leader_id,
        leader_epoch=led.leader_epoch,
        replica_nodes=led.replica_nodes,
        isr_nodes=led.isr_nodes,
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=led.offline_replicas,
    )

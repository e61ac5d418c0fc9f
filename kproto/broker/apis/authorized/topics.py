"""Who may see topics, make them, and change how they are set up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from ....error_codes import ErrorCode
from ....messages.create_partitions import CreatePartitionsTopicResult
from ....messages.create_topics import CreatableTopicResult
from ....messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from ....messages.describe_topic_partitions import (
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseTopic,
    TopicRequest,
)
from ....messages.metadata import MetadataResponseTopic
from ....wire.message import Message
from ...security.acls import CLUSTER_NAME, Resource
from ...topics import NO_ID
from ..authorization import CLUSTER_FAILED, GROUP_FAILED, SAID, TOPIC_FAILED, Gated, May, Op, Rule, cut_down
from ..configs import BROKER, GROUP, LOGGER, METRICS, TOPIC, refused_before
from ..lookup import NOT_ASKED
from ..metadata import asks_by_id_too_early


def metadata(may: May, request: Any) -> Gated:
    if asks_by_id_too_early(request, may.call.version):
        return may.call
    everything = request.topics is None or (may.call.version == 0 and not request.topics)
    allowed, denied = may.parted(Op.DESCRIBE, request.topics or [])
    if request.allow_auto_topic_creation and not may.cluster(Op.CREATE):
        for topic in list(allowed):
            missing = topic.topic_id == NO_ID and may.broker.topics.named(topic.name or "") is None
            if missing and not may.topic(Op.CREATE, topic.name or ""):
                allowed.remove(topic)
                denied.append(topic)

    def refuse(topic: Any) -> MetadataResponseTopic:
        # An id is no secret, and so it comes back; a name's id would be one.
        return MetadataResponseTopic(
            error_code=TOPIC_FAILED,
            name=topic.name if topic.topic_id == NO_ID else None,
            topic_id=topic.topic_id,
            partitions=[],
        )

    def amend(response: Any) -> Message:
        if everything:
            response.topics = [one for one in response.topics if may.topic(Op.DESCRIBE, one.name)]
        once = {(topic.name, topic.topic_id): topic for topic in denied}
        response.topics.extend(map(refuse, once.values()))
        for one in response.topics:
            bits = may.bits(one.topic_authorized_operations, Resource.TOPIC, one.name or "")
            one.topic_authorized_operations = bits
        return cluster_bits(may, response)

    return cut_down(may, amend) if everything else cut_down(may, amend, topics=allowed)


def cluster_bits(may: May, response: Any) -> Message:
    known = response.cluster_authorized_operations
    if known != NOT_ASKED and not may.cluster(Op.DESCRIBE):
        known = 0  # whatever else is allowed
    response.cluster_authorized_operations = may.bits(known, Resource.CLUSTER, CLUSTER_NAME)
    return cast("Message", response)


def describe_cluster(may: May, request: Any) -> Gated:
    return cut_down(may, lambda response: cluster_bits(may, response))


def describe_topic_partitions(may: May, request: Any) -> Gated:
    asked = [topic.name for topic in request.topics]
    names = asked or [topic.name for topic in may.broker.topics]
    allowed = [name for name in names if may.topic(Op.DESCRIBE, name)]
    denied = dict.fromkeys(name for name in asked if name not in allowed)

    def amend(response: Any) -> Message:
        for one in response.topics:
            bits = may.bits(one.topic_authorized_operations, Resource.TOPIC, one.name)
            one.topic_authorized_operations = bits
        response.topics.extend(
            DescribeTopicPartitionsResponseTopic(
                error_code=TOPIC_FAILED, name=name, topic_id=NO_ID, partitions=[]
            )
            for name in denied
        )
        return cast("Message", response)

    if not allowed:
        return amend(DescribeTopicPartitionsResponse(throttle_time_ms=0, topics=[]))
    return cut_down(may, amend, topics=[TopicRequest(name=name) for name in allowed])


def create_topics(may: May, request: Any) -> Gated:
    everywhere = may.cluster(Op.CREATE)
    times = Counter(topic.name for topic in request.topics)  # what is named twice is refused anyway
    denied = {
        name for name in times if times[name] == 1 and not everywhere and not may.topic(Op.CREATE, name)
    }
    allowed = [topic for topic in request.topics if topic.name not in denied]

    def amend(response: Any) -> Message:
        for one in response.topics:
            if not one.error_code and not may.topic(Op.DESCRIBE_CONFIGS, one.name):
                one.topic_config_error_code = TOPIC_FAILED
                one.num_partitions = one.replication_factor = -1
                one.configs = []
        response.topics.extend(
            CreatableTopicResult(name=name, error_code=TOPIC_FAILED, error_message=SAID, configs=[])
            for name in denied
        )
        return cast("Message", response)

    return cut_down(may, amend, topics=allowed)


def delete_topics(may: May, request: Any) -> Gated:
    def refuse(name: str | None, topic_id: Any) -> DeletableTopicResult:
        return DeletableTopicResult(
            name=name, topic_id=topic_id, error_code=TOPIC_FAILED, error_message="Topic authorization failed."
        )

    told: list[DeletableTopicResult] = []
    states: list[Any] = []
    times = Counter(state.name for state in request.topics if state.topic_id == NO_ID)
    names = [name for name in request.topic_names if may.topic(Op.DELETE, name)]
    told.extend(refuse(name, NO_ID) for name in request.topic_names if name not in names)
    for state in request.topics:
        by_id = state.topic_id != NO_ID
        name = may.named(state)
        twice = not by_id and times[state.name] > 1
        if name is None or twice or (by_id and state.name is not None) or may.topic(Op.DELETE, name):
            states.append(state)
        elif by_id:
            told.append(refuse(name if may.topic(Op.DESCRIBE, name) else None, state.topic_id))
        else:
            told.append(refuse(name, NO_ID))

    def amend(response: Any) -> Message:
        response.responses.extend(told)
        return cast("Message", response)

    if told and not names and not states:
        return DeleteTopicsResponse(throttle_time_ms=0, responses=told)
    return cut_down(may, amend, topics=states, topic_names=names) if told else may.call


def create_partitions(topic: Any) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name=topic.name, error_code=TOPIC_FAILED)


def configs(operation: int, refusal: Callable[..., Any], answers: str) -> Rule:
    """A request about resources' configs; `refusal` is what the answer has for each of them."""

    def rule(may: May, request: Any) -> Gated:
        alters = operation == Op.ALTER_CONFIGS

        def code(resource: Any) -> ErrorCode | None:
            kind, name = resource.resource_type, resource.resource_name
            if kind not in _CONFIGS or (alters and refused_before(may.broker, request, resource)):
                return None
            of, failed = _CONFIGS[kind]
            return None if may(operation, of, CLUSTER_NAME if of == Resource.CLUSTER else name) else failed

        if not alters and not all(one.resource_type in _CONFIGS for one in request.resources):
            return may.call  # which is refused as a whole
        denied = [
            refusal(
                error_code=why,
                error_message=SAID,
                resource_type=one.resource_type,
                resource_name=one.resource_name,
            )
            for one in request.resources
            if (why := code(one)) is not None
        ]

        def amend(response: Any) -> Message:
            getattr(response, answers).extend(denied)
            return cast("Message", response)

        return cut_down(may, amend, resources=[one for one in request.resources if code(one) is None])

    return rule


_CONFIGS: Final[Mapping[int, tuple[Resource, ErrorCode]]] = {
    TOPIC: (Resource.TOPIC, TOPIC_FAILED),
    BROKER: (Resource.CLUSTER, CLUSTER_FAILED),
    LOGGER: (Resource.CLUSTER, CLUSTER_FAILED),
    METRICS: (Resource.CLUSTER, CLUSTER_FAILED),
    GROUP: (Resource.GROUP, GROUP_FAILED),
}
"""By ConfigResource.Type: what is asked for, and what who may not hears."""

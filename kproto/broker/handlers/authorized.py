"""What each request needs to be allowed to do, and what it hears of the rest: in front of all handlers.

Rules that hold here, as in KafkaApis and ControllerApis (R18, R85, R103, R121, R129):

* A request is cut down to what is allowed, its handler answers that, and the rest is told beside it.
* Who may not DESCRIBE something learns nothing of it: not whether it exists, and lists are silent about it.
* Where nothing is left, the handler is not asked at all, so no group hears of a stranger's member.
* Bits of authorized operations are those of the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from typing import Any, Final, cast

from ...error_codes import ErrorCode
from ...group.refusals import refusal
from ...messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from ...messages.create_acls import AclCreationResult, CreateAclsResponse
from ...messages.create_partitions import CreatePartitionsTopicResult
from ...messages.create_topics import CreatableTopicResult
from ...messages.delete_acls import DeleteAclsFilterResult, DeleteAclsResponse
from ...messages.delete_groups import DeletableGroupResult
from ...messages.delete_records import DeleteRecordsPartitionResult, DeleteRecordsTopicResult
from ...messages.delete_topics import DeletableTopicResult
from ...messages.describe_acls import DescribeAclsResponse
from ...messages.describe_configs import DescribeConfigsResult
from ...messages.describe_groups import DescribedGroup
from ...messages.describe_topic_partitions import (
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseTopic,
    TopicRequest,
)
from ...messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from ...messages.find_coordinator import Coordinator, FindCoordinatorResponse
from ...messages.headers import Envelope
from ...messages.incremental_alter_configs import AlterConfigsResourceResponse
from ...messages.init_producer_id import InitProducerIdResponse
from ...messages.list_offsets import ListOffsetsPartitionResponse, ListOffsetsTopicResponse
from ...messages.metadata import MetadataResponseTopic
from ...messages.offset_delete import OffsetDeleteResponsePartition, OffsetDeleteResponseTopic
from ...messages.offset_fetch import (
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ...messages.offset_for_leader_epoch import EpochEndOffset, OffsetForLeaderTopicResult
from ...messages.produce import PartitionProduceResponse, TopicProduceResponse
from ...wire.message import Message
from ..broker import Broker
from ..call import Call, Closing
from ..cluster import refused
from ..security.acls import CLUSTER_NAME, Operation, Resource
from ..topics import NO_ID, Topic
from .configs import BROKER
from .lookup import NOT_ASKED
from .metadata import asks_by_id_too_early
from .produce import produce

TOPIC_FAILED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP_FAILED: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
CLUSTER_FAILED: Final = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
SAID: Final = "Authorization failed."
Op: Final = Operation

Gated = Call | Message | Closing
Amend = Callable[[Any], Message]


class May:
    """What the caller may do."""

    def __init__(self, broker: Broker, call: Call) -> None:
        self.broker = broker
        self.call = call

    def __call__(self, operation: int, resource: int, name: str) -> bool:
        return self.broker.may(self.call, operation, resource, name)

    def topic(self, operation: int, name: str) -> bool:
        return self(operation, Resource.TOPIC, name)

    def group(self, operation: int, name: str) -> bool:
        return self(operation, Resource.GROUP, name)

    def cluster(self, operation: int) -> bool:
        return self(operation, Resource.CLUSTER, CLUSTER_NAME)

    def bits(self, known: int, resource: int, name: str) -> int:
        """Of a resource's operations, those that the caller may use."""
        if known == NOT_ASKED:
            return known
        return sum(1 << bit for bit in range(3, 16) if known >> bit & 1 and self(bit, resource, name))

    def with_id(self, topic: Any) -> Topic | None:
        return self.broker.topics.with_id(topic.topic_id)

    def named(self, topic: Any) -> str | None:
        """The name of what a request names by name or id; None for an id that nobody has."""
        if topic.topic_id == NO_ID:
            return topic.name or ""
        found = self.with_id(topic)
        return None if found is None else found.name

    def parted(self, operation: int, topics: list[Any]) -> tuple[list[Any], list[Any]]:
        """The topics of a request that are allowed, and the others; an unknown id is nobody's secret."""
        allowed: list[Any] = []
        denied: list[Any] = []
        for topic in topics:
            name = self.named(topic) if hasattr(topic, "topic_id") else topic.name
            (allowed if name is None or self.topic(operation, name) else denied).append(topic)
        return allowed, denied


def gate(broker: Broker, call: Call) -> Gated:
    """The call as far as it is allowed, or its answer."""
    rule = _RULES.get(call.envelope.header.request_api_key)
    if rule is None or (broker.acls is None and call.failing is None):
        return call
    return rule(May(broker, call), call.envelope.request)


def _cut(may: May, amend: Amend | None = None, **fields: Any) -> Call:
    """The call with other fields in its request, and with an answer that is amended."""
    request = copy(may.call.envelope.request)
    for name, value in fields.items():
        setattr(request, name, value)
    envelope = may.call.envelope
    cut = Envelope(envelope.header, envelope.header_version, request, envelope.version)
    return replace(may.call, envelope=cut, amend=amend)


def _topics(
    operation: int, refuse: Callable[[Any], Any], field: str = "topics", answers: str = "topics"
) -> Any:
    """A request about topics, each of which is allowed or refused for itself."""

    def rule(may: May, request: Any) -> Gated:
        allowed, denied = may.parted(operation, getattr(request, field))
        if not denied:
            return may.call

        def amend(response: Any) -> Message:
            getattr(response, answers).extend(refuse(topic) for topic in denied)
            return cast("Message", response)

        return _cut(may, amend, **{field: allowed})

    return rule


def _produce(may: May, request: Any) -> Gated:
    allowed, denied = may.parted(Op.WRITE, request.topic_data)
    if not denied:
        return may.call
    if request.acks == 0:
        # What is allowed is written before the connection is closed over the rest.
        produce(may.broker, _cut(may, topic_data=allowed))
        return Closing("a produce with acks=0 failed: TOPIC_AUTHORIZATION_FAILED")

    def refuse(topic: Any) -> TopicProduceResponse:
        return TopicProduceResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=[
                PartitionProduceResponse(index=one.index, error_code=TOPIC_FAILED, base_offset=-1)
                for one in topic.partition_data
            ],
        )

    def amend(response: Any) -> Message:
        response.responses.extend(map(refuse, denied))
        return cast("Message", response)

    return _cut(may, amend, topic_data=allowed)


def _list_offsets(topic: Any) -> ListOffsetsTopicResponse:
    return ListOffsetsTopicResponse(
        name=topic.name,
        partitions=[
            ListOffsetsPartitionResponse(partition_index=one.partition_index, error_code=TOPIC_FAILED)
            for one in topic.partitions
        ],
    )


def _epochs(topic: Any) -> OffsetForLeaderTopicResult:
    return OffsetForLeaderTopicResult(
        topic=topic.topic,
        partitions=[
            EpochEndOffset(error_code=TOPIC_FAILED, partition=one.partition) for one in topic.partitions
        ],
    )


def _delete_records(topic: Any) -> DeleteRecordsTopicResult:
    return DeleteRecordsTopicResult(
        name=topic.name,
        partitions=[
            DeleteRecordsPartitionResult(
                partition_index=one.partition_index, low_watermark=-1, error_code=TOPIC_FAILED
            )
            for one in topic.partitions
        ],
    )


def _leader_epochs(may: May, request: Any) -> Gated:
    allowed = [topic for topic in request.topics if may.topic(Op.DESCRIBE, topic.topic)]
    denied = [topic for topic in request.topics if not may.topic(Op.DESCRIBE, topic.topic)]

    def amend(response: Any) -> Message:
        response.topics.extend(map(_epochs, denied))
        return cast("Message", response)

    return _cut(may, amend, topics=allowed) if denied else may.call


def _metadata(may: May, request: Any) -> Gated:
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
        response.topics.extend(map(refuse, denied))
        for one in response.topics:
            bits = may.bits(one.topic_authorized_operations, Resource.TOPIC, one.name or "")
            one.topic_authorized_operations = bits
        return _cluster_bits(may, response)

    return _cut(may, amend) if everything else _cut(may, amend, topics=allowed)


def _cluster_bits(may: May, response: Any) -> Message:
    known = response.cluster_authorized_operations
    response.cluster_authorized_operations = may.bits(known, Resource.CLUSTER, CLUSTER_NAME)
    return cast("Message", response)


def _describe_cluster(may: May, request: Any) -> Gated:
    return _cut(may, lambda response: _cluster_bits(may, response))


def _describe_topic_partitions(may: May, request: Any) -> Gated:
    asked = [topic.name for topic in request.topics]
    names = asked or [topic.name for topic in may.broker.topics]
    allowed = [name for name in names if may.topic(Op.DESCRIBE, name)]
    denied = [name for name in asked if name not in allowed]

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
    return _cut(may, amend, topics=[TopicRequest(name=name) for name in allowed])


# ---- groups


def _find_coordinator(may: May, request: Any) -> Gated:
    resource = Resource.GROUP if request.key_type == 0 else Resource.TRANSACTIONAL_ID
    code = GROUP_FAILED if request.key_type == 0 else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    keys = request.coordinator_keys if may.call.version >= 4 else [request.key]
    denied = {key for key in keys if not may(Op.DESCRIBE, resource, key)}
    if not denied or request.key_type not in (0, 1):
        return may.call
    if may.call.version < 4:
        return FindCoordinatorResponse(error_code=code, error_message=SAID, node_id=-1, host="", port=-1)

    def amend(response: Any) -> Message:
        response.coordinators.extend(
            Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=SAID)
            for key in denied
        )
        return cast("Message", response)

    return _cut(may, amend, coordinator_keys=[key for key in keys if key not in denied])


def _member(may: May, request: Any) -> Gated:
    if may.group(Op.READ, request.group_id):
        return may.call
    return refusal(request, GROUP_FAILED, may.call.version)


def _sync_group(may: May, request: Any) -> Gated:
    if may.call.version >= 5 and None in (request.protocol_type, request.protocol_name):
        return may.call  # the coordinator refuses that, and Kafka asks it first
    return _member(may, request)


def _offset_commit(may: May, request: Any) -> Gated:
    if not may.group(Op.READ, request.group_id):
        return refusal(request, GROUP_FAILED, may.call.version)
    allowed, denied = may.parted(Op.READ, request.topics)
    if not denied:
        return may.call
    part = copy(request)
    part.topics = denied
    told: Any = refusal(part, TOPIC_FAILED, may.call.version)

    def amend(response: Any) -> Message:
        response.topics.extend(told.topics)
        return cast("Message", response)

    return _cut(may, amend, topics=allowed) if allowed else told


def _offset_delete(may: May, request: Any) -> Gated:
    if not may.group(Op.DELETE, request.group_id):
        return refusal(request, GROUP_FAILED, may.call.version)

    def refuse(topic: Any) -> OffsetDeleteResponseTopic:
        return OffsetDeleteResponseTopic(
            name=topic.name,
            partitions=[
                OffsetDeleteResponsePartition(partition_index=one.partition_index, error_code=TOPIC_FAILED)
                for one in topic.partitions
            ],
        )

    return cast("Gated", _topics(Op.READ, refuse)(may, request))


def _offset_fetch(may: May, request: Any) -> Gated:
    version = may.call.version
    if version < 8:
        return _offset_fetch_one(may, request)
    groups: list[Any] = []
    told: dict[str, OffsetFetchResponseGroup] = {}
    denied: dict[str, list[Any]] = {}
    for group in request.groups:
        if not may.group(Op.DESCRIBE, group.group_id):
            told[group.group_id] = OffsetFetchResponseGroup(
                group_id=group.group_id, topics=[], error_code=GROUP_FAILED
            )
            continue
        part = copy(group)
        if group.topics is not None:
            part.topics, denied[group.group_id] = may.parted(Op.DESCRIBE, group.topics)
        groups.append(part)

    def amend(response: Any) -> Message:
        for group in response.groups:
            if group.group_id in denied and not group.error_code:
                group.topics.extend(
                    OffsetFetchResponseTopics(
                        name=topic.name,
                        topic_id=topic.topic_id,
                        partitions=[
                            OffsetFetchResponsePartitions(
                                partition_index=index,
                                committed_offset=-1,
                                metadata="",
                                error_code=TOPIC_FAILED,
                            )
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in denied[group.group_id]
                )
            elif group.group_id not in denied:
                group.topics, _ = may.parted(Op.DESCRIBE, group.topics)
        response.groups.extend(told.values())
        return cast("Message", response)

    if not groups and told:
        return refused(request, GROUP_FAILED, version)
    return _cut(may, amend, groups=groups)


def _offset_fetch_one(may: May, request: Any) -> Gated:
    if not may.group(Op.DESCRIBE, request.group_id):
        return refused(request, GROUP_FAILED, may.call.version)
    everything = request.topics is None
    allowed, denied = may.parted(Op.DESCRIBE, request.topics or [])

    def amend(response: Any) -> Message:
        if everything:
            response.topics, _ = may.parted(Op.DESCRIBE, response.topics)
        response.topics.extend(
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=index, committed_offset=-1, metadata="", error_code=TOPIC_FAILED
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in denied
        )
        return cast("Message", response)

    return _cut(may, amend) if everything else _cut(may, amend, topics=allowed)


def _describe_groups(may: May, request: Any) -> Gated:
    denied = [name for name in request.groups if not may.group(Op.DESCRIBE, name)]

    def amend(response: Any) -> Message:
        for one in response.groups:
            one.authorized_operations = may.bits(one.authorized_operations, Resource.GROUP, one.group_id)
        response.groups.extend(
            DescribedGroup(
                error_code=GROUP_FAILED,
                group_id=name,
                group_state="",
                protocol_type="",
                protocol_data="",
                members=[],
            )
            for name in denied
        )
        return cast("Message", response)

    return _cut(may, amend, groups=[name for name in request.groups if name not in denied])


def _list_groups(may: May, request: Any) -> Gated:
    if may.cluster(Op.DESCRIBE):
        return may.call

    def amend(response: Any) -> Message:
        response.groups = [one for one in response.groups if may.group(Op.DESCRIBE, one.group_id)]
        return cast("Message", response)

    return _cut(may, amend)


def _delete_groups(may: May, request: Any) -> Gated:
    denied = [name for name in request.groups_names if not may.group(Op.DELETE, name)]

    def amend(response: Any) -> Message:
        response.results.extend(
            DeletableGroupResult(group_id=name, error_code=GROUP_FAILED) for name in denied
        )
        return cast("Message", response)

    return _cut(may, amend, groups_names=[name for name in request.groups_names if name not in denied])


# ---- topics and configs


def _create_topics(may: May, request: Any) -> Gated:
    everywhere = may.cluster(Op.CREATE)
    allowed = [topic for topic in request.topics if everywhere or may.topic(Op.CREATE, topic.name)]
    denied = dict.fromkeys(
        topic.name for topic in request.topics if not everywhere and not may.topic(Op.CREATE, topic.name)
    )

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

    return _cut(may, amend, topics=allowed)


def _delete_topics(may: May, request: Any) -> Gated:
    def refuse(name: str | None, topic_id: Any) -> DeletableTopicResult:
        return DeletableTopicResult(
            name=name, topic_id=topic_id, error_code=TOPIC_FAILED, error_message="Topic authorization failed."
        )

    told: list[DeletableTopicResult] = []
    states: list[Any] = []
    names = [name for name in request.topic_names if may.topic(Op.DELETE, name)]
    told.extend(refuse(name, NO_ID) for name in request.topic_names if name not in names)
    for state in request.topics:
        by_id = state.topic_id != NO_ID
        name = may.named(state)
        if name is None or (by_id and state.name is not None) or may.topic(Op.DELETE, name):
            states.append(state)
        elif by_id:
            told.append(refuse(name if may.topic(Op.DESCRIBE, name) else None, state.topic_id))
        else:
            told.append(refuse(name, NO_ID))

    def amend(response: Any) -> Message:
        response.responses.extend(told)
        return cast("Message", response)

    if told and not names and not states:
        from ...messages.delete_topics import DeleteTopicsResponse

        return DeleteTopicsResponse(throttle_time_ms=0, responses=told)
    return _cut(may, amend, topics=states, topic_names=names) if told else may.call


def _create_partitions(topic: Any) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name=topic.name, error_code=TOPIC_FAILED)


def _configs(operation: int, refuse: Callable[[Any, ErrorCode], Any], answers: str) -> Any:
    def rule(may: May, request: Any) -> Gated:
        def code(resource: Any) -> ErrorCode | None:
            if resource.resource_type == BROKER:
                return None if may.cluster(operation) else CLUSTER_FAILED
            return None if may.topic(operation, resource.resource_name) else TOPIC_FAILED

        denied = [(one, why) for one in request.resources if (why := code(one)) is not None]

        def amend(response: Any) -> Message:
            getattr(response, answers).extend(refuse(one, why) for one, why in denied)
            return cast("Message", response)

        return _cut(may, amend, resources=[one for one in request.resources if code(one) is None])

    return rule


def _described_configs(resource: Any, code: ErrorCode) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=code,
        error_message=SAID,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[],
    )


def _altered_configs(resource: Any, code: ErrorCode) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=code,
        error_message=SAID,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _init_producer_id(may: May, request: Any) -> Gated:
    if request.transactional_id is not None:
        if may(Op.WRITE, Resource.TRANSACTIONAL_ID, request.transactional_id):
            return may.call
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return InitProducerIdResponse(throttle_time_ms=0, error_code=code, producer_epoch=-1)
    if may.cluster(Op.IDEMPOTENT_WRITE) or may.broker.may_any(may.call, Op.WRITE, Resource.TOPIC):
        return may.call
    return InitProducerIdResponse(throttle_time_ms=0, error_code=CLUSTER_FAILED, producer_epoch=-1)


# ---- who may change who may


def _on_cluster(operation: int, refuse: Callable[[Any], Message]) -> Callable[[May, Any], Gated]:
    def rule(may: May, request: Any) -> Gated:
        return may.call if may.cluster(operation) else refuse(request)

    return rule


def _describe_acls(request: Any) -> Message:
    return DescribeAclsResponse(
        throttle_time_ms=0, error_code=CLUSTER_FAILED, error_message=SAID, resources=[]
    )


def _create_acls(request: Any) -> Message:
    results = [AclCreationResult(error_code=CLUSTER_FAILED, error_message=SAID) for _ in request.creations]
    return CreateAclsResponse(throttle_time_ms=0, results=results)


def _delete_acls(request: Any) -> Message:
    results = [
        DeleteAclsFilterResult(error_code=CLUSTER_FAILED, error_message=SAID, matching_acls=[])
        for _ in request.filters
    ]
    return DeleteAclsResponse(throttle_time_ms=0, filter_results=results)


def _describe_scram(request: Any) -> Message:
    # Kafka names nobody in these.
    nobody = DescribeUserScramCredentialsResult(
        user="", error_code=CLUSTER_FAILED, error_message=SAID, credential_infos=[]
    )
    return DescribeUserScramCredentialsResponse(
        throttle_time_ms=0,
        error_code=CLUSTER_FAILED,
        error_message=SAID,
        results=[nobody for _ in request.users or ()],
    )


def _alter_scram(request: Any) -> Message:
    names = dict.fromkeys(change.name for change in [*request.deletions, *request.upsertions])
    results = [
        AlterUserScramCredentialsResult(user=name, error_code=CLUSTER_FAILED, error_message=SAID)
        for name in names
    ]
    return AlterUserScramCredentialsResponse(throttle_time_ms=0, results=results)


_RULES: Final[Mapping[int, Callable[[May, Any], Gated]]] = {
    0: _produce,
    2: _topics(Op.DESCRIBE, _list_offsets),
    3: _metadata,
    8: _offset_commit,
    9: _offset_fetch,
    10: _find_coordinator,
    11: _member,
    12: _member,
    13: _member,
    14: _sync_group,
    15: _describe_groups,
    16: _list_groups,
    19: _create_topics,
    20: _delete_topics,
    21: _topics(Op.DELETE, _delete_records),
    22: _init_producer_id,
    23: _leader_epochs,
    29: _on_cluster(Op.DESCRIBE, _describe_acls),
    30: _on_cluster(Op.ALTER, _create_acls),
    31: _on_cluster(Op.ALTER, _delete_acls),
    32: _configs(Op.DESCRIBE_CONFIGS, _described_configs, "results"),
    37: _topics(Op.ALTER, _create_partitions, answers="results"),
    42: _delete_groups,
    44: _configs(Op.ALTER_CONFIGS, _altered_configs, "responses"),
    47: _offset_delete,
    50: _on_cluster(Op.DESCRIBE, _describe_scram),
    51: _on_cluster(Op.ALTER, _alter_scram),
    60: _describe_cluster,
    75: _describe_topic_partitions,
}
"""By API key; Fetch (1) looks for itself, as its session remembers what is not allowed."""
CAN_FAIL: Final = frozenset({1, *_RULES})
"""What may be refused to somebody."""

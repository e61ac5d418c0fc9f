"""Authorization of requests: the broker serves the permitted resources, and rejects or omits the others."""

from __future__ import annotations

from typing import Any

import pytest

from kproto.broker.apis import acl_filters
from kproto.broker.machine import ClientConnected, CreateTopic
from kproto.broker.security.acls import Acl, PatternType, Permission, Resource
from kproto.broker.security.acls import Operation as Op
from kproto.error_codes import ErrorCode
from kproto.machine import RequestReceived
from kproto.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kproto.messages.create_acls import AclCreation, CreateAclsRequest
from kproto.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kproto.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from kproto.messages.delete_groups import DeleteGroupsRequest
from kproto.messages.describe_acls import DescribeAclsRequest
from kproto.messages.describe_cluster import DescribeClusterRequest
from kproto.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kproto.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    TopicRequest,
)
from kproto.messages.heartbeat import HeartbeatRequest
from kproto.messages.list_groups import ListGroupsRequest
from kproto.messages.metadata import MetadataRequest, MetadataRequestTopic
from kproto.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kproto.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from kproto.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kproto.records import Record, encode_batch
from tests.broker.security.stage import RANDOM, LoginStage
from tests.broker.stage import classic_coordinator

BOB, HOST = "User:bob", "10.0.0.7"


ALLOW, DENY = Permission.ALLOW, Permission.DENY


STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def rule(name: str = "t", operation: int = Op.READ, permission: int = ALLOW, **attributes: Any) -> Acl:
    fields = {
        "resource": Resource.TOPIC,
        "pattern": PatternType.LITERAL,
        "principal": BOB,
        "host": "*",
        **attributes,
    }
    return Acl(name=name, operation=operation, permission=permission, **fields)


def stage_of(*rules: Acl) -> LoginStage:
    stage = LoginStage("PLAINTEXT", authorizer_class_name=STANDARD, super_users="User:alice")
    for name in ("t", "u"):
        stage.step(CreateTopic(name, 1, RANDOM))
    assert stage.broker.acls is not None
    for acl in rules:
        stage.broker.acls.add(acl)
    stage.step(ClientConnected(1, HOST, "SSL", BOB))
    return stage


@pytest.mark.rule("R121")
def test_lists_omit_denied_resources() -> None:
    stage = stage_of(rule())
    assert [topic.name for topic in stage.ask(MetadataRequest(topics=None), 1).topics] == ["t"]
    assert stage.ask(ListGroupsRequest(), 0).groups == []


def test_a_missing_topic_is_answered_like_a_denied_one() -> None:
    topics = [MetadataRequestTopic(name=name) for name in ("u", "absent")]
    response = stage_of().ask(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 9)
    assert [(topic.name, topic.error_code) for topic in response.topics] == [("u", 29), ("absent", 29)]


@pytest.mark.rule("R85")
def test_denied_topics_are_refused_beside_permitted_ones() -> None:
    stage = stage_of(rule(), rule("g", resource=Resource.GROUP))
    part = [OffsetCommitRequestPartition(partition_index=0, committed_offset=0, committed_metadata="")]
    topics = [OffsetCommitRequestTopic(name=name, partitions=part) for name in ("t", "u")]
    response = stage.ask(OffsetCommitRequest(group_id="g", member_id="", topics=topics), 5)
    codes = {topic.name: topic.partitions[0].error_code for topic in response.topics}
    assert codes == {"t": 0, "u": 29}


@pytest.mark.rule("R103")
def test_offsets_of_a_forbidden_topic_are_an_error_if_named_and_left_out_otherwise() -> None:
    stage = stage_of(rule(), rule("g", resource=Resource.GROUP))
    partition = [OffsetCommitRequestPartition(partition_index=0, committed_offset=0, committed_metadata="")]
    topics = [OffsetCommitRequestTopic(name=name, partitions=partition) for name in ("t", "u")]
    commit = OffsetCommitRequest(group_id="g", member_id="", topics=topics)
    stage.broker.coordinator.step(RequestReceived(None, commit, 5), 0)
    named = [OffsetFetchRequestTopic(name=name, partition_indexes=[0]) for name in ("t", "u")]
    response = stage.ask(OffsetFetchRequest(group_id="g", topics=named), 5)
    errors = {topic.name: topic.partitions[0].error_code for topic in response.topics}
    assert errors == {"t": 0, "u": 29}
    response = stage.ask(OffsetFetchRequest(group_id="g", topics=None), 5)
    assert [topic.name for topic in response.topics] == ["t"]


@pytest.mark.rule("R18")
def test_the_coordinator_never_sees_a_denied_member() -> None:
    stage = stage_of()
    response = stage.ask(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 0)
    assert response.error_code == 30
    assert not classic_coordinator(stage.broker.cluster).groups


def test_acls_are_altered_with_permission_and_refused_without_an_authorizer() -> None:
    wanted = AclCreation(
        resource_type=2, resource_name="t", principal=BOB, host="*", operation=3, permission_type=3
    )
    request = CreateAclsRequest(creations=[wanted])
    assert stage_of().ask(request, 1).results[0].error_code == 31
    allowed = rule("kafka-cluster", Op.ALTER, resource=Resource.CLUSTER)
    stage = stage_of(allowed)
    assert stage.ask(request, 1).results[0].error_code == 0
    everything = DescribeAclsRequest(
        resource_type_filter=1,
        resource_name_filter=None,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    assert len(stage.ask(everything, 1).resources) == 2
    assert LoginStage("PLAINTEXT").ask(request, 1).results[0].error_code == 54


def creation(**attributes: int) -> AclCreation:
    fields = {"resource_type": 2, "operation": 3, "permission_type": 3, **attributes}
    return AclCreation(resource_name="t", principal=BOB, host="*", **fields)


def acl_filter(**attributes: Any) -> DeleteAclsFilter:
    fields = {"resource_name_filter": None, "principal_filter": None, "host_filter": None, **attributes}
    return DeleteAclsFilter(**{"resource_type_filter": 1, "operation": 1, "permission_type": 1, **fields})


ALTERS = rule("kafka-cluster", Op.ALTER, resource=Resource.CLUSTER)


def test_an_acl_with_a_filter_value_fails_the_whole_request() -> None:
    stage = stage_of(ALTERS)
    request = CreateAclsRequest(creations=[creation(), creation(operation=Op.ANY)])
    assert [result.error_code for result in stage.ask(request, 3).results] == [-1, -1]
    request = CreateAclsRequest(creations=[creation(), creation(operation=99)])
    assert [result.error_code for result in stage.ask(request, 3).results] == [0, 42]


@pytest.mark.parametrize("pattern", [PatternType.ANY, PatternType.MATCH])
def test_an_acl_with_the_pattern_type_of_a_filter_is_not_created(pattern: int) -> None:
    stage = stage_of(ALTERS)
    assert stage.broker.acls is not None
    all_acls = acl_filters.acl_filter(acl_filter(pattern_type_filter=PatternType.ANY))
    before = stage.broker.acls.matching(all_acls)
    request = CreateAclsRequest(creations=[creation(resource_pattern_type=pattern)])
    assert [result.error_code for result in stage.ask(request, 3).results] == [-1]
    assert stage.broker.acls.matching(all_acls) == before


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("resource_type", "Invalid resourceType UNKNOWN"),
        ("resource_pattern_type", "Invalid patternType UNKNOWN"),
        ("operation", "Invalid operation UNKNOWN"),
        ("permission_type", "Invalid permissionType UNKNOWN"),
    ],
)
def test_an_acl_with_an_unassigned_number_is_rejected_by_name(field: str, message: str) -> None:
    request = CreateAclsRequest(creations=[creation(**{field: 99})])
    [result] = stage_of(ALTERS).ask(request, 3).results
    assert (result.error_code, result.error_message) == (ErrorCode.INVALID_REQUEST, message)


@pytest.mark.parametrize("field", ["resource_type", "operation", "permission_type"])
def test_an_acl_with_the_value_unknown_closes_the_connection(field: str) -> None:
    stage = stage_of(ALTERS)
    assert stage.ask(CreateAclsRequest(creations=[creation(**{field: 0})]), 3) is None
    assert stage.closed is not None
    assert "UNKNOWN elements" in stage.closed


def test_all_filters_match_before_anything_is_deleted() -> None:
    stage = stage_of(ALTERS, rule())
    filters = [acl_filter(operation=99), acl_filter(host_filter="*"), acl_filter()]
    results = stage.ask(DeleteAclsRequest(filters=filters), 3).filter_results
    assert [(result.error_code, len(result.matching_acls)) for result in results] == [(42, 0), (0, 2), (0, 2)]


def test_without_describe_no_cluster_operation_is_reported() -> None:
    configs = rule("kafka-cluster", Op.ALTER_CONFIGS, resource=Resource.CLUSTER)
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    assert stage_of(configs).ask(request, 0).cluster_authorized_operations == 0
    stage = stage_of(configs, rule("kafka-cluster", Op.DESCRIBE, resource=Resource.CLUSTER))
    assert stage.ask(request, 0).cluster_authorized_operations == 1 << 8 | 1 << 10 | 1 << 11


@pytest.mark.parametrize(("kind", "code"), [(2, 29), (4, 31), (8, 31), (16, 31), (32, 30), (99, 42)])
def test_configs_of_each_resource_type_need_their_own_permission(kind: int, code: int) -> None:
    resource = DescribeConfigsResource(resource_type=kind, resource_name="1", configuration_keys=[])
    response = stage_of().ask(DescribeConfigsRequest(resources=[resource]), 4)
    assert [result.error_code for result in response.results] == [code]


def test_duplicates_are_refused_for_every_caller() -> None:
    stage = stage_of()
    names = ["t", "t", "u"]
    partitions = [CreatePartitionsTopic(name=name, count=2, assignments=None) for name in names]
    response = stage.ask(CreatePartitionsRequest(topics=partitions, timeout_ms=1, validate_only=True), 3)
    assert {(result.name, result.error_code) for result in response.results} == {("t", 42), ("u", 29)}
    topics = [MetadataRequestTopic(name=name) for name in names]
    response = stage.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 9)
    assert [(topic.name, topic.error_code) for topic in response.topics] == [("t", 29), ("u", 29)]
    response = stage.ask(DeleteGroupsRequest(groups_names=["g", "g"]), 2)
    assert [result.error_code for result in response.results] == [30]


def test_acks_0_writes_the_permitted_topics_and_closes_for_the_denied_ones() -> None:
    stage = stage_of(rule(operation=Op.WRITE))
    records = encode_batch([Record(0, 0, None, b"x")])
    part = [PartitionProduceData(index=0, records=records)]
    topics = [TopicProduceData(name=name, partition_data=part) for name in ("u", "t")]
    request = ProduceRequest(acks=0, timeout_ms=1, topic_data=topics)
    assert stage.ask(request, 9) is None
    assert stage.closed == "a produce with acks=0 failed: TOPIC_AUTHORIZATION_FAILED"
    ends = {topic.name: topic.partitions[0].log.end_offset for topic in stage.broker.topics}
    assert ends == {"t": 1, "u": 0}


def test_all_partitions_are_added_to_a_transaction_or_none() -> None:
    ids = Resource.TRANSACTIONAL_ID
    stage = stage_of(rule(operation=Op.WRITE), rule("x", Op.WRITE, resource=ids))

    def codes(name: str, *topics: str) -> dict[str, int]:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0]) for topic in topics],
        )
        answer = stage.ask(request, 3).results_by_topic_v3_and_below
        return {topic.name: topic.results_by_partition[0].partition_error_code for topic in answer}

    assert codes("y", "t") == {"t": 53}
    assert codes("x", "t", "u", "absent") == {"t": 55, "u": 29, "absent": 29}
    # The caller has all permissions, so the unknown producer id causes the error.
    assert codes("x", "t") == {"t": 49}


def test_metadata_v0_about_denied_topics_describes_no_other_topic() -> None:
    """The response to Metadata v0 about a denied topic describes no other topic.

    If the broker removed the denied topic from the request, the list of topics would be empty. In v0 an
    empty list requests all topics.
    """
    stage = stage_of(rule("u", Op.DESCRIBE))
    response = stage.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 0)
    assert [(topic.name, topic.error_code) for topic in response.topics] == [
        ("t", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    ]


@pytest.mark.parametrize(
    ("requested", "cursor_topic", "expected"),
    [
        (["u"], "t", [("u", ErrorCode.INVALID_REQUEST)]),
        (["t", "u"], "t", [("u", 0), ("t", ErrorCode.TOPIC_AUTHORIZATION_FAILED)]),
        ([], "t", [("u", 0)]),
    ],
)
def test_a_cursor_at_a_denied_topic_does_not_describe_it(
    requested: list[str], cursor_topic: str, expected: list[tuple[str, int]]
) -> None:
    stage = stage_of(rule("u", Op.DESCRIBE))
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in requested],
        response_partition_limit=10,
        cursor=DescribeTopicPartitionsRequestCursor(topic_name=cursor_topic, partition_index=0),
    )
    response = stage.ask(request, 0)
    assert [(topic.name, topic.error_code) for topic in response.topics] == expected

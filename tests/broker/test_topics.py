"""Topics and their configs: Metadata, CreateTopics, DeleteTopics, CreatePartitions, DescribeConfigs, ..."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kproto.broker.machine import CreateTopic, GrowTopic
from kproto.broker.topic_configs import TOPIC_CONFIGS
from kproto.broker.topics import NO_ID
from kproto.error_codes import ErrorCode
from kproto.errors import ConfigError
from kproto.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from kproto.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from kproto.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kproto.messages.describe_cluster import DescribeClusterRequest
from kproto.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kproto.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    TopicRequest,
)
from kproto.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.broker.stage import Client, Stage, batch_of


@pytest.fixture
def stage() -> Stage:
    return Stage({"t": 2, "u": 1})


@pytest.fixture
def client(stage: Stage) -> Client:
    return stage.client()


def named(*names: str, create: bool = True, **fields: Any) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=create, **fields)


@pytest.mark.parametrize("version", range(14))
def test_metadata_describes_the_node_and_the_topic_in_every_version(client: Client, version: int) -> None:
    answer: MetadataResponse = client.ask(named("t"), version)
    assert [(node.node_id, node.host, node.port) for node in answer.brokers] == [(1, "localhost", 9092)]
    [topic] = answer.topics
    assert (topic.error_code, topic.name) == (0, "t")
    assert [(p.partition_index, p.leader_id, p.isr_nodes) for p in topic.partitions] == [
        (0, 1, [1]),
        (1, 1, [1]),
    ]


@pytest.mark.parametrize("version", range(1, 14))
def test_null_asks_for_all_topics_and_an_empty_list_for_none(client: Client, version: int) -> None:
    assert [topic.name for topic in client.ask(MetadataRequest(topics=None), version).topics] == ["t", "u"]
    assert client.ask(MetadataRequest(topics=[]), version).topics == []


def test_in_version_0_the_empty_list_asks_for_all_topics(client: Client) -> None:
    assert [topic.name for topic in client.ask(MetadataRequest(topics=[]), 0).topics] == ["t", "u"]


def test_a_topic_can_be_asked_for_by_its_id(stage: Stage, client: Client) -> None:
    wanted = MetadataRequestTopic(name=None, topic_id=stage.topic("u").id)
    [topic] = client.ask(MetadataRequest(topics=[wanted])).topics
    assert (topic.error_code, topic.name) == (0, "u")


def test_an_unknown_id_is_said_with_that_id(stage: Stage, client: Client) -> None:
    unknown = stage.random_id()
    [topic] = client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=unknown)])).topics
    assert (topic.error_code, topic.name, topic.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, None, unknown)


@pytest.mark.parametrize("version", [10, 11])
def test_versions_10_and_11_refuse_ids_although_they_have_the_field(
    stage: Stage, client: Client, version: int
) -> None:
    wanted = MetadataRequestTopic(name=None, topic_id=stage.topic("u").id)
    [topic] = client.ask(MetadataRequest(topics=[wanted]), version).topics
    assert (topic.error_code, topic.name) == (ErrorCode.INVALID_REQUEST, "")


def test_metadata_creates_a_topic_that_is_asked_for_by_name() -> None:
    stage = Stage(num_partitions=4)
    [topic] = stage.client().ask(named("new")).topics
    assert (topic.error_code, len(topic.partitions)) == (0, 4)
    assert topic.topic_id == stage.topic("new").id != NO_ID


def test_metadata_creates_nothing_when_the_client_forbids_it(stage: Stage, client: Client) -> None:
    [topic] = client.ask(named("new", create=False)).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert stage.broker.topics.named("new") is None


@pytest.mark.parametrize(("there", "name"), [("a.b", "a_b"), ("t", "__cluster_metadata")])
def test_metadata_creates_nothing_that_kafka_would_not(there: str, name: str) -> None:
    """Its controller refuses them, so they are unknown for ever."""
    stage = Stage({there: 1})
    [topic] = stage.client().ask(named(name)).topics
    assert (topic.error_code, topic.partitions) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])
    assert [one.name for one in stage.broker.topics] == [there]


def test_metadata_creates_nothing_when_the_setting_forbids_it() -> None:
    stage = Stage(auto_create_topics_enable="false")
    [topic] = stage.client().ask(named("new")).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ä", "x" * 250])
def test_a_bad_name_is_invalid_everywhere(client: Client, name: str) -> None:
    assert client.ask(named(name)).topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert created(client, name=name).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_operations_are_told_only_to_those_who_ask(client: Client) -> None:
    asked = client.ask(named("t", include_topic_authorized_operations=True)).topics[0]
    assert asked.topic_authorized_operations == 3576
    assert client.ask(named("t")).topics[0].topic_authorized_operations == -(2**31)


def creating(
    name: str = "new",
    count: int = 3,
    factor: int = 1,
    configs: dict[str, str | None] | None = None,
    assignments: list[list[int]] | None = None,
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=count,
        replication_factor=factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=ids)
            for index, ids in enumerate(assignments or [])
        ],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
    )


def created(client: Client, version: int = 7, validate: bool = False, **topic: Any) -> CreatableTopicResult:
    request = CreateTopicsRequest(topics=[creating(**topic)], validate_only=validate)
    [result] = client.ask(request, version).topics
    assert isinstance(result, CreatableTopicResult)
    return result


@pytest.mark.parametrize("version", range(2, 8))
def test_a_topic_is_created_in_every_version(stage: Stage, client: Client, version: int) -> None:
    assert created(client, version).error_code == 0
    assert len(stage.topic("new").partitions) == 3


def test_the_answer_says_what_the_new_topic_is_like(stage: Stage, client: Client) -> None:
    result = created(client, count=-1, factor=-1, configs={"retention.ms": "5"})
    assert (result.num_partitions, result.replication_factor) == (1, 1)
    assert result.topic_id == stage.topic("new").id
    configs = {config.name: (config.value, config.config_source) for config in result.configs or []}
    assert set(configs) == set(TOPIC_CONFIGS)
    assert configs["retention.ms"] == ("5", 1)
    assert configs["cleanup.policy"] == ("delete", 5)


def test_a_topic_that_is_only_validated_doesnt_come_to_be(stage: Stage, client: Client) -> None:
    assert created(client, validate=True).error_code == 0
    assert stage.broker.topics.named("new") is None


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        ({"name": "t"}, ErrorCode.TOPIC_ALREADY_EXISTS),
        ({"name": "one.two_three"}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"count": 0}, ErrorCode.INVALID_PARTITIONS),
        ({"count": -2}, ErrorCode.INVALID_PARTITIONS),
        ({"count": 10_000}, ErrorCode.POLICY_VIOLATION),  # and a record for the topic
        ({"count": 9_999, "configs": {"retention.ms": "5"}}, ErrorCode.POLICY_VIOLATION),
        ({"count": 2**31 - 1}, ErrorCode.POLICY_VIOLATION),
        ({"name": "__cluster_metadata"}, ErrorCode.INVALID_REQUEST),
        ({"factor": 2}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"configs": {"no.such.config": "1"}}, ErrorCode.INVALID_CONFIG),
        ({"configs": {"retention.ms": "soon"}}, ErrorCode.INVALID_CONFIG),
        ({"configs": {"retention.ms": None}}, ErrorCode.INVALID_CONFIG),
        ({"configs": {"message.timestamp.type": "Never"}}, ErrorCode.INVALID_CONFIG),
        ({"configs": {"max.message.bytes": "-1"}}, ErrorCode.INVALID_CONFIG),
        ({"configs": {"preallocate": "maybe"}}, ErrorCode.INVALID_CONFIG),
        ({"configs": {"min.cleanable.dirty.ratio": "2"}}, ErrorCode.INVALID_CONFIG),
        ({"configs": {"cleanup.policy": "shred"}}, ErrorCode.INVALID_CONFIG),
        (
            {"configs": {"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"}},
            ErrorCode.INVALID_CONFIG,
        ),
        ({"count": -1, "factor": -1, "assignments": [[1], [2]]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"count": 2, "factor": -1, "assignments": [[1], [1]]}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cant_be_created_is_refused_with_kafkas_code(
    stage: Stage, client: Client, topic: dict[str, Any], error: ErrorCode
) -> None:
    stage.step(CreateTopic("one_two.three", 1, stage.random_id()))
    result = created(client, **topic)
    assert result.error_code == error
    assert result.error_message
    assert len(stage.broker.topics) == 3


def test_names_that_are_alike_may_follow_each_other(stage: Stage, client: Client) -> None:
    assert created(client, name="a.b").error_code == 0
    deleted(client, 6, name="a.b")
    assert created(client, name="a_b").error_code == 0


def test_two_new_names_that_are_alike_collide_with_later_ones_alone(stage: Stage, client: Client) -> None:
    answer = client.ask(CreateTopicsRequest(topics=[creating("a.b"), creating("a_b")]))
    assert [result.error_code for result in answer.topics] == [0, 0]
    deleted(client, 6, name="a.b")
    assert created(client, name="a.b").error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_too_many_partitions_fail_all_topics_of_a_request(stage: Stage, client: Client) -> None:
    topics = [creating("one", count=5_000), creating("..", count=5_000), creating("two", count=1)]
    twice = [creating("twice", count=9_000)] * 2  # which count nothing, and are told of twice
    answer = client.ask(CreateTopicsRequest(topics=[*topics, *twice]))
    assert [result.error_code for result in answer.topics] == [ErrorCode.POLICY_VIOLATION] * 5
    assert len(stage.broker.topics) == 2
    answer = client.ask(CreateTopicsRequest(topics=[*topics[:2], *twice], validate_only=True))
    codes = [0, ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.INVALID_REQUEST]
    assert [result.error_code for result in answer.topics] == codes


def test_a_topic_grows_by_ten_thousand_partitions_at_once_and_by_no_more(
    stage: Stage, client: Client
) -> None:
    topics = [CreatePartitionsTopic(name="t", count=10_003, assignments=None)]
    answer = client.ask(CreatePartitionsRequest(topics=topics, timeout_ms=1_000, validate_only=False))
    assert answer.results[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert len(stage.topic("t").partitions) == 2
    topics[0].count = 10_002
    answer = client.ask(CreatePartitionsRequest(topics=topics, timeout_ms=1_000, validate_only=True))
    assert answer.results[0].error_code == 0


def test_a_manual_assignment_gives_the_number_of_partitions(stage: Stage, client: Client) -> None:
    assert created(client, count=-1, factor=-1, assignments=[[1], [1]]).error_code == 0
    assert len(stage.topic("new").partitions) == 2


def test_a_topic_twice_in_one_request_is_created_not_even_once(stage: Stage, client: Client) -> None:
    answer = client.ask(CreateTopicsRequest(topics=[creating(), creating()]))
    assert [result.error_code for result in answer.topics] == [ErrorCode.INVALID_REQUEST]
    assert stage.broker.topics.named("new") is None


def test_two_topics_of_one_request_have_different_ids(stage: Stage, client: Client) -> None:
    client.ask(CreateTopicsRequest(topics=[creating("one"), creating("two")]))
    assert stage.topic("one").id != stage.topic("two").id


def test_a_topics_own_config_counts_for_what_is_produced(stage: Stage, client: Client) -> None:
    created(client, configs={"message.timestamp.type": "LogAppendTime"})
    assert client.produce(batch_of(b"a"), "new").log_append_time_ms == stage.now
    assert client.produce(batch_of(b"a"), "t").log_append_time_ms == -1


def deleted(client: Client, version: int, **state: Any) -> int:
    request = DeleteTopicsRequest(timeout_ms=1)
    if version >= 6:
        request.topics = [DeleteTopicState(name=state.get("name"), topic_id=state.get("topic_id", NO_ID))]
    else:
        request.topic_names = [state["name"]]
    [result] = client.ask(request, version).responses
    code: int = result.error_code
    return code


@pytest.mark.parametrize("version", range(1, 7))
def test_a_topic_is_deleted_by_name_in_every_version(stage: Stage, client: Client, version: int) -> None:
    assert deleted(client, version, name="t") == 0
    assert [topic.name for topic in stage.broker.topics] == ["u"]


def test_a_topic_is_deleted_by_id(stage: Stage, client: Client) -> None:
    assert deleted(client, 6, topic_id=stage.topic("t").id) == 0
    assert [topic.name for topic in stage.broker.topics] == ["u"]


def test_what_is_not_there_cant_be_deleted(client: Client) -> None:
    assert deleted(client, 6, name="none") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert deleted(client, 6, topic_id=UUID(int=5)) == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize(
    "states",
    [
        [DeleteTopicState(name=None, topic_id=NO_ID)],
        [DeleteTopicState(name="t", topic_id=UUID(int=5))],
        [DeleteTopicState(name="t", topic_id=NO_ID)] * 2,
    ],
)
def test_a_deletion_that_is_not_clear_is_refused(
    stage: Stage, client: Client, states: list[DeleteTopicState]
) -> None:
    answer = client.ask(DeleteTopicsRequest(topics=states, timeout_ms=1))
    assert [result.error_code for result in answer.responses] == [ErrorCode.INVALID_REQUEST]
    assert len(stage.broker.topics) == 2


def test_deletion_can_be_disabled() -> None:
    client = Stage({"t": 1}, delete_topic_enable="false").client()
    assert deleted(client, 6, name="t") == ErrorCode.TOPIC_DELETION_DISABLED


def grown(client: Client, count: int, name: str = "t", added: list[list[int]] | None = None) -> int:
    assignments = None if added is None else [CreatePartitionsAssignment(broker_ids=ids) for ids in added]
    topic = CreatePartitionsTopic(name=name, count=count, assignments=assignments)
    answer = client.ask(CreatePartitionsRequest(topics=[topic], timeout_ms=1, validate_only=False))
    code: int = answer.results[0].error_code
    return code


def test_partitions_are_added(stage: Stage, client: Client) -> None:
    client.produce(batch_of(b"a"), partition=1)
    assert grown(client, 5) == 0
    assert [partition.log.end_offset for partition in stage.topic("t").partitions] == [0, 1, 0, 0, 0]


def test_partitions_are_never_taken_away(client: Client) -> None:
    assert [grown(client, count) for count in (2, 1, 0)] == [ErrorCode.INVALID_PARTITIONS] * 3


def test_an_unknown_topic_cant_grow(client: Client) -> None:
    assert grown(client, 5, "none") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_added_partitions_can_only_be_on_the_only_node(client: Client) -> None:
    assert grown(client, 3, added=[[1]]) == 0
    assert grown(client, 4, added=[[2]]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert grown(client, 4, added=[[1], [1]]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_the_operator_gets_config_errors() -> None:
    stage = Stage({"t": 2})
    for event in (
        CreateTopic("t", 1, stage.random_id()),
        CreateTopic("new", 0, stage.random_id()),
        CreateTopic("a b", 1, stage.random_id()),
        GrowTopic("t", 1),
        GrowTopic("none", 1),
        GrowTopic("t", 100_001),
    ):
        with pytest.raises(ConfigError):
            stage.step(event)
    assert len(stage.broker.topics) == 1


def configs_of(client: Client, kind: int, name: str, keys: list[str] | None = None) -> Any:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    [result] = client.ask(DescribeConfigsRequest(resources=[resource])).results
    return result


def test_a_topics_configs_are_described(client: Client) -> None:
    result = configs_of(client, 2, "t")
    assert result.error_code == 0
    assert {config.name: config.value for config in result.configs} == {
        name: config.default for name, config in TOPIC_CONFIGS.items()
    }


def test_only_the_configs_that_were_asked_for_are_described(client: Client) -> None:
    assert [config.name for config in configs_of(client, 2, "t", ["retention.ms", "none"]).configs] == [
        "retention.ms"
    ]


def test_a_topic_inherits_what_the_broker_was_told() -> None:
    client = Stage({"t": 1}, message_max_bytes=7000).client()
    [config] = configs_of(client, 2, "t", ["max.message.bytes"]).configs
    assert (config.value, config.config_source) == ("7000", 4)


def test_the_brokers_settings_are_described(client: Client) -> None:
    described = {config.name: config.value for config in configs_of(client, 4, "1").configs}
    assert described["auto.create.topics.enable"] == "true"
    assert described["group.min.session.timeout.ms"] == "6000"


def test_what_is_not_there_cant_be_described(client: Client) -> None:
    assert configs_of(client, 2, "none").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert configs_of(client, 4, "7").error_code == ErrorCode.INVALID_REQUEST
    assert configs_of(client, 99, "").error_code == ErrorCode.INVALID_REQUEST


def test_an_empty_list_asks_for_all_configs(client: Client) -> None:
    resource = DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=[])
    answer = client.ask(DescribeConfigsRequest(resources=[resource]))
    assert len(answer.results[0].configs) == len(TOPIC_CONFIGS)


def test_the_cluster_is_described(client: Client) -> None:
    answer = client.ask(DescribeClusterRequest(include_cluster_authorized_operations=False))
    assert (answer.error_code, answer.controller_id, answer.cluster_id) == (0, 1, "kproto-embedded-broker")
    assert [(node.broker_id, node.port) for node in answer.brokers] == [(1, 9092)]


def pages(client: Client, names: list[str], limit: int) -> list[list[tuple[str, list[int]]]]:
    """All pages of DescribeTopicPartitions: topics with their partitions."""
    cursor, found = None, []
    while True:
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in names], response_partition_limit=limit, cursor=cursor
        )
        answer = client.ask(request)
        found.append([(t.name, [p.partition_index for p in t.partitions]) for t in answer.topics])
        if answer.next_cursor is None:
            return found
        where = answer.next_cursor
        cursor = DescribeTopicPartitionsRequestCursor(
            topic_name=where.topic_name, partition_index=where.partition_index
        )


def test_topics_are_described_page_by_page() -> None:
    client = Stage({"b": 3, "a": 2}).client()
    assert pages(client, [], 2000) == [[("a", [0, 1]), ("b", [0, 1, 2])]]
    assert pages(client, ["b", "a"], 2) == [[("a", [0, 1])], [("b", [0, 1])], [("b", [2])]]
    assert pages(client, ["b"], 3) == [[("b", [0, 1, 2])]]

"""Requests that no correct client sends are answered as Kafka answers them.

`tests/conformance/test_boundary_requests_like_kafka.py` compares the responses to further invalid requests
with a real Kafka's responses.
"""

from __future__ import annotations

from typing import Any

import pytest

from kproto.broker.topics import NO_ID
from kproto.error_codes import ErrorCode as E
from kproto.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kproto.messages.create_acls import AclCreation, CreateAclsRequest
from kproto.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kproto.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from kproto.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kproto.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kproto.messages.describe_acls import DescribeAclsRequest
from kproto.messages.describe_cluster import DescribeClusterRequest
from kproto.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kproto.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from kproto.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kproto.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kproto.messages.metadata import MetadataRequest, MetadataRequestTopic
from kproto.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kproto.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kproto.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.stage import Client, Stage, batch_of, fetch_request, fetch_topic, partitions_of, values_of


@pytest.fixture
def stage() -> Stage:
    return Stage({"t": 2, "e": 1})


@pytest.fixture
def client(stage: Stage) -> Client:
    client = stage.client()
    client.produce(batch_of(b"a", b"b"))
    client.produce(batch_of(b"c"))
    return client


@pytest.mark.parametrize("field", ["all", "partition"])
def test_a_negative_limit_is_an_error_if_there_are_records(client: Client, field: str) -> None:
    least = {"max_bytes": -1} if field == "partition" else {}
    request = fetch_request(fetch_topic(**least), wait=0, max_bytes=-1 if field == "all" else 1 << 20)
    (data,) = partitions_of(client.fetch(request))
    assert (data.error_code, data.high_watermark) == (E.UNKNOWN_SERVER_ERROR, -1)
    end = fetch_request(fetch_topic(3, **least), wait=0, max_bytes=request.max_bytes)
    assert [data.error_code for data in partitions_of(client.fetch(end))] == [0]


def test_a_limit_of_0_bytes_returns_the_first_batch(client: Client) -> None:
    (data,) = partitions_of(client.fetch(fetch_request(fetch_topic(max_bytes=0), wait=0, max_bytes=0)))
    assert values_of(data) == [b"a", b"b"]


def test_a_negative_limit_affects_only_the_first_partition(client: Client) -> None:
    first, second = partitions_of(
        client.fetch(fetch_request(fetch_topic(partition=1), fetch_topic(), wait=0, max_bytes=-5))
    )
    assert (first.error_code, second.error_code, values_of(second)) == (0, 0, [b"a", b"b"])


def test_min_bytes_is_limited_by_max_bytes(client: Client) -> None:
    request = fetch_request(fetch_topic(), wait=10_000, min_bytes=1 << 30, max_bytes=10)
    assert values_of(partitions_of(client.fetch(request))[0]) == [b"a", b"b"]


@pytest.mark.parametrize("version", [4, 12, 13, 18])
def test_an_unknown_isolation_level_is_an_error(stage: Stage, client: Client, version: int) -> None:
    topic = fetch_topic(topic="t", topic_id=stage.topic("t").id)
    answer = client.fetch(fetch_request(topic, wait=0, isolation=7), version)
    codes = [data.error_code for data in partitions_of(answer)]
    assert codes == ([E.UNKNOWN_SERVER_ERROR] if version < 13 else [])
    assert version < 7 or answer.error_code == E.UNKNOWN_SERVER_ERROR
    listed = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=7,
        topics=[
            ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
        ],
    )
    assert client.ask(listed, 6).topics[0].partitions[0].error_code == E.UNKNOWN_SERVER_ERROR


def test_fetch_ignores_a_leader_epoch_below_minus_1(client: Client) -> None:
    (data,) = partitions_of(client.fetch(fetch_request(fetch_topic(epoch=-2), wait=0)))
    assert data.error_code == 0


def delete_records_request(*offsets: int) -> DeleteRecordsRequest:
    wanted = [DeleteRecordsPartition(partition_index=0, offset=offset) for offset in offsets]
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=wanted)], timeout_ms=1)


def test_the_latest_record_is_found_before_the_log_start(client: Client) -> None:
    client.ask(delete_records_request(2))
    latest = client.list_offsets(-3)
    assert (latest.offset, latest.timestamp) == (1, 1001)
    client.ask(delete_records_request(-1))
    assert client.list_offsets(-3).offset == 1


def test_a_truncated_latest_record_is_not_found(stage: Stage, client: Client) -> None:
    log = stage.log("t")
    client.produce(batch_of(b"late", timestamps=[9000]))
    assert client.list_offsets(-3).offset == 3
    log.truncate(3)
    assert client.list_offsets(-3).offset == 1
    log.truncate(0)
    assert client.list_offsets(-3).offset == -1


def test_the_last_of_duplicate_partitions_is_used(stage: Stage, client: Client) -> None:
    answer = client.ask(delete_records_request(3, 1))
    assert [
        (partition.partition_index, partition.low_watermark) for partition in answer.topics[0].partitions
    ] == [(0, 1)]
    parts = [PartitionProduceData(index=0, records=batch_of(value)) for value in (b"x", b"y")]
    data = [TopicProduceData(name="t", partition_data=[part]) for part in parts]
    (topic_response,) = client.ask(ProduceRequest(acks=-1, timeout_ms=1, topic_data=data), 9).responses
    assert [response.base_offset for response in topic_response.partition_responses] == [3]
    assert stage.log("t").end_offset == 4


def test_list_offsets_answers_duplicate_partitions_once(client: Client) -> None:
    topic = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
    (topic_response,) = client.ask(ListOffsetsRequest(replica_id=-1, topics=[topic, topic]), 6).topics
    assert [part.error_code for part in topic_response.partitions] == [E.INVALID_REQUEST]


def test_duplicate_topics_are_described_once_and_by_id_if_there_is_one(stage: Stage, client: Client) -> None:
    by_name = MetadataRequestTopic(name="t")
    by_id = MetadataRequestTopic(name="ignored", topic_id=stage.topic("e").id)
    unknown = MetadataRequestTopic(name="t", topic_id=stage.random_id())

    def ask(*topics: MetadataRequestTopic) -> Any:
        response = client.ask(MetadataRequest(topics=list(topics), allow_auto_topic_creation=False), 12)
        return [(topic.name, topic.error_code) for topic in response.topics]

    assert ask(by_name, by_name) == [("t", 0)]
    assert ask(by_name, by_id, by_id) == [("e", 0)]
    assert ask(unknown) == [(None, E.UNKNOWN_TOPIC_ID)]


def test_a_missing_topic_has_authorized_operations(client: Client) -> None:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in ("none", "a b")],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )
    assert [topic.topic_authorized_operations for topic in client.ask(request, 12).topics] == [3576, 3576]


def commit_request(*places: tuple[str, int]) -> OffsetCommitRequest:
    topics = [
        OffsetCommitRequestTopic(
            name=name,
            partitions=[
                OffsetCommitRequestPartition(
                    partition_index=index, committed_offset=1, committed_metadata=None
                )
            ],
        )
        for name, index in places
    ]
    return OffsetCommitRequest(group_id="g", member_id="", topics=topics)


def test_commit_responses_list_unknown_partitions_first(client: Client) -> None:
    def ask(*places: tuple[str, int]) -> Any:
        topics = client.ask(commit_request(*places), 8).topics
        return [
            (topic.name, [(p.partition_index, p.error_code) for p in topic.partitions]) for topic in topics
        ]

    missing = E.UNKNOWN_TOPIC_OR_PARTITION
    assert ask(("t", 0), ("t", 9), ("t", 1)) == [("t", [(9, missing), (0, 0), (1, 0)])]
    assert ask(("t", 0), ("t", 1)) == [("t", [(0, 0)]), ("t", [(1, 0)])]


def test_an_unknown_group_is_reported_before_unknown_partitions(client: Client) -> None:
    topic = OffsetDeleteRequestTopic(name="no", partitions=[OffsetDeleteRequestPartition(partition_index=0)])
    for group, code in (("g", E.GROUP_ID_NOT_FOUND), ("", E.INVALID_GROUP_ID)):
        response = client.ask(OffsetDeleteRequest(group_id=group, topics=[topic]))
        assert (response.error_code, response.topics) == (code, [])


def test_a_topic_named_by_name_and_id_is_not_deleted(stage: Stage, client: Client) -> None:
    topic = stage.topic("t")
    states = [DeleteTopicState(name="t", topic_id=NO_ID), DeleteTopicState(name=None, topic_id=topic.id)]
    answer = client.ask(DeleteTopicsRequest(topics=states, timeout_ms=1))
    assert [(response.name, response.topic_id, response.error_code) for response in answer.responses] == [
        ("t", topic.id, E.INVALID_REQUEST)
    ]
    assert stage.broker.topics.named("t") is topic
    in_one = DeleteTopicState(name="t", topic_id=topic.id)
    answer = client.ask(DeleteTopicsRequest(topics=[in_one, in_one], timeout_ms=1))
    assert [response.error_code for response in answer.responses] == [E.INVALID_REQUEST] * 2


def create_topics_request(
    partitions: int, factor: int, *configs: tuple[str, str | None]
) -> CreateTopicsRequest:
    topic = CreatableTopic(
        name="new",
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[],
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in configs],
    )
    return CreateTopicsRequest(topics=[topic], validate_only=True)


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (create_topics_request(0, 0, ("no.such", "1")), E.INVALID_CONFIG),
        # A config without a value is rejected even if the request repeats it with a value.
        (
            create_topics_request(1, 2, ("cleanup.policy", None), ("cleanup.policy", "compact")),
            E.INVALID_CONFIG,
        ),
        (create_topics_request(0, 0), E.INVALID_REPLICATION_FACTOR),
        (create_topics_request(0, 2), E.INVALID_PARTITIONS),
        (create_topics_request(1, 2), E.INVALID_REPLICATION_FACTOR),
        (create_topics_request(1, 1, ("cleanup.policy", "shred"), ("cleanup.policy", "delete")), E.NONE),
    ],
)
def test_faults_of_a_topic_are_reported_in_kafkas_order(
    client: Client, request_: CreateTopicsRequest, code: E
) -> None:
    assert client.ask(request_).topics[0].error_code == code


def config_changes(name: str, *changes: tuple[str, int, str]) -> AlterConfigsResource:
    configs = [
        AlterableConfig(name=config, config_operation=op, value=value) for config, op, value in changes
    ]
    return AlterConfigsResource(resource_type=2, resource_name=name, configs=configs)


def alter_configs(client: Client, *resources: AlterConfigsResource) -> list[int]:
    answer = client.ask(IncrementalAlterConfigsRequest(resources=list(resources), validate_only=False))
    return [response.error_code for response in answer.responses]


def test_faults_of_a_config_change_are_reported_in_kafkas_order(client: Client) -> None:
    assert alter_configs(client, config_changes("no", ("retention.ms", 0, "soon"))) == [E.INVALID_CONFIG]
    assert alter_configs(client, config_changes("no", ("retention.ms", 0, "5"))) == [
        E.UNKNOWN_TOPIC_OR_PARTITION
    ]
    assert alter_configs(client, config_changes("a b", ("retention.ms", 0, "soon"))) == [
        E.INVALID_TOPIC_EXCEPTION
    ]
    assert alter_configs(client, config_changes("a b", ("retention.ms", 2, "5"))) == [E.INVALID_CONFIG]
    assert alter_configs(client, config_changes("", ("retention.ms", 0, "5"))) == [E.INVALID_REQUEST]


def test_an_unknown_operation_fails_the_whole_request(stage: Stage, client: Client) -> None:
    fine, odd = config_changes("t", ("retention.ms", 0, "5")), config_changes("e", ("retention.ms", 9, "5"))
    assert alter_configs(client, fine, odd) == [E.UNKNOWN_SERVER_ERROR] * 2
    assert stage.topic("t").configs == {}


def test_configs_are_described_as_kafka_parses_them(client: Client) -> None:
    configs = {"min.cleanable.dirty.ratio": " 1d ", "retention.ms": "+5", "preallocate": "TRUE"}
    configs["cleanup.policy"] = "compact , delete,compact"
    assert alter_configs(
        client, config_changes("t", *((name, 0, value) for name, value in configs.items()))
    ) == [0]
    resource = DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=list(configs))
    (result,) = client.ask(DescribeConfigsRequest(resources=[resource])).results
    assert {config.name: config.value for config in result.configs} == {
        "min.cleanable.dirty.ratio": "1.0",
        "retention.ms": "5",
        "preallocate": "true",
        "cleanup.policy": "compact,delete",
    }


def test_an_unknown_resource_type_fails_describe_configs(client: Client) -> None:
    resources = [
        DescribeConfigsResource(resource_type=kind, resource_name="t", configuration_keys=None)
        for kind in (2, 3)
    ]
    response = client.ask(DescribeConfigsRequest(resources=resources))
    assert [result.error_code for result in response.results] == [E.INVALID_REQUEST] * 2


def test_endpoints_that_are_neither_brokers_nor_controllers_are_not_supported(client: Client) -> None:
    requests = [
        DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=n) for n in (2, 3)
    ]
    codes = [client.ask(entry).error_code for entry in requests]
    assert codes == [E.MISMATCHED_ENDPOINT_TYPE, E.UNSUPPORTED_ENDPOINT_TYPE]


def test_an_empty_topic_name_fails_describe_topic_partitions(client: Client) -> None:
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=""), TopicRequest(name="t")])
    assert [topic.error_code for topic in client.ask(request).topics] == [E.UNKNOWN_SERVER_ERROR] * 2


def test_an_epoch_before_all_known_ones_ended_where_the_first_started(stage: Stage) -> None:
    assert stage.log("t").epoch_end(-2) == (-2, 0)
    assert stage.log("t").epoch_end(-1) == (-1, -1)


ACL = {"operation": 3, "permission_type": 3}
FILTER = {
    "resource_type_filter": 2,
    "resource_name_filter": None,
    "principal_filter": None,
    "host_filter": None,
}


@pytest.mark.parametrize("odd", [0, 99])
def test_acls_with_unknown_close_the_connection_but_other_numbers_do_not(stage: Stage, odd: int) -> None:
    acl = {**ACL, "operation": odd}
    creation = AclCreation(resource_type=2, resource_name="t", principal="User:a", host="*", **acl)
    for request in (
        DescribeAclsRequest(**FILTER, **acl),  # type: ignore[arg-type]
        CreateAclsRequest(creations=[creation]),
        DeleteAclsRequest(filters=[DeleteAclsFilter(**FILTER, **acl)]),  # type: ignore[arg-type]
    ):
        client = stage.client()
        client.send(request)
        assert (client.conn in stage.closed) == (odd == 0)


def scram_request(*changes: Any) -> AlterUserScramCredentialsRequest:
    return AlterUserScramCredentialsRequest(
        deletions=[change for change in changes if isinstance(change, ScramCredentialDeletion)],
        upsertions=[change for change in changes if isinstance(change, ScramCredentialUpsertion)],
    )


def scram_credential(mechanism: int, password: bytes = b"p" * 32) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name="u", mechanism=mechanism, iterations=4096, salt=b"salt", salted_password=password
    )


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (scram_request(scram_credential(1), scram_credential(2)), E.DUPLICATE_RESOURCE),
        (scram_request(scram_credential(1), scram_credential(9)), E.DUPLICATE_RESOURCE),
        (
            scram_request(ScramCredentialDeletion(name="u", mechanism=1), scram_credential(2)),
            E.RESOURCE_NOT_FOUND,
        ),
        (
            scram_request(ScramCredentialDeletion(name="u", mechanism=9), scram_credential(2)),
            E.UNSUPPORTED_SASL_MECHANISM,
        ),
        (scram_request(scram_credential(1, b"")), E.UNKNOWN_SERVER_ERROR),
        (scram_request(scram_credential(1, b""), scram_credential(2)), E.DUPLICATE_RESOURCE),
    ],
)
def test_a_duplicate_change_of_credentials_is_refused(
    client: Client, request_: AlterUserScramCredentialsRequest, code: E
) -> None:
    (result,) = client.ask(request_).results
    assert result.error_code == code


def test_batches_with_impossible_headers_are_refused(stage: Stage, client: Client) -> None:
    producer = {"producer_id": 7, "producer_epoch": 0}
    shifted = batch_of(b"a", base_offset=0)
    shifted = (5).to_bytes(8, "big") + shifted[8:]
    for batch, code, start in (
        (shifted, E.INVALID_RECORD, 0),
        (batch_of(b"a", base_sequence=-1, **producer), E.INVALID_RECORD, 0),
        (batch_of(b"a", is_transactional=True), E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1),
        (b"\0" * 61, E.CORRUPT_MESSAGE, -1),
        (batch_of(b"a")[:16] + b"\1" + batch_of(b"a")[17:], E.INVALID_RECORD, -1),
    ):
        response = client.produce(batch, version=9)
        assert (response.error_code, response.log_start_offset) == (code, start)
    assert stage.log("t").end_offset == 3


def test_an_unreadable_batch_header_fails_the_whole_request(client: Client) -> None:
    parts = [
        PartitionProduceData(index=0, records=batch_of(b"a")),
        PartitionProduceData(index=1, records=b"\0" * 61),
    ]
    data = TopicProduceData(name="t", partition_data=parts)
    (topic_response,) = client.ask(ProduceRequest(acks=-1, timeout_ms=1, topic_data=[data]), 9).responses
    assert [response.error_code for response in topic_response.partition_responses] == [E.CORRUPT_MESSAGE] * 2


@pytest.mark.parametrize("tail", [b"\0", b"\0" * 8 + b"\0\0\0\x50", batch_of(b"b")[:-1]])
def test_a_truncated_second_batch_is_ignored(stage: Stage, client: Client, tail: bytes) -> None:
    assert client.produce(batch_of(b"a") + tail).error_code == 0
    assert stage.log("t").end_offset == 4
    assert stage.log("t").read(3, 1 << 20, at_least_one=True)[0][-1:] == batch_of(b"a")[-1:]


def test_a_producer_without_an_epoch_may_continue_at_any_sequence(client: Client) -> None:
    first = batch_of(b"a", producer_id=7, producer_epoch=-1, base_sequence=5)
    second = batch_of(b"a", producer_id=7, producer_epoch=0, base_sequence=3)
    assert [client.produce(batch).error_code for batch in (first, second)] == [0, 0]

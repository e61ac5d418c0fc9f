"""Plans, the generators that yield the requests of admin calls, with prepared responses.

A plan repeats a request whose response lacks a result, or was lost. The repeated request counts as successful
if its error shows that the first attempt took effect: TOPIC_ALREADY_EXISTS after a create, for example.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from consumer import Admin, TopicPartition
from consumer.engine.admin import cluster as cluster_plans
from consumer.engine.admin import groups as group_plans
from consumer.engine.admin import offsets as offset_plans
from consumer.engine.admin import records as record_plans
from consumer.engine.admin import topics as topic_plans
from consumer.engine.admin.plan import Plan
from consumer.engine.admin.records import FetchedBytes, OffsetAt
from consumer.engine.metadata.cluster import ClusterView, TopicView
from kproto.broker.server import running
from kproto.error_codes import ErrorCode
from kproto.errors import (
    BrokerError,
    ConnectionFailed,
    KprotoError,
    NotAuthorized,
    PartialFailure,
    UnsupportedVersion,
)
from kproto.messages.consumer_group_describe import ConsumerGroupDescribeResponse
from kproto.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from kproto.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from kproto.messages.describe_groups import DescribedGroup, DescribeGroupsResponse
from kproto.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from kproto.messages.list_groups import ListGroupsRequest
from kproto.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kproto.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kproto.messages.offset_commit import OffsetCommitResponse
from kproto.messages.offset_fetch import OffsetFetchResponse, OffsetFetchResponseGroup
from kproto.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from kproto.wire.message import Message
from tests.consumer.engine.admin.stage import CLUSTER, CONNECTION_LOST, COORDINATOR, P0, clock, known, play


def test_a_commit_response_without_a_partition_is_retried() -> None:
    plan = offset_plans.commit_offsets(known(), "g", {P0: (5, None, "")}, clock)
    result, log = play(plan, COORDINATOR, OffsetCommitResponse(topics=[]))
    assert result == "resting"
    assert log[-1] == "the response to OffsetCommit does not contain t-0"


def test_an_offset_fetch_response_without_a_partition_is_retried() -> None:
    plan = offset_plans.committed_offsets(known(), "g", [P0], clock)
    empty = OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=[], error_code=0)])
    result, log = play(plan, COORDINATOR, empty)
    assert result == "resting"
    assert log[-1] == "the response to OffsetFetch does not contain t-0"


@pytest.mark.parametrize(
    ("code", "found_again"),
    [(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, []), (ErrorCode.NOT_COORDINATOR, [COORDINATOR])],
)
def test_the_coordinator_is_looked_up_again_only_after_not_coordinator(
    code: ErrorCode, found_again: list[Message]
) -> None:
    """After COORDINATOR_LOAD_IN_PROGRESS the plan sends the request to the same coordinator again.

    After NOT_COORDINATOR the plan first looks the coordinator up, as in Java.
    """
    plan = offset_plans.committed_offsets(known(), "g", [P0], clock)
    response = OffsetFetchResponse(
        groups=[OffsetFetchResponseGroup(group_id="g", topics=[], error_code=code)]
    )
    _, log = play(plan, COORDINATOR, response, *found_again, response)
    assert log.count("FindCoordinator") == 1 + len(found_again)
    assert log.count("OffsetFetch") == 2


def test_a_produce_response_without_the_partition_raises() -> None:
    plan = record_plans.produce(known(), P0, b"", clock, acks=-1, timeout_ms=1000)
    with pytest.raises(BrokerError, match="the broker's response does not contain t-0"):
        play(plan, ProduceResponse(responses=[]))


@pytest.mark.parametrize("codes", [(19, 0), (0, 19)])
def test_a_produce_response_with_two_results_raises(codes: tuple[int, int]) -> None:
    plan = record_plans.produce(known(), P0, b"", clock, acks=-1, timeout_ms=1000)
    results = [PartitionProduceResponse(index=0, error_code=code, base_offset=5) for code in codes]
    answer = ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=results)])
    with pytest.raises(BrokerError, match="the broker's response does not contain t-0"):
        play(plan, answer)


def fetch_result(*topics: FetchableTopicResponse, lent: bool = False) -> FetchedBytes:
    plan = record_plans.fetch(
        known(),
        {P0: 0},
        clock,
        isolation="read_uncommitted",
        max_wait_ms=1,
        min_bytes=1,
        max_bytes=1,
        partition_max_bytes=1,
        lent=lent,
    )
    result, _ = play(plan, FetchResponse(throttle_time_ms=0, responses=list(topics)))
    return cast(FetchedBytes, result[P0])


def test_a_fetch_response_without_a_partition_is_an_error_in_its_result() -> None:
    assert fetch_result().error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_fetched_records_are_copied_unless_they_are_lent() -> None:
    answer = bytearray(b"the records of an answer")
    records = memoryview(answer)[4:11]
    row = PartitionData(
        partition_index=0, error_code=0, high_watermark=1, aborted_transactions=None, records=records
    )
    topic = FetchableTopicResponse(topic="t", partitions=[row])
    copied, lent = fetch_result(topic).records, fetch_result(topic, lent=True).records
    assert isinstance(copied, bytes)
    assert isinstance(lent, memoryview)
    assert lent.obj is answer
    assert copied == lent == b"records"


def delete_response(code: int) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        throttle_time_ms=0, responses=[DeletableTopicResult(name="t", error_code=code)]
    )


def create_response(code: int) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        throttle_time_ms=0, topics=[CreatableTopicResult(name="t", error_code=code, error_message=None)]
    )


def create_plan(view: ClusterView, *, exist_ok: bool = False, count: int = 1) -> Plan[None]:
    return topic_plans.create_topics(
        view, {"t": count}, clock, replication_factor=1, configs={}, timeout_ms=1000, exist_ok=exist_ok
    )


def test_a_delete_is_sent_to_the_next_controller() -> None:
    result, log = play(
        topic_plans.delete_topics(known(), ["t"], clock, timeout_ms=1000),
        delete_response(41),
        CLUSTER,
        delete_response(0),
    )
    assert result is None
    assert log == [
        "DeleteTopics",
        "DeleteTopics for topic 't' was answered with NOT_CONTROLLER",
        "Metadata",
        "DeleteTopics",
    ]


UNKNOWN_TOPIC, TOPIC_EXISTS = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_ALREADY_EXISTS


def test_a_repeated_delete_may_find_no_topic() -> None:
    view = known()
    plan = topic_plans.delete_topics(view, ["t"], clock, timeout_ms=1000)
    assert play(plan, CONNECTION_LOST, CLUSTER, delete_response(UNKNOWN_TOPIC))[0] is None
    assert "t" not in view.topics


def test_a_delete_of_an_unknown_topic_raises() -> None:
    with pytest.raises(BrokerError, match="topic 't'"):
        play(
            topic_plans.delete_topics(known(), ["t"], clock, timeout_ms=1000), delete_response(UNKNOWN_TOPIC)
        )


def test_a_repeated_create_may_find_the_topic() -> None:
    assert (
        play(create_plan(known()), CONNECTION_LOST, CLUSTER, create_response(TOPIC_EXISTS), CLUSTER)[0]
        is None
    )


def test_a_create_of_an_existing_topic_raises_without_exist_ok() -> None:
    with pytest.raises(BrokerError, match="topic 't'"):
        play(create_plan(known()), create_response(TOPIC_EXISTS))
    assert play(create_plan(known(), exist_ok=True), create_response(TOPIC_EXISTS), CLUSTER)[0] is None


def test_an_existing_topic_with_fewer_partitions_raises_after_a_second_request() -> None:
    with pytest.raises(
        BrokerError, match=r"topic 't' has 1 partitions instead of 5; create_partitions\(\) adds"
    ):
        play(create_plan(known(), exist_ok=True, count=5), create_response(TOPIC_EXISTS), CLUSTER, CLUSTER)


def test_a_cached_authorization_error_is_checked_again() -> None:
    """A plan does not rely on a cached authorization error: it requests the metadata again.

    The permission may have been granted after the response whose error was cached.
    """
    view = known()
    view.topics["t"] = TopicView("t", None, False, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert play(cluster_plans.leader_of(view, P0, clock), CLUSTER) == (1, ["Metadata"])
    view.topics["t"] = TopicView("t", None, False, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    denied = MetadataResponse(
        brokers=CLUSTER.brokers,
        topics=[MetadataResponseTopic(error_code=29, name="t", partitions=[])],
    )
    with pytest.raises(NotAuthorized, match="topic 't'"):
        play(cluster_plans.leader_of(view, P0, clock), denied, denied)


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (DeleteTopicsResponse(throttle_time_ms=0, responses=[]), 0),
        (DeleteTopicsResponse(throttle_time_ms=0, responses=[]), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (
            DeleteTopicsResponse(
                throttle_time_ms=0, responses=[DeletableTopicResult(name="other", error_code=29)]
            ),
            0,
        ),
    ],
)
def test_a_delete_response_without_the_topic_is_retried(answer: DeleteTopicsResponse, code: int) -> None:
    """A DeleteTopics request is sent again if its response does not contain the topic.

    UNKNOWN_TOPIC_OR_PARTITION in the second response counts as success, because the first request may have
    deleted the topic.
    """
    plan = topic_plans.delete_topics(known(), ["t"], clock, timeout_ms=1000)
    assert play(plan, answer, delete_response(code)) == (
        None,
        ["DeleteTopics", "the response to DeleteTopics does not contain topic 't'", "DeleteTopics"],
    )


def test_a_create_response_without_the_topic_is_retried() -> None:
    empty = CreateTopicsResponse(throttle_time_ms=0, topics=[])
    assert play(create_plan(known()), empty, create_response(TOPIC_EXISTS), CLUSTER)[0] is None


def list_offsets_response(*offsets: int, topic: str = "t") -> ListOffsetsResponse:
    parts = [
        ListOffsetsPartitionResponse(partition_index=index, error_code=0, offset=offset)
        for index, offset in enumerate(offsets)
    ]
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=topic, partitions=parts)])


@pytest.mark.parametrize("place", ["latest", "earliest"])
@pytest.mark.parametrize(
    "answer", [list_offsets_response(-1), list_offsets_response(), list_offsets_response(5, topic="other")]
)
def test_a_list_offsets_response_without_the_offset_is_retried(
    answer: ListOffsetsResponse, place: str
) -> None:
    """A request is sent again if its response lacks the requested offset. Regression: the lag seemed to be
    zero.
    """
    plan = record_plans.list_offsets(
        known(), {P0: place}, clock, isolation="read_uncommitted", timeout_ms=1000
    )
    offsets, log = play(plan, answer, list_offsets_response(5))
    assert offsets == {P0: OffsetAt(5, None, None)}
    assert log == ["ListOffsets", "the response to ListOffsets does not contain t-0", "ListOffsets"]


def test_a_list_offsets_response_with_two_offsets_is_retried() -> None:
    ambiguous = list_offsets_response(7, 0)
    ambiguous.topics[0].partitions[1].partition_index = 0
    plan = record_plans.list_offsets(
        known(), {P0: "earliest"}, clock, isolation="read_uncommitted", timeout_ms=1000
    )
    assert play(plan, ambiguous, list_offsets_response(5))[0] == {P0: OffsetAt(5, None, None)}


def test_a_timestamp_behind_all_records_has_no_offset() -> None:
    plan = record_plans.list_offsets(known(), {P0: 7}, clock, isolation="read_uncommitted", timeout_ms=1000)
    assert play(plan, list_offsets_response(-1))[0] == {P0: OffsetAt(None, None, None)}


def test_a_group_missing_in_the_response_is_not_dead() -> None:
    dead = DescribedGroup(
        error_code=0, group_id="g", group_state="Dead", protocol_type="", protocol_data="", members=[]
    )
    empty = ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=[])
    result, log = play(
        group_plans.group(known(), "g", clock),
        COORDINATOR,
        DescribeGroupsResponse(groups=[dead]),
        COORDINATOR,
        empty,
    )
    assert result == "resting"
    assert log[-1] == "the response to ConsumerGroupDescribe does not contain group 'g'"


def test_a_lost_leader_is_looked_up_before_the_next_batch() -> None:
    view = known()
    with pytest.raises(ConnectionFailed):
        play(record_plans.produce(view, P0, b"", clock, acks=-1, timeout_ms=1000), CONNECTION_LOST)
    with pytest.raises(ConnectionFailed):
        play(record_plans.produce(view, P0, b"", clock, acks=-1, timeout_ms=1000), CLUSTER, CONNECTION_LOST)


@pytest.mark.parametrize("route", [1, ("leader", "t", 0)])
def test_a_lost_broker_is_looked_up_before_the_next_request(route: Any) -> None:
    """After a broken connection the plan refreshes the metadata before the next request.

    A broker whose connection broke may no longer be the partition's leader, or may have a new address.
    """
    view = known()
    first = [] if isinstance(route, int) else [CLUSTER]
    with pytest.raises(ConnectionFailed):
        play(cluster_plans.request(view, ListGroupsRequest(), route, clock), *first, CONNECTION_LOST)
    with pytest.raises(ConnectionFailed):
        play(cluster_plans.request(view, ListGroupsRequest(), route, clock), CLUSTER, CONNECTION_LOST)


def test_the_leader_is_looked_up_each_time() -> None:
    """The plan looks up the leader before each request.

    Brokers do not announce elections. The plan does not repeat a request after an error, but returns the
    error response to the caller. So only a lookup before the request finds a new leader.
    """
    view = known()
    partition = MetadataResponsePartition(
        error_code=0, partition_index=0, leader_id=2, replica_nodes=[1, 2], isr_nodes=[]
    )
    elected = MetadataResponse(
        brokers=[*CLUSTER.brokers, MetadataResponseBroker(node_id=2, host="another", port=9092)],
        topics=[MetadataResponseTopic(error_code=0, name="t", partitions=[partition])],
    )
    assert play(cluster_plans.leader_of(view, P0, clock), elected) == (2, ["Metadata"])


T0 = TopicPartition("t", 0)
# A value is (call, API name, the API's last version without the feature, words that the error contains). The
# words name what is required.
TOO_OLD: dict[str, tuple[Callable[[Admin], object], str, int, str]] = {
    "states": (lambda a: a.list_groups(states=["Stable"]), "ListGroups", 3, "4 and higher (Kafka 2.6"),
    "types": (lambda a: a.list_groups(types=["classic"]), "ListGroups", 4, "5 and higher (Kafka 3.8"),
    "fenced brokers": (
        lambda a: a.describe_cluster(include_fenced_brokers=True),
        "DescribeCluster",
        1,
        "2 and higher (Kafka 4.0",
    ),
    "unclean": (lambda a: a.elect_leaders("unclean", [T0]), "ElectLeaders", 0, "1 and higher (Kafka 2.4"),
}


@pytest.mark.parametrize("call", TOO_OLD)
def test_a_feature_that_the_broker_is_too_old_for_raises_unsupported_version(call: str) -> None:
    """The error names the API version that added the feature, and the first Kafka that has this version."""
    function, api, last, words = TOO_OLD[call]
    with (
        running({"t": 1}, highest={api: last}) as server,
        Admin(server.bootstrap) as admin,
        pytest.raises(KprotoError) as raised,
    ):
        function(admin)
    error = raised.value
    [cause] = error.failed.values() if isinstance(error, PartialFailure) else [error]
    assert isinstance(cause, UnsupportedVersion)
    assert words in str(cause)

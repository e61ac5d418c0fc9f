"""Plans, answered by hand: what a broker leaves out is no good news, and what is repeated is known."""

from __future__ import annotations

from typing import Any, cast

import pytest

from consumer.engine import admin
from consumer.engine.admin import FetchedBytes, OffsetAt, Plan
from consumer.engine.metadata.cluster import ClusterView, TopicView
from kproto.error_codes import ErrorCode
from kproto.errors import BrokerError, ConnectionFailed, NotAuthorized
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
from tests.consumer.engine.admin.stage import CLUSTER, COORDINATOR, LOST, P0, clock, known, play


def test_a_commit_that_leaves_a_partition_out_is_asked_again() -> None:
    plan = admin.commit_offsets(known(), "g", {P0: (5, None, "")}, clock)
    result, said = play(plan, COORDINATOR, OffsetCommitResponse(topics=[]))
    assert result == "resting"
    assert said[-1] == "the response to OffsetCommit does not contain t-0"


def test_what_the_group_committed_is_asked_again_when_a_partition_is_left_out() -> None:
    plan = admin.committed_offsets(known(), "g", [P0], clock)
    empty = OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=[], error_code=0)])
    result, said = play(plan, COORDINATOR, empty)
    assert result == "resting"
    assert said[-1] == "the response to OffsetFetch does not contain t-0"


@pytest.mark.parametrize(
    ("code", "found_again"),
    [(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, []), (ErrorCode.NOT_COORDINATOR, [COORDINATOR])],
)
def test_a_coordinator_is_looked_up_again_only_where_it_is_none_any_more(
    code: ErrorCode, found_again: list[Message]
) -> None:
    """As Java's: one that is still reading is asked again itself."""
    plan = admin.committed_offsets(known(), "g", [P0], clock)
    refused = OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=[], error_code=code)])
    _, said = play(plan, COORDINATOR, refused, *found_again, refused)
    assert said.count("FindCoordinator") == 1 + len(found_again)
    assert said.count("OffsetFetch") == 2


def test_a_produce_that_the_answer_leaves_out_is_an_error_by_name() -> None:
    plan = admin.produce(known(), P0, b"", clock, acks=-1, timeout_ms=1000)
    with pytest.raises(BrokerError, match="the broker's response does not contain t-0"):
        play(plan, ProduceResponse(responses=[]))


@pytest.mark.parametrize("codes", [(19, 0), (0, 19)])
def test_a_produce_that_one_answer_both_takes_and_refuses_is_not_claimed(codes: tuple[int, int]) -> None:
    plan = admin.produce(known(), P0, b"", clock, acks=-1, timeout_ms=1000)
    said = [PartitionProduceResponse(index=0, error_code=code, base_offset=5) for code in codes]
    answer = ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=said)])
    with pytest.raises(BrokerError, match="the broker's response does not contain t-0"):
        play(plan, answer)


def fetched(*topics: FetchableTopicResponse, lent: bool = False) -> FetchedBytes:
    plan = admin.fetch(
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


def test_a_fetch_that_leaves_a_partition_out_says_so_in_its_result() -> None:
    assert fetched().error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_what_was_fetched_is_copied_unless_it_is_lent() -> None:
    answer = bytearray(b"the records of an answer")
    records = memoryview(answer)[4:11]
    row = PartitionData(
        partition_index=0, error_code=0, high_watermark=1, aborted_transactions=None, records=records
    )
    told = FetchableTopicResponse(topic="t", partitions=[row])
    copied, lent = fetched(told).records, fetched(told, lent=True).records
    assert isinstance(copied, bytes)
    assert isinstance(lent, memoryview)
    assert lent.obj is answer
    assert copied == lent == b"records"


def deleted(code: int) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        throttle_time_ms=0, responses=[DeletableTopicResult(name="t", error_code=code)]
    )


def created(code: int) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        throttle_time_ms=0, topics=[CreatableTopicResult(name="t", error_code=code, error_message=None)]
    )


def create(view: ClusterView, *, exist_ok: bool = False, count: int = 1) -> Plan[None]:
    return admin.create_topics(
        view, {"t": count}, clock, replication_factor=1, configs={}, timeout_ms=1000, exist_ok=exist_ok
    )


def test_a_delete_asks_the_next_controller() -> None:
    result, said = play(
        admin.delete_topics(known(), ["t"], clock, timeout_ms=1000), deleted(41), CLUSTER, deleted(0)
    )
    assert result is None
    assert said == [
        "DeleteTopics",
        "DeleteTopics for topic 't' was answered with NOT_CONTROLLER",
        "Metadata",
        "DeleteTopics",
    ]


GONE, THERE = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_ALREADY_EXISTS


def test_a_delete_that_is_repeated_may_find_nothing() -> None:
    view = known()
    plan = admin.delete_topics(view, ["t"], clock, timeout_ms=1000)
    assert play(plan, LOST, CLUSTER, deleted(GONE))[0] is None
    assert "t" not in view.topics


def test_a_delete_of_what_never_was_is_an_error() -> None:
    with pytest.raises(BrokerError, match="topic 't'"):
        play(admin.delete_topics(known(), ["t"], clock, timeout_ms=1000), deleted(GONE))


def test_a_create_that_is_repeated_may_find_the_topic() -> None:
    assert play(create(known()), LOST, CLUSTER, created(THERE), CLUSTER)[0] is None


def test_a_create_of_what_is_there_is_an_error_unless_it_may_be() -> None:
    with pytest.raises(BrokerError, match="topic 't'"):
        play(create(known()), created(THERE))
    assert play(create(known(), exist_ok=True), created(THERE), CLUSTER)[0] is None


def test_what_is_there_with_fewer_partitions_is_told_on_a_second_look() -> None:
    with pytest.raises(
        BrokerError, match=r"topic 't' has 1 partitions instead of 5; create_partitions\(\) adds"
    ):
        play(create(known(), exist_ok=True, count=5), created(THERE), CLUSTER, CLUSTER)


def test_a_refusal_of_another_time_is_not_believed() -> None:
    """Perhaps the right was given since; it was told for as long as the cluster's client lived."""
    view = known()
    view.topics["t"] = TopicView("t", None, False, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert play(admin.leader_of(view, P0, clock), CLUSTER) == (1, ["Metadata"])
    view.topics["t"] = TopicView("t", None, False, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    denied = MetadataResponse(
        brokers=CLUSTER.brokers,
        topics=[MetadataResponseTopic(error_code=29, name="t", partitions=[])],
    )
    with pytest.raises(NotAuthorized, match="topic 't'"):
        play(admin.leader_of(view, P0, clock), denied, denied)


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
def test_a_delete_that_the_answer_leaves_out_is_asked_again(answer: DeleteTopicsResponse, code: int) -> None:
    """It was told as done; perhaps it is."""
    plan = admin.delete_topics(known(), ["t"], clock, timeout_ms=1000)
    assert play(plan, answer, deleted(code)) == (
        None,
        ["DeleteTopics", "the response to DeleteTopics does not contain topic 't'", "DeleteTopics"],
    )


def test_a_create_that_the_answer_leaves_out_is_asked_again() -> None:
    left_out = CreateTopicsResponse(throttle_time_ms=0, topics=[])
    assert play(create(known()), left_out, created(THERE), CLUSTER)[0] is None


def listed(*offsets: int, topic: str = "t") -> ListOffsetsResponse:
    parts = [
        ListOffsetsPartitionResponse(partition_index=index, error_code=0, offset=offset)
        for index, offset in enumerate(offsets)
    ]
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=topic, partitions=parts)])


@pytest.mark.parametrize("place", ["latest", "earliest"])
@pytest.mark.parametrize("answer", [listed(-1), listed(), listed(5, topic="other")])
def test_a_log_without_a_beginning_or_an_end_is_no_answer(answer: ListOffsetsResponse, place: str) -> None:
    """A group's lag of it was told as none at all."""
    plan = admin.list_offsets(known(), {P0: place}, clock, isolation="read_uncommitted", timeout_ms=1000)
    ends, said = play(plan, answer, listed(5))
    assert ends == {P0: OffsetAt(5, None, None)}
    assert said == ["ListOffsets", "the response to ListOffsets does not contain t-0", "ListOffsets"]


def test_a_place_of_which_one_answer_tells_two_is_asked_for_again() -> None:
    torn = listed(7, 0)
    torn.topics[0].partitions[1].partition_index = 0
    plan = admin.list_offsets(known(), {P0: "earliest"}, clock, isolation="read_uncommitted", timeout_ms=1000)
    assert play(plan, torn, listed(5))[0] == {P0: OffsetAt(5, None, None)}


def test_no_record_may_be_as_young_as_a_time() -> None:
    plan = admin.list_offsets(known(), {P0: 7}, clock, isolation="read_uncommitted", timeout_ms=1000)
    assert play(plan, listed(-1))[0] == {P0: OffsetAt(None, None, None)}


def test_a_group_that_the_answer_leaves_out_is_not_dead_for_that() -> None:
    dead = DescribedGroup(
        error_code=0, group_id="g", group_state="Dead", protocol_type="", protocol_data="", members=[]
    )
    nobody = ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=[])
    result, said = play(
        admin.group(known(), "g", clock),
        COORDINATOR,
        DescribeGroupsResponse(groups=[dead]),
        COORDINATOR,
        nobody,
    )
    assert result == "resting"
    assert said[-1] == "the response to ConsumerGroupDescribe does not contain group 'g'"


def test_a_leader_that_was_lost_is_looked_for_before_the_next_batch() -> None:
    view = known()
    with pytest.raises(ConnectionFailed):
        play(admin.produce(view, P0, b"", clock, acks=-1, timeout_ms=1000), LOST)
    with pytest.raises(ConnectionFailed):
        play(admin.produce(view, P0, b"", clock, acks=-1, timeout_ms=1000), CLUSTER, LOST)


@pytest.mark.parametrize("route", [1, ("leader", "t", 0)])
def test_a_broker_that_was_lost_is_looked_for_before_the_next_request_to_it(route: Any) -> None:
    """It may lead nothing any more, or have come back elsewhere."""
    view = known()
    first = [] if isinstance(route, int) else [CLUSTER]
    with pytest.raises(ConnectionFailed):
        play(admin.request(view, ListGroupsRequest(), route, clock), *first, LOST)
    with pytest.raises(ConnectionFailed):
        play(admin.request(view, ListGroupsRequest(), route, clock), CLUSTER, LOST)


def test_who_leads_is_asked_each_time() -> None:
    """An election is told to nobody, and what a request says of it is for its caller."""
    view = known()
    led = MetadataResponsePartition(
        error_code=0, partition_index=0, leader_id=2, replica_nodes=[1, 2], isr_nodes=[]
    )
    elected = MetadataResponse(
        brokers=[*CLUSTER.brokers, MetadataResponseBroker(node_id=2, host="another", port=9092)],
        topics=[MetadataResponseTopic(error_code=0, name="t", partitions=[led])],
    )
    assert play(admin.leader_of(view, P0, clock), elected) == (2, ["Metadata"])

"""The broker serves a request with many elements piece by piece, and sends a single response."""

from __future__ import annotations

import pytest

from kproto.broker import large_request
from kproto.broker.machine import FailRequests, FrameReceived, Tick, next_deadline
from kproto.error_codes import ErrorCode
from kproto.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kproto.messages.describe_groups import DescribeGroupsRequest
from kproto.messages.find_coordinator import FindCoordinatorRequest
from kproto.messages.headers import encode_request
from kproto.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kproto.messages.metadata import MetadataRequest, MetadataRequestTopic
from kproto.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.broker.stage import Client, Stage, batch_of

MANY = 5 * large_request.PIECE


def names(count: int = MANY) -> list[str]:
    return [f"name-{index}" for index in range(count)]


def describe(groups: list[str]) -> DescribeGroupsRequest:
    return DescribeGroupsRequest(groups=groups)


def metadata(topics: list[str]) -> MetadataRequest:
    requested = [MetadataRequestTopic(name=name) for name in topics]
    return MetadataRequest(topics=requested, allow_auto_topic_creation=False)


def begin(client: Client, groups: list[str]) -> None:
    """Send a DescribeGroups request, of which the broker immediately serves the first piece."""
    client.send_bytes(encode_request(describe(groups), 5, 1, "me"))


@pytest.fixture
def stage() -> Stage:
    return Stage({"t": 2})


@pytest.mark.parametrize("version", [4, 5], ids=["rigid", "flexible"])
def test_all_pieces_are_answered_in_one_response(stage: Stage, version: int) -> None:
    response = stage.client().ask(describe(names()), version)
    assert [group.group_id for group in response.groups] == names()


def test_fields_beside_the_joined_array_are_answered_once(stage: Stage) -> None:
    response = stage.client().ask(metadata(["t", *names()]), 9)
    assert [broker.node_id for broker in response.brokers] == [1]
    assert [topic.name for topic in response.topics] == ["t", *names()]
    assert [topic.error_code for topic in response.topics[:2]] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_many_partitions_of_one_topic_are_all_answered(stage: Stage) -> None:
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=list(range(MANY)))]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)])
    response = stage.client().ask(request, 9)
    indexes = [
        partition.partition_index
        for group in response.groups
        for topic in group.topics
        for partition in topic.partitions
    ]
    assert indexes == list(range(MANY))


def test_other_clients_are_served_between_the_pieces(stage: Stage) -> None:
    large, small = stage.client(), stage.client()
    begin(large, names())
    assert next_deadline(stage.broker) == stage.now
    small.send_bytes(encode_request(metadata(["t"]), 9, 1, "me"))
    assert (len(small.answers), len(large.answers)) == (1, 0)
    stage.wait(0)
    assert len(large.answers) == 1


def test_other_clients_are_served_between_the_arrival_and_the_decoding_of_a_huge_frame(stage: Stage) -> None:
    huge, small = stage.client(), stage.client()
    protocol = JoinGroupRequestProtocol(name="range", metadata=bytes(large_request.HUGE_FRAME))
    request = JoinGroupRequest(
        group_id="g", session_timeout_ms=6_000, member_id="", protocol_type="consumer", protocols=[protocol]
    )
    huge.send_bytes(encode_request(request, 4, 1, "me"))
    small.send_bytes(encode_request(metadata(["t"]), 9, 1, "me"))
    assert (len(small.answers), len(huge.answers)) == (1, 0)
    stage.wait(0)
    assert len(huge.answers) == 1


def test_two_large_requests_take_turns(stage: Stage) -> None:
    first, second = stage.client(), stage.client()
    begin(first, names())
    begin(second, names(3 * large_request.PIECE))
    while not second.answers:
        assert not first.answers
        stage.step(Tick())


def test_the_next_request_of_the_connection_waits_for_the_last_piece(stage: Stage) -> None:
    client = stage.client()
    begin(client, names())
    client.send(metadata(["t"]), 9)
    assert len(client.answers.pop(0)) > MANY
    assert client.answer().topics[0].name == "t"


@pytest.mark.parametrize(("count", "answers"), [(2, 2), (20_000, 1)])
def test_a_repeated_name_is_answered_once_in_a_large_request(stage: Stage, count: int, answers: int) -> None:
    client = stage.client()
    assert len(client.ask(describe(["g"] * count), 5).groups) == answers
    keys = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"] * count)
    assert len(client.ask(keys, 4).coordinators) == answers


def test_a_closed_connection_is_not_served_further(stage: Stage) -> None:
    client = stage.client()
    begin(client, names())
    client.leave()
    stage.wait(0)
    assert (client.answers, len(stage.broker.large_requests)) == ([], 0)


def test_an_injected_error_counts_once_and_applies_to_all_pieces(stage: Stage) -> None:
    client = stage.client()
    stage.step(FailRequests(15, ErrorCode.COORDINATOR_NOT_AVAILABLE, 1))
    response = client.ask(describe(names()), 5)
    assert {group.error_code for group in response.groups} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert {group.error_code for group in client.ask(describe(["a"]), 5).groups} == {0}


def test_a_request_that_cannot_be_divided_has_a_limit_of_elements(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large_request, "MAX_ELEMENTS", 2_000)
    client = stage.client()
    topic = CreatableTopic(name="x", num_partitions=1, replication_factor=1, assignments=[], configs=[])
    request = CreateTopicsRequest(topics=[topic] * (large_request.MAX_ELEMENTS + 1), timeout_ms=1000)
    client.send(request, 5)
    assert "2001 elements; this broker serves at most 2000" in stage.closed[client.conn]


def test_a_malformed_large_request_closes_the_connection(stage: Stage) -> None:
    client = stage.client()
    frame = encode_request(describe(names()), 5, 1, "me")
    stage.step(FrameReceived(client.conn, frame[:-9], stage.random_id()))
    stage.wait(0)
    assert "DescribeGroupsRequest v5" in stage.closed[client.conn]


def test_a_large_batch_is_served_immediately(stage: Stage) -> None:
    client = stage.client()
    assert client.produce(batch_of(b"x" * 100_000)).error_code == 0
    assert not stage.broker.large_requests

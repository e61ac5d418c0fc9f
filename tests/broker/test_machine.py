"""The broker as a machine: connections, order, refusals, and whom a request can hurt."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproto.broker.apis.api_versions import API_VERSIONS
from kproto.broker.apis.table import APIS
from kproto.broker.broker import GroupCoordinatorStep
from kproto.broker.machine import next_deadline
from kproto.error_codes import ErrorCode
from kproto.group.classic import coordinator
from kproto.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kproto.messages.delete_topics import DeleteTopicsRequest
from kproto.messages.find_coordinator import FindCoordinatorRequest
from kproto.messages.headers import decode_response, encode_request
from kproto.messages.heartbeat import HeartbeatRequest
from kproto.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kproto.messages.index import API_NAMES, request_class, response_class
from kproto.messages.init_producer_id import InitProducerIdRequest
from kproto.messages.list_groups import ListGroupsRequest
from kproto.messages.metadata import MetadataRequest
from kproto.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kproto.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from kproto.messages.sync_group import SyncGroupRequest
from kproto.messages.write_txn_markers import WriteTxnMarkersRequest
from kproto.testing.strategies import versioned
from tests.broker.stage import Client, Stage, batch_of, fetching, joining, wanted

SERVED = sorted(APIS)


@pytest.fixture
def stage() -> Stage:
    return Stage({"t": 1}, group_initial_rebalance_delay_ms=0)


@pytest.fixture
def client(stage: Stage) -> Client:
    return stage.client()


def hello(**fields: str) -> ApiVersionsRequest:
    return ApiVersionsRequest(**{"client_software_name": "a", "client_software_version": "1", **fields})


# ApiVersions


@pytest.mark.parametrize("version", range(5))
def test_exactly_what_is_served_is_advertised(client: Client, version: int) -> None:
    answer: ApiVersionsResponse = client.ask(hello() if version >= 3 else ApiVersionsRequest(), version)
    assert [api.api_key for api in answer.api_keys] == SERVED


def test_all_versions_of_kafka_4_3_are_advertised(client: Client) -> None:
    ranges = {api.api_key: (api.min_version, api.max_version) for api in client.ask(hello()).api_keys}
    # As a real Kafka 4.3.1 answers; Produce from 0 and InitProducerId up to 5 differ from what is declared.
    kafka = {
        0: (0, 13), 1: (4, 18), 2: (1, 11), 3: (0, 13), 8: (2, 10), 9: (1, 10), 10: (0, 6), 11: (0, 9),
        12: (0, 4), 13: (0, 5), 14: (0, 5), 15: (0, 6), 16: (0, 5), 18: (0, 4), 19: (2, 7), 20: (1, 6),
        21: (0, 2), 22: (0, 5), 23: (2, 4), 32: (1, 4), 37: (0, 3), 42: (0, 2), 44: (0, 1), 47: (0, 0),
        17: (0, 1), 33: (0, 2), 29: (1, 3), 30: (1, 3), 31: (1, 3), 36: (0, 2), 50: (0, 0), 51: (0, 0),
        24: (0, 5), 25: (0, 4), 26: (0, 5), 28: (0, 5), 60: (0, 2), 61: (0, 0), 65: (0, 0), 66: (0, 2),
        75: (0, 0), 35: (1, 5), 43: (0, 2), 46: (0, 0),
    }  # fmt: skip
    assert ranges == kafka


def raw(key: int, version: int, correlation: int, rest: bytes = b"\xff\xff") -> bytes:
    return key.to_bytes(2, "big") + version.to_bytes(2, "big") + correlation.to_bytes(4, "big") + rest


@pytest.mark.parametrize("version", [5, 99])
def test_an_unknown_version_of_api_versions_is_answered_in_version_0(
    stage: Stage, client: Client, version: int
) -> None:
    client.send_bytes(raw(18, version, 41, b"whatever"))
    correlation, answer = decode_response(client.answers.pop(), ApiVersionsResponse, 0)
    assert (correlation, answer.error_code) == (41, ErrorCode.UNSUPPORTED_VERSION)
    assert [(api.api_key, api.max_version) for api in answer.api_keys] == [(18, 4)]
    assert client.ask(hello()).error_code == 0


@pytest.mark.parametrize("name", ["", "-a", "a b", "a\n"])
def test_a_software_name_that_is_none_is_refused(client: Client, name: str) -> None:
    assert client.ask(hello(client_software_name=name)).error_code == ErrorCode.INVALID_REQUEST


# Refusals


_NOT_STABLE = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
_NOT_SERVED = WriteTxnMarkersRequest(markers=[])  # brokers send it to each other


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"", "RequestHeader"),
        (b"\x00\x03", "RequestHeader"),
        (raw(3, 99, 1), "MetadataRequest: version 99"),
        (raw(0, 2, 1), "ProduceRequest: version 2"),
        (raw(9999, 0, 1), "9999"),
        (encode_request(_NOT_STABLE, 6, 1, "me"), "InitProducerIdRequest"),
        (encode_request(_NOT_SERVED, 1, 1, "me"), "WriteTxnMarkersRequest"),
        (raw(3, 1, 1, b"\xff\xff\x7f\xff\xff\xff"), "MetadataRequest"),
    ],
)
def test_what_cant_be_read_closes_the_connection_with_a_reason(
    stage: Stage, client: Client, frame: bytes, reason: str
) -> None:
    client.send_bytes(frame)
    assert any(part in stage.closed[client.conn] for part in reason.split("|"))
    assert client.answers == []


def test_a_closed_connection_is_not_listened_to_any_more(stage: Stage, client: Client) -> None:
    client.send_bytes(b"garbage")
    client.send(hello(), expects=False)
    assert client.answers == []


def test_garbage_of_one_client_hurts_no_other(stage: Stage, client: Client) -> None:
    other = stage.client()
    other.send(fetching(wanted(), wait=10_000), 12)
    client.send_bytes(b"garbage")
    stage.client().produce(batch_of(b"a"))
    assert other.answer().error_code == 0


# Order


def test_a_request_behind_a_parked_fetch_waits_for_it(stage: Stage, client: Client) -> None:
    client.send(fetching(wanted(), wait=500), 12)
    client.send(MetadataRequest(topics=[]))
    assert client.answers == []
    stage.wait(500)
    assert client.answer().error_code == 0
    assert client.answer().brokers


def test_answers_come_in_the_order_of_the_requests(stage: Stage, client: Client) -> None:
    for topic in ("x", "y", "z"):
        client.send(FindCoordinatorRequest(coordinator_keys=[topic]))
    assert [client.answer().coordinators[0].key for _ in range(3)] == ["x", "y", "z"]


def test_a_heartbeat_behind_a_parked_join_is_judged_after_the_join(stage: Stage, client: Client) -> None:
    """Seen on Kafka 4.3.1: the generation has moved by then."""
    member = stable(client)
    other = stage.client()
    other_id = other.ask(joining()).member_id
    other.send(joining(other_id))  # parked until the first member comes
    other.send(HeartbeatRequest(group_id="g", generation_id=1, member_id=other_id))
    assert other.answers == []
    client.send(joining(member))
    assert other.answer().generation_id == 2
    assert other.answer().error_code == ErrorCode.ILLEGAL_GENERATION


def test_a_client_that_doesnt_read_is_served_one_request_at_a_time(stage: Stage, client: Client) -> None:
    client.reads = False
    for _ in range(3):
        client.send(MetadataRequest(topics=[]))
    assert len(client.answers) == 1
    assert stage.broker.backlog(client.conn) > 0


def test_without_waiting_requests_there_is_no_backlog(stage: Stage, client: Client) -> None:
    client.send(fetching(wanted(), wait=500), 12)
    assert stage.broker.backlog(client.conn) == 0
    client.send(MetadataRequest(topics=[]))
    assert stage.broker.backlog(client.conn) > 0
    stage.wait(500)
    assert stage.broker.backlog(client.conn) == 0


def test_nothing_is_due_when_nothing_waits(stage: Stage, client: Client) -> None:
    assert next_deadline(stage.broker) is None
    client.send(fetching(wanted(), wait=500), 12)
    assert next_deadline(stage.broker) == stage.now + 500
    stage.wait(500)
    assert next_deadline(stage.broker) is None


# Groups


@pytest.mark.parametrize("version", range(7))
def test_every_group_is_coordinated_here(client: Client, version: int) -> None:
    request = (
        FindCoordinatorRequest(coordinator_keys=["g"]) if version >= 4 else FindCoordinatorRequest(key="g")
    )
    answer = client.ask(request, version)
    found = answer.coordinators[0] if version >= 4 else answer
    assert (found.error_code, found.node_id, found.host, found.port) == (0, 1, "localhost", 9092)


@pytest.mark.parametrize("kind", [2, 7])
@pytest.mark.parametrize("version", [3, 6])
def test_other_coordinators_are_refused_with_a_reason(client: Client, version: int, kind: int) -> None:
    keys: dict[str, Any] = {"coordinator_keys": ["x"]} if version >= 4 else {"key": "x"}
    answer = client.ask(FindCoordinatorRequest(key_type=kind, **keys), version)
    found = answer.coordinators[0] if version >= 4 else answer
    assert (found.error_code, found.node_id) == (ErrorCode.INVALID_REQUEST, -1)
    assert found.error_message


def stable(client: Client) -> str:
    """One member in generation 1; its id."""
    member: str = client.ask(joining()).member_id
    client.ask(joining(member))
    client.ask(
        SyncGroupRequest(
            group_id="g",
            generation_id=1,
            member_id=member,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[],
        )
    )
    return member


def committing(offset: int, topic: str = "t", member: str = "", generation: int = -1) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=""
    )
    return OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=generation,
        member_id=member,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )


def committed(client: Client) -> dict[str, int]:
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    [group] = client.ask(request, 9).groups
    return {
        topic.name: partition.committed_offset for topic in group.topics for partition in topic.partitions
    }


def test_a_group_lives_on_the_one_coordinator(stage: Stage, client: Client) -> None:
    member = stable(client)
    assert client.ask(committing(5, member=member, generation=1), 9).topics[0].partitions[0].error_code == 0
    assert committed(client) == {"t": 5}
    listed = client.ask(ListGroupsRequest()).groups
    assert [(group.group_id, group.group_state) for group in listed] == [("g", "Stable")]


def test_a_member_that_says_nothing_is_removed(stage: Stage, client: Client) -> None:
    stable(client)
    stage.wait(10_000)
    [group] = client.ask(ListGroupsRequest()).groups
    assert group.group_state == "Empty"


def test_an_offset_of_an_unknown_topic_is_not_stored(client: Client) -> None:
    answer = client.ask(committing(5, "none"), 9)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_deleting_a_topic_deletes_its_offsets(client: Client) -> None:
    client.ask(committing(5), 9)
    client.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1), 5)
    assert committed(client) == {}


def test_a_member_that_went_away_while_it_joined_hurts_nobody(stage: Stage, client: Client) -> None:
    member = stable(client)
    other = stage.client()
    other_id = other.ask(joining()).member_id
    other.send(joining(other_id))
    other.leave()
    client.send(joining(member))
    assert client.answer().generation_id == 2
    assert other.answers == []


def test_what_the_coordinator_does_is_told(stage: Stage, client: Client) -> None:
    stable(client)
    settled = [
        a for told in stage.told for a in told.actions if isinstance(a, coordinator.RebalanceCompleted)
    ]
    assert [(one.group_id, one.generation) for one in settled] == [("g", 1)]
    assert all(isinstance(told, GroupCoordinatorStep) for told in stage.told)


def test_clients_are_described_as_kafka_does(stage: Stage, client: Client) -> None:
    stable(client)
    from kproto.messages.describe_groups import DescribeGroupsRequest

    [group] = client.ask(DescribeGroupsRequest(groups=["g"], include_authorized_operations=False)).groups
    assert [(member.client_id, member.client_host) for member in group.members] == [("a client", "/10.0.0.7")]


# Everything at once


@pytest.mark.parametrize("key", SERVED, ids=lambda key: API_NAMES[key])
@given(st.data())
def test_any_well_formed_request_is_answered_parked_or_refused(key: int, data: st.DataObject) -> None:
    """Nothing that a client can send makes the machine raise, and its answer can be read."""
    stage = Stage({"t": 1})
    client = stage.client()
    client.produce(batch_of(b"a"))
    version, request = data.draw(versioned(request_class(key), unknown_tags=True))
    silent = key == 0 and getattr(request, "acks", -1) == 0
    client.send(request, version, expects=not silent)
    stage.wait(10)
    if client.answers:
        client.answer()
    else:
        assert silent or client.conn in stage.closed or next_deadline(stage.broker) is not None


@given(st.lists(st.binary(max_size=60), max_size=5))
def test_any_bytes_are_answered_or_refused(frames: list[bytes]) -> None:
    stage = Stage({"t": 1})
    client = stage.client()
    for frame in frames:
        client.send_bytes(frame)
    assert client.answers or client.conn in stage.closed or not frames or next_deadline(stage.broker)


@given(st.sampled_from(SERVED), st.data())
def test_a_cut_request_closes_the_connection(key: int, data: st.DataObject) -> None:
    version, request = data.draw(versioned(request_class(key)))
    frame = encode_request(request, version, 1, "me")
    stage = Stage()
    client = stage.client()
    client.send_bytes(frame[: data.draw(st.integers(0, len(frame) - 1))])
    assert client.conn in stage.closed or key == API_VERSIONS or client.answers


# Answers that would be too long


def test_an_answer_too_long_to_be_written_is_an_error_and_the_next_request_is_served(client: Client) -> None:
    """As at Kafka: the id that it makes for a member begins with the client's own."""
    join, list_groups = joining(), ListGroupsRequest(states_filter=[], types_filter=[])
    client.send_bytes(encode_request(join, 5, 1, "x" * 32_767))
    client.send_bytes(encode_request(list_groups, 5, 2, "me"))
    for frame, request, version in zip(client.answers, (join, list_groups), (5, 5), strict=True):
        assert request.__api_key__ is not None
        _, answer = decode_response(frame, response_class(request.__api_key__), version)
        expected = ErrorCode.UNKNOWN_SERVER_ERROR if request is join else ErrorCode.NONE
        assert answer.error_code == expected


def test_a_join_too_long_to_be_answered_does_not_break_what_others_wait_for(stage: Stage) -> None:
    long, other = stage.client(), stage.client()
    long.send_bytes(encode_request(joining(), 3, 1, "x" * 32_767))  # it becomes a member
    other.send(joining(), 3)
    stage.wait(120_000)
    assert stage.closed == {}
    assert other.answer().error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", [0, 1])
def test_a_message_about_too_long_a_name_is_left_out_with_the_answer(client: Client, version: int) -> None:
    config = AlterableConfig(name="x" * 32_767, config_operation=0, value="1")
    resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=[config])
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    assert client.ask(request, version).responses[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert client.ask(hello()).error_code == 0

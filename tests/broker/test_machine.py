"""The broker's state machine: connections, the order of responses, and rejected requests."""

from __future__ import annotations

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kproto.broker.apis.api_versions import API_VERSIONS
from kproto.broker.apis.table import APIS
from kproto.broker.machine import CreateTopic, GrowTopic, next_deadline
from kproto.error_codes import ErrorCode
from kproto.errors import ConfigError
from kproto.messages.allocate_producer_ids import AllocateProducerIdsRequest
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
from kproto.testing.strategies import versioned
from tests.broker.apis.stage import api_versions_request, join_alone, request_bytes
from tests.broker.stage import Client, Stage, batch_of, fetch_request, fetch_topic, join_request

SERVED = sorted(APIS)
QUICK = os.environ.get("KPROTO_PROFILE", "quick") == "quick"


@pytest.fixture
def stage() -> Stage:
    return Stage({"t": 1}, group_initial_rebalance_delay_ms=0)


_NOT_STABLE = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)


_NOT_SERVED = AllocateProducerIdsRequest(broker_id=1, broker_epoch=1)  # Sent between brokers only.


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"", "RequestHeader"),
        (b"\x00\x03", "RequestHeader"),
        (request_bytes(3, 99, 1), "MetadataRequest: version 99"),
        (request_bytes(0, 2, 1), "ProduceRequest: version 2"),
        (request_bytes(9999, 0, 1), "9999"),
        (encode_request(_NOT_STABLE, 6, 1, "me"), "InitProducerIdRequest"),
        (encode_request(_NOT_SERVED, 0, 1, "me"), "AllocateProducerIdsRequest"),
        (request_bytes(3, 1, 1, b"\xff\xff\x7f\xff\xff\xff"), "MetadataRequest"),
    ],
)
def test_an_unreadable_request_closes_the_connection_with_a_reason(
    stage: Stage, client: Client, frame: bytes, reason: str
) -> None:
    client.send_bytes(frame)
    assert any(part in stage.closed[client.conn] for part in reason.split("|"))
    assert client.answers == []


def test_requests_of_a_closed_connection_are_ignored(stage: Stage, client: Client) -> None:
    client.send_bytes(b"garbage")
    client.send(api_versions_request(), expects=False)
    assert client.answers == []


def test_an_invalid_request_does_not_affect_other_clients(stage: Stage, client: Client) -> None:
    second_client = stage.client()
    second_client.send(fetch_request(fetch_topic(), wait=10_000), 12)
    client.send_bytes(b"garbage")
    stage.client().produce(batch_of(b"a"))
    assert second_client.answer().error_code == 0


def test_a_request_after_a_delayed_fetch_waits_for_it(stage: Stage, client: Client) -> None:
    client.send(fetch_request(fetch_topic(), wait=500), 12)
    client.send(MetadataRequest(topics=[]))
    assert client.answers == []
    stage.wait(500)
    assert client.answer().error_code == 0
    assert client.answer().brokers


def test_responses_are_in_the_order_of_the_requests(stage: Stage, client: Client) -> None:
    for topic in ("x", "y", "z"):
        client.send(FindCoordinatorRequest(coordinator_keys=[topic]))
    assert [client.answer().coordinators[0].key for _ in range(3)] == ["x", "y", "z"]


def test_a_heartbeat_after_a_delayed_join_is_served_after_the_join(stage: Stage, client: Client) -> None:
    """A heartbeat that follows a delayed JoinGroup on its connection is answered after the rebalance.

    The heartbeat contains the old generation, so it fails, as in Kafka 4.3.1.
    """
    member = join_alone(client)
    second_client = stage.client()
    other_id = second_client.ask(join_request()).member_id
    # The JoinGroup response is delayed until the first member rejoins.
    second_client.send(join_request(other_id))
    second_client.send(HeartbeatRequest(group_id="g", generation_id=1, member_id=other_id))
    assert second_client.answers == []
    client.send(join_request(member))
    assert second_client.answer().generation_id == 2
    assert second_client.answer().error_code == ErrorCode.ILLEGAL_GENERATION


def test_a_client_that_does_not_read_is_served_one_request_at_a_time(stage: Stage, client: Client) -> None:
    client.reads = False
    for _ in range(3):
        client.send(MetadataRequest(topics=[]))
    assert len(client.answers) == 1
    assert stage.broker.backlog(client.conn) > 0


def test_the_backlog_is_empty_without_queued_requests(stage: Stage, client: Client) -> None:
    client.send(fetch_request(fetch_topic(), wait=500), 12)
    assert stage.broker.backlog(client.conn) == 0
    client.send(MetadataRequest(topics=[]))
    assert stage.broker.backlog(client.conn) > 0
    stage.wait(500)
    assert stage.broker.backlog(client.conn) == 0


def test_there_is_no_deadline_if_nothing_waits(stage: Stage, client: Client) -> None:
    assert next_deadline(stage.broker) is None
    client.send(fetch_request(fetch_topic(), wait=500), 12)
    assert next_deadline(stage.broker) == stage.now + 500
    stage.wait(500)
    assert next_deadline(stage.broker) is None


@pytest.mark.parametrize("key", SERVED, ids=lambda key: API_NAMES[key])
# The number of examples for each of the 44 APIs.
@settings(max_examples=3 if QUICK else settings().max_examples)
@given(st.data())
def test_every_well_formed_request_is_answered_delayed_or_refused(key: int, data: st.DataObject) -> None:
    """The state machine raises no exception for any request, and its responses can be decoded."""
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
def test_a_truncated_request_closes_the_connection(key: int, data: st.DataObject) -> None:
    version, request = data.draw(versioned(request_class(key)))
    frame = encode_request(request, version, 1, "me")
    stage = Stage()
    client = stage.client()
    client.send_bytes(frame[: data.draw(st.integers(0, len(frame) - 1))])
    assert client.conn in stage.closed or key == API_VERSIONS or client.answers


def test_an_oversized_response_becomes_an_error_and_the_next_request_is_served(client: Client) -> None:
    """The broker replaces an oversized response with an error, and serves the next request.

    A long client id makes JoinGroup's response too large, because the generated member id begins with it.
    """
    join, list_groups = join_request(), ListGroupsRequest(states_filter=[], types_filter=[])
    client.send_bytes(encode_request(join, 5, 1, "x" * 32_767))
    client.send_bytes(encode_request(list_groups, 5, 2, "me"))
    for frame, request, version in zip(client.answers, (join, list_groups), (5, 5), strict=True):
        assert request.__api_key__ is not None
        _, answer = decode_response(frame, response_class(request.__api_key__), version)
        expected = ErrorCode.UNKNOWN_SERVER_ERROR if request is join else ErrorCode.NONE
        assert answer.error_code == expected


def test_an_oversized_join_response_does_not_affect_other_members(stage: Stage) -> None:
    long, second_client = stage.client(), stage.client()
    long.send_bytes(encode_request(join_request(), 3, 1, "x" * 32_767))  # `long` becomes a member.
    second_client.send(join_request(), 3)
    stage.wait(120_000)
    assert stage.closed == {}
    assert second_client.answer().error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", [0, 1])
def test_an_oversized_error_message_is_replaced_by_an_error(client: Client, version: int) -> None:
    config = AlterableConfig(name="x" * 32_767, config_operation=0, value="1")
    resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=[config])
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    assert client.ask(request, version).responses[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert client.ask(api_versions_request()).error_code == 0


def test_invalid_operator_events_raise_config_errors() -> None:
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

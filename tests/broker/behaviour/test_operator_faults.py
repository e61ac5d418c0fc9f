"""The effects of faults that a test injects: errors, delays, changed addresses and restarts."""

from __future__ import annotations

import asyncio
import math
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproto import Admin, Producer
from kproto.broker.apis.table import REFUSABLE, served_versions
from kproto.broker.machine import FailRequests
from kproto.broker.server import FAILING, Server, running
from kproto.error_codes import ErrorCode
from kproto.errors import BrokerError, ConfigError, IllegalState, RequestTimedOut
from kproto.messages.find_coordinator import FindCoordinatorRequest
from kproto.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kproto.messages.join_group import JoinGroupResponse
from kproto.messages.list_groups import ListGroupsRequest
from kproto.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kproto.messages.offset_fetch import OffsetFetchRequest
from kproto.testing.faults import Proxy
from kproto.testing.strategies import Drawn, requests
from kproto.wire.message import Struct
from tests.broker.stage import (
    Stage,
    batch_of,
    classic_coordinator,
    connected,
    fetch_request,
    fetch_topic,
    join_request,
)
from tests.rules import rule

BUSY = ErrorCode.KAFKA_STORAGE_ERROR


def codes(part: Any) -> set[int]:
    """Return every error code of a response."""
    if isinstance(part, list):
        return set[int]().union(*map(codes, part))
    if isinstance(part, Struct):
        fields: Any = part
        own = {fields.error_code} if hasattr(part, "error_code") else set[int]()
        return own.union(*(codes(getattr(fields, name)) for name in fields.__struct_fields__))
    return set()


@given(st.data())
def test_a_failed_request_changes_nothing_and_is_answered_with_the_error(data: st.DataObject) -> None:
    drawn: Drawn = data.draw(requests(list(FAILING)))
    stage = Stage({"t": 2})
    if drawn.version > stage.broker.apis[drawn.api_key].max_version:
        return
    me = stage.client()
    before = sorted(stage.broker.topics), dict(classic_coordinator(stage.broker.cluster).groups)
    stage.step(FailRequests(drawn.api_key, BUSY, 1))
    me.send(drawn.message, drawn.version)
    stage.now += 1 << 31
    answer = me.answer() if me.answers else None
    assert codes(answer) <= {0, BUSY}
    fields = () if answer is None else type(answer).__fields__
    if any(field.name == "error_code" and drawn.version in field.versions for field in fields):
        assert BUSY in codes(answer)
    assert (sorted(stage.broker.topics), dict(classic_coordinator(stage.broker.cluster).groups)) == before


def test_a_failed_produce_writes_nothing_and_the_next_one_does() -> None:
    stage = Stage({"t": 1})
    me = stage.client()
    stage.step(FailRequests(FAILING["Produce"], ErrorCode.NOT_ENOUGH_REPLICAS, 2))
    responses = [me.produce(batch_of(b"a")) for _ in range(3)]
    assert [(response.error_code, response.base_offset) for response in responses] == [
        (19, -1),
        (19, -1),
        (0, 0),
    ]


def test_a_fetch_session_continues_after_a_failed_fetch() -> None:
    stage = Stage({"t": 1})
    me = stage.client()
    me.produce(batch_of(b"a", b"b"))
    stage.step(FailRequests(FAILING["Fetch"], ErrorCode.NOT_LEADER_OR_FOLLOWER, 1))
    first = me.fetch(fetch_request(fetch_topic(), session=(0, 0)))
    assert first.responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    second = me.fetch(fetch_request(session=(first.session_id, 1)))
    assert second.responses[0].partitions[0].error_code == 0
    assert second.responses[0].partitions[0].records


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (join_request(), 3),
        (join_request(), 9),
        (HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4),
        (FindCoordinatorRequest(key="g"), 3),
        (FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4),
        (OffsetFetchRequest(group_id="g", topics=None), 5),
        (ListGroupsRequest(), 4),
    ],
)
def test_a_group_request_is_answered_with_the_error(request_: Any, version: int) -> None:
    stage = Stage({"t": 1})
    stage.step(FailRequests(request_.__api_key__, ErrorCode.COORDINATOR_NOT_AVAILABLE, 1))
    response = stage.client().ask(request_, version)
    assert ErrorCode.COORDINATOR_NOT_AVAILABLE in codes(response)


def test_a_refused_metadata_request_is_answered_with_the_error() -> None:
    stage = Stage({"t": 1})
    stage.step(FailRequests(FAILING["Metadata"], BUSY, 1))
    response = stage.client().ask(MetadataRequest(topics=[MetadataRequestTopic(name=None)]), 11)
    assert codes(response) == {0, BUSY}


def test_times_0_ends_the_failures() -> None:
    stage = Stage({"t": 1})
    me = stage.client()
    stage.step(FailRequests(FAILING["Produce"], BUSY, 100))
    stage.step(FailRequests(FAILING["Produce"], BUSY, 0))
    assert me.produce(batch_of(b"a")).error_code == 0


def test_all_apis_can_fail_except_those_of_a_login() -> None:
    assert {"ApiVersions", "SaslHandshake", "SaslAuthenticate"}.isdisjoint(FAILING)
    assert set(served_versions(telemetry=True)) - REFUSABLE == {18, 17, 36}


def test_a_client_retries_temporary_errors_and_raises_permanent_ones() -> None:
    with running({"t": 1}) as server, Producer(server.bootstrap) as producer:
        server.fail("Produce", "NOT_ENOUGH_REPLICAS", 3)
        assert producer.send("t", b"a").result(20).offset == 0
        server.fail("Produce", "TOPIC_AUTHORIZATION_FAILED")
        with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
            producer.send("t", b"b").result(20)
        assert producer.send("t", b"c").result(20).offset == 1


def test_fail_refuses_unknown_apis_and_errors() -> None:
    with running() as server:
        with pytest.raises(ConfigError, match=r"api='Prduce' is not allowed; .*Produce"):
            server.fail("Prduce", "UNKNOWN_SERVER_ERROR")
        with pytest.raises(ConfigError, match="did you mean NOT_ENOUGH_REPLICAS"):
            server.fail("Produce", "NOT_ENOUGH_REPLICA")
        with pytest.raises(ConfigError, match=r"NOT_LEADER_OR_FOLLOWER; times=0 ends the failures$"):
            server.fail("Produce", "NONE")
        with pytest.raises(ConfigError, match=r"NOT_LEADER_OR_FOLLOWER$"):
            server.fail("Produce", "NON")
        with pytest.raises(ConfigError, match=r"code=.*is not allowed"):
            server.fail("Produce", ErrorCode.NONE)
        with pytest.raises(ConfigError, match="times=-1"):
            server.fail("Produce", "UNKNOWN_SERVER_ERROR", -1)


def test_held_responses_are_sent_when_the_delay_ends() -> None:
    with running({"t": 1}) as server, connected(server.bootstrap) as client:
        server.slow(math.inf)
        client.send(MetadataRequest(topics=[]), 12)
        client.socket.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.socket.recv(1)
        server.slow(0)
        client.socket.settimeout(20)
        assert client.answer(MetadataResponse, 12).brokers


def test_delayed_responses_are_sent_in_order() -> None:
    with running({"t": 1}) as server, connected(server.bootstrap) as client:
        server.slow(0.2)
        began = time.monotonic()
        for _ in range(2):
            client.send(MetadataRequest(topics=[]), 12)
        for _ in range(2):
            assert client.answer(MetadataResponse, 12).brokers
        assert time.monotonic() - began >= 0.4


def test_a_broker_stops_with_held_responses() -> None:
    with running({"t": 1}) as server, connected(server.bootstrap) as client:
        server.slow(math.inf)
        client.send(MetadataRequest(topics=[]), 12)
    with pytest.raises(ConfigError, match="seconds=-1"), running() as second_server:
        second_server.slow(-1)


def test_a_call_to_a_silent_broker_times_out() -> None:
    with running({"t": 1}) as server, Admin(server.bootstrap) as cluster:
        assert cluster.topics() == {"t": 1}
        server.slow(math.inf)
        with pytest.raises(RequestTimedOut):
            cluster.topics(0.3)
        server.slow(0)
        assert cluster.topics() == {"t": 1}


def test_clients_use_the_advertised_proxy() -> None:
    with running({"t": 1}) as server, Proxy(server.bootstrap) as proxy:
        server.advertise(proxy.bootstrap)
        with Producer(server.bootstrap) as producer:
            assert producer.send("t", b"a").result(20).offset == 0
        assert proxy.connections > 0
        with pytest.raises(ConfigError, match="PROTOCOL://HOST:PORT"):
            server.advertise("nowhere")


def test_a_restarted_broker_keeps_its_records() -> None:
    with running({"t": 1}) as server, Producer(server.bootstrap) as producer:
        producer.send("t", b"a").result(20)
        server.down()
        pending = producer.send("t", b"b")
        server.up()
        assert pending.result(30).offset == 1


@rule("R175")
def test_a_restarted_broker_restarts_the_sessions_of_members() -> None:
    """A broker that loads its groups restarts all members' session timeouts, however long it was down."""
    settings = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "300"}
    with running({"t": 1}, settings=settings) as server:
        with connected(server.bootstrap) as client:
            client.send(join_request(session=1_500), 1)
            member = client.answer(JoinGroupResponse, 1)
        server.down()
        time.sleep(1.6)
        server.up()
        with connected(server.bootstrap) as client:
            generation, member_id = member.generation_id, member.member_id
            client.send(HeartbeatRequest(group_id="g", generation_id=generation, member_id=member_id), 0)
            assert client.answer(HeartbeatResponse, 0).error_code == ErrorCode.NONE


def test_invalid_addresses_and_delays_are_refused() -> None:
    with running({"t": 1}) as server, connected(server.bootstrap) as client:
        with pytest.raises(ConfigError, match="a port from 1 to 65535"):
            server.advertise("127.0.0.1:0")
        with pytest.raises(ConfigError, match="PLAINTEXT://HOST:PORT with the first listener"):
            server.advertise("SSL://127.0.0.1:9")
        with pytest.raises(ConfigError, match="at least 0"):
            server.slow(math.nan)
        server.slow(10**400)  # A delay beyond the range of floats counts as infinite.
        client.send(MetadataRequest(topics=[]), 12)
        server.slow(0)
        assert client.answer(MetadataResponse, 12).brokers
        server.down()
        with pytest.raises(IllegalState, match="not running"):
            server.fail("Produce", "UNKNOWN_SERVER_ERROR")
    with pytest.raises(IllegalState, match="was closed at the end"):
        server.up()


def test_blocking_calls_are_refused_in_the_brokers_own_loop() -> None:
    async def stop_inside_the_loop() -> None:
        async with Server() as server:
            with pytest.raises(IllegalState, match=r"await stop\(\)"):
                server.down()

    asyncio.run(stop_inside_the_loop())
    with pytest.raises(IllegalState, match="start it first"):
        Server().up()

"""Clients that the operator throttles are treated as if they exceeded a quota (KIP-219)."""

from __future__ import annotations

import time
from typing import Any

import pytest

from kproto.broker.machine import ClientDisconnected, ThrottleClients, next_deadline
from kproto.broker.server import running
from kproto.errors import ConfigError
from kproto.messages.heartbeat import HeartbeatRequest
from kproto.messages.metadata import MetadataRequest, MetadataResponse
from kproto.messages.sasl_handshake import SaslHandshakeRequest
from tests.broker.stage import Client, Stage, batch_of, connected, fetch_request, fetch_topic, partitions_of

PRODUCE, FETCH, METADATA, HEARTBEAT = 0, 1, 3, 12


def throttled_client(api_key: int, ms: int = 2_000) -> tuple[Stage, Client]:
    stage = Stage({"t": 1})
    me = stage.client()
    me.produce(batch_of(b"a", b"b"))
    stage.step(ThrottleClients(api_key, ms))
    return stage, me


def test_a_throttled_response_is_immediate_and_mutes_the_connection() -> None:
    stage, me = throttled_client(METADATA)
    assert me.ask(MetadataRequest(topics=[])).throttle_time_ms == 2_000
    me.send(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"))
    stage.wait(1_999)
    assert me.answers == []
    stage.wait(1)
    assert me.answer().throttle_time_ms == 0


def test_other_connections_and_apis_are_not_throttled() -> None:
    stage, me = throttled_client(METADATA)
    me.ask(MetadataRequest(topics=[]))
    second_client = stage.client()
    assert second_client.produce(batch_of(b"c")).error_code == 0
    assert second_client.produce(batch_of(b"d")).base_offset == 3


def test_a_throttled_fetch_returns_no_records_and_opens_no_session() -> None:
    stage, me = throttled_client(FETCH)
    first = me.fetch(fetch_request(fetch_topic(), session=(0, 0)))
    assert (first.throttle_time_ms, first.session_id, first.error_code) == (2_000, 0, 0)
    assert partitions_of(first) == []
    stage.step(ThrottleClients(FETCH, 0))
    stage.wait(2_000)
    retried = me.fetch(fetch_request(fetch_topic(), session=(0, 0)))
    assert (retried.throttle_time_ms, len(partitions_of(retried))) == (0, 1)


def test_a_fetch_session_continues_after_a_throttled_fetch() -> None:
    stage, me = throttled_client(PRODUCE)
    first = me.fetch(fetch_request(fetch_topic(), session=(0, 0)))
    stage.step(ThrottleClients(FETCH, 100))
    throttled_one = me.fetch(fetch_request(session=(first.session_id, 1), wait=0))
    assert (throttled_one.session_id, partitions_of(throttled_one)) == (first.session_id, [])
    stage.step(ThrottleClients(FETCH, 0))
    stage.wait(100)
    assert partitions_of(me.fetch(fetch_request(session=(first.session_id, 2), wait=0)))


def test_records_of_a_throttled_producer_are_stored() -> None:
    stage, me = throttled_client(PRODUCE)
    assert me.produce(batch_of(b"c")).base_offset == 2
    assert stage.log("t").end_offset == 3


def test_a_connection_that_closes_while_muted_leaves_no_state() -> None:
    stage, me = throttled_client(METADATA)
    me.ask(MetadataRequest(topics=[]))
    stage.step(ClientDisconnected(me.conn))
    assert len(stage.broker.muted) == 0
    assert next_deadline(stage.broker) is None


def test_on_a_socket_the_next_response_waits_for_the_throttle_time() -> None:
    with running({"t": 1}) as server, connected(server.bootstrap) as client:
        server.throttle("Metadata", 0.3)
        began = time.monotonic()
        for _ in range(2):
            client.send(MetadataRequest(topics=[]), 12)
        response: Any = client.answer(MetadataResponse, 12)
        assert response.throttle_time_ms == 300
        client.answer(MetadataResponse, 12)
        assert time.monotonic() - began >= 0.25


def test_throttle_refuses_unknown_apis_and_times() -> None:
    assert "throttle_time_ms" not in SaslHandshakeRequest.__struct_fields__
    with running() as server:
        with pytest.raises(ConfigError, match=r"api='SaslHandshake' is not allowed; .*Fetch"):
            server.throttle("SaslHandshake", 1)
        for seconds in (-1, 10**7):
            with pytest.raises(ConfigError, match="allowed: 0 to"):
                server.throttle("Fetch", seconds)


def test_a_declined_session_does_not_occupy_a_slot() -> None:
    """A throttled fetch does not create a session. Throttled clients therefore use up no session slots."""
    stage, me = throttled_client(FETCH, 10)
    for _ in range(5):
        me.fetch(fetch_request(fetch_topic(), session=(0, 0)))
        stage.wait(10)
    assert len(stage.broker.fetch_sessions) == 0


def test_changes_withheld_from_a_throttled_fetch_are_in_the_next_response() -> None:
    """The next response contains a new high watermark that a throttled response withheld.

    A fetch session records a high watermark as known to the client only if a response contained it.
    """
    stage, me = throttled_client(FETCH, 0)
    first = me.fetch(fetch_request(fetch_topic(2), session=(0, 0), wait=0))
    stage.client().produce(batch_of(b"c"))
    ask = fetch_request(fetch_topic(3), session=(first.session_id, 1), wait=0)
    stage.step(ThrottleClients(FETCH, 10))
    assert partitions_of(me.fetch(ask)) == []
    stage.step(ThrottleClients(FETCH, 0))
    stage.wait(10)
    [data] = partitions_of(me.fetch(fetch_request(session=(first.session_id, 2), wait=0)))
    assert data.high_watermark == 3

"""A connection negotiates versions, matches responses to requests, and fails on an invalid response."""

from __future__ import annotations

import pytest

from consumer.engine.network.call import Call, Prepared
from consumer.engine.network.connection import Connection
from kproto.errors import ConnectionFailed, DecodeError, RequestTimedOut, UnsupportedVersion
from kproto.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from kproto.messages.headers import decode_request, encode_response
from kproto.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kproto.messages.metadata import MetadataRequest, MetadataResponse
from kproto.wire.frame import Frames, frame
from kproto.wire.message import Message

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


def connection() -> Connection:
    new_connection = Connection(1, "broker", 9092, "me", deadline=10_000)
    return new_connection


def call(
    request: Message | Prepared = HEARTBEAT, deadline: int = 1000, max_version: int | None = None
) -> Call:
    return Call(request, node=None, lane=0, deadline=deadline, timeout_ms=1000, max_version=max_version)


def sent(data: bytes) -> list[tuple[int, int, Message]]:
    """Return the correlation id, the version and the request of each written request."""
    requests = []
    for body in Frames().feed(data):
        envelope = decode_request(body)
        requests.append((envelope.header.correlation_id, envelope.version, envelope.request))
    return requests


def versions(*ranges: tuple[int, int, int]) -> ApiVersionsResponse:
    keys = [ApiVersion(api_key=key, min_version=low, max_version=high) for key, low, high in ranges]
    return ApiVersionsResponse(error_code=0, api_keys=keys)


def ready(*ranges: tuple[int, int, int]) -> Connection:
    ready_connection = connection()
    [(correlation, version, _)] = sent(ready_connection.opened())
    answer = versions((18, 0, 4), *(ranges or ((12, 0, 4), (3, 0, 13))))
    assert ready_connection.received(frame(encode_response(answer, version, correlation))) == b""
    assert ready_connection.ready
    return ready_connection


def test_the_first_request_is_api_versions_in_the_highest_version() -> None:
    [(_, version, request)] = sent(connection().opened())
    assert isinstance(request, ApiVersionsRequest)
    assert version == ApiVersionsRequest.__versions__.max


def test_api_versions_is_repeated_in_a_version_that_the_broker_knows() -> None:
    """The error response UNSUPPORTED_VERSION has version 0, and lists the supported versions (KIP-511)."""
    new_connection = connection()
    [(correlation, _, _)] = sent(new_connection.opened())
    refusal = versions((18, 0, 2))
    refusal.error_code = 35
    retry = new_connection.received(frame(encode_response(refusal, 0, correlation)))
    [(correlation, version, _)] = sent(retry)
    assert version == 2
    new_connection.received(frame(encode_response(versions((18, 0, 2), (12, 0, 3)), 2, correlation)))
    assert new_connection.ready


def test_requests_wait_for_the_versions_and_are_sent_in_order() -> None:
    new_connection = connection()
    [(correlation, version, _)] = sent(new_connection.opened())
    first, second = call(), call(MetadataRequest(topics=None))
    assert new_connection.ask(first) == new_connection.ask(second) == b""
    out = new_connection.received(
        frame(encode_response(versions((12, 0, 3), (3, 0, 13)), version, correlation))
    )
    assert [(v, type(r)) for _, v, r in sent(out)] == [(3, HeartbeatRequest), (13, MetadataRequest)]


def test_a_body_is_built_for_the_negotiated_version() -> None:
    ready_connection = ready((12, 0, 2))
    built: list[int] = []

    def build(version: int) -> Message:
        built.append(version)
        return HEARTBEAT

    ready_connection.ask(call(Prepared(HeartbeatRequest, build)))
    assert built == [2]


def test_a_maximum_version_lowers_the_version() -> None:
    [(_, version, _)] = sent(ready((12, 0, 4)).ask(call(max_version=1)))
    assert version == 1


def list_versions(ready_connection: Connection, request: bytes, *ranges: tuple[int, int, int]) -> bytes:
    """Respond to a repeated ApiVersions request, and return the bytes that the connection then writes.

    The response contains `ranges`, each as (API key, minimum version, maximum version).
    """
    [(correlation, version, repeated)] = sent(request)
    assert isinstance(repeated, ApiVersionsRequest)
    body = encode_response(versions((18, 0, 4), *ranges), version, correlation)
    return ready_connection.received(frame(body))


@pytest.mark.parametrize("offered", [(12, 5, 9), (11, 0, 9)])
def test_a_request_without_a_common_version_fails_after_two_responses(offered: tuple[int, int, int]) -> None:
    ready_connection, failed_call = ready(offered), call()
    repeated = ready_connection.ask(failed_call)
    assert not failed_call.done
    assert list_versions(ready_connection, repeated, offered) == b""
    assert isinstance(failed_call.error, UnsupportedVersion)
    assert "Heartbeat" in str(failed_call.error)
    assert "broker:9092" in str(failed_call.error)
    assert ready_connection.finished == [failed_call]


def test_a_request_that_one_response_did_not_list_is_sent_after_the_next_response() -> None:
    ready_connection, late_call, other = ready((11, 0, 9)), call(), call()
    repeated = ready_connection.ask(late_call)
    assert ready_connection.ask(other) == b""
    out = list_versions(ready_connection, repeated, (12, 0, 3))
    assert [(version, type(request)) for _, version, request in sent(out)] == [(3, HeartbeatRequest)] * 2


def test_requests_that_the_broker_lists_do_not_wait_for_the_repeated_api_versions() -> None:
    ready_connection = ready((3, 0, 13))
    ready_connection.ask(call())
    [(_, version, _)] = sent(ready_connection.ask(call(MetadataRequest(topics=None))))
    assert version == 13


def test_a_repeated_api_versions_with_an_error_ends_the_connection() -> None:
    ready_connection = ready((11, 0, 9))
    [(correlation, version, _)] = sent(ready_connection.ask(call()))
    refusal = versions()
    refusal.error_code = 41
    with pytest.raises(DecodeError, match="error 41"):
        ready_connection.received(frame(encode_response(refusal, version, correlation)))


def test_a_response_out_of_order_raises_a_decode_error() -> None:
    ready_connection = ready()
    out = ready_connection.ask(call()) + ready_connection.ask(call())
    (_, version, _), (second, _, _) = sent(out)
    answer = HeartbeatResponse(throttle_time_ms=0, error_code=0)
    with pytest.raises(DecodeError, match="order of the requests"):
        ready_connection.received(frame(encode_response(answer, version, second)))


def test_a_response_without_a_request_raises_a_decode_error() -> None:
    answer = HeartbeatResponse(throttle_time_ms=0, error_code=0)
    with pytest.raises(DecodeError, match="no request is in flight"):
        ready().received(frame(encode_response(answer, 4, 7)))


def test_every_open_call_fails_when_the_connection_breaks() -> None:
    ready_connection = ready()
    calls = [call(), call()]
    for open_call in calls:
        ready_connection.ask(open_call)
    ready_connection.fail_calls("connection reset")
    assert [str(call.error) for call in calls] == ["no broker at broker:9092: connection reset"] * 2
    assert all(isinstance(call.error, ConnectionFailed) for call in calls)


def test_an_overdue_response_closes_the_connection_and_an_unsent_call_does_not() -> None:
    ready_connection = ready()
    late = call(deadline=500)
    ready_connection.ask(late)
    assert not ready_connection.expire_calls(499)
    assert ready_connection.expire_calls(500)
    assert isinstance(late.error, RequestTimedOut)
    unready = connection()
    waiting = call(deadline=500)
    unready.ask(waiting)
    assert not unready.expire_calls(500)
    assert isinstance(waiting.error, RequestTimedOut)


def test_responses_may_arrive_byte_by_byte() -> None:
    ready_connection = ready()
    metadata_call = call(MetadataRequest(topics=[]))
    [(correlation, version, _)] = sent(ready_connection.ask(metadata_call))
    answer = MetadataResponse(throttle_time_ms=0, brokers=[], topics=[])
    for byte in frame(encode_response(answer, version, correlation)):
        assert metadata_call.response is None
        ready_connection.received(bytes([byte]))
    assert metadata_call.response == answer

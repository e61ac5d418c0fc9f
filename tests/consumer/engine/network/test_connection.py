"""One connection: versions, correlation, timeouts, and what happens when it breaks."""

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
    made = Connection(1, "broker", 9092, "me", deadline=10_000)
    return made


def call(request: Message | Prepared = HEARTBEAT, deadline: int = 1000, most: int | None = None) -> Call:
    return Call(request, node=None, lane=0, deadline=deadline, timeout_ms=1000, max_version=most)


def sent(data: bytes) -> list[tuple[int, int, Message]]:
    """(correlation id, version, request) of everything that was written."""
    found = []
    for body in Frames().feed(data):
        envelope = decode_request(body)
        found.append((envelope.header.correlation_id, envelope.version, envelope.request))
    return found


def versions(*ranges: tuple[int, int, int]) -> ApiVersionsResponse:
    keys = [ApiVersion(api_key=key, min_version=low, max_version=high) for key, low, high in ranges]
    return ApiVersionsResponse(error_code=0, api_keys=keys)


def ready(*ranges: tuple[int, int, int]) -> Connection:
    made = connection()
    [(correlation, version, _)] = sent(made.opened())
    answer = versions((18, 0, 4), *(ranges or ((12, 0, 4), (3, 0, 13))))
    assert made.received(frame(encode_response(answer, version, correlation))) == b""
    assert made.ready
    return made


def test_the_first_request_is_api_versions_at_our_highest_version() -> None:
    [(_, version, request)] = sent(connection().opened())
    assert isinstance(request, ApiVersionsRequest)
    assert version == ApiVersionsRequest.__versions__.max


def test_a_broker_that_does_not_know_that_version_is_asked_in_its_own() -> None:
    """KIP-511: the refusal comes in version 0 and says what is known."""
    made = connection()
    [(correlation, _, _)] = sent(made.opened())
    refusal = versions((18, 0, 2))
    refusal.error_code = 35
    again = made.received(frame(encode_response(refusal, 0, correlation)))
    [(correlation, version, _)] = sent(again)
    assert version == 2
    made.received(frame(encode_response(versions((18, 0, 2), (12, 0, 3)), 2, correlation)))
    assert made.ready


def test_requests_wait_for_the_versions_and_then_go_out_in_order() -> None:
    made = connection()
    [(correlation, version, _)] = sent(made.opened())
    first, second = call(), call(MetadataRequest(topics=None))
    assert made.ask(first) == made.ask(second) == b""
    out = made.received(frame(encode_response(versions((12, 0, 3), (3, 0, 13)), version, correlation)))
    assert [(v, type(r)) for _, v, r in sent(out)] == [(3, HeartbeatRequest), (13, MetadataRequest)]


def test_a_body_is_built_for_the_version_that_was_agreed() -> None:
    made = ready((12, 0, 2))
    built: list[int] = []

    def build(version: int) -> Message:
        built.append(version)
        return HEARTBEAT

    made.ask(call(Prepared(HeartbeatRequest, build)))
    assert built == [2]


def test_a_cap_lowers_the_version() -> None:
    [(_, version, _)] = sent(ready((12, 0, 4)).ask(call(most=1)))
    assert version == 1


@pytest.mark.parametrize("offered", [(12, 5, 9), (11, 0, 9)])
def test_no_common_version_is_said_with_both_ranges(offered: tuple[int, int, int]) -> None:
    made, asked = ready(offered), call()
    made.ask(asked)
    assert isinstance(asked.error, UnsupportedVersion)
    assert "broker:9092" in str(asked.error)


def test_an_answer_out_of_order_is_a_broken_connection() -> None:
    made = ready()
    out = made.ask(call()) + made.ask(call())
    (_, version, _), (second, _, _) = sent(out)
    answer = HeartbeatResponse(throttle_time_ms=0, error_code=0)
    with pytest.raises(DecodeError, match="order of the requests"):
        made.received(frame(encode_response(answer, version, second)))


def test_an_answer_that_nobody_asked_for_is_a_broken_connection() -> None:
    answer = HeartbeatResponse(throttle_time_ms=0, error_code=0)
    with pytest.raises(DecodeError, match="without a request"):
        ready().received(frame(encode_response(answer, 4, 7)))


def test_every_open_call_fails_when_the_connection_breaks() -> None:
    made = ready()
    calls = [call(), call()]
    for one in calls:
        made.ask(one)
    made.fail_calls("connection reset")
    assert [str(call.error) for call in calls] == ["no broker at broker:9092: connection reset"] * 2
    assert all(isinstance(call.error, ConnectionFailed) for call in calls)


def test_a_late_answer_costs_the_connection_but_a_waiting_call_only_itself() -> None:
    made = ready()
    late = call(deadline=500)
    made.ask(late)
    assert not made.expire_calls(499)
    assert made.expire_calls(500)
    assert isinstance(late.error, RequestTimedOut)
    unready = connection()
    waiting = call(deadline=500)
    unready.ask(waiting)
    assert not unready.expire_calls(500)
    assert isinstance(waiting.error, RequestTimedOut)


def test_answers_may_arrive_byte_by_byte() -> None:
    made = ready()
    asked = call(MetadataRequest(topics=[]))
    [(correlation, version, _)] = sent(made.ask(asked))
    answer = MetadataResponse(throttle_time_ms=0, brokers=[], topics=[])
    for byte in frame(encode_response(answer, version, correlation)):
        assert asked.response is None
        made.received(bytes([byte]))
    assert asked.response == answer

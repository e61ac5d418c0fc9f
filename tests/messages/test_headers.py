"""Requests and responses have the header that their version requires, and malformed headers are rejected."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproto.error_codes import ErrorCode
from kproto.errors import DecodeError, EncodeError, UnsupportedVersion
from kproto.messages import index
from kproto.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from kproto.messages.consumer_protocol import ConsumerProtocolAssignment
from kproto.messages.headers import (
    RequestHeader,
    ResponseHeader,
    UnsupportedRequest,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    request_header_version,
    response_header_version,
)
from kproto.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kproto.testing.strategies import from_message, versioned

BEAT = HeartbeatRequest(group_id="g", generation_id=3, member_id="m-1")


@given(st.sampled_from(sorted(index.API_NAMES)), st.data(), st.integers(-(2**31), 2**31 - 1))
def test_any_request_is_decoded_as_it_was_encoded(
    api_key: int, data: st.DataObject, correlation_id: int
) -> None:
    version, request = data.draw(versioned(index.request_class(api_key)))
    client_id = data.draw(st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=10))
    envelope = decode_request(encode_request(request, version, correlation_id, client_id))
    assert (envelope.request, envelope.version) == (request, version)
    assert (envelope.header.correlation_id, envelope.header.client_id) == (correlation_id, client_id)
    assert (envelope.header.request_api_key, envelope.header.request_api_version) == (api_key, version)


@given(st.sampled_from(sorted(index.API_NAMES)), st.data(), st.integers(-(2**31), 2**31 - 1))
def test_any_response_is_decoded_as_it_was_encoded(
    api_key: int, data: st.DataObject, correlation_id: int
) -> None:
    cls = index.response_class(api_key)
    version, response = data.draw(versioned(cls))
    frame = encode_response(response, version, correlation_id)
    assert decode_response(frame, cls, version) == (correlation_id, response)


def test_a_request_on_the_wire() -> None:
    expected = "000c 0004 00000001 0001 63 00" + "0267 00000003 04 6d2d31 00 00"
    assert encode_request(BEAT, 4, 1, "c").hex() == expected.replace(" ", "")


def test_flexible_bodies_have_flexible_headers() -> None:
    assert [request_header_version(HeartbeatRequest, version) for version in range(5)] == [1, 1, 1, 1, 2]
    assert [response_header_version(HeartbeatResponse, version) for version in range(5)] == [0, 0, 0, 0, 1]


def test_the_response_to_api_versions_always_has_the_oldest_header() -> None:
    assert [response_header_version(ApiVersionsResponse, version) for version in range(5)] == [0] * 5
    assert [request_header_version(ApiVersionsRequest, version) for version in range(5)] == [1, 1, 1, 2, 2]


def test_the_client_id_keeps_its_old_length_in_the_flexible_header() -> None:
    header = RequestHeader(request_api_key=18, request_api_version=3, correlation_id=1, client_id="c")
    assert header.encode(2).hex() == "001200030000000100016300"


@given(from_message(ResponseHeader, 1, unknown_tags=True))
def test_unknown_tags_of_a_header_do_not_hide_the_body(header: ResponseHeader) -> None:
    body = HeartbeatResponse(throttle_time_ms=0, error_code=27)
    assert decode_response(header.encode(1) + body.encode(4), HeartbeatResponse, 4) == (
        header.correlation_id,
        body,
    )


# Malformed requests.


def test_the_error_for_a_newer_version_has_the_request_header() -> None:
    frame = bytes.fromhex("0012 0063 00000007 0001 63 00 abcdef".replace(" ", ""))
    with pytest.raises(UnsupportedRequest, match="ApiVersionsRequest: version 99") as refused:
        decode_request(frame)
    assert refused.value.header.correlation_id == 7
    assert refused.value.header.client_id == "c"
    assert isinstance(refused.value, UnsupportedVersion)


@pytest.mark.parametrize("api_key", [-1, 4, 7, 999, 32767])
def test_the_error_for_an_unknown_api_has_the_request_header(api_key: int) -> None:
    header = RequestHeader(request_api_key=api_key, request_api_version=0, correlation_id=7, client_id=None)
    with pytest.raises(UnsupportedRequest) as refused:
        decode_request(header.encode(1))
    assert refused.value.header == header


def test_an_unknown_header_version_still_has_its_correlation_id() -> None:
    with pytest.raises(UnsupportedRequest) as refused:
        decode_request(bytes.fromhex("0fff 0000 00000007 7fff".replace(" ", "")))
    assert (refused.value.header.correlation_id, refused.value.header.client_id) == (7, None)


@pytest.mark.parametrize("version", range(5))
def test_every_prefix_of_a_request_raises_only_decode_error(version: int) -> None:
    frame = encode_request(BEAT, version, 1, "c")
    for size in range(len(frame)):
        with pytest.raises(DecodeError) as cut:
            decode_request(frame[:size])
        assert cut.value.message in ("RequestHeader", "HeartbeatRequest")


@given(st.binary(max_size=60))
def test_any_bytes_are_a_request_or_one_of_two_errors(frame: bytes) -> None:
    try:
        envelope = decode_request(frame)
    except (DecodeError, UnsupportedRequest):
        return
    assert envelope.request.__api_key__ == envelope.header.request_api_key


def test_a_data_message_cannot_be_sent_as_a_request() -> None:
    with pytest.raises(EncodeError, match="no API key"):
        encode_request(ConsumerProtocolAssignment(assigned_partitions=[]), 0, 1, None)


@pytest.mark.parametrize("version", range(5))
def test_a_rejected_api_versions_response_is_read_in_version_0(version: int) -> None:
    """A broker that does not know the version of an ApiVersions request responds in version 0 (KIP-511)."""
    supported = ApiVersion(api_key=18, min_version=0, max_version=3)
    response = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[supported])
    frame = encode_response(response, 0, 7)
    assert decode_response(frame, ApiVersionsResponse, version) == (7, response)

"""Decoding and encoding without copies of records gives the same results as with copies."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproto.errors import DecodeError, EncodeError
from kproto.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from kproto.messages.index import API_NAMES, request_class, response_class
from kproto.testing.strategies import versioned
from kproto.wire import decode_from, decode_views, encode_pieces


def answer(version: int, *records: bytes | None) -> FetchResponse:
    partitions = [
        PartitionData(
            partition_index=index, error_code=0, high_watermark=1, aborted_transactions=None, records=record
        )
        for index, record in enumerate(records)
    ]
    topic = FetchableTopicResponse(partitions=partitions)
    if version < 13:
        topic.topic = "t"
    return FetchResponse(throttle_time_ms=0, responses=[topic])


@pytest.mark.parametrize("version", [*range(4, 19)])
def test_large_records_are_views(version: int) -> None:
    data = bytearray(answer(version, b"x" * 100_000, None).encode(version))
    [topic] = decode_views(FetchResponse, data, 0, version)[0].responses
    first, second = (entry.records for entry in topic.partitions)
    assert isinstance(first, memoryview)
    assert first.obj is data
    assert second is None


RESPONSES = [response_class(key) for key in sorted(API_NAMES)]


@given(st.data())
def test_decoding_with_views_equals_decoding_without(data: st.DataObject) -> None:
    cls = data.draw(st.sampled_from(RESPONSES))
    version, message = data.draw(versioned(cls, unknown_tags=True))
    encoded = bytearray(message.encode(version))
    decoded, end = decode_views(cls, encoded, 0, version)
    assert (decoded, end) == decode_from(cls, encoded, 0, version)
    assert decoded.encode(version) == encoded


def test_truncated_bytes_raise_the_same_error() -> None:
    data = answer(12, b"x" * 100).encode(12)
    for end in range(len(data)):
        with pytest.raises(DecodeError) as expected:
            decode_from(FetchResponse, data[:end], 0, 12)
        with pytest.raises(DecodeError) as actual:
            decode_views(FetchResponse, bytearray(data[:end]), 0, 12)
        assert str(actual.value) == str(expected.value)


@given(st.data())
def test_pieces_join_to_the_message_and_large_records_are_one_piece(data: st.DataObject) -> None:
    cls = data.draw(st.sampled_from([request_class(key) for key in sorted(API_NAMES)]))
    version, message = data.draw(versioned(cls, unknown_tags=True))
    assert b"".join(encode_pieces(message, version)) == message.encode(version)
    records = b"x" * 100_000
    assert any(piece is records for piece in encode_pieces(answer(12, records), 12))


def test_encoding_into_pieces_rejects_what_encode_rejects() -> None:
    with pytest.raises(EncodeError, match="throttle_time_ms"):
        encode_pieces(FetchResponse(throttle_time_ms=1 << 40, responses=[]), 12)

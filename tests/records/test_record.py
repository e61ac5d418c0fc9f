"""Varints and headers, the parts of records, are encoded and read up to their limits."""

from __future__ import annotations

import pytest

from kproto.records import Record, encode_batch, rows
from kproto.records.record import (
    MAX_HEADERS,
    TABLE_SIZE,
    MalformedRecord,
    begins_records,
    complete_records,
    encode_headers,
    parse_headers,
    small_varints,
    zigzag,
)


def test_the_table_of_varints_equals_the_function() -> None:
    varints, deltas = small_varints()
    assert varints == [zigzag(number) for number in range(TABLE_SIZE)]
    assert deltas == [b"\0" + varint for varint in varints]


def test_headers_are_encoded_in_order_with_repetitions() -> None:
    assert encode_headers([("a", b"1"), ("a", None)]) == b"\4\2a\2" + b"1" + b"\2a\1"


def test_complete_records_end_within_the_data() -> None:
    sizes = [6, 63, 64, 8191, 8192, 70_000]
    ends, data = [0], b""
    for size in sizes:
        data += zigzag(size) + bytes(size)
        ends.append(len(data))
    for count, end in enumerate(ends):
        assert complete_records(data[:end], 0, 10, 1 << 20) == (count, end)
        assert complete_records(data[: end + 2], 0, count, 1 << 20) == (count, end)
    for count, end in enumerate(ends[1:]):
        assert complete_records(data[: end - 1], 0, 10, 1 << 20) == (count, ends[count])


def test_complete_records_start_within_the_most_bytes() -> None:
    data = (zigzag(99) + bytes(99)) * 5
    assert complete_records(data, 0, 10, 202) == (3, 303)
    assert complete_records(data, 101, 10, 1) == (1, 202)


def test_a_record_may_have_as_many_headers_as_the_limit() -> None:
    def encoded(count: int) -> bytes:
        return zigzag(count) + bytes((0, 1)) * count

    data = encoded(MAX_HEADERS)
    headers, end = parse_headers(data, 0, len(data), {})
    assert (len(headers), end) == (MAX_HEADERS, len(data))
    data = encoded(MAX_HEADERS + 1)
    with pytest.raises(MalformedRecord) as caught:
        parse_headers(data, 0, len(data), {})
    assert "this reader allows 100000" in caught.value.detail


@pytest.mark.parametrize("size", [62, 63, 64, 8190, 8191, 8192])
def test_a_header_at_the_limits_of_varint_widths_is_read(size: int) -> None:
    """63 is the largest size whose varint has one byte, and 8191 the largest with two bytes. Zigzag-encoded,
    they fill 7 and 14 bits.
    """
    record = Record(0, 1, None, b"v", (("k", b"x" * size),))
    assert rows(encode_batch([record])) == [record]


@pytest.mark.parametrize(
    ("start", "begins"),
    [
        (b"", False),
        (b"\x0c" + bytes(6), True),
        (b"\x0c" + bytes(3), True),
        (b"\x0a" + bytes(5), False),
        (b"\x0d" + bytes(6), False),
        (b"\x0c" + bytes(6) + b"\x0c" + bytes(6), True),
        (b"\x0c" + bytes(6) + b"\x0b", False),
        (b"\x80", True),
        (b"\xff" * 6, False),
    ],
)
def test_bytes_begin_records_if_each_has_a_valid_length(start: bytes, begins: bool) -> None:
    assert begins_records(memoryview(start)) is begins

"""Varints and headers, which are parts of records."""

from __future__ import annotations

from kproto.records.record import TABLE_SIZE, complete_records, encode_headers, small_varints, zigzag


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
        assert complete_records(data[:end], 0, 10) == (count, end)
        assert complete_records(data[: end + 2], 0, count) == (count, end)
    for count, end in enumerate(ends[1:]):
        assert complete_records(data[: end - 1], 0, 10) == (count, ends[count])

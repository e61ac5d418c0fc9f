"""Varints and headers, which are parts of records."""

from __future__ import annotations

from kproto.records.record import TABLE_SIZE, encode_headers, small_varints, zigzag


def test_the_table_of_varints_equals_the_function() -> None:
    varints, deltas = small_varints()
    assert varints == [zigzag(number) for number in range(TABLE_SIZE)]
    assert deltas == [b"\0" + varint for varint in varints]


def test_headers_are_encoded_in_order_with_repetitions() -> None:
    assert encode_headers([("a", b"1"), ("a", None)]) == b"\4\2a\2" + b"1" + b"\2a\1"

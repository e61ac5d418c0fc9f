"""Columns become an Arrow table or a pandas frame with the same rows."""

from __future__ import annotations

import sys

import pytest

from kproto.errors import MissingExtra
from kproto.records import Record, encode_batch
from kproto.records.columns import columns

RECORDS = [
    Record(0, 1_700_000_000_000, b"a", b"1", (("gate", b"B4"), ("late", None))),
    Record(1, -1, None, b"2"),
    Record(2, 1_700_000_000_002, b"c", None),
]


def test_a_table_has_what_the_rows_have() -> None:
    table = columns(encode_batch(RECORDS)).to_arrow()
    assert table.column_names == ["offset", "timestamp", "timestamp_type", "key", "value", "headers"]
    assert table["offset"].to_pylist() == [0, 1, 2]
    assert table["key"].to_pylist() == [b"a", None, b"c"]
    assert table["value"].to_pylist() == [b"1", b"2", None]
    assert table["headers"].to_pylist() == [
        [{"key": "gate", "value": b"B4"}, {"key": "late", "value": None}],
        [],
        [],
    ]


def test_a_timestamp_is_a_time_or_null() -> None:
    times = columns(encode_batch(RECORDS)).to_arrow()["timestamp"]
    assert str(times.type) == "timestamp[ms, tz=UTC]"
    assert [None if t is None else int(t.timestamp() * 1000) for t in times.to_pylist()] == [
        1_700_000_000_000,
        None,
        1_700_000_000_002,
    ]


def test_no_records_are_an_empty_table_of_the_same_columns() -> None:
    empty = columns(b"").to_arrow()
    assert empty.num_rows == 0
    assert empty.schema == columns(encode_batch(RECORDS)).to_arrow().schema


def test_a_slice_is_a_table_of_its_rows_alone() -> None:
    table = columns(encode_batch(RECORDS)).slice(1, 3).to_arrow()
    assert table["offset"].to_pylist() == [1, 2]
    assert table["headers"].to_pylist() == [[], []]


def test_a_frame_has_the_same_rows() -> None:
    pytest.importorskip("pandas")
    frame = columns(encode_batch(RECORDS)).to_pandas()
    assert list(frame["value"]) == [b"1", b"2", None]
    assert list(frame["offset"]) == [0, 1, 2]


def test_without_pandas_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtra, match="to_pandas needs pandas"):
        columns(b"").to_pandas()


def test_the_repr_of_columns_has_their_count_and_offsets() -> None:
    assert repr(columns(encode_batch(RECORDS))) == "<Columns: 3 records, offsets 0 to 2>"
    assert repr(columns(b"")) == "<Columns: 0 records>"

"""Headers of many records are decoded together, with the same results as in the row reader.

tests/records/claims.py compares the results of this decoder and the row reader.
"""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyarrow")

import pyarrow
from hypothesis import given
from hypothesis import strategies as st

from kproto.errors import RecordError
from kproto.records.header_decoder import HeaderColumns
from kproto.records.record import Headers, MalformedRecord, encode_headers, parse_headers
from kproto.testing.strategies import headers

pa: Any = pyarrow

MANY = tuple((f"key {number}", b"%d" % number) for number in range(300))


def tails(*sections: bytes) -> HeaderColumns:
    return HeaderColumns(pa.array(sections, pa.binary()))


def by_record(section: bytes) -> Headers | None:
    """Parse headers with the row reader; return None if the reader rejects the headers."""
    try:
        parsed, end = parse_headers(section, 0, len(section), {})
    except (MalformedRecord, IndexError):
        return None
    return parsed if end == len(section) else None


@pytest.fixture
def only_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: HeaderColumns) -> None:
        raise AssertionError("read record by record")

    monkeypatch.setattr(HeaderColumns, "_parse_slowly", refuse)


@given(st.lists(headers, max_size=8))
@pytest.mark.usefixtures("only_fast")
def test_headers_are_read_as_written(rows: list[Headers]) -> None:
    decoded = tails(*map(encode_headers, rows))
    assert decoded.rows(0, len(rows)) == rows


@given(st.lists(headers, min_size=1, max_size=8), st.data())
def test_a_range_of_rows_equals_the_slice_of_all(rows: list[Headers], data: st.DataObject) -> None:
    stop = data.draw(st.integers(0, len(rows)))
    start = data.draw(st.integers(0, stop))
    assert tails(*map(encode_headers, rows)).rows(start, stop) == rows[start:stop]


@given(st.lists(headers, min_size=1, max_size=8), st.data())
def test_the_array_has_the_same_headers(rows: list[Headers], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(rows)))
    listed = tails(*map(encode_headers, rows)).array(start, len(rows)).to_pylist()
    assert [tuple((header["key"], header["value"]) for header in row) for row in listed] == rows[start:]


@given(st.lists(headers, min_size=1, max_size=4), st.data())
def test_corrupted_headers_are_read_as_record_by_record_or_rejected(
    rows: list[Headers], data: st.DataObject
) -> None:
    sections = [bytearray(encode_headers(row)) for row in rows]
    for _ in range(data.draw(st.integers(1, 3))):
        section = data.draw(st.sampled_from(sections))
        place = data.draw(st.integers(0, len(section) - 1))
        section[place] = data.draw(st.integers(0, 255))
    wanted = [by_record(bytes(section)) for section in sections]
    decoded = tails(*map(bytes, sections))
    if None in wanted:
        with pytest.raises(RecordError):
            decoded.rows(0, 0)
    else:
        assert decoded.rows(0, len(sections)) == wanted


@pytest.mark.usefixtures("only_fast")
def test_keys_are_decoded_as_java_does() -> None:
    assert tails(b"\x02\x04a\xff\x01").rows(0, 1) == [(("a\N{REPLACEMENT CHARACTER}", None),)]


@pytest.mark.usefixtures("only_fast")
def test_long_keys_and_values_are_decoded_by_numpy() -> None:
    row: Headers = (("k" * 5000, b"v" * 8000),)
    assert tails(encode_headers(row), encode_headers(())).rows(0, 2) == [row, ()]


def test_a_record_may_have_very_many_headers() -> None:
    rows: list[Headers] = [MANY, (), (("one", None),)]
    decoded = tails(*map(encode_headers, rows))
    assert decoded.rows(0, 3) == rows
    assert decoded.array(1, 3).to_pylist() == [[], [{"key": "one", "value": None}]]


def test_values_with_lengths_of_three_bytes_are_read() -> None:
    row: Headers = (("k", b"v" * 20000),)
    assert tails(encode_headers(row)).rows(0, 1) == [row]

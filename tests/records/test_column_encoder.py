"""Encoding columns returns the same bytes as the builder for the same rows."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproto.errors import ConfigError, EncodeError
from kproto.records import BatchBuilder, batches, rows
from kproto.records.batch import HEADER_SIZE
from kproto.records.compression import CODECS
from kproto.records.list_encoder import unnumbered
from kproto.testing.strategies import NOW, contents, headers
from tests.records.claims import WILD

pytest.importorskip("pyarrow")
pytest.importorskip("cramjam")

import numpy as np
import pyarrow as pa

from kproto.records import column_encoder
from kproto.records.columns import columns, encode_columns

ROWS = st.lists(st.tuples(WILD, contents, contents, headers), max_size=40)


@given(ROWS, st.sampled_from([100, 1000, 50000]), st.sampled_from(CODECS), st.booleans())
def test_the_builder_writes_the_same_bytes(records: list[Any], size: int, codec: str, named: bool) -> None:
    moments, keys, values, tails = ([row[column] for row in records] for column in range(4))
    if not named:
        tails = [()] * len(records)
    encoded = encode_columns(
        moments, keys, values, tails if named else None, compression=codec, max_bytes=size
    )
    start = 0
    for data in encoded:
        (batch,) = batches(data)
        builder = BatchBuilder(codec, max_bytes=1 << 40)
        for at in range(start, start + batch.count):
            builder.append(moments[at], keys[at], values[at], tails[at])
        assert builder.build() == data
        assert builder.size <= size or batch.count == 1
        start += batch.count
    assert start == len(records)


@given(
    st.lists(
        st.tuples(st.integers(1, 40), st.sampled_from([0, 0, 1, 50, 10_000, 1 << 20, 1 << 33, 1 << 50])),
        min_size=1,
        max_size=6,
    ),
    st.sampled_from([1, 2, 54, 55, 56, 57, 58, 200, 8180]),
    st.sampled_from([0, 0, 0, 8150]),
    st.sampled_from([1000, 20_000, 1 << 30]),
    st.sampled_from(["none", "none", "lz4"]),
    st.sampled_from([None, "key", "null", "longer", "earlier"]),
    st.integers(0, 3),
)
def test_values_of_one_length_are_copied_as_a_matrix_and_the_bytes_are_the_same(
    steps: list[tuple[int, int]], length: int, more: int, size: int, codec: str, odd: str | None, cut: int
) -> None:
    """Values of equal length are copied as a matrix, into the same bytes as `list_encoder` makes.

    The examples cover all widths of varints, one irregular record at each index, and column slices.
    """
    moments: list[int] = [NOW] * (more if length < 300 else 0)
    for count, step in steps:
        moments += [(moments[-1] if moments else NOW) + step] * count
    rows = len(moments)
    values: list[bytes | None] = [b"%d" % row * length for row in range(10)] * (rows // 10 + 1)
    values = [(value or b"")[:length] for value in values[:rows]]
    keys: list[bytes | None] = [None] * rows
    if odd == "key":
        keys[rows // 2] = b""
    elif odd == "null":
        values[rows // 2] = None
    elif odd == "longer":
        values[rows // 2] = b"x" * (length + 1)
    elif odd == "earlier":
        moments[rows // 2] -= 1
    column = pa.array([b"before"] * cut + values, pa.binary())[cut:]
    built = encode_columns(moments, keys, column, compression=codec, max_bytes=size)
    start = 0
    for data in built:
        (batch,) = batches(data)
        of = slice(start, start + batch.count)
        same = unnumbered(moments[of], keys[of], values[of], compression=codec)
        assert same.numbered(-1, -1, -1) == data
        start += batch.count
    assert start == rows


@pytest.mark.parametrize("value_sizes", [(9, 9, 9), (9, 90, 900)])
def test_a_batch_has_its_compression_ratio_and_a_bound_of_its_largest_record(
    value_sizes: tuple[int, ...],
) -> None:
    columns_given: Any = range(NOW, NOW + 3), None, [b"v" * size for size in value_sizes]
    [plain] = column_encoder.unnumbered(*columns_given)
    [compressed] = column_encoder.unnumbered(*columns_given, compression="gzip")
    assert plain.compression_ratio == 1
    assert compressed.compression_ratio == (len(compressed) - HEADER_SIZE) / (len(plain) - HEADER_SIZE)
    assert max(value_sizes) < plain.largest_record <= max(value_sizes) + 20


def test_batches_are_nearly_full() -> None:
    built = encode_columns(range(NOW, NOW + 5000), [b"k" * 10] * 5000, [b"v" * 100] * 5000, max_bytes=16384)
    assert all(15500 < len(data) <= 16384 for data in built[:-1])


def test_a_batch_numbered_later_has_the_same_bytes() -> None:
    columns_given: Any = range(NOW, NOW + 300), [b"k"] * 300, [b"v" * 9] * 300
    numbers = {"producer_id": 7, "producer_epoch": 2, "base_sequence": 5}
    [batch] = column_encoder.unnumbered(*columns_given, max_bytes=1 << 20)
    first = batch.numbered(7, 2, 5)
    renumbered = batch.numbered(8, 0, 0, is_transactional=True)
    assert encode_columns(*columns_given, max_bytes=1 << 20, **numbers) == [first]
    assert len(batch) == len(first) == len(renumbered)
    assert (next(batches(renumbered)).producer_id, next(batches(renumbered)).is_transactional) == (8, True)


def test_sequence_numbers_continue_and_wrap() -> None:
    last = (1 << 31) - 1
    built = encode_columns(
        [NOW] * 3, None, None, max_bytes=1, producer_id=1, producer_epoch=0, base_sequence=last - 1
    )
    assert [next(batches(data)).base_sequence for data in built] == [last - 1, last, 0]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["a", None, "ü"]),
        pa.array([b"a", None, "ü".encode()], pa.large_binary()),
        pa.chunked_array([["a"], [None, "ü"]]),
        pa.chunked_array([pa.array([b"a", None, "ü".encode()])]),
        pa.array(["x", "a", None, "ü"]).slice(1),
        [b"a", None, "ü".encode()],
    ],
    ids=["string", "large", "chunks", "chunk", "slice", "list"],
)
def test_columns_are_accepted_in_many_forms(column: Any) -> None:
    (data,) = encode_columns(np.array([NOW] * 3), column, column)
    assert [row.value for row in rows(data)] == [row.key for row in rows(data)] == [b"a", None, "ü".encode()]


def test_chunked_columns_without_chunks_are_no_rows() -> None:
    assert encode_columns([], pa.chunked_array([], pa.string()), None) == []


def test_what_was_read_as_columns_can_be_written_as_columns() -> None:
    (data,) = encode_columns(range(NOW, NOW + 300), [b"k"] * 300, [b"v" * 9] * 300, max_bytes=1 << 20)
    read = columns(data)
    assert encode_columns(read.timestamp, read.key, read.value, max_bytes=1 << 20) == [data]


def test_more_bytes_than_arrow_can_join_are_joined_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments: Any = ([NOW] * 500, None, [b"v" * 50] * 500)
    at_once = encode_columns(*arguments, max_bytes=1000)
    monkeypatch.setattr(column_encoder, "_MAX_JOINED_BYTES", 3000)
    assert encode_columns(*arguments, max_bytes=1000) == at_once


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(EncodeError, match="key"):
        encode_columns([NOW], [b"a", b"b"], None)
    with pytest.raises(EncodeError, match="headers"):
        encode_columns([NOW], None, None, [])


def test_a_batch_size_of_zero_is_rejected() -> None:
    with pytest.raises(ConfigError):
        encode_columns([NOW], None, None, max_bytes=0)


@pytest.mark.parametrize("each", [1, 10, 29])
def test_a_batch_of_short_records_may_have_exactly_max_bytes(each: int) -> None:
    """The batch header and `each` records fill `max_bytes`: a record with a one-byte value takes 8 bytes."""
    encoded = list(
        encode_columns([NOW] * 30, None, [b"v"] * 30, compression="none", max_bytes=HEADER_SIZE + 8 * each)
    )
    assert {len(data) for data in encoded[: 30 // each]} == {HEADER_SIZE + 8 * each}
    assert len(encoded) == -(-30 // each)

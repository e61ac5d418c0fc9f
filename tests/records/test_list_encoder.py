"""Encoding lists returns the same bytes as the builder for the same rows."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproto.errors import EncodeError, RecordError
from kproto.records import BatchBuilder, batches, renumber
from kproto.records.batch import HEADER_SIZE
from kproto.records.list_encoder import _encode_rows, unnumbered
from kproto.testing.strategies import NOW, contents, headers
from tests.records.claims import WILD

pytest.importorskip("cramjam")

NEAR = st.integers(0, 20_000).map(lambda ms: NOW + ms)
EDGES = sorted(
    {side * (1 << bits) + by for bits in (6, 13, 16, 20, 27, 34, 41) for side in (-1, 1) for by in (-1, 0, 1)}
)
SIZES = st.sampled_from([0, 1, 63, 64, 100, 8191, 8192, 17_000])


def built(rows: list[Any], codec: str = "none") -> bytes:
    builder = BatchBuilder(codec)
    for row in rows:
        builder.append(*row)
    return builder.build(producer_id=7, producer_epoch=1, base_sequence=5)


def listed(rows: list[Any], codec: str = "none") -> bytes:
    columns: list[list[Any]] = [[row[column] for row in rows] for column in range(4)]
    return unnumbered(*columns, compression=codec).numbered(7, 1, 5)


@given(
    st.lists(st.tuples(WILD, contents, contents, headers), min_size=1, max_size=40),
    st.sampled_from(["none", "zstd"]),
)
def test_the_bytes_are_those_of_the_builder(rows: list[Any], codec: str) -> None:
    assert listed(rows, codec) == built(rows, codec)


@given(
    st.lists(st.tuples(NEAR, contents, contents, headers), min_size=1, max_size=40)
    | st.lists(st.tuples(st.just(NOW), st.none(), st.just(b"v" * 70), st.just(())), min_size=2, max_size=90),
    st.sampled_from(["none", "zstd"]),
)
def test_the_ratio_and_the_largest_record_are_those_of_the_builder(rows: list[Any], codec: str) -> None:
    builder = BatchBuilder(codec)
    sizes: list[int] = []
    for row in rows:
        before = builder.size
        builder.append(*row)
        sizes.append(builder.size - before)
    columns: list[list[Any]] = [[row[column] for row in rows] for column in range(4)]
    batch, expected = unnumbered(*columns, compression=codec), builder.unnumbered()
    assert batch.largest_record == expected.largest_record == max(sizes)
    assert batch.compression_ratio == expected.compression_ratio == (len(batch) - HEADER_SIZE) / sum(sizes)


@given(st.lists(st.tuples(NEAR, SIZES), min_size=2, max_size=200), st.booleans(), st.booleans())
def test_typical_records_have_the_bytes_of_the_builder(
    sizes_by_time: list[tuple[int, int]], keyed: bool, in_order: bool
) -> None:
    rows: list[Any] = [
        (moment, b"k" * (size % 90) if keyed else None, b"v" * size, ())
        for moment, size in (sorted(sizes_by_time) if in_order else sizes_by_time)
    ]
    assert listed(rows) == built(rows)


@pytest.mark.parametrize("count", [63, 64, 65, 8191, 8192, 8193, 16384, 16385, 65536, 65537])
def test_offset_deltas_of_all_widths_have_the_bytes_of_the_builder(count: int) -> None:
    rows: list[Any] = [(NOW + number // 7, None, b"x", ()) for number in range(count)]
    assert listed(rows) == built(rows)


def test_records_with_headers_are_encoded_without_the_builder() -> None:
    rows: list[Any] = [(NOW + number, b"k", b"v", (("h", b"x" * number),)) for number in range(3)]
    moments, keys, values, tails = (list(column) for column in zip(*rows, strict=True))
    assert b"".join(_encode_rows(moments, keys, values, tails)[0]) == built(rows)[HEADER_SIZE:]


@given(st.lists(st.sampled_from(EDGES), min_size=1, max_size=40), st.booleans())
def test_timestamps_may_be_far_apart_and_in_any_order(deltas: list[int], in_order: bool) -> None:
    rows: list[Any] = [
        (NOW + delta, b"key", b"value", ()) for delta in (sorted(deltas) if in_order else [0, *deltas])
    ]
    assert listed(rows) == built(rows)


def test_lists_of_different_lengths_and_invalid_values_are_rejected() -> None:
    with pytest.raises(EncodeError, match="values: 1 for 2 timestamps"):
        unnumbered([NOW, NOW], [None, None], [b"x"])
    with pytest.raises(EncodeError, match=r"records\[1\].value: 'text' is not bytes"):
        unnumbered([NOW, NOW], [None, None], [b"x", "text"])  # type: ignore[list-item]


def test_renumber_sets_the_numbers_and_the_crc() -> None:
    rows: list[Any] = [(NOW, None, b"x" * size, ()) for size in range(50)]
    (batch,) = batches(renumber(listed(rows), 99, 3, 1000))
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.count) == (99, 3, 1000, 50)
    assert renumber(renumber(listed(rows), 99, 3, 1000), 7, 1, 5) == listed(rows)


def test_renumber_rejects_invalid_numbers_and_malformed_batches() -> None:
    data = listed([(NOW, None, b"x", ())])
    with pytest.raises(EncodeError, match="producerEpoch: 40000"):
        renumber(data, 1, 40_000, 0)
    with pytest.raises(RecordError, match="exactly one batch"):
        renumber(data[:50], 1, 0, 0)

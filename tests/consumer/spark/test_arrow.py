"""A fetch response is decoded up to the end of the range. The next fetch starts after the decoded batches."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import StructType

from consumer.spark.arrow import PIECE_BYTES, ROWS, Builder, batches_before, split_compressed
from consumer.spark.ranges import Range
from kproto.errors import RecordError
from kproto.records import batches, encode_batch
from kproto.records.record import Record


def batch(*offsets: int) -> bytes:
    """Encode a batch of records with these offsets."""
    return encode_batch([Record(offset, 0, None, b"v") for offset in offsets], base_offset=offsets[0])


def test_batches_that_begin_at_the_end_are_not_decoded() -> None:
    first, second = batch(0, 1, 2), batch(3, 4)
    assert batches_before(first + second, 3) == (first, 3)


def test_a_batch_that_begins_before_the_end_is_not_split() -> None:
    first, second = batch(0, 1, 2), batch(3, 4)
    assert batches_before(first + second, 4) == (first + second, 5)


def test_an_incomplete_last_batch_is_read_by_the_next_fetch() -> None:
    first, second = batch(0, 1, 2), batch(3, 4)
    assert batches_before(first + second[:-1], 99)[1] == 3


def test_a_range_without_a_batch_is_a_gap_and_counts_as_read() -> None:
    assert batches_before(batch(7, 8), 5) == (b"", 5)


def test_an_incomplete_batch_does_not_advance_the_offset() -> None:
    assert batches_before(batch(0)[:-1], 5)[1] is None


def sizes(*encoded: bytes) -> list[int]:
    """Split compressed batches into pieces, which together must equal the input. Return the number of batches
    in each piece.
    """
    pieces = [piece for piece, _ in split_compressed(b"".join(encoded))]
    assert b"".join(pieces) == b"".join(encoded)
    return [len(list(batches(piece))) for piece in pieces]


def test_compressed_batches_are_decompressed_in_pieces() -> None:
    """Each piece of a fetch is decompressed separately, so memory does not grow with the fetch's size."""
    many = [Record(n, 0, None, b"the same again" * 9) for n in range(ROWS // 4)]
    large = [Record(0, 0, None, Random(0).randbytes(PIECE_BYTES // 3))]
    huge = [Record(0, 0, None, Random(0).randbytes(PIECE_BYTES * 2))]
    assert sizes(*[encode_batch(many, compression="gzip")] * 10) == [4, 4, 2]
    assert sizes(*[encode_batch(large, compression="gzip")] * 5) == [2, 2, 1]
    assert sizes(*[encode_batch(huge, compression="gzip")] * 2) == [1, 1]
    assert sizes(*[encode_batch(many)] * 10) == [10]


def test_an_error_in_a_batch_names_partition_offsets_and_remedy() -> None:
    broken = bytearray(batch(40, 41))
    broken[-1] ^= 1
    builder = Builder(StructType().add("value", "binary"), Range("t", 3, 40, 50))
    with pytest.raises(
        RecordError, match=r"fetched at offset 40 of t-3, to be read up to 50.*kafka\.check\.crcs"
    ):
        list(builder.batches(bytes(broken), (), 40))


# ---- transactions


def transactional(records: list[Record], producer_id: int, **more: Any) -> bytes:
    """Encode a batch of transactional records."""
    return encode_batch(
        records, base_offset=records[0].offset, producer_id=producer_id, is_transactional=True, **more
    )


def marker(offset: int, producer_id: int, *, commit: bool) -> bytes:
    """Encode a transaction marker."""
    key = b"\0\0\0\1" if commit else b"\0\0\0\0"
    return transactional([Record(offset, 0, key, bytes(6))], producer_id, is_control=True)


def log_of(random: Random) -> tuple[bytes, tuple[tuple[int, int], ...], list[int]]:
    """Return the bytes, aborted transactions and committed offsets of a log with interleaved transactions."""
    data, at = b"", 0
    aborted: list[tuple[int, int]] = []
    committed: list[int] = []
    begun: dict[int, list[int]] = {}
    for _ in range(60):
        producer_id = random.randrange(3)
        if random.random() < 0.7:
            offsets = list(range(at, at + random.randint(1, 4)))
            records = [Record(offset, 0, None, random.randbytes(9)) for offset in offsets]
            data += transactional(records, producer_id, compression=random.choice(["gzip", "none"]))
            begun.setdefault(producer_id, []).extend(offsets)
            at = offsets[-1] + 1
        elif (offsets := begun.pop(producer_id, [])) and random.random() < 0.5:
            committed += offsets
            data, at = data + marker(at, producer_id, commit=True), at + 1
        elif offsets:
            aborted.append((producer_id, offsets[0]))
            data, at = data + marker(at, producer_id, commit=False), at + 1
    aborted += [(producer_id, offsets[0]) for producer_id, offsets in begun.items()]
    return data, tuple(aborted), sorted(committed)


def test_each_piece_omits_records_aborted_in_it_and_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("consumer.spark.arrow.PIECE_BYTES", 300)
    builder = Builder(StructType().add("offset", "long"), Range("t", 0, 0, 10**6))
    for seed in range(50):
        data, aborted, committed = log_of(Random(seed))
        pieces = list(split_compressed(data, aborted))
        assert b"".join(piece for piece, _ in pieces) == data
        assert len(pieces) > 3
        rows = [
            batch for piece, still_aborted in pieces for batch in builder.batches(piece, still_aborted, 0)
        ]
        assert [n for batch in rows for n in batch.column(0).to_pylist()] == committed, f"seed {seed}"


def test_an_error_in_a_transaction_marker_names_the_partition() -> None:
    broken = bytearray(marker(4, 7, commit=False))
    broken[-1] ^= 1
    broken[70] ^= 0xFF
    data = transactional([Record(3, 0, None, b"v")], 7) + bytes(broken)
    builder = Builder(StructType().add("value", "binary"), Range("t", 3, 0, 50))
    [(piece, still_aborted)] = split_compressed(data, ((7, 3),))
    with pytest.raises(RecordError, match="fetched at offset 3 of t-3"):
        list(builder.batches(piece, still_aborted, 3))

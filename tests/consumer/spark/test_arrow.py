"""What of a fetch answer is decoded, and where reading goes on."""

from __future__ import annotations

from random import Random

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import StructType

from consumer.spark.arrow import PIECE_BYTES, ROWS, Builder, cut, pieces
from consumer.spark.offsets import Range
from kproto.errors import RecordError
from kproto.records import batches, encode_batch
from kproto.records.record import Record


def batch(*offsets: int) -> bytes:
    return encode_batch([Record(offset, 0, None, b"v") for offset in offsets], base_offset=offsets[0])


def test_batches_that_begin_at_the_end_are_not_decoded() -> None:
    first, second = batch(0, 1, 2), batch(3, 4)
    assert cut(first + second, 3) == (first, 3)


def test_a_batch_that_begins_before_the_end_is_kept_whole() -> None:
    first, second = batch(0, 1, 2), batch(3, 4)
    assert cut(first + second, 4) == (first + second, 5)


def test_a_batch_that_was_cut_off_by_the_broker_is_read_next_time() -> None:
    first, second = batch(0, 1, 2), batch(3, 4)
    assert cut(first + second[:-1], 99)[1] == 3


def test_when_nothing_begins_before_the_end_it_is_a_gap_and_is_reached() -> None:
    assert cut(batch(7, 8), 5) == (b"", 5)


def test_without_a_whole_batch_nothing_is_reached() -> None:
    assert cut(batch(0)[:-1], 5)[1] is None


def sizes(*given: bytes) -> list[int]:
    """How many batches the pieces have; together they are what was given."""
    found = list(pieces(b"".join(given)))
    assert b"".join(found) == b"".join(given)
    return [len(list(batches(piece))) for piece in found]


def test_what_is_compressed_is_opened_in_pieces_of_whole_batches() -> None:
    """What takes much more room than it has on the wire is not all there at once."""
    many = [Record(n, 0, None, b"the same again" * 9) for n in range(ROWS // 4)]
    large = [Record(0, 0, None, Random(0).randbytes(PIECE_BYTES // 3))]
    huge = [Record(0, 0, None, Random(0).randbytes(PIECE_BYTES * 2))]
    assert sizes(*[encode_batch(many, compression="gzip")] * 10) == [4, 4, 2]
    assert sizes(*[encode_batch(large, compression="gzip")] * 5) == [2, 2, 1]
    assert sizes(*[encode_batch(huge, compression="gzip")] * 2) == [1, 1]
    assert sizes(*[encode_batch(many)] * 10) == [10]


def test_a_broken_batch_is_told_with_its_partition_its_offsets_and_the_way_out() -> None:
    broken = bytearray(batch(40, 41))
    broken[-1] ^= 1
    builder = Builder(StructType().add("value", "binary"), Range("t", 3, 40, 50))
    with pytest.raises(
        RecordError, match=r"fetched at offset 40 of t-3, to be read up to 50.*kafka\.check\.crcs"
    ):
        list(builder.batches(bytes(broken), (), 40))

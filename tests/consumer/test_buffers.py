"""Fetched bytes, handed out: what must not be seen is passed over, and positions come from the headers."""

from __future__ import annotations

from itertools import pairwise

import pytest

from consumer.engine.buffers import Chunk
from kproto.errors import RecordError
from kproto.records import Record, batches, encode_batch


def batch(*offsets: int, last: int | None = None, base: int | None = None, **more: object) -> bytes:
    records = [Record(offset, 1000 + offset, None, str(offset).encode()) for offset in offsets]
    return encode_batch(records, base_offset=base, last_offset=last, **more)  # type: ignore[arg-type]


def marker(offset: int, producer_id: int, *, commit: bool) -> bytes:
    key = b"\x00\x00\x00\x01" if commit else b"\x00\x00\x00\x00"
    record = Record(offset, 0, key, b"\x00\x00\x00\x00\x00\x00")
    return encode_batch([record], producer_id=producer_id, is_transactional=True, is_control=True)


def chunk(data: bytes, position: int = 0, aborted: list[tuple[int, int]] | None = None) -> Chunk:
    return Chunk(data, position, aborted, True)


def offsets(some: Chunk, limit: int = 1000) -> list[int]:
    return [record.offset for record in some.rows("t", 0, limit)]


def test_records_below_the_position_are_skipped() -> None:
    assert offsets(chunk(batch(0, 1, 2, 3), 2)) == [2, 3]


def test_a_limit_stops_inside_a_batch_and_the_next_call_goes_on() -> None:
    some = chunk(batch(0, 1, 2) + batch(3, 4))
    assert offsets(some, 2) == [0, 1]
    assert some.position == 2
    assert offsets(some, 2) == [2, 3]
    assert offsets(some, 2) == [4]
    assert some.exhausted


def test_a_compacted_tail_moves_the_position_behind_the_batch() -> None:
    some = chunk(batch(0, 3, last=9))
    assert some.end == 10
    assert offsets(some) == [0, 3]
    assert some.position == 10


def test_a_batch_without_any_record_left_moves_the_position() -> None:
    some = chunk(batch(base=0, last=99) + batch(100))
    assert offsets(some) == [100]
    assert some.position == 101


def test_control_batches_are_never_handed_out_and_move_the_position() -> None:
    some = chunk(batch(0) + marker(1, 7, commit=True))
    assert offsets(some) == [0]
    assert some.position == 2
    assert some.exhausted


def test_read_committed_leaves_out_aborted_transactions_only() -> None:
    data = (
        batch(0, producer_id=7, is_transactional=True)
        + batch(1, producer_id=8, is_transactional=True)
        + marker(2, 7, commit=False)
        + batch(3, producer_id=7, is_transactional=True)
        + marker(4, 7, commit=True)
        + marker(5, 8, commit=True)
    )
    assert offsets(chunk(data, aborted=[(7, 0)])) == [1, 3]
    assert offsets(chunk(data, aborted=None)) == [0, 1, 3]


def test_columns_show_what_rows_show() -> None:
    pytest.importorskip("pyarrow")
    data = (
        batch(0, 1, producer_id=7, is_transactional=True)
        + batch(2, 5, last=8)
        + marker(9, 7, commit=False)
        + batch(10, 11)
    )
    for position in (0, 3, 9, 11):
        rows, columns = chunk(data, position, [(7, 0)]), chunk(data, position, [(7, 0)])
        found = columns.columns()
        assert (found.offset.tolist() if found is not None else []) == offsets(rows)
        assert columns.position == rows.position == 12


def test_columns_go_on_where_rows_stopped() -> None:
    pytest.importorskip("pyarrow")
    some = chunk(batch(0, 1, 2, 3) + batch(4, 5))
    assert offsets(some, 2) == [0, 1]
    found = some.columns()
    assert found is not None
    assert found.offset.tolist() == [2, 3, 4, 5]
    assert some.exhausted


def test_what_is_before_a_broken_batch_comes_first_and_then_the_error_each_time() -> None:
    data = bytearray(batch(0, 1) + batch(2))
    data[-1] ^= 1
    some = chunk(bytes(data))
    assert offsets(some) == [0, 1]
    for _ in range(2):
        with pytest.raises(RecordError):
            offsets(some)
    assert some.position == 2


def test_columns_too_give_what_is_before_a_broken_batch_and_then_the_error() -> None:
    pytest.importorskip("pyarrow")
    data = bytearray(batch(0, 1) + batch(2))
    data[-1] ^= 1
    some = chunk(bytes(data))
    found = some.columns()
    assert found is not None
    assert found.offset.tolist() == [0, 1]
    for _ in range(2):
        with pytest.raises(RecordError):
            some.columns()


def test_large_pieces_hand_out_what_small_ones_do() -> None:
    """Columns and the loop over batches are two ways to the same records."""
    pytest.importorskip("pyarrow")
    rows = [
        Record(at, 5 * at, b"k" if at % 3 else None, b"v" * (at % 50), (("h", None),)) for at in range(2000)
    ]
    data = b"".join(encode_batch(rows[at : at + 100]) for at in range(0, 2000, 100))
    whole = chunk(data, 50)
    pieces = [chunk(data[at:stop], 50) for at, stop in pairwise(_starts(data))]
    expected = [record for piece in pieces for record in piece.rows("t", 0, 10_000)]
    found = []
    while not whole.exhausted:
        found += whole.rows("t", 0, 333)
    assert found == expected
    assert len(found) == 1950
    assert whole.position == 2000


def _starts(data: bytes) -> list[int]:
    return [one.start for one in batches(data)] + [len(data)]


def test_a_cut_last_batch_is_fetched_again() -> None:
    data = batch(0, 1) + batch(2, 3)[:-5]
    some = chunk(data)
    assert some.end == 2
    assert offsets(some) == [0, 1]


def test_bytes_without_a_whole_batch_are_an_error_that_names_the_option() -> None:
    with pytest.raises(RecordError, match="max_partition_fetch_bytes"):
        chunk(batch(0)[:-1])

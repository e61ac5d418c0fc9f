"""Fetched bytes, handed out: what must not be seen is passed over, and positions come from the headers."""

from __future__ import annotations

from itertools import cycle, pairwise
from typing import Any

import pytest

from consumer.engine.fetch.buffers import CompletedFetch
from consumer.records import ConsumerRecord
from kproto.errors import RecordError
from kproto.records import Record, batches, encode_batch
from kproto.records.legacy import encode_messages


def batch(*offsets: int, last: int | None = None, base: int | None = None, **more: object) -> bytes:
    records = [Record(offset, 1000 + offset, None, str(offset).encode()) for offset in offsets]
    return encode_batch(records, base_offset=base, last_offset=last, **more)  # type: ignore[arg-type]


def marker(offset: int, producer_id: int, *, commit: bool) -> bytes:
    key = b"\x00\x00\x00\x01" if commit else b"\x00\x00\x00\x00"
    record = Record(offset, 0, key, b"\x00\x00\x00\x00\x00\x00")
    return encode_batch([record], producer_id=producer_id, is_transactional=True, is_control=True)


def chunk(data: bytes, position: int = 0, aborted: list[tuple[int, int]] | None = None) -> CompletedFetch:
    return CompletedFetch(data, position, aborted, True)


def offsets(some: CompletedFetch, limit: int = 1000) -> list[int]:
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


@pytest.mark.parametrize("columns", [False, True])
def test_a_marker_that_cannot_be_read_is_told_behind_what_is_before_it(columns: bool) -> None:
    """It was taken for a commit's, and what its producer wrote next was passed over."""
    told: dict[str, Any] = {"producer_id": 7, "is_transactional": True}
    data = batch(0, 1) + batch(2, **told) + batch(3, is_control=True, **told) + batch(4, **told)
    some = chunk(data, aborted=[(7, 2)])
    if columns:
        pytest.importorskip("pyarrow")
        found = some.columns()
        assert found is not None
        assert found.offset.tolist() == [0, 1]
    else:
        assert offsets(some) == [0, 1]
    for _ in range(2):
        with pytest.raises(RecordError, match=r"records\.key"):
            some.columns() if columns else offsets(some)
    assert some.position == 3


def span(*ends: int) -> bytes:
    return encode_batch([Record(at, 0, None, b"v") for at in range(*ends)])


def handed_out(some: CompletedFetch, columns: bool, limit: int) -> list[int]:
    if not columns:
        return offsets(some, limit)
    found = some.columns()
    return [] if found is None else found.offset.tolist()


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("limit", [7, 5000])
@pytest.mark.parametrize("count", [10, 1500])
@pytest.mark.parametrize("how", ["overlap", "behind", "again"])
def test_a_batch_out_of_order_is_told_behind_what_is_before_it(
    how: str, count: int, limit: int, columns: bool
) -> None:
    """Its records came twice, and the position went back behind one that was ahead."""
    if columns:
        pytest.importorskip("pyarrow")
    first, second = {
        "overlap": ((0, count), (count // 2, 2 * count)),
        "behind": ((count, 2 * count), (0, count)),
        "again": ((0, count), (0, count)),
    }[how]
    some = chunk(span(*first) + span(*second))
    assert some.end == first[1]
    found: list[int] = []
    while some.position < some.end:
        found += handed_out(some, columns, limit)
    assert found == list(range(*first))
    assert not some.exhausted
    for _ in range(2):
        with pytest.raises(
            RecordError, match=f"baseOffset at offset {len(span(*first))}: .* {first[1] - 1};"
        ):
            handed_out(some, columns, limit)
    assert some.position == first[1]


def test_a_batch_out_of_order_before_the_position_is_told_at_once() -> None:
    """The chunk would bring nothing, and be fetched again and again."""
    with pytest.raises(RecordError, match="begins with 2 comes after 4"):
        chunk(span(0, 5) + span(2, 30), 10)


def test_old_messages_out_of_order_are_told_too() -> None:
    old = [encode_messages([Record(at, 0, None, b"v")], 1) for at in (0, 2, 1)]
    some = chunk(b"".join(old))
    assert offsets(some) == [0, 2]
    with pytest.raises(RecordError, match="begins with 1 comes after 2"):
        offsets(some)
    assert offsets(chunk(span(0, 2) + old[1])) == [0, 1, 2]


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("count", [10, 1500])
def test_records_behind_the_last_offset_of_their_batch_are_not_handed_out(count: int, columns: bool) -> None:
    """The next fetch begins behind that offset, and would bring them again."""
    if columns:
        pytest.importorskip("pyarrow")
    torn = bytearray(span(5, 5 + count))
    torn[23:27] = (0).to_bytes(4, "big")
    some = CompletedFetch(span(0, 5) + torn, 0, None, False)
    assert handed_out(some, columns, 5000) == [0, 1, 2, 3, 4]
    with pytest.raises(RecordError, match=r"records\.offsetDelta"):
        handed_out(some, columns, 5000)


@pytest.mark.parametrize("limits", [[333], [1], [63, 64, 65], [1, 500, 7], [40, 3]])
def test_large_pieces_hand_out_what_small_ones_do(limits: list[int]) -> None:
    """Columns and the loop over batches are two ways to the same records, however many are asked for."""
    pytest.importorskip("pyarrow")
    rows = [
        Record(at, 5 * at, b"k" if at % 3 else None, b"v" * (at % 50), (("h", None),)) for at in range(2000)
    ]
    data = b"".join(encode_batch(rows[at : at + 100]) for at in range(0, 2000, 100))
    whole = chunk(data, 50)
    pieces = [chunk(data[at:stop], 50) for at, stop in pairwise(_starts(data))]
    expected = [record for piece in pieces for record in piece.rows("t", 0, 10_000)]
    found = []
    for limit in cycle(limits):
        found += whole.rows("t", 0, limit)
        assert whole.position == (2000 if whole.exhausted else found[-1].offset + 1)
        if whole.exhausted:
            break
    assert found == expected
    assert len(found) == 1950
    assert whole.position == 2000


def _starts(data: bytes) -> list[int]:
    return [batch.start for batch in batches(data)] + [len(data)]


def test_a_cut_last_batch_is_fetched_again() -> None:
    data = batch(0, 1) + batch(2, 3)[:-5]
    some = chunk(data)
    assert some.end == 2
    assert offsets(some) == [0, 1]


def test_bytes_without_a_whole_batch_are_an_error_that_names_the_option() -> None:
    with pytest.raises(RecordError, match="max_partition_fetch_bytes"):
        chunk(batch(0)[:-1])


# ---- the last offset that there is

LAST = 2**63 - 1


def at(base: int, data: bytes) -> bytes:
    """A batch with its base offset changed, which no checksum covers."""
    return base.to_bytes(8, "big") + data[8:]


@pytest.mark.parametrize(
    ("base", "data"), [(LAST, batch(0)), (LAST - 1, batch(0, 1)), (LAST - 9, batch(0, last=9))], ids=[1, 2, 3]
)
def test_a_batch_behind_which_there_is_no_offset_is_broken(base: int, data: bytes) -> None:
    """A position behind it can be neither fetched from nor committed."""
    with pytest.raises(RecordError, match="no offset is behind 9223372036854775807"):
        chunk(at(base, data))
    assert chunk(at(LAST - 1, batch(0))).end == LAST


def test_what_is_before_the_last_offset_is_handed_out() -> None:
    some = chunk(batch(0, 1) + at(LAST, batch(0)))
    assert offsets(some) == [0, 1]
    assert some.position == some.end == 2
    with pytest.raises(RecordError, match="no offset is behind 9223372036854775807"):
        offsets(some)


def test_columns_too_give_what_is_before_the_last_offset() -> None:
    pytest.importorskip("pyarrow")
    some = chunk(batch(0, 1) + at(LAST, batch(0)))
    found = some.columns()
    assert found is not None
    assert found.offset.tolist() == [0, 1]
    assert some.position == 2


# ---- chunks of one answer


def answer(*fields: bytes) -> list[memoryview]:
    """Views into one buffer, as the records of a fetch's answer are."""
    body, views, at = bytearray(b"head".join(fields)), [], 0
    for field in fields:
        views.append(memoryview(body)[at : at + len(field)])
        at += len(field) + 4
    return views


def of_one_answer(*fields: bytes, position: int = 0) -> list[CompletedFetch]:
    mates: list[CompletedFetch] = []
    return [CompletedFetch(view, position, None, True, None, mates) for view in answer(*fields)]


def many(count: int, base: int = 0, codec: str = "none") -> bytes:
    made = [
        Record(base + at, 5 + at, b"k%d" % at, b"v" * (at % 300), (("h", b"x"),) if at % 7 == 0 else ())
        for at in range(count)
    ]
    return b"".join(encode_batch(made[at : at + 90], compression=codec) for at in range(0, count, 90))


def drained(made: CompletedFetch, limit: int = 400) -> list[ConsumerRecord]:
    found: list[ConsumerRecord] = []
    while not made.exhausted:
        found += made.rows("t", 0, limit)
    return found


MIXES = {
    "plain": [many(700), many(500, 90), many(1)],
    "one is compressed": [many(700), many(500, 90, "gzip"), many(300)],
    "one is broken": [many(700), many(90) + many(600, 90)[:-1] + b"\0", many(300)],
    "all are small": [many(30), many(20), many(10)],
}


@pytest.mark.parametrize("mix", MIXES)
def test_chunks_of_one_answer_hand_out_the_same_as_each_alone(mix: str) -> None:
    for made, data in zip(of_one_answer(*MIXES[mix], position=7), MIXES[mix], strict=True):
        alone = CompletedFetch(data, 7, None, True)
        try:
            expected = drained(alone)
        except RecordError as error:
            with pytest.raises(RecordError, match=error.field):
                drained(made)
        else:
            assert drained(made) == expected
        assert made.position == alone.position


def test_chunks_of_one_answer_are_decoded_together_though_each_alone_has_few_records() -> None:
    found = [one.columns() for one in of_one_answer(many(400), many(400), many(400))]
    memory = {columns.value.buffers()[2].address for columns in found if columns is not None}
    assert len(found) == 3
    assert len(memory) == 1


@pytest.mark.parametrize("mix", ["plain", "one is compressed"])
def test_columns_of_chunks_of_one_answer_are_those_of_each_alone(mix: str) -> None:
    for made, data in zip(of_one_answer(*MIXES[mix]), MIXES[mix], strict=True):
        found, alone = made.columns(), CompletedFetch(data, 0, None, True).columns()
        assert found is not None
        assert alone is not None
        assert found.offset.tolist() == alone.offset.tolist()
        assert (found.key, found.value, found.headers) == (alone.key, alone.value, alone.headers)
        assert found.value.type == "binary"
        assert made.exhausted


@pytest.mark.parametrize("limit", [1, 300])
def test_rows_and_then_columns_of_one_chunk_give_each_record_once(limit: int) -> None:
    first, second = of_one_answer(many(700), many(500))
    rows = first.rows("t", 0, limit)
    rest = first.columns()
    assert rest is not None
    assert [*(row.offset for row in rows), *rest.offset.tolist()] == list(range(700))
    left = second.columns()
    assert left is not None
    assert left.offset.tolist() == list(range(500))


def test_a_small_part_of_an_answer_does_not_keep_the_whole() -> None:
    large, small = answer(many(3000), many(10))
    assert isinstance(CompletedFetch(large, 0, None, True).data, memoryview)
    assert isinstance(CompletedFetch(small, 0, None, True).data, bytes)


def test_what_is_too_much_to_decode_at_once_is_decoded_batch_by_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("consumer.engine.fetch.buffers.MAX_DECODED_BYTES", 20_000)
    data = many(2000, codec="gzip")
    assert [one.offset for one in drained(CompletedFetch(data, 0, None, True))] == list(range(2000))
    made, found, pieces = CompletedFetch(data, 0, None, True), list[int](), 0
    while not made.exhausted:
        columns = made.columns()
        assert columns is not None
        pieces += 1
        found += columns.offset.tolist()
    assert found == list(range(2000))
    assert pieces > 20

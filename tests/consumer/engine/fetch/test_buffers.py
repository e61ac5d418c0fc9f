"""CompletedFetch returns the records from the position on, and then advances the position past them."""

from __future__ import annotations

import pickle
from itertools import cycle, pairwise
from typing import Any

import pytest

from consumer.column_module import load_columns
from consumer.engine.fetch import buffers
from consumer.engine.fetch.batch_headers import locate_error
from consumer.engine.fetch.buffers import CompletedFetch
from consumer.records import ConsumerRecord
from kproto.errors import RecordError
from kproto.records import Record, batches, encode_batch
from kproto.records.batch import crc32c
from kproto.records.legacy import encode_messages
from kproto.testing.world import World, tp
from tests.records.raw_batches import SMALLEST, raw


def batch(*offsets: int, last: int | None = None, base: int | None = None, **more: object) -> bytes:
    records = [Record(offset, 1000 + offset, None, str(offset).encode()) for offset in offsets]
    return encode_batch(records, base_offset=base, last_offset=last, **more)  # type: ignore[arg-type]


def marker(offset: int, producer_id: int, *, commit: bool) -> bytes:
    key = b"\x00\x00\x00\x01" if commit else b"\x00\x00\x00\x00"
    record = Record(offset, 0, key, b"\x00\x00\x00\x00\x00\x00")
    return encode_batch([record], producer_id=producer_id, is_transactional=True, is_control=True)


def chunk(data: bytes, position: int = 0, aborted: list[tuple[int, int]] | None = None) -> CompletedFetch:
    return CompletedFetch(data, position, aborted, True)


def offsets_of(fetch: CompletedFetch, limit: int = 1000) -> list[int]:
    return [record.offset for record in fetch.rows("t", 0, limit)]


def test_records_below_the_position_are_skipped() -> None:
    assert offsets_of(chunk(batch(0, 1, 2, 3), 2)) == [2, 3]


def test_a_limit_stops_inside_a_batch_and_the_next_call_continues() -> None:
    fetch = chunk(batch(0, 1, 2) + batch(3, 4))
    assert offsets_of(fetch, 2) == [0, 1]
    assert fetch.position == 2
    assert offsets_of(fetch, 2) == [2, 3]
    assert offsets_of(fetch, 2) == [4]
    assert fetch.exhausted


@pytest.mark.parametrize("count", [1, 400])
def test_a_record_has_the_leader_epoch_of_its_batch(count: int) -> None:
    """A few records are decoded batch by batch, and many records as columns."""
    load_columns()
    epochs = [3, 3, 5]
    data = b"".join(
        batch(*range(number * count, (number + 1) * count), partition_leader_epoch=epoch)
        for number, epoch in enumerate(epochs)
    )
    fetch = chunk(data)
    assert [record.leader_epoch for record in fetch.rows("t", 0, count)] == [3] * count
    assert fetch.leader_epoch == 3
    assert [record.leader_epoch for record in fetch.rows("t", 0, 2 * count)] == [3] * count + [5] * count
    assert fetch.leader_epoch == 5


def test_a_record_of_an_old_message_format_has_no_leader_epoch() -> None:
    fetch = chunk(encode_messages([Record(0, 1000, None, b"0")], magic=1))
    assert [record.leader_epoch for record in fetch.rows("t", 0, 10)] == [None]
    assert fetch.leader_epoch is None


def test_a_compacted_tail_moves_the_position_past_the_batch() -> None:
    fetch = chunk(batch(0, 3, last=9))
    assert fetch.end == 10
    assert offsets_of(fetch) == [0, 3]
    assert fetch.position == 10


def test_an_empty_compacted_batch_moves_the_position() -> None:
    fetch = chunk(batch(base=0, last=99) + batch(100))
    assert offsets_of(fetch) == [100]
    assert fetch.position == 101


@pytest.mark.rule("I15")
def test_control_batches_are_skipped_and_move_the_position() -> None:
    fetch = chunk(batch(0) + marker(1, 7, commit=True))
    assert offsets_of(fetch) == [0]
    assert fetch.position == 2
    assert fetch.exhausted


def test_read_committed_skips_only_aborted_transactions() -> None:
    data = (
        batch(0, producer_id=7, is_transactional=True)
        + batch(1, producer_id=8, is_transactional=True)
        + marker(2, 7, commit=False)
        + batch(3, producer_id=7, is_transactional=True)
        + marker(4, 7, commit=True)
        + marker(5, 8, commit=True)
    )
    assert offsets_of(chunk(data, aborted=[(7, 0)])) == [1, 3]
    assert offsets_of(chunk(data, aborted=None)) == [0, 1, 3]


def test_columns_hold_the_same_records_as_rows() -> None:
    pytest.importorskip("pyarrow")
    data = (
        batch(0, 1, producer_id=7, is_transactional=True)
        + batch(2, 5, last=8)
        + marker(9, 7, commit=False)
        + batch(10, 11)
    )
    for position in (0, 3, 9, 11):
        rows, columns = chunk(data, position, [(7, 0)]), chunk(data, position, [(7, 0)])
        batch_columns = columns.columns()
        assert (batch_columns.offset.tolist() if batch_columns is not None else []) == offsets_of(rows)
        assert columns.position == rows.position == 12


def test_columns_continue_after_rows() -> None:
    pytest.importorskip("pyarrow")
    fetch = chunk(batch(0, 1, 2, 3) + batch(4, 5))
    assert offsets_of(fetch, 2) == [0, 1]
    columns = fetch.columns()
    assert columns is not None
    assert columns.offset.tolist() == [2, 3, 4, 5]
    assert fetch.exhausted


def test_records_before_a_corrupt_batch_come_first_and_then_the_error_each_time() -> None:
    data = bytearray(batch(0, 1) + batch(2))
    data[-1] ^= 1
    fetch = chunk(bytes(data))
    assert offsets_of(fetch) == [0, 1]
    for _ in range(2):
        with pytest.raises(RecordError):
            offsets_of(fetch)
    assert fetch.position == 2


def test_columns_return_their_memory_after_the_last_row() -> None:
    load_columns()
    fetch = chunk(batch(*range(1_000)))
    assert len(offsets_of(fetch, 600)) == 600
    columns = fetch._columns
    assert columns is not None
    assert len(offsets_of(fetch, 600)) == 400
    assert columns.value is None


def test_the_position_of_a_corrupt_batch_is_after_the_compacted_batch_before_it() -> None:
    data = bytearray(batch(0, 3, last=9) + batch(10))
    data[-1] ^= 1
    fetch = chunk(bytes(data))
    assert offsets_of(fetch) == [0, 3]
    with pytest.raises(RecordError):
        offsets_of(fetch)
    assert fetch.position == 10


def test_columns_return_records_before_a_corrupt_batch_and_then_the_error() -> None:
    pytest.importorskip("pyarrow")
    data = bytearray(batch(0, 1) + batch(2))
    data[-1] ^= 1
    fetch = chunk(bytes(data))
    columns = fetch.columns()
    assert columns is not None
    assert columns.offset.tolist() == [0, 1]
    for _ in range(2):
        with pytest.raises(RecordError):
            fetch.columns()


@pytest.mark.parametrize("columns", [False, True])
def test_an_unreadable_marker_is_raised_after_the_records_before_it(columns: bool) -> None:
    """An unreadable transaction marker raises an error after the records before it have been returned.

    Regression: the marker was mistaken for a commit marker, and the producer's next records were skipped.
    """
    transactional: dict[str, Any] = {"producer_id": 7, "is_transactional": True}
    data = (
        batch(0, 1)
        + batch(2, **transactional)
        + batch(3, is_control=True, **transactional)
        + batch(4, **transactional)
    )
    fetch = chunk(data, aborted=[(7, 2)])
    if columns:
        pytest.importorskip("pyarrow")
        batch_columns = fetch.columns()
        assert batch_columns is not None
        assert batch_columns.offset.tolist() == [0, 1]
    else:
        assert offsets_of(fetch) == [0, 1]
    for _ in range(2):
        with pytest.raises(RecordError, match=r"records\.key"):
            fetch.columns() if columns else offsets_of(fetch)
    assert fetch.position == 3


def span(*ends: int) -> bytes:
    return encode_batch([Record(at, 0, None, b"v") for at in range(*ends)])


def read_offsets(fetch: CompletedFetch, columns: bool, limit: int) -> list[int]:
    if not columns:
        return offsets_of(fetch, limit)
    batch_columns = fetch.columns()
    return [] if batch_columns is None else batch_columns.offset.tolist()


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("limit", [7, 5000])
@pytest.mark.parametrize("count", [10, 1500])
@pytest.mark.parametrize("how", ["overlap", "behind", "again"])
def test_a_batch_out_of_order_is_raised_after_the_records_before_it(
    how: str, count: int, limit: int, columns: bool
) -> None:
    """The position never moves back within a response. Regression: the records of a batch were returned
    twice.
    """
    if columns:
        pytest.importorskip("pyarrow")
    first, second = {
        "overlap": ((0, count), (count // 2, 2 * count)),
        "behind": ((count, 2 * count), (0, count)),
        "again": ((0, count), (0, count)),
    }[how]
    fetch = chunk(span(*first) + span(*second))
    assert fetch.end == first[1]
    offsets: list[int] = []
    while fetch.position < fetch.end:
        offsets += read_offsets(fetch, columns, limit)
    assert offsets == list(range(*first))
    assert not fetch.exhausted
    for _ in range(2):
        with pytest.raises(
            RecordError, match=f"baseOffset at offset {len(span(*first))}: .* {first[1] - 1};"
        ):
            read_offsets(fetch, columns, limit)
    assert fetch.position == first[1]


def test_a_batch_out_of_order_before_the_position_is_raised_at_once() -> None:
    """An out-of-order batch that begins before the position raises an error immediately.

    If the batch were ignored, the fetch would return no record and the position would not move, so the client
    would repeat the fetch forever.
    """
    with pytest.raises(RecordError, match="begins with 2 follows offset 4"):
        chunk(span(0, 5) + span(2, 30), 10)


def test_old_messages_out_of_order_are_raised() -> None:
    old = [encode_messages([Record(at, 0, None, b"v")], 1) for at in (0, 2, 1)]
    fetch = chunk(b"".join(old))
    assert offsets_of(fetch) == [0, 2]
    with pytest.raises(RecordError, match="begins with 1 follows offset 2"):
        offsets_of(fetch)
    assert offsets_of(chunk(span(0, 2) + old[1])) == [0, 1, 2]


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("count", [10, 1500])
def test_records_after_the_last_offset_of_their_batch_are_not_returned(count: int, columns: bool) -> None:
    """Records whose offset is above their batch's last offset are not returned.

    The next fetch starts after the batch's last offset, so it could return records with the same offsets
    again.
    """
    if columns:
        pytest.importorskip("pyarrow")
    torn = bytearray(span(5, 5 + count))
    torn[23:27] = (0).to_bytes(4, "big")
    fetch = CompletedFetch(span(0, 5) + torn, 0, None, False)
    assert read_offsets(fetch, columns, 5000) == [0, 1, 2, 3, 4]
    with pytest.raises(RecordError, match=r"records\.offsetDelta"):
        read_offsets(fetch, columns, 5000)


@pytest.mark.parametrize("limits", [[333], [1], [63, 64, 65], [1, 500, 7], [40, 3]])
def test_large_fetches_return_the_same_records_as_small_ones(limits: list[int]) -> None:
    """Columnar decoding and the loop over batches yield the same records, however many records each call may
    return.
    """
    pytest.importorskip("pyarrow")
    rows = [
        Record(
            at,
            5 * at,
            b"k" if at % 3 else None,
            b"v" * (at % 50),
            (("h", None),),
        )
        for at in range(2000)
    ]
    data = b"".join(encode_batch(rows[at : at + 100]) for at in range(0, 2000, 100))
    whole = chunk(data, 50)
    pieces = [chunk(data[at:stop], 50) for at, stop in pairwise(_starts(data))]
    expected = [record for piece in pieces for record in piece.rows("t", 0, 10_000)]
    records = []
    for limit in cycle(limits):
        records += whole.rows("t", 0, limit)
        assert whole.position == (2000 if whole.exhausted else records[-1].offset + 1)
        if whole.exhausted:
            break
    assert records == expected
    assert len(records) == 1950
    assert whole.position == 2000


def _starts(data: bytes) -> list[int]:
    return [batch.start for batch in batches(data)] + [len(data)]


def test_too_many_records_are_those_that_need_compression(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, packed = raw(SMALLEST * 300, 300), raw(SMALLEST * 300, 300, "gzip")
    invalid = packed[:8] + b"\0" * 4 + packed[12:]  # Its size is 0.
    second = with_base_offset(300, packed)
    monkeypatch.setattr(buffers, "MAX_DECODED_RECORDS", 100)
    assert not chunk(plain).decodes_in_parts
    assert chunk(packed).decodes_in_parts
    assert chunk(packed + invalid).decodes_in_parts
    monkeypatch.setattr(buffers, "MAX_DECODED_RECORDS", 300)
    assert not chunk(packed).decodes_in_parts
    assert chunk(packed + second).decodes_in_parts


def test_an_incomplete_last_batch_is_fetched_again() -> None:
    data = batch(0, 1) + batch(2, 3)[:-5]
    fetch = chunk(data)
    assert fetch.end == 2
    assert offsets_of(fetch) == [0, 1]


def test_bytes_without_a_complete_batch_raise_an_error_that_names_the_option() -> None:
    with pytest.raises(RecordError, match="max_partition_fetch_bytes"):
        chunk(batch(0)[:-1])


# ---- the last possible offset

LAST = 2**63 - 1


def with_base_offset(base: int, data: bytes) -> bytes:
    """Change a batch's base offset. The checksum does not cover this field."""
    return base.to_bytes(8, "big") + data[8:]


@pytest.mark.parametrize(
    ("base", "data"), [(LAST, batch(0)), (LAST - 1, batch(0, 1)), (LAST - 9, batch(0, last=9))], ids=[1, 2, 3]
)
def test_a_batch_that_ends_at_the_largest_offset_is_corrupt(base: int, data: bytes) -> None:
    """The position after this batch would be 2^63, which does not fit into an int64 field."""
    with pytest.raises(RecordError, match="no offset may follow 9223372036854775807"):
        chunk(with_base_offset(base, data))
    assert chunk(with_base_offset(LAST - 1, batch(0))).end == LAST


def test_records_before_the_largest_offset_are_returned() -> None:
    fetch = chunk(batch(0, 1) + with_base_offset(LAST, batch(0)))
    assert offsets_of(fetch) == [0, 1]
    assert fetch.position == fetch.end == 2
    with pytest.raises(RecordError, match="no offset may follow 9223372036854775807"):
        offsets_of(fetch)


def test_columns_return_records_before_the_largest_offset() -> None:
    pytest.importorskip("pyarrow")
    fetch = chunk(batch(0, 1) + with_base_offset(LAST, batch(0)))
    columns = fetch.columns()
    assert columns is not None
    assert columns.offset.tolist() == [0, 1]
    assert fetch.position == 2


# ---- memory views that share the buffer of one response


def response_views(*fields: bytes) -> list[memoryview]:
    """Join the fields in one buffer, as in a fetch response, and return a view of each field."""
    body, views, at = bytearray(b"head".join(fields)), [], 0
    for field in fields:
        views.append(memoryview(body)[at : at + len(field)])
        at += len(field) + 4
    return views


def fetches_of_one_response(*fields: bytes, position: int = 0) -> list[CompletedFetch]:
    siblings: list[CompletedFetch] = []
    return [CompletedFetch(view, position, None, True, None, siblings) for view in response_views(*fields)]


def many(count: int, base: int = 0, codec: str = "none") -> bytes:
    records = [
        Record(
            base + at,
            5 + at,
            b"k%d" % at,
            b"v" * (at % 300),
            (("h", b"x"),) if at % 7 == 0 else (),
        )
        for at in range(count)
    ]
    return b"".join(encode_batch(records[at : at + 90], compression=codec) for at in range(0, count, 90))


def read_all(fetch: CompletedFetch, limit: int = 400) -> list[ConsumerRecord]:
    records: list[ConsumerRecord] = []
    while not fetch.exhausted:
        records += fetch.rows("t", 0, limit)
    return records


MIXES = {
    "plain": [many(700), many(500, 90), many(1)],
    "one is compressed": [many(700), many(500, 90, "gzip"), many(300)],
    "one is broken": [many(700), many(90) + many(600, 90)[:-1] + b"\0", many(300)],
    "all are small": [many(30), many(20), many(10)],
}


@pytest.mark.parametrize("mix", MIXES)
def test_fetches_of_one_response_return_the_same_records_as_each_alone(mix: str) -> None:
    for fetch, data in zip(fetches_of_one_response(*MIXES[mix], position=7), MIXES[mix], strict=True):
        alone = CompletedFetch(data, 7, None, True)
        try:
            expected = read_all(alone)
        except RecordError as error:
            with pytest.raises(RecordError, match=error.field):
                read_all(fetch)
        else:
            assert read_all(fetch) == expected
        assert fetch.position == alone.position


def test_fetches_of_one_response_are_decoded_together_if_each_has_few_records() -> None:
    batches = [fetch.columns() for fetch in fetches_of_one_response(many(400), many(400), many(400))]
    memory = {columns.value.buffers()[2].address for columns in batches if columns is not None}
    assert len(batches) == 3
    assert len(memory) == 1


@pytest.mark.parametrize("mix", ["plain", "one is compressed"])
def test_columns_of_fetches_of_one_response_equal_those_of_each_alone(mix: str) -> None:
    for fetch, data in zip(fetches_of_one_response(*MIXES[mix]), MIXES[mix], strict=True):
        columns, alone = fetch.columns(), CompletedFetch(data, 0, None, True).columns()
        assert columns is not None
        assert alone is not None
        assert columns.offset.tolist() == alone.offset.tolist()
        assert (columns.key, columns.value, columns.headers) == (alone.key, alone.value, alone.headers)
        assert columns.value.type == "binary"
        assert fetch.exhausted


@pytest.mark.parametrize("limit", [1, 300])
def test_rows_and_then_columns_of_one_fetch_return_each_record_once(limit: int) -> None:
    first, second = fetches_of_one_response(many(700), many(500))
    rows = first.rows("t", 0, limit)
    columns = first.columns()
    assert columns is not None
    assert [*(row.offset for row in rows), *columns.offset.tolist()] == list(range(700))
    second_columns = second.columns()
    assert second_columns is not None
    assert second_columns.offset.tolist() == list(range(500))


def test_a_small_part_of_a_response_does_not_keep_the_whole_in_memory() -> None:
    large, small = response_views(many(3000), many(10))
    assert isinstance(CompletedFetch(large, 0, None, True).data, memoryview)
    assert isinstance(CompletedFetch(small, 0, None, True).data, bytes)


@pytest.mark.parametrize("most", [40_000, 10], ids=["batch by batch", "in parts"])
def test_fetches_too_large_to_decode_at_once_are_decoded_in_pieces(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr("consumer.engine.fetch.buffers.MAX_DECODED_BYTES", most)
    monkeypatch.setattr("consumer.engine.fetch.buffers.MAX_DECODED_RATIO", 0)
    monkeypatch.setattr("consumer.engine.fetch.buffers.PART_RECORDS", 30)
    data = many(2000, codec="gzip")
    assert [record.offset for record in read_all(CompletedFetch(data, 0, None, True))] == list(range(2000))
    fetch, offsets, pieces = CompletedFetch(data, 0, None, True), list[int](), 0
    while not fetch.exhausted:
        columns = fetch.columns()
        assert columns is not None
        pieces += 1
        offsets += columns.offset.tolist()
    assert offsets == list(range(2000))
    assert pieces > 20
    assert fetch.decodes_in_parts == (most == 10)


# ---- the reported position of a malformed batch


def test_an_error_names_the_partition_and_the_offsets_of_the_batch() -> None:
    world = World({"t": 1})
    for first in (0, 4, 8):
        world.write("t", 0, *(f"v{number}" for number in range(first, first + 4)))
    world.corrupt_batch("t", 0, batch=1)
    reader = world.join("a", group_id="g", auto_offset_reset="earliest")
    reader.assign({tp("t", 0): 0})
    world.run(1_000)
    error = reader.errors[0]
    assert isinstance(error, RecordError)
    assert (error.topic, error.partition, error.first_offset, error.next_offset) == ("t", 0, 4, 8)
    assert str(error).startswith("t-0: the record batch at offset 4 cannot be read (crc at byte ")
    assert str(error).endswith("; seek to 8 to continue after the batch")
    assert pickle.loads(pickle.dumps(error)).next_offset == 8
    assert error.next_offset is not None
    reader.seek(tp("t", 0), error.next_offset)
    world.run(1_000)
    assert reader.values() == ["v0", "v1", "v2", "v3", "v8", "v9", "v10", "v11"]


@pytest.mark.parametrize("count", [3, 9])
def test_an_error_after_the_last_record_of_a_batch_names_this_batch(count: int) -> None:
    """The header's record count is wrong, which is detected only after the records have been returned."""
    first, broken, last = (
        bytearray(encode_batch([Record(base + i, 0, None, b"v") for i in range(4)], compression=codec))
        for base, codec in ((0, "none"), (4, "gzip"), (8, "none"))
    )
    broken[57:61] = count.to_bytes(4, "big")
    broken[17:21] = crc32c(broken[21:]).to_bytes(4, "big")
    data = bytes(first + broken + last)
    fetch, offsets = CompletedFetch(data, 0, None, True), list[int]()
    while len(offsets) < (8 if count == 9 else 7):
        offsets += [record.offset for record in fetch.rows("t", 0, 10)]
    with pytest.raises(RecordError) as caught:
        fetch.rows("t", 0, 10)
    error = locate_error(caught.value, tp("t", 0), fetch.error_offset, data)
    assert isinstance(error, RecordError)
    assert (error.first_offset, error.next_offset) == (4, 8)
    assert offsets == list(range(len(offsets)))

"""The reader returns the batches of a `records` field that precede a malformed batch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kproto.errors import RecordError
from kproto.records import AbortedTransactions, Record, batches, encode_batch, rows, spans
from kproto.records.reader import (
    TOO_MANY,
    BatchSpan,
    has_many_records,
    has_too_many_records,
    is_abort_marker,
)
from kproto.testing.strategies import RecordBatch, record_batches, record_sets
from tests.records.raw_batches import NOW, SAMPLE


def test_batches_before_a_malformed_one_are_returned_first() -> None:
    iterator = batches(SAMPLE + SAMPLE[:-1] + b"!")
    assert next(iterator).last_offset == 41
    with pytest.raises(RecordError):
        next(iterator)


@pytest.mark.parametrize("count", [999, 1000])
def test_a_thousand_records_are_many(count: int) -> None:
    written = [Record(at, NOW, None, b"v") for at in range(count)]
    batched = b"".join(encode_batch(written[at : at + 7]) for at in range(0, count, 7))
    assert has_many_records(batched) == has_many_records(encode_batch(written)) == (count == 1000)


def test_counts_after_an_invalid_size_are_ignored() -> None:
    batch = encode_batch([Record(at, NOW, None, b"v") for at in range(600)])
    broken = batch[:8] + b"\xff" * 4 + batch[12:]
    assert has_many_records(batch + batch)
    assert not has_many_records(broken + batch)


def test_records_of_several_fields_are_counted_together() -> None:
    some = encode_batch([Record(at, NOW, None, b"v") for at in range(400)])
    assert has_many_records(some, some, some)
    assert not has_many_records(some, some, some[:60])


def test_a_claimed_count_is_limited_by_the_bytes() -> None:
    batch = bytearray(encode_batch([Record(0, NOW, None, b"v")]))
    batch[57:61] = (1 << 30).to_bytes(4, "big")
    assert not has_many_records(batch)


def test_the_remaining_aborted_transactions_can_be_passed_on() -> None:
    def batch(offset: int, key: bytes, **header: Any) -> bytes:
        record = Record(offset, NOW, key, b"")
        return encode_batch([record], producer_id=1, is_transactional=True, **header)

    log = [batch(0, b"a"), batch(1, b"\0\0\0\0", is_control=True), batch(2, b"b"), batch(3, b"c")]
    skipped = AbortedTransactions([(1, 0), (1, 3)])
    assert skipped.skips(next(batches(log[0])))
    assert not skipped.skips(next(batches(log[1])))
    assert skipped.pairs == [(1, 3)]
    assert [row.key for row in rows(b"".join(log[2:]), aborted=skipped.pairs)] == [b"b"]


def test_only_an_abort_marker_ends_an_aborted_transaction() -> None:
    def batch(offset: int, key: bytes, **header: Any) -> bytes:
        record = Record(offset, NOW, key, b"")
        return encode_batch([record], producer_id=1, is_transactional=True, **header)

    marked = [batch(1, key, is_control=True) for key in (b"\0\0\0\1", b"\0\0\0\0")]
    row_lists = [rows(batch(0, b"a") + marker + batch(2, b"b"), aborted=[(1, 0)]) for marker in marked]
    assert [[row.key for row in some] for some in row_lists] == [[], [b"b"]]


@pytest.mark.parametrize("key", [None, b"\0\0", b"\xff\xff\0\0"])
def test_a_marker_that_cannot_be_read_raises_record_error(key: bytes | None) -> None:
    """A marker that cannot be read raises RecordError.

    If the marker were ignored, the producer's next records would be dropped as aborted.
    """
    header: dict[str, Any] = {"producer_id": 1, "is_transactional": True}
    before, after = (encode_batch([Record(at, NOW, None, b"v")], **header) for at in (0, 2))
    data = before + encode_batch([Record(1, NOW, key, b"")], is_control=True, **header) + after
    with pytest.raises(RecordError, match=rf"field records.key at offset {len(before) + 61}: ") as raised:
        rows(data, aborted=[(1, 0)])
    assert raised.value.detail.endswith(f"not {key!r}")
    assert [row.offset for row in rows(data)] == [0, 2]


def test_only_the_first_record_of_a_marker_is_decoded() -> None:
    marker = bytearray(encode_batch([Record(n, NOW, b"\0\0\0\0", b"") for n in range(2)], is_control=True))
    marker[-1] = 0xFF
    assert is_abort_marker(next(batches(bytes(marker), check_crc=False)))


def test_offsets_beyond_int64_are_refused() -> None:
    last = (1 << 63) - 1
    fits = bytearray(encode_batch([Record(0, NOW, None, b""), Record(1, NOW, None, b"")]))
    fits[:8] = (last - 1).to_bytes(8, "big")
    assert next(batches(fits)).last_offset == last
    fits[:8] = last.to_bytes(8, "big")
    with pytest.raises(RecordError, match="lastOffsetDelta at offset 23"):
        next(batches(fits))


def test_an_unknown_magic_raises_even_in_a_truncated_batch() -> None:
    damaged = SAMPLE[:16] + b"\x03" + SAMPLE[17:-1]
    with pytest.raises(RecordError, match="magic 3") as caught:
        list(batches(SAMPLE + damaged))
    assert caught.value.offset == len(SAMPLE) + 16
    assert len(list(batches(SAMPLE + damaged[:16]))) == 1


def _said(items: Iterable[Any]) -> list[object]:
    """Return the positions and offsets of batches, and the error that ends the iteration."""
    places: list[object] = []
    try:
        for item in items:
            places.append((item.start, item.end, item.base_offset, item.last_offset, item.codec, item.count))
    except RecordError as error:
        places.append(str(error))
    return places


def _field(drawn: list[RecordBatch]) -> bytes:
    return b"".join(batch.data for batch in drawn)


NEW = record_sets(record_batches()).map(_field)
MIXED = record_sets(st.integers(0, 2).flatmap(record_batches)).map(_field)


@given(NEW | MIXED, st.integers(0, 200), st.integers(0, 255))
@example(SAMPLE + SAMPLE, 61 + 16, 3)
@example(SAMPLE[:-1], 0, 0)
def test_spans_have_the_places_of_the_batches(data: bytes, at: int, byte: int) -> None:
    for bytes_ in (data, data[:at], data[:at] + bytes([byte]) + data[at + 1 :]):
        assert _said(spans(bytes_)) == _said(batches(bytes_, check_crc=False))
        assert _said(spans(memoryview(bytes_))) == _said(batches(bytes_, check_crc=False))


def test_spans_do_not_build_batches() -> None:
    assert [type(span) for span in spans(SAMPLE + SAMPLE)] == [BatchSpan, BatchSpan]


def test_a_batch_of_exactly_a_header_is_a_span() -> None:
    empty = encode_batch([], base_offset=7, last_offset=9)
    assert list(spans(empty)) == [BatchSpan(0, 61, 7, 9, 0, 0)]


def test_a_size_below_a_header_is_the_error_of_batches() -> None:
    broken = bytearray(encode_batch([], base_offset=7, last_offset=9))
    broken[8:12] = (48).to_bytes(4, "big")
    with pytest.raises(RecordError, match="a batch of 60 bytes is smaller than its header"):
        list(spans(bytes(broken)))


def test_many_records_in_few_bytes_are_too_many() -> None:
    batch = bytearray(encode_batch([Record(0, NOW, None, b"v")]))
    for count, too_many in ((TOO_MANY, False), (TOO_MANY + 1, True)):
        batch[57:61] = count.to_bytes(4, "big")
        assert has_too_many_records(bytes(batch)) is too_many
    batch[57:61] = TOO_MANY.to_bytes(4, "big")
    single_record_batch = encode_batch([Record(0, NOW, None, b"v")])
    assert has_too_many_records(single_record_batch + bytes(batch))
    batch[8:12] = (48).to_bytes(4, "big")
    assert not has_too_many_records(bytes(batch) + single_record_batch)


def test_the_version_of_a_markers_key_may_have_any_positive_value() -> None:
    (marker,) = batches(encode_batch([Record(1, NOW, b"\x7f\xff\0\0", b"")], is_control=True))
    assert is_abort_marker(marker)

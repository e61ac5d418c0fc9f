"""Converting records for old consumers, or from old producers, keeps all fields that the target magic has.

tests/conformance compares the conversion with Kafka's.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kproto.errors import EncodeError, RecordError
from kproto.records import Record, batches, convert, encode_batch, rows
from kproto.records.conversion import MAX_BATCH_BYTES
from kproto.records.legacy import encode_messages
from kproto.records.record import zigzag
from kproto.testing.strategies import NOW, RecordBatch, record_batches, record_sets
from tests.records.raw_batches import raw, record

pytest.importorskip("cramjam")
OLD = ["none", "gzip", "snappy", "lz4"]
MIXED = record_sets(st.integers(0, 2).flatmap(lambda magic: record_batches(magic, codecs=OLD)))


def joined(drawn: list[RecordBatch]) -> bytes:
    return b"".join(batch.data for batch in drawn)


def some(count: int, start: int = 0, value: bytes = b"v") -> list[Record]:
    return [Record(start + at, NOW + at, b"k", value) for at in range(count)]


@given(MIXED, st.integers(0, 2))
def test_records_are_kept_except_what_the_magic_lacks(drawn: list[RecordBatch], magic: int) -> None:
    expected = [
        replace(
            row,
            timestamp=row.timestamp if magic else -1,
            headers=row.headers if magic == 2 else (),
        )
        for batch in drawn
        if not batch.header.get("is_control")
        for row in batch.records
    ]
    data = convert(joined(drawn), magic)
    assert {batch.magic for batch in batches(data)} <= {magic}
    assert rows(data) == expected


@given(MIXED, st.integers(0, 2))
def test_batches_of_the_requested_magic_are_unchanged(drawn: list[RecordBatch], magic: int) -> None:
    data = convert(joined(drawn), magic)
    assert convert(data, magic) == data


@given(MIXED, st.integers(0, 2))
def test_a_fetch_gets_older_batches_unchanged(drawn: list[RecordBatch], magic: int) -> None:
    got = convert(joined(drawn), magic, up=False)
    expected = [bytes(batch.data) for batch in batches(joined(drawn)) if batch.magic <= magic]
    assert all(data in got for data in expected)
    assert all(batch.magic <= magic for batch in batches(got))


@pytest.mark.parametrize("magic", [0, 1])
@given(data=st.data())
def test_up_and_down_conversion_restores_the_bytes(magic: int, data: st.DataObject) -> None:
    batch = data.draw(record_batches(magic, codecs=["none"]))
    assert convert(convert(batch.data, 2), magic) == batch.data


@given(record_batches(codecs=OLD, control=False))
def test_codec_and_timestamp_type_are_kept(batch: RecordBatch) -> None:
    for old in batches(convert(batch.data, 1)):
        assert old.compression == batch.header["compression"]
        assert old.timestamp_type == batch.header.get("timestamp_type", "CreateTime")


def test_an_uncompressed_batch_becomes_messages_and_a_compressed_one_a_wrapper() -> None:
    records = some(3)
    assert [batch.count for batch in batches(convert(encode_batch(records), 1))] == [1, 1, 1]
    assert [batch.count for batch in batches(convert(encode_batch(records, compression="gzip"), 1))] == [3]


@pytest.mark.parametrize("magic", [0, 1])
def test_control_batches_and_emptied_batches_are_dropped(magic: int) -> None:
    control = encode_batch([Record(0, NOW, bytes(4), bytes(6))], is_control=True, producer_id=1)
    assert convert(control + encode_batch([], base_offset=1, last_offset=9), magic) == b""


def test_records_of_magic_0_have_no_timestamp() -> None:
    (batch,) = batches(convert(encode_messages([Record(5, -1, None, b"v")], 0), 2))
    assert (batch.timestamp_type, batch.max_timestamp, batch.base_offset) == ("CreateTime", -1, 5)


def test_messages_below_the_fetch_offset_are_dropped() -> None:
    data = encode_batch(some(5)) + encode_batch(some(5, 5), compression="gzip")
    assert [row.offset for row in rows(convert(data, 1, from_offset=3))] == [3, 4, 5, 6, 7, 8, 9]
    assert [row.offset for row in rows(convert(data, 1, from_offset=8))] == [5, 6, 7, 8, 9]
    assert convert(data, 2, from_offset=3) == data


@pytest.mark.parametrize("count", [0, 1])
def test_zstd_cannot_be_down_converted(count: int) -> None:
    data = encode_batch(some(count), compression="zstd")
    assert convert(data, 2) == data
    with pytest.raises(EncodeError, match="UNSUPPORTED_COMPRESSION_TYPE"):
        convert(data, 1)


def of_the_log(moment: int, offset: int) -> bytes:
    return encode_messages([Record(offset, moment, None, b"v")], 1, timestamp_type="LogAppendTime")


@pytest.mark.parametrize(
    ("messages", "counts"),
    [
        (encode_messages(some(3), 1), [3]),
        (encode_messages(some(2), 0) + encode_messages(some(2, 2), 1), [2, 2]),
        (encode_messages(some(2), 1) + encode_messages(some(2, 2), 1, compression="gzip"), [2, 2]),
        (of_the_log(NOW, 0) + of_the_log(NOW, 1) + of_the_log(NOW + 1, 2), [2, 1]),
        (encode_messages(some(3, value=bytes(MAX_BATCH_BYTES // 2 - 100)), 1), [2, 1]),
        (encode_messages([*some(2), *some(1, 1 << 31)], 1), [2, 1]),
        (encode_messages([*some(2), *some(2)], 1), [2, 2]),
    ],
    ids=["plain", "magics", "wrapper", "append times", "large", "far", "again"],
)
def test_consecutive_messages_become_one_batch(messages: bytes, counts: list[int]) -> None:
    converted = convert(messages, 2)
    assert [batch.count for batch in batches(converted)] == counts
    assert rows(converted) == rows(messages)


@pytest.mark.parametrize("magic", [0, 1])
def test_offsets_that_are_not_ascending_raise_record_error(magic: int) -> None:
    encoded = record(b"\0", zigzag(0), zigzag(1), zigzag(-1), zigzag(-1), zigzag(0))
    with pytest.raises(RecordError, match="1 comes after 1"):
        convert(raw(encoded * 2, 2), magic)


def test_a_truncated_last_batch_is_dropped() -> None:
    data = encode_batch(some(2))
    assert convert(data + data[:-1], 1) == convert(data, 1)


def test_malformed_batches_raise_record_error() -> None:
    with pytest.raises(RecordError, match="crc"):
        convert(encode_batch(some(2))[:-1] + b"\1", 1)


def test_decompression_bombs_raise_record_error() -> None:
    data = encode_batch(some(1, value=bytes(2000)), compression="gzip")
    with pytest.raises(RecordError, match="max_decompressed"):
        convert(data, 1, max_decompressed=1000)


def test_magic_3_does_not_exist() -> None:
    with pytest.raises(EncodeError, match="only 0, 1 and 2"):
        convert(b"", 3)


@pytest.mark.parametrize("order", [("gzip", "none"), ("none", "gzip"), ("gzip", "gzip")])
def test_a_compressed_set_is_not_joined_with_another(order: tuple[str, str]) -> None:
    first, second = order
    data = encode_messages(some(2), 1, compression=first) + encode_messages(some(2, 2), 1, compression=second)
    converted = list(batches(convert(data, 2)))
    assert [(batch.compression, batch.count) for batch in converted] == [(first, 2), (second, 2)]

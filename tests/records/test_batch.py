"""Single batches are read byte by byte, and an error names the position of the malformed bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproto.errors import RecordError
from kproto.records import Record, batches, encode_batch, rows
from kproto.records.batch import HEADER_SIZE, crc32c
from kproto.records.compression import CODECS, codec_number, decompress
from kproto.records.legacy import encode_messages
from tests.records.raw_batches import NOW, SAMPLE, TWO, raw, record, refused


def test_known_bytes_are_read() -> None:
    (batch,) = batches(SAMPLE)
    assert batch.records() == TWO
    assert (batch.base_offset, batch.last_offset, batch.producer_id, batch.base_sequence) == (40, 41, 9, 3)
    assert (batch.compression, batch.timestamp_type, batch.count) == ("none", "CreateTime", 2)


def test_bytearray_and_memoryview_are_read_like_bytes() -> None:
    assert rows(bytearray(SAMPLE)) == rows(memoryview(SAMPLE)) == TWO


def test_crc_ok_returns_false_without_raising() -> None:
    (good,) = batches(SAMPLE, check_crc=False)
    (bad,) = batches(SAMPLE[:-1] + b"!", check_crc=False)
    assert (good.crc_ok, bad.crc_ok) == (True, False)


@pytest.mark.parametrize(
    ("place", "value", "field", "offset"),
    [
        (8, b"\xff\xff\xff\xff", "size", 8),
        (8, b"\0\0\0\x0d", "size", 8),
        (8, b"\0\0\0\x30", "size", 8),
        (16, b"\x03", "magic", 16),
        (16, b"\x82", "magic", 16),
        (17, b"\0\0\0\0", "crc", 17),
        (61, b"!", "crc", 17),
    ],
)
def test_malformed_headers_are_reported_with_their_place(
    place: int, value: bytes, field: str, offset: int
) -> None:
    data = SAMPLE + SAMPLE[:place] + value + SAMPLE[place + len(value) :]
    error = refused(data)
    assert (error.field, error.offset) == (field, offset + len(SAMPLE))


@pytest.mark.parametrize(
    ("place", "value", "field"),
    [
        (22, b"\x07", "attributes"),
        (23, b"\xff\xff\xff\xff", "lastOffsetDelta"),
        (57, b"\xff\xff\xff\xff", "count"),
        (57, b"\0\0\0\1", "count"),
        (57, b"\x7f\xff\xff\xff", "count"),
        (57, b"\0\0\0\3", "count"),
    ],
)
def test_wrong_values_are_reported_with_their_place(place: int, value: bytes, field: str) -> None:
    data = SAMPLE[:place] + value + SAMPLE[place + len(value) :]
    error = refused(data, check_crc=False)
    assert (error.field, error.version) == (field, 2)


@pytest.mark.parametrize("count", [0, 1])
def test_a_low_count_is_reported_with_the_remaining_bytes(count: int) -> None:
    data = SAMPLE[:57] + count.to_bytes(4, "big") + SAMPLE[61:]
    error = refused(data, check_crc=False)
    remaining = len(SAMPLE) - error.offset
    assert error.detail == f"{count} records leave {remaining} bytes behind them"


@pytest.mark.parametrize(
    ("records", "field"),
    [
        (record(b"\0\0\0", b"\3", b"\1", b"\0"), "records.key"),
        (record(b"\0\0\0", b"\1", b"\3", b"\0"), "records.value"),
        (record(b"\0\0\0", b"\1", b"\1", b"\1"), "records.headers"),
        (record(b"\0\0\0", b"\1", b"\1", b"\x7e"), "records.headers"),
        (record(b"\0\0\0", b"\1", b"\1", b"\2\1\1"), "records.headers.key"),
        (record(b"\0\0\0", b"\1", b"\1", b"\2\x40\1"), "records.headers.key"),
        (record(b"\0\0\0", b"\1", b"\1", b"\2\2h\3"), "records.headers.value"),
        (record(b"\0\0\0", b"\1", b"\1", b"\2\2h\x40"), "records.headers.value"),
        (record(b"\0\0\0", b"\1", b"\1", b"\0!"), "records.length"),
        (b"\x0f" + record(b"\0\0\0", b"\1", b"\1", b"\0")[1:], "records.length"),
        (record(b"\0", b"\xff" * 10 + b"\1", b"\0", b"\1", b"\1", b"\0"), "records.timestampDelta"),
        (record(b"\0\0", b"\xff" * 5 + b"\1", b"\1", b"\1", b"\0"), "records.offsetDelta"),
    ],
)
def test_malformed_records_are_reported_with_the_field(records: bytes, field: str) -> None:
    assert refused(raw(records, 1)).field == field


def test_errors_in_compressed_records_mention_the_codec() -> None:
    data = bytearray(encode_batch(TWO, compression="gzip"))
    data[57:61] = b"\0\0\0\1"
    assert "in the decompressed records" in str(refused(bytes(data), check_crc=False))


def test_padded_varints_are_read_as_java_reads_them() -> None:
    data = raw(record(b"\0\x82\0\x80\x80\0", b"\x82\0k", b"\1", b"\x80\0"), 1)
    assert rows(data) == [Record(0, NOW + 1, b"k", None)]


def test_header_keys_that_are_not_utf8_are_read_with_a_replacement() -> None:
    data = raw(record(b"\0\0\0", b"\1", b"\1", b"\2\4\xffh\1"), 1)
    assert rows(data)[0].headers == (("\ufffdh", None),)


@pytest.mark.parametrize("key", [b"\xed\xa0", b"\xed\xa0\x80", b"\xed\xbf\xbf"])
def test_a_lone_surrogate_in_a_header_key_is_one_replacement_as_in_java(key: bytes) -> None:
    size = bytes([2 * len(key) + 2])
    data = raw(record(b"\0\0\0", b"\1", b"\1", b"\2" + size + key + b"h\1"), 1)
    assert rows(data)[0].headers == (("\ufffdh", None),)


def test_an_emptied_batch_keeps_its_offsets() -> None:
    (batch,) = batches(encode_batch([], base_offset=7, last_offset=9, compression="gzip"))
    assert (batch.base_offset, batch.last_offset, batch.count, batch.records()) == (7, 9, 0, [])


@pytest.mark.parametrize("codec", CODECS[1:])
def test_an_emptied_batch_holds_compressed_empty_bytes(codec: str) -> None:
    (batch,) = batches(encode_batch([], compression=codec))
    assert batch.size > HEADER_SIZE
    assert decompress(batch.codec, batch.data[HEADER_SIZE:]) == b""
    assert batch.records() == []


def test_a_delete_horizon_is_the_base_of_timestamps() -> None:
    data = encode_batch(TWO, delete_horizon_ms=NOW + 5000)
    (batch,) = batches(data)
    assert batch.delete_horizon_ms == batch.base_timestamp == NOW + 5000
    assert batch.records() == TWO


@pytest.mark.parametrize(
    ("data", "crc"),
    [  # RFC 3720, B.4.
        (b"\0" * 32, 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (b"123456789", 0xE3069283),
        (b"", 0),
    ],
)
def test_known_checksums(data: bytes, crc: int) -> None:
    assert crc32c(data) == crc


@given(st.binary(), st.binary())
def test_a_running_checksum_continues(first: bytes, second: bytes) -> None:
    assert crc32c(memoryview(second), crc32c(first)) == crc32c(first + second)


def test_the_checksum_of_a_message_of_an_older_magic_covers_all_behind_it() -> None:
    data = bytearray(encode_messages([Record(0, NOW, b"k", b"v")], 1))
    assert next(batches(bytes(data))).crc_ok
    for place in (20, len(data) - 1):
        broken = bytearray(data)
        broken[place] ^= 1
        assert not next(batches(bytes(broken), check_crc=False)).crc_ok


def test_the_repr_of_a_batch_names_its_offsets_count_codec_and_size() -> None:
    (batch,) = batches(SAMPLE)
    assert repr(batch) == "<Batch 40..41 magic=2 count=2 compression=none size=81>"


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_a_batch_without_records_may_lack_the_compressed_bytes(codec: str) -> None:
    number = codec_number(codec)
    bare = bytearray(encode_batch([], base_offset=0, last_offset=3))
    bare[22] |= number
    (batch,) = batches(bytes(bare), check_crc=False)
    assert (batch.records(), batch.compression) == ([], codec)
    bare[57:61] = (1).to_bytes(4, "big")
    (batch,) = batches(bytes(bare), check_crc=False)
    with pytest.raises(RecordError):
        batch.records()

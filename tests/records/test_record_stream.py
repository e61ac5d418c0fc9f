"""Records of one batch are decoded in parts while they are decompressed, in limited memory."""

from __future__ import annotations

import tracemalloc
import zlib

import pytest

from kproto.errors import RecordError
from kproto.records import Batch, Record, batches, encode_batch
from kproto.records.codecs.lz4 import with_old_header
from kproto.records.compression import CODECS, compress
from kproto.records.legacy import encode_messages
from kproto.records.record_stream import record_lists
from tests.records.raw_batches import NOW, SMALLEST, raw, record, refused, smallest_records

MB = 1 << 20
ROWS = [
    Record(number, NOW + number, b"k%d" % number, b"v" * (number * 997 % 3001), (("h", b"%d" % number),))
    for number in range(1500)
]


def only(data: bytes) -> Batch:
    (batch,) = batches(data)
    return batch


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [1, 100, 10_000])
def test_the_lists_have_the_records_of_the_batch(codec: str, size: int) -> None:
    batch = only(encode_batch(ROWS, compression=codec))
    lists = list(record_lists(batch, size))
    assert [record for records in lists for record in records] == batch.records() == ROWS
    assert {len(records) <= size for records in lists} == {True}


def test_append_time_is_the_timestamp_of_each_record() -> None:
    data = encode_batch(ROWS[:9], timestamp_type="LogAppendTime", max_timestamp=NOW, compression="gzip")
    assert [record.timestamp for records in record_lists(only(data), 4) for record in records] == [NOW] * 9


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_message_sets_are_returned_in_lists(compression: str) -> None:
    messages = encode_messages(
        [Record(number, NOW, None, b"v") for number in range(5)], 1, compression=compression
    )
    lists = [records for batch in batches(messages) for records in record_lists(batch, 2)]
    assert [record.offset for records in lists for record in records] == list(range(5))
    assert max(map(len, lists)) == (2 if compression == "gzip" else 1)


def test_a_batch_without_records_has_no_list() -> None:
    assert list(record_lists(only(encode_batch([], base_offset=3, last_offset=5)), 10)) == []


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    ("content", "count"),
    [
        (SMALLEST * 4 + b"\x02\0\0", 5),
        (SMALLEST * 4 + record(b"\0\0\0\x03\x01\0"), 5),
        (SMALLEST * 4 + b"\x0b" + bytes(9), 5),
        (SMALLEST * 4 + b"\xff" * 9, 5),
        (SMALLEST * 4, 5),
        (SMALLEST * 4 + SMALLEST[:3], 5),
        (SMALLEST * 4 + b"\x0c", 4),
    ],
    ids=["fields", "key", "negative length", "long varint", "too few", "truncated", "bytes behind"],
)
def test_the_lists_before_a_malformed_record_are_returned(codec: str, content: bytes, count: int) -> None:
    data = raw(content, count, codec)
    lists = record_lists(only(data), 2)
    assert [len(next(lists)), len(next(lists))] == [2, 2]
    with pytest.raises(RecordError) as caught:
        next(lists)
    assert caught.value.field.startswith(("records", "count"))
    refused(data)


def test_an_error_names_the_place_among_the_records() -> None:
    data = raw(SMALLEST * 4 + record(b"\0\0\0\x03\x01\0"), 5)
    with pytest.raises(RecordError) as caught:
        list(record_lists(only(data), 3))
    expected = refused(data)
    assert (caught.value.field, caught.value.offset) == (expected.field, expected.offset)


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_bytes_that_are_not_compressed_raise_record_error(codec: str) -> None:
    data = bytearray(raw(smallest_records(3), 3))
    data[22] = CODECS.index(codec)
    with pytest.raises(RecordError, match=codec):
        list(record_lists(next(batches(bytes(data), check_crc=False)), 2))


@pytest.mark.parametrize("codec", CODECS[1:])
def test_the_decompressed_size_is_limited(codec: str) -> None:
    batch = only(encode_batch([Record(0, NOW, None, bytes(2 * MB))], compression=codec))
    with pytest.raises(RecordError, match="grows beyond"):
        list(record_lists(batch, 10, MB))
    assert len(next(record_lists(batch, 10, 3 * MB))) == 1


def wrapper_of_smallest_messages(count: int, magic: int, codec: str) -> bytes:
    """Return a wrapper message with `count` of the smallest messages of this magic, all at inner offset 0."""
    message = encode_messages([Record(0, NOW, None, None)], magic)
    value = compress(CODECS.index(codec), message * count)
    if magic == 0 and codec == "lz4":
        value = with_old_header(value)
    wrapper = bytearray(encode_messages([Record(count - 1, NOW, None, value)], magic))
    wrapper[17] = CODECS.index(codec)
    wrapper[12:16] = zlib.crc32(wrapper[16:]).to_bytes(4, "big")
    return bytes(wrapper)


@pytest.mark.parametrize(
    ("codec", "magic", "count", "limit"),
    [
        ("gzip", 0, 200_000, 5_000_000),
        ("lz4", 1, 50_000, 1_000_000),
        *(
            pytest.param(codec, magic, 1_000_000, 5_000_000, marks=pytest.mark.thorough)
            for codec in ("gzip", "lz4")
            for magic in (0, 1)
        ),
    ],
)
def test_the_memory_does_not_depend_on_the_number_of_messages_in_a_wrapper(
    codec: str, magic: int, count: int, limit: int
) -> None:
    """The peak memory stays below the decompressed size of the messages.

    The smallest message has 26 bytes in magic 0, and 34 in magic 1.

    The quick tests leave out the largest count, because tracemalloc is slow.
    """
    data = wrapper_of_smallest_messages(count, magic, codec)
    assert len(data) < count / 5
    tracemalloc.start()
    try:
        batch = only(data)
        assert (batch.count, batch.last_offset) == (count, count - 1)
        lists = record_lists(batch, 500)
        assert [len(next(lists)), len(next(lists))] == [500, 500]
        assert tracemalloc.get_traced_memory()[1] < limit
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", CODECS[:4])
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_the_lists_have_the_messages_of_a_wrapper(magic: int, codec: str, size: int) -> None:
    """The offsets begin at 90, and the values fill several compressed blocks."""
    time = NOW if magic else -1
    sent = [Record(90 + n, time, b"k%d" % n, bytes([n % 251]) * (n * 997 % 9001)) for n in range(400)]
    wrappers = list(batches(encode_messages(sent, magic, compression=codec)))
    lists = [records for wrapper in wrappers for records in record_lists(wrapper, size)]
    assert [record for records in lists for record in records] == sent
    assert [record for wrapper in wrappers for record in wrapper.records()] == sent
    assert max(map(len, lists)) <= size


def test_a_list_ends_after_a_megabyte_of_records() -> None:
    batch = only(encode_batch([Record(n, NOW, None, bytes(MB // 2)) for n in range(9)], compression="gzip"))
    sizes = [len(records) for records in record_lists(batch, 500)]
    assert (max(sizes) <= 3, sum(sizes)) == (True, 9)


def test_a_count_that_does_not_fit_is_an_error_of_the_count() -> None:
    for codec in CODECS:
        data = raw(SMALLEST * 4, 2**31 - 1, codec)
        with pytest.raises(RecordError) as caught:
            list(record_lists(only(data), 3))
        assert caught.value.field == refused(data).field == "count"


@pytest.mark.parametrize("codec", CODECS[1:])
def test_the_memory_does_not_depend_on_the_number_of_records(codec: str) -> None:
    if codec == "zstd":
        pytest.importorskip("zstandard")
    batch = only(raw(SMALLEST * 3_000_000, 3_000_000, codec))
    assert batch.size < {"snappy": 1_200_000, "lz4": 100_000}.get(codec, 50_000)
    tracemalloc.start()
    try:
        lists = record_lists(batch, 500)
        assert len(next(lists)) == 500
        assert len(next(lists)) == 500
        assert tracemalloc.get_traced_memory()[1] < 8 * MB
    finally:
        tracemalloc.stop()

"""Message sets of magic 0 and 1 are read as batches and rows."""

from __future__ import annotations

import contextlib
import struct
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproto.errors import EncodeError, RecordError
from kproto.records import Record, assign_offsets, batches, encode_batch, rows
from kproto.records.compression import compress
from kproto.records.legacy import begins_messages, encode_messages

pytest.importorskip("cramjam")
NOW = 1_700_000_000_000
CODECS = ["none", "gzip", "snappy", "lz4"]
CONTENT = st.none() | st.binary(max_size=20)


@st.composite
def drawn(draw: st.DrawFn, magic: int, most: int = 8) -> list[Record]:
    offset = draw(st.integers(0, 1 << 40))
    records = []
    for _ in range(draw(st.integers(1, most))):
        timestamp = draw(st.integers(-1, NOW)) if magic else -1
        records.append(Record(offset, timestamp, draw(CONTENT), draw(CONTENT)))
        offset += draw(st.integers(1, 3))
    return records


def message(magic: int, attributes: int, key: bytes | None, value: bytes | None, offset: int = 0) -> bytes:
    body = bytes((magic, attributes)) + (struct.pack(">q", NOW) if magic else b"")
    for content in (key, value):
        body += struct.pack(">i", -1) if content is None else struct.pack(">i", len(content)) + content
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", CODECS)
@given(data=st.data())
def test_what_is_written_is_read(magic: int, codec: str, data: st.DataObject) -> None:
    records = data.draw(drawn(magic))
    assert rows(encode_messages(records, magic, compression=codec)) == records


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_wrapper_is_one_batch_with_the_offsets_of_its_messages(codec: str) -> None:
    records = [Record(7, NOW, None, b"a"), Record(9, NOW + 5, None, b"b")]
    (batch,) = batches(encode_messages(records, 1, compression=codec))
    assert (batch.base_offset, batch.last_offset, batch.count) == (7, 9, 2)
    assert (batch.compression, batch.max_timestamp, batch.timestamp_type) == (codec, NOW + 5, "CreateTime")
    assert (batch.producer_id, batch.partition_leader_epoch, batch.delete_horizon_ms) == (-1, -1, None)


def test_magic_0_has_no_timestamps() -> None:
    (batch,) = batches(encode_messages([Record(3, -1, b"k", None)], 0))
    assert (batch.timestamp_type, batch.max_timestamp) == ("NoTimestampType", -1)
    assert batch.records()[0].timestamp == -1


def test_a_wrapper_with_log_append_time_sets_the_time_of_its_messages() -> None:
    inner = message(1, 0, None, b"a", 0) + message(1, 0, None, b"b", 1)
    wrapper = bytearray(message(1, 1 | 8, None, compress(1, inner), 41))
    wrapper[18:26] = struct.pack(">q", NOW + 77)
    wrapper[12:16] = struct.pack(">I", zlib.crc32(wrapper[16:]))
    assert rows(bytes(wrapper)) == [Record(40, NOW + 77, None, b"a"), Record(41, NOW + 77, None, b"b")]


@pytest.mark.parametrize(("offset", "first"), [(0, 0), (1, 0), (41, 40)])
def test_a_wrapper_without_offset_is_accepted_from_producers(offset: int, first: int) -> None:
    inner = message(1, 0, None, b"a", 0) + message(1, 0, None, b"b", 1)
    read_rows = rows(message(1, 1, None, compress(1, inner), offset))
    assert [row.offset for row in read_rows] == [first, first + 1]


def test_a_wrapper_below_its_last_message_is_refused() -> None:
    inner = message(1, 0, None, b"a", 0) + message(1, 0, None, b"b", 9)
    with pytest.raises(RecordError, match="below"):
        rows(message(1, 1, None, compress(1, inner), 8))


def test_offsets_in_a_wrapper_wrap_as_in_java() -> None:
    inner = message(1, 0, None, b"a", 9) + message(1, 0, None, b"b", 0)
    read_rows = rows(message(1, 1, None, compress(1, inner), (1 << 63) - 1))
    assert [row.offset for row in read_rows] == [8 - (1 << 63), (1 << 63) - 1]


@pytest.mark.parametrize("magic", [0, 1])
@given(data=st.data())
def test_a_changed_bit_is_noticed(magic: int, data: st.DataObject) -> None:
    whole = bytearray(encode_messages(data.draw(drawn(magic, 1)), magic))
    whole[data.draw(st.integers(12, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(RecordError):
        rows(bytes(whole))


@pytest.mark.parametrize("magic", [0, 1])
@given(data=st.data())
def test_any_change_is_read_or_a_record_error(magic: int, data: st.DataObject) -> None:
    codec = data.draw(st.sampled_from(CODECS))
    whole = bytearray(encode_messages(data.draw(drawn(magic)), magic, compression=codec))
    whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(RecordError):
        rows(bytes(whole), check_crc=False)


@pytest.mark.parametrize("cut", [1, 5, 13, 20])
def test_a_truncated_last_message_is_ignored(cut: int) -> None:
    whole = encode_messages([Record(0, NOW, None, b"a"), Record(1, NOW, None, b"b")], 1)
    assert rows(whole[:-cut]) == [Record(0, NOW, None, b"a")]


@pytest.mark.parametrize(
    ("value", "field"),
    [
        (compress(1, b""), "value"),
        (b"no gzip", "value"),
        (None, "value"),
        (compress(1, message(1, 0, None, b"a")[:-1]), "value.size"),
        (compress(1, message(2, 0, None, b"a")), "value.magic"),
        (compress(1, message(1, 1, None, compress(1, message(1, 0, None, b"a")))), "value.attributes"),
        (compress(1, message(1, 0, None, b"a")[:-1] + b"!"), "value.crc"),
    ],
    ids=["empty", "garbage", "null", "cut", "magic", "nested", "crc"],
)
def test_a_wrapper_with_wrong_content_is_refused(value: bytes | None, field: str) -> None:
    with pytest.raises(RecordError) as caught:
        rows(message(1, 1, None, value))
    assert (caught.value.field, caught.value.version) == (field, 1)


@pytest.mark.parametrize("size", [-1, 0, 13])
def test_a_bomb_whose_first_inner_message_has_an_invalid_size_is_refused(size: int) -> None:
    """A wrapper of more than 16 MiB of decompressed data must begin with a valid message.

    The size field of a message is at least 14.
    """
    start = struct.pack(">qi", 0, size) + b"\1" * 4 + bytes((1, 0)) + b"\1" * 6
    with pytest.raises(RecordError, match="bytes") as caught:
        rows(message(1, 1, None, compress(1, start + bytes(17 << 20))))
    assert caught.value.field == "value.size"


def test_message_sets_reject_zstd_and_headers() -> None:
    with pytest.raises(RecordError, match="codec 4"):
        rows(message(1, 4, None, b""))
    with pytest.raises(EncodeError):
        encode_messages([Record(0, 0, None, None)], 1, compression="zstd")
    with pytest.raises(EncodeError):
        encode_messages([Record(0, 0, None, None, (("h", None),))], 1)


@pytest.mark.parametrize(("attributes", "moment"), [(1, NOW), (1 | 8, NOW + 5)], ids=["create", "append"])
def test_a_wrapper_may_hold_messages_of_the_other_magic(attributes: int, moment: int) -> None:
    """Messages whose magic differs from the magic of their wrapper are read.

    Java's consumer reads them, too: AbstractLegacyRecordBatch.iterator does not set ensureMatchingMagic.
    """
    inner = message(0, 0, None, b"a", 0) + message(1, 0, None, b"b", 1)
    wrapped = bytearray(message(1, attributes, None, compress(1, inner), 8))
    wrapped[18:26] = (NOW + 5).to_bytes(8, "big")
    wrapped[12:16] = zlib.crc32(wrapped[16:]).to_bytes(4, "big")
    assert rows(bytes(wrapped)) == [Record(7, -1, None, b"a"), Record(8, moment, None, b"b")]
    assert rows(message(0, 1, None, compress(1, inner), 8)) == [
        Record(0, -1, None, b"a"),
        Record(1, NOW, None, b"b"),
    ]


def test_all_magics_may_lie_in_one_field() -> None:
    data = b"".join(
        [
            encode_messages([Record(0, -1, None, b"0")], 0),
            encode_messages([Record(1, NOW, None, b"1"), Record(2, NOW, None, b"1")], 1, compression="lz4"),
            encode_batch([Record(3, NOW, None, b"2")]),
        ]
    )
    assert [batch.magic for batch in batches(data)] == [0, 1, 2]
    assert [batch.offset for batch in rows(data)] == [0, 1, 2, 3]


def test_assign_offsets_rejects_message_sets() -> None:
    with pytest.raises(RecordError, match="magic 2"):
        assign_offsets(encode_messages([Record(0, NOW, None, b"")], 1), 0, 0)


@pytest.mark.parametrize("magic", [0, 1])
def test_invalid_values_are_rejected_with_their_place(magic: int) -> None:
    fits = Record(0, NOW, None, b"v")
    unfit: Any = Record(1, NOW, None, "v")  # type: ignore[arg-type]
    with pytest.raises(EncodeError, match=r"records\[1\].value: 'v' is not bytes"):
        encode_messages([fits, unfit], magic)
    with pytest.raises(
        EncodeError, match=r"records\[1\].offset: 9223372036854775808 is not a value of int64"
    ):
        encode_messages([fits, Record(1 << 63, NOW, None, b"v")], magic)
    with pytest.raises(EncodeError, match="headers"):
        encode_messages([Record(0, NOW, None, b"v", (("h", b""),))], magic)


@pytest.mark.parametrize(
    ("start", "begins"),
    [
        (message(1, 0, None, b"v"), True),
        (message(0, 0, None, b"v"), True),
        (message(2, 0, None, b"v"), False),
        (message(1, 0, None, b"v") + message(1, 0, None, b"w"), True),
        (message(1, 0, None, b"v") + message(3, 0, None, b"w"), False),
        (message(1, 0, None, b"v")[:17], True),
        (message(1, 0, None, b"v")[:16], False),
        (b"", False),
        (struct.pack(">qi", 0, 13) + bytes(17), False),
        (struct.pack(">qi", 0, 14) + bytes(17), True),
    ],
)
def test_bytes_begin_messages_if_each_has_a_valid_size_and_magic(start: bytes, begins: bool) -> None:
    assert begins_messages(memoryview(start)) is begins


@pytest.mark.parametrize(
    ("magic", "smallest", "why"),
    [(0, 14, "is 13, but must be at least 14"), (1, 22, "21 bytes are too few for a message")],
)
def test_a_size_below_that_of_an_empty_message_is_refused(magic: int, smallest: int, why: str) -> None:
    whole = message(magic, 0, None, None)
    assert len(whole) == 12 + smallest
    assert [(row.key, row.value) for row in rows(whole)] == [(None, None)]
    cut = bytearray(whole[:-1])
    cut[8:12] = (smallest - 1).to_bytes(4, "big")
    with pytest.raises(RecordError, match=why):
        rows(bytes(cut), check_crc=False)

"""Message sets of magic 0 and 1: Kafka's formats before 0.11, which old topics still contain.

* A message set has no batches, only messages. Each message that is not inside a wrapper is read as a `Batch`,
  so `batches` and `rows` return the same types for every magic. A compressed message is a wrapper: its value
  is a message set.
* In a wrapper of magic 0 the inner offsets are absolute. In a wrapper of magic 1 the inner offsets are
  relative, and the wrapper has the offset of the last inner message (KIP-31), or 0 if an old producer sent
  it. Offsets wrap at 64 bits, as in Java.
* Inner messages may have another magic than the wrapper: some producers sent wrappers with messages of
  another magic, old brokers accepted these wrappers, and Java's consumer reads them. The wrapper's magic
  decides whether the inner offsets are relative, and an inner message's magic whether this message has a
  timestamp.
* Magic 0 has no timestamps: records have -1. In magic 1 a wrapper with LogAppendTime overrides the inner
  timestamps (KIP-32).
* The CRC is zlib's CRC-32 of all bytes after the CRC field. zstd does not exist in these formats.

See Kafka's `LegacyRecord` and `AbstractLegacyRecordBatch`.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

from ..errors import EncodeError, RecordError
from .batch import APPEND_TIME, CODEC_BITS, OVERHEAD, Batch
from .codecs import CodecError
from .codecs.lz4 import with_old_header
from .compression import CODECS, codec_number, compress, decompress
from .encode_errors import UNWRITABLE, explain_unwritable
from .record import Record, to_bytes, wrap

_MESSAGE = "Message"
_LZ4 = 3


def crc_ok(data: bytes, start: int, end: int) -> bool:
    """Return whether the CRC of the message from `start` to `end` is correct."""
    return zlib.crc32(memoryview(data)[start + 16 : end]) == int.from_bytes(
        data[start + 12 : start + 16], "big"
    )


def read_message(data: bytes, at: int, stop: int, check_crc: bool, max_decompressed: int | None) -> Batch:
    """Read the outer message from `at` to `stop` as a batch.

    A wrapper is decompressed immediately, because the batch's first offset is that of its first inner
    message.
    """
    record, codec, attributes = _read(data, at, stop, check_crc, "offset")
    magic = data[at + 16]
    records = [record]
    if codec:
        records = _unwrap(record, codec, magic, attributes, at, check_crc, max_decompressed)
    batch = Batch(data, at, lambda _batch, _limit: list(records))
    batch.base_offset = records[0].offset
    batch.last_offset = record.offset
    batch.partition_leader_epoch = batch.producer_id = batch.producer_epoch = batch.base_sequence = -1
    batch.magic = magic
    batch.codec = codec
    if magic == 0:
        batch.timestamp_type = "NoTimestampType"
    else:
        batch.timestamp_type = "LogAppendTime" if attributes & APPEND_TIME else "CreateTime"
    batch.base_timestamp = records[0].timestamp
    batch.max_timestamp = record.timestamp
    batch.is_transactional = batch.is_control = False
    batch.delete_horizon_ms = None
    batch.count = len(records)
    batch.size = stop - at
    batch.end = stop
    return batch


def _read(data: bytes, at: int, stop: int, check_crc: bool, where: str) -> tuple[Record, int, int]:
    """Read one message; return its record, codec number and attributes."""
    magic = data[at + 16]
    key_at = at + (18 if magic == 0 else 26)
    if stop < key_at + 8:
        raise RecordError(
            _MESSAGE, magic, f"{where}.size", at + 8, f"{stop - at - OVERHEAD} bytes are less than a message"
        )
    if check_crc and not crc_ok(data, at, stop):
        raise RecordError(_MESSAGE, magic, f"{where}.crc", at + 12, "the checksum is not that of the bytes")
    attributes = data[at + 17]
    codec = attributes & CODEC_BITS
    if codec > _LZ4:
        raise RecordError(_MESSAGE, magic, f"{where}.attributes", at + 17, f"no codec {codec} in this magic")
    offset, *_ = struct.unpack_from(">q", data, at)
    timestamp = -1 if magic == 0 else struct.unpack_from(">q", data, at + 18)[0]
    key, value_at = _bytes(data, key_at, stop, magic, f"{where}.key")
    value, end = _bytes(data, value_at, stop, magic, f"{where}.value")
    if end != stop:
        raise RecordError(
            _MESSAGE, magic, f"{where}.size", end, f"{stop - end} bytes follow the value of the message"
        )
    return Record(offset, timestamp, key, value), codec, attributes


def _bytes(data: bytes, at: int, stop: int, magic: int, field: str) -> tuple[bytes | None, int]:
    start = at + 4
    size = int.from_bytes(data[at:start], "big", signed=True) if start <= stop else -2
    if size == -1:
        return None, start
    if size < 0 or size > stop - start:
        raise RecordError(_MESSAGE, magic, field, at, "a length that is negative or too large")
    return data[start : start + size], start + size


def _begins_messages(start: memoryview) -> bool:
    """Return whether bytes start like messages: with valid sizes and a known magic."""
    at, end = 0, len(start)
    while end - at >= 17:
        size = int.from_bytes(start[at + 8 : at + OVERHEAD], "big", signed=True)
        if size < 14 or start[at + 16] > 1:
            return False
        at += OVERHEAD + size
    return at > 0


def _unwrap(
    wrapper: Record,
    codec: int,
    magic: int,
    attributes: int,
    at: int,
    check_crc: bool,
    max_decompressed: int | None,
) -> list[Record]:
    try:
        if wrapper.value is None:
            raise CodecError("null")
        data = decompress(codec, wrapper.value, max_decompressed, old_lz4=magic == 0, begins=_begins_messages)
    except CodecError as error:
        raise RecordError(_MESSAGE, magic, "value", at, f"{CODECS[codec]}: {error}") from None
    records: list[Record] = []
    timed: list[bool] = []
    inner, end = 0, len(data)
    while inner < end:
        size = int.from_bytes(data[inner + 8 : inner + OVERHEAD], "big", signed=True)
        stop = inner + OVERHEAD + size
        if end - inner < 17 or size < 5 or stop > end:
            raise RecordError(
                _MESSAGE,
                magic,
                "value.size",
                inner,
                "an inner message is truncated (in the decompressed bytes)",
            )
        if data[inner + 16] > 1:
            detail = f"a message of magic {data[inner + 16]} in a wrapper"
            raise RecordError(_MESSAGE, magic, "value.magic", inner + 16, detail)
        record, nested, _ = _read(data, inner, stop, check_crc, "value")
        if nested:
            raise RecordError(_MESSAGE, magic, "value.attributes", inner + 17, "a wrapper in a wrapper")
        records.append(record)
        timed.append(data[inner + 16] == 1)
        inner = stop
    if not records:
        raise RecordError(_MESSAGE, magic, "value", at, "a wrapper without messages")
    if magic:
        # Old producers send a wrapper with offset 0, because the broker assigns the offset. Its inner offsets
        # are not changed.
        shift = wrapper.offset - records[-1].offset if wrapper.offset else 0
        if shift < 0:
            raise RecordError(_MESSAGE, magic, "offset", at, "the wrapper's offset is below that of its last")
        for record, has_time in zip(records, timed, strict=True):
            record.offset = wrap(record.offset + shift)
            if attributes & APPEND_TIME and has_time:
                record.timestamp = wrapper.timestamp
    return records


def encode_messages(
    records: Sequence[Record],
    magic: int,
    *,
    compression: str = "none",
    level: int | None = None,
    timestamp_type: str = "CreateTime",
) -> bytes:
    """Encode a message set of magic 0 or 1: one message per record, or one wrapper if compressed.

    `kproto.records.batches` reads the message set. Raises `EncodeError` for headers and for codecs that the
    magic does not have. With LogAppendTime a wrapper has the highest timestamp.
    """
    if magic not in (0, 1):
        raise EncodeError(_MESSAGE, magic, "magic", "only 0 and 1 are message sets")
    codec = codec_number(compression)
    if codec > _LZ4:
        raise EncodeError(_MESSAGE, magic, "attributes", f"{compression} is not in this magic")
    append_time = APPEND_TIME * (magic == 1 and timestamp_type == "LogAppendTime")
    start = records[0].offset if codec and magic and records else 0
    try:
        plain = b"".join(_write(record, record.offset - start, magic, append_time) for record in records)
    except EncodeError:
        raise
    except (struct.error, *UNWRITABLE):
        raise explain_unwritable(_MESSAGE, magic, records) from None
    if not codec or not records:
        return plain
    value = compress(codec, plain, level)
    if codec == _LZ4 and magic == 0:
        value = with_old_header(value)
    wrapper = Record(records[-1].offset, max(record.timestamp for record in records), None, value)
    return _write(wrapper, wrapper.offset, magic, codec | append_time)


def _write(record: Record, offset: int, magic: int, attributes: int) -> bytes:
    if record.headers:
        raise EncodeError(_MESSAGE, magic, "headers", "only magic 2 has headers")
    parts = [bytes((magic, attributes))]
    if magic:
        parts.append(struct.pack(">q", record.timestamp))
    for content in (record.key, record.value):
        if content is None:
            parts.append(b"\xff\xff\xff\xff")
        else:
            raw = content if type(content) is bytes else to_bytes(content)
            parts += (struct.pack(">i", len(raw)), raw)
    body = b"".join(parts)
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body

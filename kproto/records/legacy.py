"""Message sets of magic 0 and 1: Kafka's formats before 0.11, which old topics still contain.

* A message set consists of messages. A compressed message is a wrapper: its value is a message set.

* Each wrapper, and each message outside of a wrapper, is read as a `Batch`. So `batches` and `rows` return
  the same types for every magic.

* In a wrapper of magic 0, inner offsets are absolute.

* In a wrapper of magic 1, inner offsets are relative. The wrapper has the offset of its last inner message
  (KIP-31), or 0 if certain versions of librdkafka sent it.

* Offsets wrap at 64 bits, as in Java.

* An inner message and its wrapper may have different magics. Some producers sent such wrappers, old brokers
  accepted them, and Java's consumer reads them.

* The wrapper's magic decides whether inner offsets are relative. The inner message's magic decides whether
  the inner message has a timestamp.

* Records of magic 0 have no timestamp. The reader returns -1 instead.

* In magic 1, the timestamp of a wrapper with LogAppendTime replaces the inner timestamps (KIP-32).

* The CRC is zlib's CRC-32 of all bytes after the CRC field.

* Magic 0 and 1 do not support the codec zstd.

See Kafka's `LegacyRecord` and `AbstractLegacyRecordBatch`.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..errors import EncodeError, RecordError
from .batch import APPEND_TIME, CODEC_BITS, OVERHEAD, Batch
from .codecs import CodecError
from .codecs.lz4 import with_old_header
from .compression import CODECS, codec_number, compress, decompress_blocks
from .encode_errors import UNWRITABLE, explain_unwritable
from .record import Record, to_bytes, wrap

_MESSAGE = "Message"
_LZ4 = 3

# The number of messages that are copied together while a wrapper is scanned.
_SCANNED_MESSAGES = 10_000

# A decoding step takes the messages that start within this many decompressed bytes of its first message.
_PART_BYTES = 1 << 20

# A wrapper keeps its decompressed bytes if they are one block of at most this many bytes. Any other wrapper
# is decompressed again whenever its messages are read.
_KEPT_BYTES = 1 << 20

# A message has an offset (8 bytes), a size (4), a CRC (4), a magic (1), attributes (1), in magic 1 a
# timestamp (8), and a key and a value, each after its length (4). The size counts the bytes after the size
# field.

# The number of bytes of a message up to and including its magic.
_MIN_HEAD = 17
# The size of the CRC (4 bytes) and the magic (1). A message with a smaller size field lacks its magic.
_MIN_SIZE = 5

_TRUNCATED = "an inner message is truncated (in the decompressed bytes)"

_int64 = struct.Struct(">q").unpack_from
_int32 = struct.Struct(">i").unpack_from
# Reads the size and the magic of a message, and skips the CRC between them.
_head = struct.Struct(">i4xB").unpack_from


def crc_ok(data: bytes, start: int, end: int) -> bool:
    """Return whether the CRC of the message from `start` to `end` is correct."""
    return zlib.crc32(memoryview(data)[start + 16 : end]) == int.from_bytes(
        data[start + 12 : start + 16], "big"
    )


def read_message(data: bytes, at: int, stop: int, check_crc: bool, max_decompressed: int | None) -> Batch:
    """Read the outer message from `at` to `stop` as a batch.

    A wrapper is decompressed here to find its first and last message, which determine the offsets of the
    batch. Its messages are decoded when they are read.
    """
    record, codec, attributes = _read_record(data, at, stop, check_crc, "offset")
    magic = data[at + 16]
    if codec:
        wrapper = Wrapper(
            record,
            codec=codec,
            magic=magic,
            attributes=attributes,
            at=at,
            check_crc=check_crc,
            max_decompressed=max_decompressed,
        )
        first, count = wrapper.scan()
        batch = Batch(data, at, wrapper.records)
    else:
        first, count = record, 1
        batch = Batch(data, at, lambda _batch, _limit: [record])
    batch.base_offset = first.offset
    batch.last_offset = record.offset
    batch.partition_leader_epoch = batch.producer_id = batch.producer_epoch = batch.base_sequence = -1
    batch.magic = magic
    batch.codec = codec
    if magic == 0:
        batch.timestamp_type = "NoTimestampType"
    else:
        batch.timestamp_type = "LogAppendTime" if attributes & APPEND_TIME else "CreateTime"
    batch.base_timestamp = first.timestamp
    batch.max_timestamp = record.timestamp
    batch.is_transactional = batch.is_control = False
    batch.delete_horizon_ms = None
    batch.count = count
    batch.size = stop - at
    batch.end = stop
    return batch


def _read_record(
    data: bytes, at: int, stop: int, check_crc: bool, field_prefix: str
) -> tuple[Record, int, int]:
    """Read one message; return its record, codec number and attributes.

    Raises `RecordError`, in which the names of fields begin with `field_prefix`.
    """
    magic = data[at + 16]
    key_at = at + (18 if magic == 0 else 26)
    if stop < key_at + 8:
        raise RecordError(
            _MESSAGE,
            magic,
            f"{field_prefix}.size",
            at + 8,
            f"{stop - at - OVERHEAD} bytes are too few for a message",
        )
    if check_crc and not crc_ok(data, at, stop):
        raise RecordError(
            _MESSAGE, magic, f"{field_prefix}.crc", at + 12, "the CRC of the message does not match its bytes"
        )
    attributes = data[at + 17]
    codec = attributes & CODEC_BITS
    if codec > _LZ4:
        raise RecordError(
            _MESSAGE,
            magic,
            f"{field_prefix}.attributes",
            at + 17,
            f"codec {codec} does not exist in this magic",
        )
    offset, *_ = struct.unpack_from(">q", data, at)
    timestamp = -1 if magic == 0 else struct.unpack_from(">q", data, at + 18)[0]
    key, value_at = _read_bytes(data, key_at, stop, magic, f"{field_prefix}.key")
    value, end = _read_bytes(data, value_at, stop, magic, f"{field_prefix}.value")
    if end != stop:
        raise RecordError(
            _MESSAGE,
            magic,
            f"{field_prefix}.size",
            end,
            f"{stop - end} bytes follow the value of the message",
        )
    return Record(offset, timestamp, key, value), codec, attributes


def _read_bytes(data: bytes, at: int, stop: int, magic: int, field: str) -> tuple[bytes | None, int]:
    """Return the key or value whose length is at `at` (None if it is null), and the position after it."""
    start = at + 4
    size = int.from_bytes(data[at:start], "big", signed=True) if start <= stop else -2
    if size == -1:
        return None, start
    if size < 0 or size > stop - start:
        raise RecordError(_MESSAGE, magic, field, at, "a length that is negative or too large")
    return data[start : start + size], start + size


def begins_messages(start: memoryview) -> bool:
    """Return whether bytes can be the start of messages. Only the sizes and the magic are checked."""
    at, end = 0, len(start)
    while end - at >= 17:
        size = int.from_bytes(start[at + 8 : at + OVERHEAD], "big", signed=True)
        if size < 14 or start[at + 16] > 1:
            return False
        at += OVERHEAD + size
    return at > 0


class Wrapper:
    """The messages of one wrapper. `lists` decompresses and decodes them in short lists.

    A wrapper of a few hundred kilobytes may have millions of messages. `lists` keeps only one decompressed
    block and one list in memory.
    """

    __slots__ = (
        "_at",
        "_attributes",
        "_check_crc",
        "_codec",
        "_kept_output",
        "_magic",
        "_max_decompressed",
        "_offset_shift",
        "_record",
    )

    def __init__(
        self,
        record: Record,
        codec: int,
        magic: int,
        attributes: int,
        at: int,
        check_crc: bool,
        max_decompressed: int | None,
    ) -> None:
        self._record = record
        self._codec = codec
        self._magic = magic
        self._attributes = attributes
        self._at = at
        self._check_crc = check_crc
        self._max_decompressed = max_decompressed
        # The number that is added to an inner offset to get the offset in the log. `scan` sets it.
        self._offset_shift = 0
        # All decompressed bytes, or None if they are not kept (`_KEPT_BYTES`).
        self._kept_output: bytes | None = None

    def scan(self) -> tuple[Record, int]:
        """Return the first message and the number of messages, without decoding the other messages.

        Call `scan` first: it finds the offset of the last message, from which `records` and `lists` calculate
        the offsets.
        """
        count, first_part, last_offset = 0, b"", 0
        for part in self._parts(_SCANNED_MESSAGES):
            count += part.message_count
            first_part = first_part or part.data
            (last_offset,) = _int64(part.data, part.last_message)
        if not count:
            raise RecordError(_MESSAGE, self._magic, "value", self._at, "a wrapper without messages")
        # Certain versions of librdkafka send a wrapper with offset 0. The inner offsets of such a wrapper are
        # not shifted.
        if self._magic and self._record.offset:
            self._offset_shift = self._record.offset - last_offset
        if self._offset_shift < 0:
            detail = "the offset of the wrapper is below the inner offset of its last message"
            raise RecordError(_MESSAGE, self._magic, "offset", self._at, detail)
        return self._decode_message(first_part, 0, 0), count

    def records(self, _batch: Batch, _max_decompressed: int | None) -> list[Record]:
        """Decode all messages."""
        return [record for records in self.lists(_SCANNED_MESSAGES) for record in records]

    def lists(self, size: int) -> Iterator[list[Record]]:
        """Iterate over lists of at most `size` decoded messages."""
        for part in self._parts(size):
            at, records = 0, list[Record]()
            while at < len(part.data):
                records.append(self._decode_message(part.data, at, part.position))
                at += OVERHEAD + _int32(part.data, at + 8)[0]
            yield records

    def _decode_message(self, data: bytes, at: int, data_position: int) -> Record:
        """Decode the message at `at`. `data_position` is the position of `data` in the decompressed bytes."""
        try:
            stop = at + OVERHEAD + _int32(data, at + 8)[0]
            record, codec, _ = _read_record(data, at, stop, self._check_crc, "value")
            if codec:
                raise RecordError(
                    _MESSAGE, self._magic, "value.attributes", at + 17, "a wrapper contains a wrapper"
                )
        except RecordError as error:
            raise RecordError(
                error.message, error.version, error.field, data_position + error.offset, error.detail
            ) from None
        if self._offset_shift:
            record.offset = wrap(record.offset + self._offset_shift)
        if self._magic and self._attributes & APPEND_TIME and data[at + 16] == 1:
            record.timestamp = self._record.timestamp
        return record

    def _parts(self, max_messages: int) -> Iterator[_Part]:
        """Iterate over pieces of the decompressed bytes, of at most `max_messages` complete messages each."""
        # `data` are the decompressed bytes that no part contains yet. `position` is the position of `data` in
        # all decompressed bytes.
        blocks, data, position = self._blocks(), bytearray(), 0
        while True:
            count, last_message, stop = _complete_messages(data, max_messages)
            if count:
                yield _Part(bytes(memoryview(data)[:stop]), count, last_message, position)
                del data[:stop]
                position += stop
                continue
            self._check_head(data, position)
            block = next(blocks, None)
            if block is None:
                break
            data += block
        if data:
            raise RecordError(_MESSAGE, self._magic, "value.size", position, _TRUNCATED)

    def _check_head(self, data: bytearray, position: int) -> None:
        """Raise RecordError if the first message has an invalid size or magic.

        `position` is the position of `data` in the decompressed bytes.
        """
        if len(data) >= _MIN_HEAD:
            size, magic = _head(data, 8)
            if size < _MIN_SIZE:
                raise RecordError(_MESSAGE, self._magic, "value.size", position, _TRUNCATED)
            if magic > 1:
                detail = f"a message of magic {magic} in a wrapper"
                raise RecordError(_MESSAGE, self._magic, "value.magic", position + 16, detail)

    def _blocks(self) -> Iterator[bytes]:
        """Iterate over blocks of the decompressed bytes.

        If the bytes are a single small block, later calls reuse this block from `_kept_output`.
        """
        if self._kept_output is not None:
            yield self._kept_output
            return
        first_block, size = b"", 0
        try:
            if self._record.value is None:
                raise CodecError("null")
            for block in decompress_blocks(
                self._codec,
                self._record.value,
                self._max_decompressed,
                begins_messages,
                old_lz4=self._magic == 0,
            ):
                first_block, size = first_block or block, size + len(block)
                yield block
        except CodecError as error:
            detail = f"{CODECS[self._codec]}: {error}"
            raise RecordError(_MESSAGE, self._magic, "value", self._at, detail) from None
        is_one_block = size == len(first_block)
        if is_one_block and size <= _KEPT_BYTES:
            self._kept_output = first_block


def wrapper_of(batch: Batch) -> Wrapper | None:
    """Return the wrapper that a batch was read from, or None for a batch without a wrapper."""
    wrapper = getattr(batch.parse, "__self__", None)
    return wrapper if isinstance(wrapper, Wrapper) else None


class _Part(NamedTuple):
    """Consecutive complete messages of a wrapper.

    `last_message` is the position of the last message in `data`, and `position` the position of `data` in the
    decompressed bytes.
    """

    data: bytes
    message_count: int
    last_message: int
    position: int


def _complete_messages(data: bytearray, max_messages: int) -> tuple[int, int, int]:
    """Return the number of complete messages, and the start and end of the last one.

    Each counted message starts within the first `_PART_BYTES`. The count stops before a message with an
    invalid size or magic.
    """
    at, last_message, end = 0, 0, len(data)
    for count in range(max_messages):
        if end - at < _MIN_HEAD or at > _PART_BYTES:
            return count, last_message, at
        size, magic = _head(data, at + 8)
        stop = at + OVERHEAD + size
        if size < _MIN_SIZE or magic > 1 or stop > end:
            return count, last_message, at
        last_message, at = at, stop
    return max_messages, last_message, at


def encode_messages(
    records: Sequence[Record],
    magic: int,
    *,
    compression: str = "none",
    level: int | None = None,
    timestamp_type: str = "CreateTime",
) -> bytes:
    """Encode a message set of magic 0 or 1: one message per record, or one wrapper if compressed.

    The timestamp of a wrapper is the highest timestamp of `records`. With `timestamp_type="LogAppendTime"`,
    readers return it for each message, so it should be the time of the append. `kproto.records.batches` reads
    the message set.

    Raises `EncodeError` for records with headers, and for a codec that the magic does not support.
    """
    if magic not in (0, 1):
        raise EncodeError(_MESSAGE, magic, "magic", "a message set must have magic 0 or 1")
    codec = codec_number(compression)
    if codec > _LZ4:
        raise EncodeError(_MESSAGE, magic, "attributes", f"this magic does not support {compression}")
    has_append_time = magic == 1 and timestamp_type == "LogAppendTime"
    attributes = APPEND_TIME if has_append_time else 0
    has_relative_offsets = bool(codec and magic and records)
    base_offset = records[0].offset if has_relative_offsets else 0
    try:
        messages = b"".join(
            _encode_message(record, record.offset - base_offset, magic, attributes) for record in records
        )
    except EncodeError:
        raise
    except (struct.error, *UNWRITABLE):
        raise explain_unwritable(_MESSAGE, magic, records) from None
    if not codec or not records:
        return messages
    value = compress(codec, messages, level)
    if codec == _LZ4 and magic == 0:
        value = with_old_header(value)
    wrapper = Record(records[-1].offset, max(record.timestamp for record in records), None, value)
    return _encode_message(wrapper, wrapper.offset, magic, codec | attributes)


def _encode_message(record: Record, offset: int, magic: int, attributes: int) -> bytes:
    """Encode the record as a message with this offset. Raises `EncodeError` for a record with headers."""
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

"""Record batches of magic 2 made: of all records at once, one by one for a producer, or for a broker's log.

See Kafka's `MemoryRecordsBuilder` and `LogValidator`. Batches of whole columns are made in `column_encoder`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from io import BytesIO
from typing import cast

import msgspec

from ..errors import BatchFull, EncodeError, RecordError
from .batch import (
    APPEND_TIME,
    CODEC_BITS,
    CONTROL,
    CRC_AT,
    CRC_FROM,
    DELETE_HORIZON,
    HEADER_SIZE,
    OVERHEAD,
    TRANSACTIONAL,
    Data,
)
from .compression import codec_number, compress
from .crc32c import crc32c
from .encode_errors import UNWRITABLE, explain_unwritable
from .reader import batches
from .record import (
    HEADER_NAMES,
    NULL,
    TABLE_SIZE,
    ZERO_BYTE,
    Headers,
    Record,
    length_of_bytes,
    record_parts,
    small_varints,
)

_UNCHECKED = struct.Struct(">qiibI")
_CHECKED = struct.Struct(">hiqqqhii")
_NUMBERED = struct.Struct(">qhi")
_NUMBERS_AT = 43
_HEADER_ROOM = bytes(HEADER_SIZE)
_INT32_MAX = (1 << 31) - 1
_ANY = 1 << 62  # larger than any batch
# What callers set of the header, in order, with its bits.
_NUMBERS = {
    "baseOffset": 64,
    "partitionLeaderEpoch": 32,
    "lastOffsetDelta": 32,
    "baseTimestamp": 64,
    "maxTimestamp": 64,
    "producerId": 64,
    "producerEpoch": 16,
    "baseSequence": 32,
}
_UNCOMMON = (LookupError, *UNWRITABLE)
_join = b"".join


def encode_batch(
    records: Sequence[Record],
    *,
    base_offset: int | None = None,
    last_offset: int | None = None,
    compression: str = "none",
    level: int | None = None,
    partition_leader_epoch: int = -1,
    timestamp_type: str = "CreateTime",
    base_timestamp: int | None = None,
    max_timestamp: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
    delete_horizon_ms: int | None = None,
) -> bytes:
    """One batch of magic 2 with these records, whose offsets are kept (gaps too).

    `base_offset` is the first record's offset unless given, `last_offset` the last one's; both may reach
    further, as in a compacted log, and an emptied batch needs only them. `base_timestamp` is the first
    record's, `max_timestamp` the highest; with LogAppendTime readers see only the latter. Raises
    `EncodeError` for values that don't fit, `ConfigError` for an unknown codec and `MissingExtra` without its
    package.
    """
    codec = codec_number(compression)
    parts: list[bytes] = []
    try:
        first = records[0] if records else None
        if base_offset is None:
            base_offset = first.offset if first else 0
        if last_offset is None:
            last_offset = max(records[-1].offset, base_offset) if records else base_offset
        if delete_horizon_ms is not None:
            base_timestamp = delete_horizon_ms
        elif base_timestamp is None:
            base_timestamp = first.timestamp if first else -1
        if max_timestamp is None:
            max_timestamp = max((record.timestamp for record in records), default=-1)
        before: int | None = None
        for record in records:
            delta = record.offset - base_offset
            if not -_INT32_MAX <= delta <= _INT32_MAX:
                detail = f"{delta} from the first offset is too far"
                raise EncodeError("RecordBatch", 2, "records.offset", detail)
            if before is not None and delta <= before:
                detail = f"{record.offset} comes after {base_offset + before}; offsets must grow"
                raise EncodeError("RecordBatch", 2, "records.offset", detail)
            before = delta
            parts += record_parts(
                delta, record.timestamp - base_timestamp, record.key, record.value, record.headers
            )
        whole = _join(parts)
    except EncodeError:
        raise
    except UNWRITABLE:
        raise explain_unwritable("RecordBatch", 2, records) from None
    attributes = codec
    if timestamp_type == "LogAppendTime":
        attributes |= APPEND_TIME
    elif timestamp_type != "CreateTime":
        raise EncodeError("RecordBatch", 2, "timestampType", f"{timestamp_type} doesn't exist in magic 2")
    attributes |= TRANSACTIONAL * is_transactional | CONTROL * is_control
    attributes |= DELETE_HORIZON * (delete_horizon_ms is not None)
    return add_header(
        lay_out([whole], level, attributes),
        base_offset=base_offset,
        last_delta=last_offset - base_offset,
        leader_epoch=partition_leader_epoch,
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        count=len(records),
    )


class UnnumberedBatch(msgspec.Struct, frozen=True):
    """A batch that lacks nothing but its sender's numbers, and so its CRC. Its length is that in bytes."""

    count: int
    _laid_out: BytesIO
    _attributes: int
    _base_timestamp: int
    _max_timestamp: int

    def __len__(self) -> int:
        return self._laid_out.getbuffer().nbytes

    def numbered(
        self, producer_id: int, producer_epoch: int, base_sequence: int, *, is_transactional: bool = False
    ) -> bytes:
        """The batch; -1 for what it doesn't have. Its records are not copied where this is the first call."""
        return add_header(
            self._laid_out,
            base_offset=0,
            last_delta=max(self.count - 1, 0),
            leader_epoch=-1,
            attributes=self._attributes | TRANSACTIONAL * is_transactional,
            base_timestamp=self._base_timestamp,
            max_timestamp=self._max_timestamp,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            count=self.count,
        )


class BatchBuilder:
    """Records on their way into one batch of magic 2 with base offset 0, as a producer sends it.

    `append`, then `build`; `clear` to start again. There is no limit unless one is asked for: with
    `max_bytes` (before compression, as Kafka's batch.size) a record that has no room raises `BatchFull`, but
    a first one of any size is taken.
    """

    __slots__ = (
        "_base_timestamp",
        "_codec",
        "_count",
        "_deltas",
        "_level",
        "_max_timestamp",
        "_most",
        "_parts",
        "_size",
        "_varints",
        "max_bytes",
    )

    def __init__(
        self, compression: str = "none", max_bytes: int | None = None, level: int | None = None
    ) -> None:
        self._codec = codec_number(compression)
        self._level = level
        self._varints, self._deltas = small_varints()
        self.max_bytes = max_bytes
        self._most = _ANY if max_bytes is None else max_bytes
        self.clear()

    def clear(self) -> None:
        """Forget all records."""
        self._parts: list[bytes] = []
        self._size = HEADER_SIZE
        self._count = 0
        self._base_timestamp = -1
        self._max_timestamp = -1

    def __len__(self) -> int:
        return self._count

    @property
    def size(self) -> int:
        """Bytes that the batch would have without compression."""
        return self._size

    def append(
        self,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> None:
        """Take a record with this `timestamp` (ms).

        Raises `BatchFull` when it has no room, and `EncodeError` for keys and values that are not bytes, and
        the like; nothing was taken then.
        """
        count = self._count
        if not count:
            self._base_timestamp = self._max_timestamp = timestamp
        varints, deltas, length_of = self._varints, self._deltas, length_of_bytes
        pieces: Sequence[bytes]
        try:  # the same as `record_parts`, in line: this is the innermost loop of a producer
            delta = timestamp - self._base_timestamp
            if delta < 0:  # which is an index, too
                raise IndexError
            offset = varints[count]
            if headers:
                known = [deltas[delta], offset]
                known += (NULL,) if key is None else (varints[length_of(key)], key)
                known += (NULL,) if value is None else (varints[length_of(value)], value)
                known.append(varints[len(headers)])
                for name, content in headers:
                    if content is None:
                        known += (HEADER_NAMES[name], NULL)
                    else:
                        known += (HEADER_NAMES[name], varints[length_of(content)], content)
                body = _join(known)
            elif value is None:
                if key is None:
                    body = _join((deltas[delta], offset, NULL, NULL, ZERO_BYTE))
                else:
                    body = _join((deltas[delta], offset, varints[length_of(key)], key, NULL, ZERO_BYTE))
            elif key is None:
                body = _join((deltas[delta], offset, NULL, varints[length_of(value)], value, ZERO_BYTE))
            else:
                first, second = varints[length_of(key)], varints[length_of(value)]
                body = _join((deltas[delta], offset, first, key, second, value, ZERO_BYTE))
            size = len(body)
            length = varints[size]
            size += len(length)
            pieces = (length, body)
        except _UNCOMMON:  # what is no bytes, or a number or a header's key that has no place in the tables
            pieces = self._pieces(timestamp, key, value, headers)
            size = sum(map(len, pieces))
        size += self._size
        if size > self._most and count:
            raise BatchFull(size, self._most, count)
        if timestamp > self._max_timestamp:
            self._max_timestamp = timestamp
        self._size = size
        self._count = count + 1
        parts = self._parts
        parts += pieces

    def _pieces(
        self,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
    ) -> list[bytes]:
        """The next record, whatever is in it: `append` has the common ones."""
        try:
            parts = record_parts(self._count, timestamp - self._base_timestamp, key, value, headers)
            if type(value) is bytes and len(value) >= TABLE_SIZE:  # is not copied here
                return [_join(parts[:-2]), value, parts[-1]]
            return [_join(parts)]
        except UNWRITABLE:
            record = Record(self._count, timestamp, key, value, cast("Headers", headers))
            raise explain_unwritable("RecordBatch", 2, [record], self._count) from None

    def build(
        self,
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        is_transactional: bool = False,
    ) -> bytes:
        """The batch, compressed. The builder keeps its records.

        Raises `MissingExtra` without the codec's package, and `EncodeError` for numbers that don't fit.
        """
        return self.unnumbered().numbered(
            producer_id, producer_epoch, base_sequence, is_transactional=is_transactional
        )

    def unnumbered(self) -> UnnumberedBatch:
        """The batch for a sender that numbers it when its turn comes."""
        return UnnumberedBatch(
            self._count,
            lay_out(self._parts, self._level, self._codec),
            self._codec,
            self._base_timestamp,
            self._max_timestamp,
        )


def assign_offsets(
    data: Data, base_offset: int, leader_epoch: int, *, log_append_time: int | None = None
) -> bytes:
    """The batches of a produce request as a broker's log stores them: numbered from `base_offset` on.

    Records are not touched, and neither is the CRC but for `log_append_time` (ms; for topics whose
    message.timestamp.type is LogAppendTime). Raises `RecordError` when a batch is broken, cut, empty, has
    gaps or isn't magic 2, and `EncodeError` for numbers that don't fit; the next offset is the last batch's
    `last_offset` + 1. See Java's `LogValidator`.
    """
    _check("baseOffset", base_offset)
    _check("partitionLeaderEpoch", leader_epoch)
    _check("maxTimestamp", 0 if log_append_time is None else log_append_time)
    stored = bytearray(data)
    at = 0
    for batch in batches(data):
        at = batch.start
        if batch.magic != 2:
            raise RecordError(
                "RecordBatch", batch.magic, "magic", at + 16, "produced batches must have magic 2"
            )
        if batch.count != batch.last_offset - batch.base_offset + 1:
            detail = f"{batch.count} records for {batch.last_offset - batch.base_offset + 1} offsets"
            raise RecordError("RecordBatch", 2, "count", at + 57, detail)
        stored[at : at + 8] = base_offset.to_bytes(8, "big", signed=True)
        stored[at + 12 : at + 16] = leader_epoch.to_bytes(4, "big", signed=True)
        if log_append_time is not None:
            attributes = int.from_bytes(stored[at + 21 : at + 23], "big") | APPEND_TIME
            stored[at + 21 : at + 23] = attributes.to_bytes(2, "big")
            stored[at + 35 : at + 43] = log_append_time.to_bytes(8, "big", signed=True)
            crc = crc32c(memoryview(stored)[at + CRC_FROM : batch.end])
            stored[at + CRC_AT : at + CRC_FROM] = crc.to_bytes(4, "big")
        base_offset += batch.count
        _check("baseOffset", base_offset)
        at = batch.end
    if at != len(stored):
        raise RecordError("RecordBatch", -1, "size", at, f"{len(stored) - at} bytes are no whole batch")
    return bytes(stored)


def renumber(
    data: Data, producer_id: int, producer_epoch: int, base_sequence: int, *, is_transactional: bool = False
) -> bytes:
    """The same batch under another producer id, epoch and first sequence number, with its CRC; part of a
    transaction then if it was one or shall be.

    A producer numbers a batch when it is sent, and again when the broker lost count. Raises `RecordError`
    when it isn't one whole batch of magic 2, and `EncodeError` for numbers that don't fit.
    """
    if len(data) < HEADER_SIZE or data[16] != 2:
        raise RecordError("RecordBatch", 2, "size", 0, "it isn't one whole batch of magic 2")
    try:
        numbers = _NUMBERED.pack(producer_id, producer_epoch, base_sequence)
    except struct.error:
        _check("producerId", producer_id)
        _check("producerEpoch", producer_epoch)
        _check("baseSequence", base_sequence)
        raise
    head, body = bytearray(data[CRC_FROM:_NUMBERS_AT]), memoryview(data)[_NUMBERS_AT + _NUMBERED.size :]
    if is_transactional:
        head[1] |= TRANSACTIONAL  # the low byte of the attributes
    # BytesIO, as in `lay_out`: the bytes are written into place, without a copy.
    batch = BytesIO(_join((data[:CRC_FROM], head, numbers, body)))
    with batch.getbuffer() as view:
        view[CRC_AT:CRC_FROM] = crc32c(view[CRC_FROM:]).to_bytes(4, "big")
    return batch.getvalue()


def _check(name: str, value: object) -> None:
    """Raise `EncodeError` for what doesn't fit into a field of the header."""
    bits = _NUMBERS[name]
    if not isinstance(value, int) or not -1 << bits - 1 <= value < 1 << bits - 1:
        detail = f"{value!r:.60} is not a value of int{bits}"
        raise EncodeError("RecordBatch", 2, name, detail) from None


def lay_out(records: Sequence[bytes | bytearray | memoryview], level: int | None, attributes: int) -> BytesIO:
    """Encoded records behind room for their header, for `add_header`; compressed as the attributes say."""
    if attributes & CODEC_BITS:  # nothing, too: Java opens it before it looks at the count
        whole = records[0] if len(records) == 1 else _join(records)
        records = [compress(attributes & CODEC_BITS, whole, level)]
    # Nobody else knows the joined bytes, so BytesIO lets the header be written into them, without a copy.
    return BytesIO(_join((_HEADER_ROOM, *records)))


def add_header(
    batch: BytesIO,
    *,
    base_offset: int,
    last_delta: int,
    leader_epoch: int,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    count: int,
) -> bytes:
    """The batch that was laid out, with this header and its CRC."""
    if last_delta < 0:
        raise EncodeError("RecordBatch", 2, "lastOffsetDelta", "the last offset is below the first")
    try:
        checked = _CHECKED.pack(
            attributes,
            last_delta,
            base_timestamp,
            max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            count,
        )
        with batch.getbuffer() as view:
            view[CRC_FROM:HEADER_SIZE] = checked
            crc = crc32c(view[CRC_FROM:])
            view[:CRC_FROM] = _UNCHECKED.pack(base_offset, len(view) - OVERHEAD, leader_epoch, 2, crc)
    except struct.error:
        given: list[object] = [base_offset, leader_epoch, last_delta, base_timestamp, max_timestamp]
        given += [producer_id, producer_epoch, base_sequence]
        for name, value in zip(_NUMBERS, given, strict=True):
            _check(name, value)
        raise EncodeError("RecordBatch", 2, "size", "a batch has less than 2 GiB") from None
    return batch.getvalue()

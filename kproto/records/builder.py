"""Build record batches of magic 2, and change the header fields of batches.

See Kafka's `MemoryRecordsBuilder` and `LogValidator`. `column_encoder` builds batches from columns.
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
    crc32c,
)
from .compression import codec_number, compress
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

# The header fields that the CRC does not cover: the fields before the CRC, and the CRC itself.
_UNCHECKED = struct.Struct(">qiibI")
# The header fields that the CRC covers: the fields after the CRC.
_CHECKED = struct.Struct(">hiqqqhii")
# The header fields producerId, producerEpoch and baseSequence, and their position in the header.
_PRODUCER_FIELDS = struct.Struct(">qhi")
_PRODUCER_FIELDS_AT = 43
_EMPTY_HEADER = bytes(HEADER_SIZE)
_INT32_MAX = (1 << 31) - 1
# The `max_bytes` of a builder without a limit: it is larger than any batch.
_NO_LIMIT = 1 << 62
# Maps each header field that callers set to its size in bits.
_FIELD_BITS = {
    "baseOffset": 64,
    "partitionLeaderEpoch": 32,
    "lastOffsetDelta": 32,
    "baseTimestamp": 64,
    "maxTimestamp": 64,
    "producerId": 64,
    "producerEpoch": 16,
    "baseSequence": 32,
}
# The errors that the fast path of `append` raises for a record that it does not cover. For example, it raises
# LookupError for a number that is not in the tables of varints. `append` then takes its slow path.
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
    """Encode one batch of magic 2 with these records, and keep their offsets and the gaps between them.

    `base_offset` defaults to the first record's offset, and `last_offset` to the last record's. A larger
    range makes a batch with gaps, as in a compacted log. A batch without records needs both arguments.

    `base_timestamp` defaults to the first record's timestamp, and `max_timestamp` to the highest one. With
    LogAppendTime, readers take `max_timestamp` as the timestamp of every record.

    Raises `EncodeError` for values that do not fit their fields, `ConfigError` for an unknown codec and
    `MissingExtra` if the codec's package is missing.
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
        previous_delta: int | None = None
        for record in records:
            delta = record.offset - base_offset
            if not -_INT32_MAX <= delta <= _INT32_MAX:
                detail = f"{record.offset} is too far from the first offset: at most {_INT32_MAX}"
                raise EncodeError("RecordBatch", 2, "records.offset", detail)
            if previous_delta is not None and delta <= previous_delta:
                detail = (
                    f"{record.offset} comes after {base_offset + previous_delta}; offsets must be ascending"
                )
                raise EncodeError("RecordBatch", 2, "records.offset", detail)
            previous_delta = delta
            parts += record_parts(
                delta, record.timestamp - base_timestamp, record.key, record.value, record.headers
            )
        encoded_records = _join(parts)
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
        lay_out([encoded_records], level, attributes)[0],
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
    """A batch whose producer id, epoch, sequence and CRC are not set yet.

    `len` returns the size of the batch in bytes.
    """

    count: int
    _laid_out: BytesIO
    _attributes: int
    _base_timestamp: int
    _max_timestamp: int
    # Size (bytes) of the largest record before compression. For records in columns it is an upper bound.
    largest_record: int
    _records_size: int

    def __len__(self) -> int:
        return self._laid_out.getbuffer().nbytes

    @property
    def compression_ratio(self) -> float:
        """The compressed size of the records divided by their uncompressed size; 1 for an empty batch."""
        return (len(self) - HEADER_SIZE) / self._records_size if self._records_size else 1.0

    def numbered(
        self, producer_id: int, producer_epoch: int, base_sequence: int, *, is_transactional: bool = False
    ) -> bytes:
        """Return the batch with this producer id, epoch and sequence; -1 stands for none.

        The first call returns the buffer that already holds the records. Later calls copy the records.
        """
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
    """Collects records for one batch of magic 2 with base offset 0, as a producer sends it.

    Call `append` for each record, then `build`. `clear` starts the next batch.

    `max_bytes` limits the size before compression, as Kafka's batch.size does. A record that does not fit
    raises `BatchFull`. Only the first record may be larger than `max_bytes`.
    """

    __slots__ = (
        "_base_timestamp",
        "_codec",
        "_count",
        "_deltas",
        "_largest_record",
        "_level",
        "_max_timestamp",
        "_parts",
        "_size",
        "_size_limit",
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
        self._size_limit = _NO_LIMIT if max_bytes is None else max_bytes
        self.clear()

    def clear(self) -> None:
        """Remove all records."""
        self._parts: list[bytes] = []
        self._size = HEADER_SIZE
        self._count = self._largest_record = 0
        self._base_timestamp = -1
        self._max_timestamp = -1

    def __len__(self) -> int:
        return self._count

    @property
    def size(self) -> int:
        """The size of the batch in bytes, without compression."""
        return self._size

    def append(
        self,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> None:
        """Append a record with this `timestamp` in ms.

        Raises `BatchFull` if the record does not fit, and `EncodeError` for a value that a record cannot
        hold. After an error the record is not appended.
        """
        count = self._count
        if not count:
            self._base_timestamp = self._max_timestamp = timestamp
        varints, deltas, length_of = self._varints, self._deltas, length_of_bytes
        pieces: Sequence[bytes]
        # The code below repeats that of `record_parts`, because calling a function for every record takes
        # more time.
        try:
            delta = timestamp - self._base_timestamp
            if delta < 0:  # A negative index would read from the end of `deltas`.
                raise IndexError
            offset = varints[count]
            if headers:
                fields = [deltas[delta], offset]
                fields += (NULL,) if key is None else (varints[length_of(key)], key)
                fields += (NULL,) if value is None else (varints[length_of(value)], value)
                fields.append(varints[len(headers)])
                for name, content in headers:
                    if content is None:
                        fields += (HEADER_NAMES[name], NULL)
                    else:
                        fields += (HEADER_NAMES[name], varints[length_of(content)], content)
                body = _join(fields)
            elif value is None:
                if key is None:
                    body = _join((deltas[delta], offset, NULL, NULL, ZERO_BYTE))
                else:
                    body = _join((deltas[delta], offset, varints[length_of(key)], key, NULL, ZERO_BYTE))
            elif key is None:
                body = _join((deltas[delta], offset, NULL, varints[length_of(value)], value, ZERO_BYTE))
            else:
                key_length, value_length = varints[length_of(key)], varints[length_of(value)]
                body = _join((deltas[delta], offset, key_length, key, value_length, value, ZERO_BYTE))
            size = len(body)
            length = varints[size]
            size += len(length)
            pieces = (length, body)
        # The code above does not cover this record: its value is not of type bytes, a number is not in the
        # tables of varints, or a header key is not cached.
        except _UNCOMMON:
            pieces = self._encode_uncommon(timestamp, key, value, headers)
            size = sum(map(len, pieces))
        record_size = size
        size += self._size
        if size > self._size_limit and count:
            raise BatchFull(size, self._size_limit, count)
        if timestamp > self._max_timestamp:
            self._max_timestamp = timestamp
        if record_size > self._largest_record:
            self._largest_record = record_size
        self._size = size
        self._count = count + 1
        parts = self._parts
        parts += pieces

    def _encode_uncommon(
        self,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
    ) -> list[bytes]:
        """Encode a record that the tables of `append` do not cover. Raises EncodeError for a wrong value."""
        try:
            parts = record_parts(self._count, timestamp - self._base_timestamp, key, value, headers)
            # A large value is a separate piece, so that it is not copied.
            if type(value) is bytes and len(value) >= TABLE_SIZE:
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
        """Return the compressed batch. The builder keeps its records until `clear`.

        Raises `MissingExtra` if the codec's package is missing, and `EncodeError` for numbers that do not fit
        their header fields.
        """
        return self.unnumbered().numbered(
            producer_id, producer_epoch, base_sequence, is_transactional=is_transactional
        )

    def unnumbered(self) -> UnnumberedBatch:
        """Return the batch without producer id, epoch and sequence, which are set when it is sent."""
        laid_out, records_size = lay_out(self._parts, self._level, self._codec)
        return UnnumberedBatch(
            self._count,
            laid_out,
            self._codec,
            self._base_timestamp,
            self._max_timestamp,
            self._largest_record,
            records_size,
        )


def assign_offsets(
    data: Data, base_offset: int, leader_epoch: int, *, log_append_time: int | None = None
) -> bytes:
    """Convert the batches of a produce request to batches of a log, with offsets from `base_offset` on.

    The records are not changed. The next offset of the log is one more than the `last_offset` of the last
    batch. See Java's `LogValidator`.

    `log_append_time` is a time in ms for topics whose message.timestamp.type is LogAppendTime. Only this
    argument changes the CRC, because the CRC covers neither the base offset nor the leader epoch.

    Raises `RecordError` if a batch is malformed, truncated, empty or not of magic 2, or if its offsets have
    gaps.

    Raises `EncodeError` for numbers that do not fit their header fields.
    """
    _check_header_field("baseOffset", base_offset)
    _check_header_field("partitionLeaderEpoch", leader_epoch)
    _check_header_field("maxTimestamp", 0 if log_append_time is None else log_append_time)
    view = memoryview(data)
    pieces: list[bytearray | memoryview] = []
    at = 0
    for batch in batches(data):
        at = batch.start
        if batch.magic != 2:
            raise RecordError(
                "RecordBatch", batch.magic, "magic", at + 16, "produced batches must have magic 2"
            )
        if batch.count != batch.last_offset - batch.base_offset + 1:
            detail = f"{batch.count} records, but {batch.last_offset - batch.base_offset + 1} offsets"
            raise RecordError("RecordBatch", 2, "count", at + 57, detail)
        # Only the header is copied here, because a batch may take many megabytes.
        header, body = bytearray(view[at : at + HEADER_SIZE]), view[at + HEADER_SIZE : batch.end]
        header[:8] = base_offset.to_bytes(8, "big", signed=True)
        header[12:16] = leader_epoch.to_bytes(4, "big", signed=True)
        if log_append_time is not None:
            attributes = int.from_bytes(header[21:23], "big") | APPEND_TIME
            header[21:23] = attributes.to_bytes(2, "big")
            header[35:43] = log_append_time.to_bytes(8, "big", signed=True)
            crc = crc32c(body, crc32c(header[CRC_FROM:]))
            header[CRC_AT:CRC_FROM] = crc.to_bytes(4, "big")
        pieces += (header, body)
        base_offset += batch.count
        _check_header_field("baseOffset", base_offset)
        at = batch.end
    if at != len(data):
        raise RecordError(
            "RecordBatch", -1, "size", at, f"{len(data) - at} bytes are too few for a complete batch"
        )
    return b"".join(pieces)


def renumber(
    data: Data, producer_id: int, producer_epoch: int, base_sequence: int, *, is_transactional: bool = False
) -> bytes:
    """Return the batch with another producer id, epoch and base sequence, and its new CRC.

    A producer sets the id, epoch and sequence when it sends a batch. It changes them if the broker has lost
    the producer's state.

    The result is transactional if the batch in `data` is transactional, or if `is_transactional` is set.

    Raises `RecordError` unless `data` is one whole batch of magic 2, and `EncodeError` for numbers that do
    not fit their header fields.
    """
    if len(data) < HEADER_SIZE or data[16] != 2:
        raise RecordError("RecordBatch", 2, "size", 0, "the data is not exactly one batch of magic 2")
    try:
        numbers = _PRODUCER_FIELDS.pack(producer_id, producer_epoch, base_sequence)
    except struct.error:
        _check_header_field("producerId", producer_id)
        _check_header_field("producerEpoch", producer_epoch)
        _check_header_field("baseSequence", base_sequence)
        raise
    head = bytearray(data[CRC_FROM:_PRODUCER_FIELDS_AT])
    body = memoryview(data)[_PRODUCER_FIELDS_AT + _PRODUCER_FIELDS.size :]
    if is_transactional:
        # The transactional bit is in the low byte of the attributes.
        head[1] |= TRANSACTIONAL
    # BytesIO makes the joined bytes writable without a copy, so that the CRC can be written into them.
    batch = BytesIO(_join((data[:CRC_FROM], head, numbers, body)))
    with batch.getbuffer() as view:
        view[CRC_AT:CRC_FROM] = crc32c(view[CRC_FROM:]).to_bytes(4, "big")
    return batch.getvalue()


def _check_header_field(name: str, value: object) -> None:
    """Raise `EncodeError` for a value that does not fit into a header field."""
    bits = _FIELD_BITS[name]
    if not isinstance(value, int) or not -1 << bits - 1 <= value < 1 << bits - 1:
        detail = f"{value!r:.60} is not a value of int{bits}"
        raise EncodeError("RecordBatch", 2, name, detail) from None


def lay_out(
    records: Sequence[bytes | bytearray | memoryview], level: int | None, attributes: int
) -> tuple[BytesIO, int]:
    """Compress the records with the codec in `attributes`, and put space for the batch header before them.

    The result also contains the size (bytes) of the records before compression.
    """
    # An empty batch is compressed too. Java decompresses before it checks the number of records, and gzip,
    # snappy and lz4 reject empty input.
    size = None
    if attributes & CODEC_BITS:
        uncompressed = records[0] if len(records) == 1 else _join(records)
        size = len(uncompressed)
        records = [compress(attributes & CODEC_BITS, uncompressed, level)]
    # BytesIO writes the header into the joined bytes without a copy, because nothing else refers to them.
    batch = BytesIO(_join((_EMPTY_HEADER, *records)))
    return batch, batch.getbuffer().nbytes - HEADER_SIZE if size is None else size


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
    """Write the header and the CRC into the result of `lay_out`; return the batch."""
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
        numbers: list[object] = [base_offset, leader_epoch, last_delta, base_timestamp, max_timestamp]
        numbers += [producer_id, producer_epoch, base_sequence]
        for name, value in zip(_FIELD_BITS, numbers, strict=True):
            _check_header_field(name, value)
        raise EncodeError("RecordBatch", 2, "size", "the batch is 2 GiB or larger") from None
    return batch.getvalue()

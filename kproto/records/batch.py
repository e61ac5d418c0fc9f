"""Record batches, magic 2: what a records field holds, read and written.

Rules of this file:

* A records field is any number of batches, one after the other. The last one may be cut, because brokers
  cut answers at a number of bytes: it is simply not there. Everything else that is wrong raises
  `RecordError`, whose `version` is the magic, `field` the part that is wrong and `offset` its position.
  Positions inside compressed records count from the start of the decompressed bytes, and the text says so.
* The CRC is checked before anything else of a batch is believed; the record count and every length are
  checked against the bytes that are there.
* A batch keeps its first and last offset even when compaction took records out of it, or all of them. So
  the next position of a reader is `Batch.last_offset` + 1, not that of the last record + 1.
* With LogAppendTime every record has the batch's `max_timestamp`. Offsets and timestamps wrap at 64 bits,
  as in Java.
* Control batches hold the broker's transaction markers, not data. Records of aborted transactions stay in
  the log; the broker says which they are, and `rows` leaves them out (see `aborted`).

See Kafka's `DefaultRecordBatch`, `MemoryRecords` and KIP-98. Single records are in `record`, magic 0 and 1 in
`legacy`, whole fetches as columns in `columns`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from ..errors import EncodeError, MissingExtra, RecordError
from .compression import CODECS, CodecError, codec_number, compress, decompress
from .crc32c import crc32c
from .record import (
    NOTHING,
    NULL,
    Broken,
    Record,
    encode_headers,
    parse_records,
    record_parts,
    small_varints,
)

if TYPE_CHECKING:
    from .columns import Columns

Data = bytes | bytearray | memoryview

_HEADER = struct.Struct(">qiibIhiqqqhii")
_UNCHECKED = struct.Struct(">qiibI")
_CHECKED = struct.Struct(">hiqqqhii")
HEADER_SIZE = _HEADER.size  # 61
_CRC_AT = 17
_CRC_FROM = 21  # the CRC covers everything behind it, so that brokers may set offset and leader epoch
_SMALLEST = 14  # the smallest value of the size field: an empty message of magic 0
_OVERHEAD = 12  # offset and size, which the size field doesn't count

_CODEC_BITS = 0x07
_APPEND_TIME = 0x08
_TRANSACTIONAL = 0x10
_CONTROL = 0x20
_DELETE_HORIZON = 0x40

_WORTH_COLUMNS = 64 << 10  # bytes; below, the loop is as fast
_INT32_MAX = (1 << 31) - 1
_INT64_MAX = (1 << 63) - 1


class Batch:
    """One batch of a records field: its header as attributes, its records on demand.

    Made by `batches`. Next: `records`, which may raise `RecordError`; `last_offset` + 1, the next position.
    Producer fields are -1 where there is no producer id.
    """

    __slots__ = (
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "buffer",
        "codec",
        "count",
        "delete_horizon_ms",
        "end",
        "is_control",
        "is_transactional",
        "last_offset",
        "magic",
        "max_timestamp",
        "parse",
        "partition_leader_epoch",
        "producer_epoch",
        "producer_id",
        "size",
        "start",
        "timestamp_type",
    )

    base_offset: int
    last_offset: int
    """The offset of the last record when the batch was written; compaction may have taken that record out."""
    partition_leader_epoch: int
    magic: int
    codec: int
    timestamp_type: str
    """CreateTime, LogAppendTime, or NoTimestampType for magic 0."""
    base_timestamp: int
    """What the timestamp deltas of records count from, in ms. With a delete horizon it is that horizon."""
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool
    is_control: bool
    delete_horizon_ms: int | None
    """When the tombstones in this batch may go, in ms; None before a first cleaning."""
    count: int
    size: int
    """Bytes of the whole batch, offset and size fields included."""
    buffer: bytes
    """The whole records field; the batch lies from `start` to `end`."""
    start: int
    end: int
    parse: Callable[[Batch, int | None], list[Record]]
    """What `records` calls: the reader for this magic."""

    def __init__(self, buffer: bytes, start: int, parse: Callable[[Batch, int | None], list[Record]]) -> None:
        self.buffer = buffer
        self.parse = parse
        self.start = start

    @property
    def compression(self) -> str:
        """The codec's name, as in Kafka's ``compression.type``."""
        return CODECS[self.codec]

    @property
    def crc_ok(self) -> bool:
        """Whether the checksum in the header is that of the bytes; for batches read unchecked."""
        return _crc_ok(self.buffer, self.start, self.end, self.magic)

    @property
    def data(self) -> memoryview:
        """The bytes of the whole batch."""
        return memoryview(self.buffer)[self.start : self.end]

    def records(self, max_decompressed: int | None = None) -> list[Record]:
        """All records of the batch, also a control batch's; raises `RecordError` or `MissingExtra`.

        `max_decompressed` replaces the bound on decompressed bytes (see `kproto.records.compression`).
        """
        return self.parse(self, max_decompressed)

    def __repr__(self) -> str:
        return (
            f"<Batch {self.base_offset}..{self.last_offset} magic={self.magic} count={self.count} "
            f"compression={self.compression} size={self.size}>"
        )


class AbortedTransactions:
    """Which batches belong to aborted transactions, as a reader meets them in the order of the log.

    `aborted` are the pairs (producer id, first offset) of a fetch answer of one partition. Ask `skips` for
    every batch, once, in order: an abort marker ends its producer's transaction. See KIP-98 and Java's
    `CompletedFetch`.
    """

    __slots__ = ("_open", "_waiting")

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        self._waiting = sorted(aborted, key=lambda pair: pair[1], reverse=True)
        self._open: dict[int, int] = {}

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """The aborted transactions that didn't end yet: `aborted` for a reader that goes on from here."""
        return [*self._open.items(), *reversed(self._waiting)]

    def skips(self, batch: Batch) -> bool:
        """Whether the records of `batch` were aborted."""
        if batch.producer_id < 0 or not (self._waiting or self._open):
            return False
        while self._waiting and self._waiting[-1][1] <= batch.last_offset:
            producer_id, first_offset = self._waiting.pop()
            self._open[producer_id] = first_offset
        if batch.is_control:
            if batch.producer_id in self._open and is_abort_marker(batch):
                del self._open[batch.producer_id]
            return False
        return batch.is_transactional and batch.producer_id in self._open


def is_abort_marker(batch: Batch) -> bool:
    """Whether a control batch is the marker that aborts a transaction: its key is int16 version, int16 0."""
    records = batch.records()
    key = records[0].key if records else None
    return key is not None and len(key) >= 4 and key[2:4] == b"\x00\x00"


# --- reading ------------------------------------------------------------------------------------------------


def batches(data: Data, *, check_crc: bool = True, max_decompressed: int | None = None) -> Iterator[Batch]:
    """The batches of a records field, in order, without a cut last one; raises `RecordError` at a broken one.

    Batches before the broken one are given first. Magic 0 and 1 give one batch per outer message, and open
    compressed ones at once (bounded by `max_decompressed`).
    """
    whole = data if isinstance(data, bytes) else bytes(data)
    view = memoryview(whole)
    at, end = 0, len(whole)
    while end - at >= _OVERHEAD:
        size = int.from_bytes(whole[at + 8 : at + 12], "big", signed=True)
        if size < _SMALLEST:
            raise RecordError("RecordBatch", -1, "size", at + 8, f"a batch of {size} bytes")
        stop = at + _OVERHEAD + size
        magic = whole[at + 16] if at + 16 < end else 0
        if magic > 2:
            raise RecordError("RecordBatch", magic, "magic", at + 16, f"magic {magic} doesn't exist")
        if stop > end:
            return  # cut
        if magic == 2:
            batch = _read_header(whole, at, stop, view if check_crc else None)
        else:
            from .legacy import read_message  # rarely needed: Kafka 4 neither stores nor takes these

            batch = read_message(whole, at, stop, check_crc, max_decompressed)
        yield batch
        at = stop


def rows(
    data: Data,
    *,
    check_crc: bool = True,
    aborted: Sequence[tuple[int, int]] = (),
    from_offset: int | None = None,
    control: bool = False,
    max_decompressed: int | None = None,
) -> list[Record]:
    """The records of a records field, in order; raises `RecordError` or `MissingExtra`.

    Control records are left out unless `control` asks for them. `aborted` are the (producer id, first
    offset) of a fetch answer: with them, records of aborted transactions are left out too (isolation level
    read_committed). Brokers send whole batches, so the first may start below the offset that was asked for:
    records below `from_offset` are left out.

    With numpy and pyarrow installed, large fields are read as columns first, which is 3 times faster.
    """
    wanted: dict[str, Any] = {
        "check_crc": check_crc,
        "aborted": aborted,
        "from_offset": from_offset,
        "control": control,
    }
    known: RecordError | None = None
    if (read := _columns(data)) is not None:
        try:
            return read(data, **wanted, max_decompressed=max_decompressed).rows()
        except RecordError as error:
            known = _bare(error)  # the loop says where
    found: list[Record] = []
    for records in _row_by_row(data, known, max_decompressed, **wanted):
        found += records
    return found


def row_lists(
    data: Data,
    size: int = 500,
    *,
    check_crc: bool = True,
    aborted: Sequence[tuple[int, int]] = (),
    from_offset: int | None = None,
    control: bool = False,
    max_decompressed: int | None = None,
) -> Iterator[list[Record]]:
    """The records of `rows` in lists of at most `size`, as a poll hands them out; other arguments as there.

    Twice as fast as one long list where each is dropped before the next. What lies before a broken batch is
    given before its `RecordError` is raised.
    """
    wanted: dict[str, Any] = {
        "check_crc": check_crc,
        "aborted": aborted,
        "from_offset": from_offset,
        "control": control,
    }
    known: RecordError | None = None
    if (read := _columns(data)) is not None:
        try:
            columns = read(data, **wanted, max_decompressed=max_decompressed)
            _ = columns.headers_between(0, 0)
        except RecordError as error:
            known = _bare(error)  # the loop gives what is before
        else:
            yield from columns.row_lists(size)
            return
    for found in _row_by_row(data, known, max_decompressed, **wanted):
        for start in range(0, len(found), size):
            yield found[start : start + size]


def _bare(error: RecordError) -> RecordError:
    """The error without the frames that it went through, and the megabytes that these hold."""
    error.__context__ = None
    return error.with_traceback(None)


def _row_by_row(
    data: Data,
    known: RecordError | None,
    max_decompressed: int | None,
    *,
    check_crc: bool,
    aborted: Sequence[tuple[int, int]],
    from_offset: int | None,
    control: bool,
) -> Iterator[list[Record]]:
    """The wanted records of one batch after the other.

    `known` is an error that is met at the latest: a bomb need not go off again to be one.
    """
    transactions = AbortedTransactions(aborted)
    for batch in batches(data, check_crc=check_crc, max_decompressed=max_decompressed):
        if transactions.skips(batch) or (batch.is_control and not control):
            continue
        if from_offset is not None and batch.last_offset < from_offset:
            continue
        if known and (known.field, known.offset) == ("records", batch.start + HEADER_SIZE):
            raise known
        found = batch.parse(batch, max_decompressed)
        if from_offset is not None and batch.base_offset < from_offset:
            found = [one for one in found if one.offset >= from_offset]
        yield found


def _columns(data: Data) -> Callable[..., Columns] | None:
    """The reader of columns, where it is there and faster: not for few bytes, and not for message sets."""
    return _read_columns() if len(data) >= _WORTH_COLUMNS and data[16] == 2 else None


@cache
def _read_columns() -> Callable[..., Columns] | None:
    try:
        from .columns import columns
    except MissingExtra:
        return None
    return columns


def _crc_ok(data: bytes, start: int, end: int, magic: int) -> bool:
    if magic == 2:
        return crc32c(memoryview(data)[start + _CRC_FROM : end]) == int.from_bytes(
            data[start + _CRC_AT : start + _CRC_FROM], "big"
        )
    from .legacy import crc_ok

    return crc_ok(data, start, end)


def _read_header(data: bytes, at: int, stop: int, checked: memoryview | None) -> Batch:
    if stop - at < HEADER_SIZE:
        raise RecordError(
            "RecordBatch", 2, "size", at + 8, f"a batch of {stop - at} bytes has no whole header"
        )
    batch = Batch(data, at, _records)
    (
        batch.base_offset,
        _,
        batch.partition_leader_epoch,
        batch.magic,
        crc,
        attributes,
        last_delta,
        batch.base_timestamp,
        batch.max_timestamp,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.count,
    ) = _HEADER.unpack_from(data, at)
    if checked is not None and crc32c(checked[at + _CRC_FROM : stop]) != crc:
        raise RecordError("RecordBatch", 2, "crc", at + _CRC_AT, "the checksum is not that of the bytes")
    batch.codec = attributes & _CODEC_BITS
    if batch.codec >= len(CODECS):
        raise RecordError("RecordBatch", 2, "attributes", at + 21, f"codec {batch.codec} doesn't exist")
    batch.last_offset = batch.base_offset + last_delta
    if last_delta < 0 or batch.last_offset > _INT64_MAX:
        raise RecordError("RecordBatch", 2, "lastOffsetDelta", at + 23, f"{batch.base_offset} + {last_delta}")
    if batch.count < 0:
        raise RecordError("RecordBatch", 2, "count", at + 57, f"{batch.count} records")
    batch.timestamp_type = "LogAppendTime" if attributes & _APPEND_TIME else "CreateTime"
    batch.is_transactional = attributes & _TRANSACTIONAL != 0
    batch.is_control = attributes & _CONTROL != 0
    batch.delete_horizon_ms = batch.base_timestamp if attributes & _DELETE_HORIZON else None
    batch.size = stop - at
    batch.end = stop
    return batch


def _records(batch: Batch, max_decompressed: int | None) -> list[Record]:
    data, at, stop = batch.buffer, batch.start + HEADER_SIZE, batch.end
    if batch.codec:
        if at == stop and batch.count == 0:
            return []
        try:
            data = decompress(batch.codec, memoryview(data)[at:stop], max_decompressed)
        except CodecError as error:
            raise RecordError("RecordBatch", 2, "records", at, f"{batch.compression}: {error}") from None
        at, stop = 0, len(data)
    if batch.count > (stop - at) // 7:  # the smallest record: a length and six bytes
        raise RecordError(
            "RecordBatch", 2, "count", batch.start + 57, f"{batch.count} records in {stop - at} bytes"
        )
    append_time = batch.max_timestamp if batch.timestamp_type == "LogAppendTime" else None
    try:
        found, at = parse_records(data, at, batch.count, batch.base_offset, batch.base_timestamp, append_time)
    except Broken as error:
        raise RecordError(
            "RecordBatch", 2, f"records.{error.field}", error.at, _where(error.detail, batch)
        ) from None
    except IndexError:
        raise RecordError("RecordBatch", 2, "records", stop, _where("", batch)) from None
    if at != stop:
        detail = f"{batch.count} records take {at - stop:+d} bytes more than there are"
        raise RecordError("RecordBatch", 2, "count", min(at, stop), _where(detail, batch))
    return found


def _where(detail: str, batch: Batch) -> str:
    detail = detail or "the bytes end too early"
    return f"{detail} (in the decompressed records)" if batch.codec else detail


# --- writing ------------------------------------------------------------------------------------------------


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
    parts: list[bytes] = []
    for record in records:
        delta = record.offset - base_offset
        if not -_INT32_MAX <= delta <= _INT32_MAX:
            raise EncodeError("RecordBatch", 2, "records.offset", f"{delta} from the first offset is too far")
        parts += record_parts(
            delta, record.timestamp - base_timestamp, record.key, record.value, record.headers
        )
    attributes = codec
    if timestamp_type == "LogAppendTime":
        attributes |= _APPEND_TIME
    elif timestamp_type != "CreateTime":
        raise EncodeError("RecordBatch", 2, "timestampType", f"{timestamp_type} doesn't exist in magic 2")
    attributes |= _TRANSACTIONAL * is_transactional | _CONTROL * is_control
    attributes |= _DELETE_HORIZON * (delete_horizon_ms is not None)
    return finish(
        [b"".join(parts)],
        level,
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


class BatchBuilder:
    """Records on their way into one batch of magic 2 with base offset 0, as a producer sends it.

    `append` until it answers False, then `build`; `clear` to start again. `max_bytes` bounds the batch before
    compression (Kafka's batch.size), but a first record of any size is taken.
    """

    __slots__ = (
        "_base_timestamp",
        "_codec",
        "_count",
        "_done",
        "_level",
        "_max_timestamp",
        "_parts",
        "_size",
        "_varints",
        "_widths",
        "max_bytes",
    )

    def __init__(self, compression: str = "none", max_bytes: int = 16384, level: int | None = None) -> None:
        self._codec = codec_number(compression)
        self._level = level
        self._varints, self._widths = small_varints()
        self.max_bytes = max_bytes
        self.clear()

    def clear(self) -> None:
        """Forget all records."""
        self._done: list[bytes] = []
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
    ) -> bool:
        """Take a record with this `timestamp` (ms); False when it has no room any more."""
        count = self._count
        if not count:
            self._base_timestamp = self._max_timestamp = timestamp
        delta = timestamp - self._base_timestamp
        tail = encode_headers(headers) if headers else NOTHING
        varints, widths = self._varints, self._widths
        try:  # the same as `record_parts`, in line: this is the innermost loop of a producer
            size = 1 + widths[delta] + widths[count] + (len(tail) if headers else 1)
            if key is None:
                key_size, content = NULL, b""
                size += 1
            else:
                width = len(key)
                key_size, content = varints[width], key
                size += widths[width] + width
            if value is None:
                value_size = NULL
                size += 1
            else:
                width = len(value)
                value_size = varints[width]
                size += widths[width] + width
            pieces: Sequence[bytes] = (
                varints[size],
                NOTHING,
                varints[delta],
                varints[count],
                key_size,
                content,
                value_size,
                value or b"",
                tail,
            )
            size += widths[size]
            if delta < 0:  # which is an index, too
                raise IndexError
        except IndexError:  # a number that has no place in the tables
            pieces = record_parts(count, delta, key, value, headers)
            size = sum(map(len, pieces))
        size += self._size
        if size > self.max_bytes and count:
            return False
        if timestamp > self._max_timestamp:
            self._max_timestamp = timestamp
        self._size = size
        self._count = count + 1
        parts = self._parts
        parts += pieces
        if count & 127 == 127:  # join while the pieces are in the cache
            self._done.append(b"".join(parts))
            parts.clear()
        return True

    def build(
        self,
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        is_transactional: bool = False,
    ) -> bytes:
        """The batch, compressed; raises `MissingExtra` without the codec's package."""
        return finish(
            [*self._done, b"".join(self._parts)],
            self._level,
            base_offset=0,
            last_delta=max(self._count - 1, 0),
            leader_epoch=-1,
            attributes=self._codec | _TRANSACTIONAL * is_transactional,
            base_timestamp=self._base_timestamp,
            max_timestamp=self._max_timestamp,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            count=self._count,
        )


def assign_offsets(
    data: Data, base_offset: int, leader_epoch: int, *, log_append_time: int | None = None
) -> bytes:
    """The batches of a produce request as a broker's log stores them: numbered from `base_offset` on.

    Records are not touched, and neither is the CRC but for `log_append_time` (ms; for topics whose
    message.timestamp.type is LogAppendTime). Raises `RecordError` when a batch is broken, cut, empty, has
    gaps or isn't magic 2; the next offset is the last batch's `last_offset` + 1. See Java's `LogValidator`.
    """
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
            attributes = int.from_bytes(stored[at + 21 : at + 23], "big") | _APPEND_TIME
            stored[at + 21 : at + 23] = attributes.to_bytes(2, "big")
            stored[at + 35 : at + 43] = log_append_time.to_bytes(8, "big", signed=True)
            crc = crc32c(memoryview(stored)[at + _CRC_FROM : batch.end])
            stored[at + _CRC_AT : at + _CRC_FROM] = crc.to_bytes(4, "big")
        base_offset += batch.count
        at = batch.end
    if at != len(stored):
        raise RecordError("RecordBatch", -1, "size", at, f"{len(stored) - at} bytes are no whole batch")
    return bytes(stored)


def finish(
    records: Sequence[bytes | memoryview],
    level: int | None,
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
    """A batch of these encoded records, given in pieces: compressed, with a header and its CRC in front."""
    if last_delta < 0:
        raise EncodeError("RecordBatch", 2, "lastOffsetDelta", "the last offset is below the first")
    if attributes & _CODEC_BITS and count:
        whole = records[0] if len(records) == 1 else b"".join(records)
        records = [compress(attributes & _CODEC_BITS, whole, level)]
    size = HEADER_SIZE - _OVERHEAD + sum(map(len, records))
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
        crc = crc32c(checked)
        for piece in records:
            crc = crc32c(piece, crc)
        header = _UNCHECKED.pack(base_offset, size, leader_epoch, 2, crc)
    except struct.error as error:
        raise EncodeError("RecordBatch", 2, "header", str(error)) from None
    return b"".join((header, checked, *records))

"""Find the batches in a `records` field, and the batches of aborted transactions.

* A `records` field is a sequence of batches. The last batch may be truncated, because brokers limit responses
  to a number of bytes.

* A truncated last batch is ignored. Any other malformed batch raises `RecordError`.

* Control batches contain the broker's transaction markers instead of data.

* Records of aborted transactions remain in the log. Fetch responses list the aborted transactions.

See Kafka's `MemoryRecords`, `ByteBufferLogInputStream` and KIP-98.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

import msgspec

from ..errors import RecordError
from .batch import (
    CODEC_BITS,
    HEADER_SIZE,
    INT64_MAX,
    OVERHEAD,
    SMALLEST_RECORD,
    Batch,
    Data,
    check_data,
    read_batch,
)
from .compression import CODECS
from .legacy import read_message
from .record_stream import record_lists

# The minimum number of records for decoding to columns. Fewer records are decoded faster row by row. The
# measured break-even lies between 600 and 1800 records, depending on their contents.
WORTH_COLUMNS = 1000

# A compressed records field with more records than this number is decoded in parts, because a million records
# as columns take 120 MB (see `has_too_many_records`).
TOO_MANY = 500_000

_unpack_int32 = struct.Struct(">i").unpack_from
_unpack_span = struct.Struct(">qi4xb4xhi30xi").unpack_from
_MIN_SIZE = 14  # The smallest valid value of the size field: the size of an empty message of magic 0.


def batches(data: Data, *, check_crc: bool = True, max_decompressed: int | None = None) -> Iterator[Batch]:
    """Iterate over the batches in a `records` field, except a truncated last batch.

    If a batch is malformed, the batches before it are yielded, then `RecordError` is raised.

    In magic 0 and 1, each wrapper (a message that contains compressed messages), and each message outside of
    a wrapper, is one batch. A wrapper that decompresses to more than `max_decompressed` bytes raises
    `RecordError`.
    """
    check_data(data)
    return _batches(data, 0, check_crc, max_decompressed)


def _batches(data: Data, at: int, check_crc: bool, max_decompressed: int | None) -> Iterator[Batch]:
    """Iterate over the batches from position `at` on, as `batches` does."""
    buffer, view = data, memoryview(data)
    end = len(buffer)
    while end - at >= OVERHEAD:
        size = int.from_bytes(buffer[at + 8 : at + 12], "big", signed=True)
        if size < _MIN_SIZE:
            raise RecordError(
                "RecordBatch",
                -1,
                "size",
                at + 8,
                f"the size of the batch is {size}, but must be at least {_MIN_SIZE}",
            )
        stop = at + OVERHEAD + size
        magic = buffer[at + 16] if at + 16 < end else 0
        if magic > 2:
            raise RecordError("RecordBatch", magic, "magic", at + 16, f"magic {magic} doesn't exist")
        if stop > end:
            return  # The last batch is truncated.
        if magic == 2:
            batch = read_batch(buffer, at, stop, view if check_crc else None)
        else:
            buffer = buffer if isinstance(buffer, bytes) else bytes(view)
            batch = read_message(buffer, at, stop, check_crc, max_decompressed)
        yield batch
        at = stop


class BatchSpan(msgspec.Struct, frozen=True, gc=False):
    """The position of a batch in the `records` field, and the offsets that it covers."""

    start: int
    end: int
    base_offset: int
    last_offset: int
    codec: int
    count: int


def spans(data: Data) -> Iterator[BatchSpan | Batch]:
    """Iterate over the positions of batches without checking CRCs, in a fifth of the time of `batches`.

    Yields a `BatchSpan` for each complete batch of magic 2 with a valid header. The first other batch, and
    all batches after it, are yielded as `Batch`. Raises the same errors as `batches`.
    """
    check_data(data)
    at, end = 0, len(data)
    while end - at >= HEADER_SIZE:
        base_offset, size, magic, attributes, last_delta, count = _unpack_span(data, at)
        stop, last_offset, codec = at + OVERHEAD + size, base_offset + last_delta, attributes & CODEC_BITS
        is_readable = magic == 2 and size >= HEADER_SIZE - OVERHEAD and codec < len(CODECS)
        if not (is_readable and stop <= end and last_delta >= 0 <= count and last_offset <= INT64_MAX):
            break
        yield BatchSpan(at, stop, base_offset, last_offset, codec, count)
        at = stop
    yield from _batches(data, at, False, None)


def has_many_records(*fields: Data) -> bool:
    """Return whether the batch headers announce so many records that decoding to columns is faster.

    Only batches of magic 2 count, because message sets are not decoded to columns. A batch counts for at most
    one record per byte, in case its record count is malformed.
    """
    count = 0
    for data in fields:
        at, end = 0, len(data)
        while count < WORTH_COLUMNS and end - at >= HEADER_SIZE and data[at + 16] == 2:
            size: int = _unpack_int32(data, at + 8)[0]
            if size < HEADER_SIZE - OVERHEAD:
                break
            count += min(_unpack_int32(data, at + 57)[0], size)
            at += OVERHEAD + size
    return count >= WORTH_COLUMNS


def has_too_many_records(data: Data) -> bool:
    """Return whether the batch headers announce so many records that they should be decoded in parts.

    The result is true if `data` has more than `TOO_MANY` records and less than seven bytes per record. The
    smallest record has seven bytes, so at least one of the batches is compressed.
    """
    count = at = 0
    end = len(data)
    while end - at >= HEADER_SIZE and data[at + 16] == 2:
        size: int = _unpack_int32(data, at + 8)[0]
        if size < HEADER_SIZE - OVERHEAD:
            break
        count += max(_unpack_int32(data, at + 57)[0], 0)
        at += OVERHEAD + size
    return count > TOO_MANY and count * SMALLEST_RECORD > end


class AbortedTransactions:
    """Tracks which batches belong to aborted transactions, in the order of the log.

    `aborted` lists pairs (producer id, first offset) of one partition in a fetch response.

    Call `skips` once for every batch, in the order of the log: it must also read the abort markers, which end
    the transactions of their producers.

    `skips` raises `RecordError` for a marker that cannot be read. See KIP-98 and Java's `CompletedFetch`.
    """

    __slots__ = ("_open", "_pending")

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        # The transactions that begin after the batches read so far, by descending first offset.
        self._pending = sorted(aborted, key=lambda pair: pair[1], reverse=True)
        # Producer id -> the first offset of its aborted transaction, if this has begun and not ended so far.
        self._open: dict[int, int] = {}

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """The aborted transactions whose end has not been read yet, as (producer id, first offset).

        Pass these pairs as `aborted` to a new reader that starts after the last batch given to `skips`.
        """
        return [*self._open.items(), *reversed(self._pending)]

    def skips(self, batch: Batch) -> bool:
        """Return whether `batch` contains records of an aborted transaction.

        The result for a marker is False. An abort marker ends the open transaction of its producer.
        """
        if batch.producer_id < 0 or not (self._pending or self._open):
            return False
        while self._pending and self._pending[-1][1] <= batch.last_offset:
            producer_id, first_offset = self._pending.pop()
            self._open[producer_id] = first_offset
        if batch.is_control:
            if batch.producer_id in self._open and is_abort_marker(batch):
                del self._open[batch.producer_id]
            return False
        return batch.is_transactional and batch.producer_id in self._open


def is_abort_marker(batch: Batch) -> bool:
    """Return whether a control batch is an abort marker: its key is an int16 version and the int16 0.

    The result is also False if compaction removed the marker's record. Raises `RecordError` for an invalid
    key, as in Java.
    """
    records = next(record_lists(batch, 1), None)
    if not records:
        return False
    key = records[0].key
    if key is None or len(key) < 4 or key[0] > 127:
        detail = f"the key of a control record is an int16 version and an int16 type, not {key!r}"
        raise RecordError("RecordBatch", 2, "records.key", batch.start + HEADER_SIZE, detail)
    return key[2:4] == b"\x00\x00"

"""Convert the batches of a `records` field to another magic, as brokers before Kafka 4.0 do for old clients.

* Conversion keeps offsets and their gaps, timestamps, the timestamp type LogAppendTime, and codecs. A batch
  that already has the requested magic is returned unchanged.

* Down-conversion from magic 2 drops what the old formats lack: headers, control batches, leader epochs,
  producer ids, epochs and sequences, delete horizons, and batches that compaction emptied. Magic 0 also has
  no timestamps.

* Only magic 2 supports zstd, so down-conversion of a zstd batch raises `EncodeError`. Brokers answer a fetch
  of such a batch with UNSUPPORTED_COMPRESSION_TYPE (KIP-110).

* In down-conversion, an uncompressed batch becomes one message per record. A compressed batch becomes a
  wrapper: a message whose value is the compressed messages (KIP-31).

* In up-conversion, a record of magic 0 gets the timestamp -1 and the timestamp type CreateTime. A wrapper
  becomes one batch.

* In up-conversion, consecutive uncompressed messages become one batch if they take at most `MAX_BATCH_BYTES`
  and have the same timestamp type. With LogAppendTime they also need the same timestamp.

Kafka 3.9 is the last version that converts: in `RecordsUtil.downConvert` for fetches, and in `LogValidator`
for old producers.

`LogValidator` also assigns offsets. Here, the caller calls `assign_offsets` after `convert`.
"""

from __future__ import annotations

from itertools import pairwise

import msgspec

from ..errors import EncodeError, RecordError
from .batch import Batch, Data
from .builder import encode_batch
from .legacy import encode_messages
from .reader import batches
from .record import Record

# The maximum size in bytes of the messages that are converted to one batch: Kafka's default of
# max.message.bytes.
MAX_BATCH_BYTES = 1 << 20

_INT32_MAX = (1 << 31) - 1


def convert(
    data: Data,
    magic: int,
    *,
    up: bool = True,
    from_offset: int | None = None,
    max_decompressed: int | None = None,
) -> bytes:
    """Convert the records of a `records` field to batches or messages of `magic` (0, 1 or 2).

    If `up` is false, batches of a lower magic are returned unchanged, because a client that reads a magic
    also reads the lower ones.

    `from_offset` is the start of a fetch. An uncompressed batch that is converted to magic 0 or 1 loses its
    records below `from_offset`. Other batches and wrappers are kept whole, except that a truncated last batch
    is dropped.

    For `max_decompressed` see `rows`.

    Raises `RecordError` for malformed batches, and for offsets that are not ascending.

    Raises `EncodeError` for an unknown magic, and for zstd in down-conversion. Raises `MissingExtra` if a
    codec's package is missing.
    """
    if magic not in (0, 1, 2):
        raise EncodeError("RecordBatch", magic, "magic", "only 0, 1 and 2 exist")
    converted: list[bytes | memoryview] = []
    run: _Run | None = None
    for batch in batches(data, max_decompressed=max_decompressed):
        is_unchanged = batch.magic == magic or (batch.magic < magic and not up)
        if is_unchanged or not run or not run.accepts(batch, magic):
            if run:
                converted.append(run.encode(magic))
            run = None
        if is_unchanged:
            converted.append(batch.data)
        elif not batch.is_control:
            if magic < 2 and batch.compression == "zstd":
                detail = "zstd exists in magic 2 only (UNSUPPORTED_COMPRESSION_TYPE)"
                raise EncodeError("RecordBatch", magic, "compression", detail)
            records = batch.records(max_decompressed)
            if from_offset is not None and magic < 2 and not batch.codec:
                records = [record for record in records if record.offset >= from_offset]
            if run:
                run.add(batch, records)
            elif records:
                run = _Run(batch, records, batch.size)
    if run:
        converted.append(run.encode(magic))
    return b"".join(converted)


class _Run(msgspec.Struct):
    """The records of consecutive batches that are converted to one batch or one message set.

    The first batch determines the timestamp type of the result.
    """

    first: Batch
    records: list[Record]
    # The size in bytes of the batches before their conversion.
    size: int

    def accepts(self, batch: Batch, magic: int) -> bool:
        """Return whether the records of `batch`, which follows the run, can be added to the run."""
        first = self.first
        if magic != 2 or first.codec or batch.codec or batch.timestamp_type != first.timestamp_type:
            return False
        if first.timestamp_type == "LogAppendTime" and batch.max_timestamp != first.max_timestamp:
            return False
        last_offset = self.records[-1].offset
        # In magic 2, the offset of a record is encoded as its difference from the base offset. The difference
        # is a varint that must fit into an int32.
        are_offsets_valid = (
            batch.base_offset > last_offset and batch.base_offset - first.base_offset <= _INT32_MAX
        )
        return are_offsets_valid and self.size + batch.size <= MAX_BATCH_BYTES

    def add(self, batch: Batch, records: list[Record]) -> None:
        """Add `records`, the records of `batch`. `accepts` must have returned True for this batch."""
        self.records += records
        self.size += batch.size

    def encode(self, magic: int) -> bytes:
        """Encode the records in `magic`. Raises `RecordError` if their offsets are not ascending."""
        first = self.first
        for record, following in pairwise(self.records):
            if following.offset <= record.offset:
                detail = f"{following.offset} comes after {record.offset}; offsets must be ascending"
                raise RecordError("RecordBatch", first.magic, "records.offset", first.start, detail)
        has_append_time = first.timestamp_type == "LogAppendTime"
        timestamp_type = "LogAppendTime" if has_append_time else "CreateTime"
        if magic == 2:
            return encode_batch(
                self.records,
                compression=first.compression,
                timestamp_type=timestamp_type,
                max_timestamp=first.max_timestamp if has_append_time else None,
            )
        without_headers = [
            Record(record.offset, record.timestamp, record.key, record.value) for record in self.records
        ]
        return encode_messages(
            without_headers, magic, compression=first.compression, timestamp_type=timestamp_type
        )

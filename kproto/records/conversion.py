"""Record sets of one magic from those of another: what brokers did for clients of another age than their log.

Rules of this file:

* Offsets stay what they are, and so do gaps between them; timestamps, LogAppendTime and codecs too. A batch
  that has the wanted magic already is passed on untouched, byte for byte.
* Down, from 2, goes what the old formats have no place for: headers, control batches, leader epochs, producer
  ids with their epochs and sequences, delete horizons, and batches that compaction emptied. In magic 0 there
  are no timestamps either. zstd exists in magic 2 only: for it brokers answer UNSUPPORTED_COMPRESSION_TYPE to
  a fetch (KIP-110), and here it is an `EncodeError`.
* An uncompressed batch becomes a message for each record, a compressed one becomes a wrapper (KIP-31).
* Up, magic 0 has the timestamp -1 with CreateTime. Messages without compression that follow each other become
  one batch of magic 2, as long as they have the same timestamp type (with LogAppendTime: the same time) and
  take at most `MAX_BATCH_BYTES` bytes; a wrapper is one batch.

Kafka 3.9 was the last one to do this: `RecordsUtil.downConvert` for fetches, `LogValidator` for what old
producers sent. The latter gives new offsets on the way; here `assign_offsets` does that, afterwards.
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

# Bytes of messages that become one batch at most: Kafka's default for max.message.bytes.
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
    """The records of a records field in batches, or messages, of `magic` (0, 1 or 2).

    Without `up` batches below `magic` stay as they are, as in an answer to a fetch: who reads a format reads
    the older ones too. `from_offset` is where a fetch starts: records below it are left out of what becomes
    single messages (wrappers are whole, as batches are). A cut last batch is dropped.

    Raises `RecordError` for broken batches, or ones whose offsets don't rise, `EncodeError` for zstd on the
    way down and for another magic, and `MissingExtra` without a codec's package. `max_decompressed` is that
    of `rows`.
    """
    if magic not in (0, 1, 2):
        raise EncodeError("RecordBatch", magic, "magic", "only 0, 1 and 2 exist")
    out: list[bytes | memoryview] = []
    run: _Run | None = None
    for batch in batches(data, max_decompressed=max_decompressed):
        fits = batch.magic == magic or (batch.magic < magic and not up)
        if fits or not run or not run.accepts(batch, magic):
            if run:
                out.append(run.encode(magic))
            run = None
        if fits:
            out.append(batch.data)
        elif not batch.is_control:
            if magic < 2 and batch.compression == "zstd":
                detail = "zstd exists in magic 2 only (UNSUPPORTED_COMPRESSION_TYPE)"
                raise EncodeError("RecordBatch", magic, "compression", detail)
            found = batch.records(max_decompressed)
            if from_offset is not None and magic < 2 and not batch.codec:
                found = [one for one in found if one.offset >= from_offset]
            if run:
                run.add(batch, found)
            elif found:
                run = _Run(batch, found, batch.size)
    if run:
        out.append(run.encode(magic))
    return b"".join(out)


class _Run(msgspec.Struct):
    """Records that become one batch, or one set of messages; the first batch says of which kind."""

    first: Batch
    records: list[Record]
    size: int

    def accepts(self, batch: Batch, magic: int) -> bool:
        """Whether `batch`, which comes next, goes into the same batch."""
        first = self.first
        return (
            magic == 2
            and not (first.codec or batch.codec)
            and batch.timestamp_type == first.timestamp_type
            and (first.timestamp_type != "LogAppendTime" or batch.max_timestamp == first.max_timestamp)
            and batch.base_offset > self.records[-1].offset
            and batch.base_offset - first.base_offset <= _INT32_MAX
            and self.size + batch.size <= MAX_BATCH_BYTES
        )

    def add(self, batch: Batch, found: list[Record]) -> None:
        self.records += found
        self.size += batch.size

    def encode(self, magic: int) -> bytes:
        first = self.first
        for one, following in pairwise(self.records):
            if following.offset <= one.offset:
                detail = f"{following.offset} comes after {one.offset}"
                raise RecordError("RecordBatch", first.magic, "records.offset", first.start, detail)
        append_time = first.timestamp_type == "LogAppendTime"
        told = "LogAppendTime" if append_time else "CreateTime"
        if magic == 2:
            most = first.max_timestamp if append_time else None
            return encode_batch(
                self.records, compression=first.compression, timestamp_type=told, max_timestamp=most
            )
        plain = [Record(one.offset, one.timestamp, one.key, one.value) for one in self.records]
        return encode_messages(plain, magic, compression=first.compression, timestamp_type=told)

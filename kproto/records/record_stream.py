"""Decode a batch's records list by list, while the batch is being decompressed.

A batch of a few kilobytes may have millions of records. `Batch.records` keeps all of them in memory, decoded.
`record_lists` keeps only one decompressed block and one list of records.

See the iterators of Kafka's `DefaultRecordBatch`.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import RecordError
from .batch import HEADER_SIZE, Batch, check_count, parse_records_at, place_in_batch
from .codecs import CodecError
from .compression import decompress_blocks
from .legacy import wrapper_of
from .record import Record, begins_records, complete_records

# The records of a list start within this number of encoded bytes. A limit on the number of records would not
# limit memory, because decoded headers take up to forty times the memory of their encoded bytes.
PART_BYTES = 1 << 20


def record_lists(batch: Batch, size: int, max_decompressed: int | None = None) -> Iterator[list[Record]]:
    """Iterate over lists of at most `size` decoded records of a batch.

    If a record is malformed, the error is raised instead of the list that would contain the record. Earlier
    lists are yielded. A list ends early if its records have more than `PART_BYTES` encoded bytes.

    `max_decompressed` and the errors are the same as in `Batch.records`.
    """
    wrapper = wrapper_of(batch)
    if wrapper is not None:
        return wrapper.lists(size)
    if batch.magic < 2:
        return iter([batch.records(max_decompressed)])
    return _record_lists(batch, size, max_decompressed)


def _record_lists(batch: Batch, size: int, max_decompressed: int | None) -> Iterator[list[Record]]:
    """Iterate as `record_lists` does, over a batch of magic 2; decompress a block when a record needs it."""
    blocks = _decompressed_blocks(batch, max_decompressed)
    # `data[at:]` is not decoded yet.
    data, at, remaining = bytearray(), 0, batch.count
    # The positions of the first record and of `data`: in the decompressed bytes, or in the records field if
    # the batch is not compressed.
    records_position = 0 if batch.codec else batch.start + HEADER_SIZE
    data_position = records_position
    while remaining:
        count, stop = complete_records(data, at, min(size, remaining), PART_BYTES)
        if not count:
            block = next(blocks, None)
            if block is None:
                records_size = data_position + len(data) - records_position
                check_count(batch, records_size)
                detail = place_in_batch("", batch)
                raise RecordError("RecordBatch", 2, "records", data_position + len(data), detail)
            del data[:at]
            data_position, at = data_position + at, 0
            data += block
            continue
        part = bytes(memoryview(data)[at:stop])
        records, end = parse_records_at(batch, part, 0, count, data_position + at, len(part))
        if end != len(part):
            raise RecordError("RecordBatch", 2, "records", data_position + stop, place_in_batch("", batch))
        at, remaining = stop, remaining - count
        yield records
    if at != len(data) or next(blocks, None) is not None:
        detail = place_in_batch(f"{batch.count} records leave bytes behind them", batch)
        raise RecordError("RecordBatch", 2, "count", data_position + at, detail)


def _decompressed_blocks(batch: Batch, max_decompressed: int | None) -> Iterator[bytes]:
    """Decompress the records of a batch block by block."""
    start = batch.start + HEADER_SIZE
    compressed = memoryview(batch.buffer)[start : batch.end]
    if not compressed:
        return
    try:
        yield from decompress_blocks(batch.codec, compressed, max_decompressed, begins_records)
    except CodecError as error:
        detail = f"{batch.compression}: {error}"
        raise RecordError("RecordBatch", 2, "records", start, detail) from None

"""Reads the headers of a fetch's batches, without decoding their records.

`read_end` returns the end offset of the fetch, the leader epochs of its batches, and the number of records.

The error message for a malformed batch contains the offsets from the batch's header.
"""

from __future__ import annotations

import struct

from kproto.errors import KprotoError, RecordError
from kproto.group.subscription import TopicPartition
from kproto.records import Batch, batches
from kproto.records.batch import HEADER_SIZE, INT64_MAX, OVERHEAD, Data

# Reads six fields of a batch header: base offset, size, leader epoch, magic, last offset delta, count.
_read_header = struct.Struct(">qiib6xi30xi").unpack_from


def read_end(data: Data) -> tuple[int, list[tuple[int, int]], int, RecordError | None]:
    """Read the batch headers; return (end offset, leader epochs, record count, error or None).

    The end offset is the offset after the last complete batch.

    The leader epochs are pairs (first offset, epoch), for the first batch and for each batch whose epoch
    differs from the previous batch's epoch.

    The count is the number of records according to the headers.

    If a batch has an invalid offset, the last value is the error, and the other values cover only the batches
    before it. Raises RecordError if the first batch is invalid, or if the data contains no complete batch.
    """
    batch_start, data_size, record_count = 0, len(data), 0
    last_offset, epochs, previous_epoch = -INT64_MAX - 2, list[tuple[int, int]](), None
    while data_size - batch_start >= HEADER_SIZE:
        base, size, epoch, magic, delta, count = _read_header(data, batch_start)
        batch_end = batch_start + OVERHEAD + size
        if magic != 2:
            return _read_unusual_end(data)
        if size < HEADER_SIZE - OVERHEAD or batch_end > data_size:
            break
        if delta < 0 or base <= last_offset or base + delta >= INT64_MAX:
            return _read_unusual_end(data)
        if epoch != previous_epoch:
            epochs.append((base, epoch))
            previous_epoch = epoch
        last_offset, batch_start = base + delta, batch_end
        record_count += max(count, 0)
    else:
        # The remaining bytes are too few for a header of magic 2, but may be a message of an old format.
        if data_size - batch_start >= OVERHEAD:
            return _read_unusual_end(data)
    return (last_offset + 1, epochs, record_count, None) if batch_start else _read_unusual_end(data)


def locate_error(error: KprotoError, partition: TopicPartition, position: int, data: Data) -> KprotoError:
    """Add the partition and the offsets of the malformed batch to a RecordError.

    `position` is the record offset at which the error occurred, and `data` contains all fetched batches.
    Errors of other classes, and errors that already name a topic, are returned unchanged.
    """
    if not isinstance(error, RecordError) or error.topic:
        return error
    error.topic, error.partition, error.first_offset = partition.topic, partition.partition, position
    start = 0
    while len(data) - start >= HEADER_SIZE:
        base, size, _, magic, delta, _ = _read_header(data, start)
        if magic != 2 or size < HEADER_SIZE - OVERHEAD or base < 0 or delta < 0:
            break
        if position <= base + delta < INT64_MAX:
            error.first_offset, error.next_offset = base, base + delta + 1
            break
        start += OVERHEAD + size
    return error


def _read_unusual_end(data: Data) -> tuple[int, list[tuple[int, int]], int, RecordError | None]:
    """Compute the result of `read_end` for old message formats, invalid batches or incomplete data.

    Raises RecordError if the first batch is invalid, or if the data contains no complete batch.
    """
    last_batch: Batch | None = None
    epochs: list[tuple[int, int]] = []
    record_count = 0
    try:
        for batch in batches(data, check_crc=False):
            detail = ""
            if batch.last_offset == INT64_MAX:
                detail = f"no offset may follow {INT64_MAX}"
            elif last_batch is not None and batch.base_offset <= last_batch.last_offset:
                description = f"a batch that begins with {batch.base_offset}"
                detail = f"{description} follows offset {last_batch.last_offset}; offsets must increase"
            if detail:
                error = RecordError("RecordBatch", batch.magic, "baseOffset", batch.start, detail)
                if last_batch is None:
                    raise error
                return last_batch.last_offset + 1, epochs, record_count, error
            if last_batch is None or batch.partition_leader_epoch != last_batch.partition_leader_epoch:
                epochs.append((batch.base_offset, batch.partition_leader_epoch))
            last_batch = batch
            record_count += batch.count
    except RecordError:
        if last_batch is None:
            raise
    if last_batch is None:
        detail = f"{len(data)} bytes contain no complete batch: raise max_partition_fetch_bytes"
        raise RecordError("RecordBatch", -1, "size", 0, detail)
    return last_batch.last_offset + 1, epochs, record_count, None

"""Select the batches for a reader from fetched `records` fields, one by one or as a table.

* As in `kproto.records.rows`, these batches are left out: batches of aborted transactions, control batches
  unless requested, and batches that end below the start offset.

* numpy reads the headers of many batches together. If a batch is malformed or not of magic 2, the batches are
  read one by one, which also finds the position of an error.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .batch import HEADER_SIZE, Batch, Data, crc32c
from .compression import CODECS
from .reader import AbortedTransactions, batches

# Maps the name of a timestamp type to Kafka's number.
TIMESTAMP_TYPES = {"NoTimestampType": -1, "CreateTime": 0, "LogAppendTime": 1}

# The indexes of the rows of a `Table`, which has one column per batch.
(
    # The position of the batch's records in the `records` field. `Arena.fill` replaces it with the position
    # in the arena.
    AT,
    STOP,
    COUNT,
    BASE_OFFSET,
    LAST_OFFSET,
    BASE_TIMESTAMP,
    MAX_TIMESTAMP,
    CODEC,
    KIND,
    APPENDED,  # 1 if all records have the batch's max timestamp (LogAppendTime), otherwise 0.
    PART,
    LEAST,  # Records with an offset below this value are left out.
    WIDTH,
) = range(13)

Table = NDArray[np.int64]
# The value of LEAST for a batch of which no record is left out.
ALL = -(1 << 63)

_NO_BATCHES = np.empty((WIDTH, 0), np.int64)
# If all parts together have more than this number of bytes, numpy reads the batch headers faster than Python.
_NUMPY_MIN_SIZE = 64 << 10
_HEADER = np.dtype(
    [
        ("base_offset", ">i8"),
        ("size", ">i4"),
        ("partition_leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("count", ">i4"),
    ]
)

_unpack_size = struct.Struct(">i").unpack_from


@dataclass(slots=True)
class FetchedPart:
    """The records field of one partition, and the arguments of `rows` that select records in the field."""

    data: Data
    aborted: Sequence[tuple[int, int]] = ()
    from_offset: int | None = None


def wanted_batches(
    part: FetchedPart, check_crc: bool, control: bool, max_decompressed: int | None
) -> Iterator[Batch]:
    """Iterate over the batches of a part; skip batches without records that the reader wants."""
    transactions = AbortedTransactions(part.aborted)
    for batch in batches(part.data, check_crc=check_crc, max_decompressed=max_decompressed):
        if not (
            transactions.skips(batch)
            or (batch.is_control and not control)
            or (part.from_offset is not None and batch.last_offset < part.from_offset)
        ):
            yield batch


def build_table(
    parts: Sequence[FetchedPart], check_crc: bool, control: bool, max_decompressed: int | None
) -> Table | None:
    """Build the table of the batches of all parts, or return None if a part contains a message set."""
    parts_without_aborts = [index for index, part in enumerate(parts) if not part.aborted]
    numpy_table = None
    if sum(len(parts[index].data) for index in parts_without_aborts) > _NUMPY_MIN_SIZE:
        numpy_table = _build_with_numpy(parts, parts_without_aborts, check_crc, control)
    tables = [_NO_BATCHES if numpy_table is None else numpy_table]
    for index, part in enumerate(parts):
        if numpy_table is None or part.aborted:
            part_table = _build_by_batch(part, index, check_crc, control, max_decompressed)
            if part_table is None:
                return None
            tables.append(part_table)
    table = tables[0]
    if len(tables) > 1:
        table = np.concatenate(tables, 1)
        table = table[:, np.argsort(table[PART], kind="stable")]
    if any(part.from_offset is not None for part in parts):
        from_offsets = [ALL if part.from_offset is None else part.from_offset for part in parts]
        least_offsets = np.array(from_offsets, np.int64)[table[PART]]
        table[LEAST] = np.where(table[BASE_OFFSET] < least_offsets, least_offsets, ALL)
        if (is_below := table[LAST_OFFSET] < least_offsets).any():
            table = table[:, ~is_below]
    return table


def _build_by_batch(
    part: FetchedPart, index: int, check_crc: bool, control: bool, max_decompressed: int | None
) -> Table | None:
    """Build the table of a part, batch by batch, or return None if the part has a message set."""
    if bytes(part.data[16:17]) in (b"\0", b"\1"):
        # A message set is detected before the loop, because `wanted_batches` would decompress its first
        # wrapper message.
        return None
    columns: list[tuple[int, ...]] = []
    for batch in wanted_batches(part, check_crc, control, max_decompressed):
        kind = TIMESTAMP_TYPES[batch.timestamp_type]
        if batch.magic < 2:
            return None
        columns.append(
            (
                batch.start + HEADER_SIZE,
                batch.end,
                batch.count,
                batch.base_offset,
                batch.last_offset,
                batch.base_timestamp,
                batch.max_timestamp,
                batch.codec,
                kind,
                int(batch.timestamp_type == "LogAppendTime"),
                index,
                ALL,
            )
        )
    return np.array(columns, np.int64).reshape(-1, WIDTH).T


def _build_with_numpy(
    parts: Sequence[FetchedPart], part_indexes: list[int], check_crc: bool, control: bool
) -> Table | None:
    """Build the table with numpy: one column for each batch of the parts at `part_indexes`.

    Returns None if a batch is malformed or not of magic 2, or if no batch is complete.
    """
    starts: list[int] = []
    header_views: list[memoryview] = []
    computed_crcs: list[int] = []
    part_of_batch: list[int] = []
    for index in part_indexes:
        data = parts[index].data
        at, end = 0, len(data)
        view = memoryview(data)
        while end - at >= HEADER_SIZE:
            (size,) = _unpack_size(data, at + 8)
            if size < HEADER_SIZE - 12:
                return None
            stop = at + 12 + size
            if stop > end:
                if data[at + 16] > 2:
                    return None
                # The last batch is truncated. It is ignored here, as in `reader.batches`.
                break
            starts.append(at)
            header_views.append(view[at : at + HEADER_SIZE])
            part_of_batch.append(index)
            if check_crc:
                computed_crcs.append(crc32c(view[at + 21 : stop]))
            at = stop
        else:
            # The rest is shorter than a header. If it contains a size, the size may be malformed, which
            # `reader.batches` checks.
            if end - at >= 12:
                return None
    if not starts:
        return None
    batch_starts = np.array(starts, np.int64)
    headers = np.frombuffer(b"".join(header_views), _HEADER)
    attributes = headers["attributes"].astype(np.int64)
    table = np.empty((WIDTH, len(starts)), np.int64)
    table[AT] = batch_starts + HEADER_SIZE
    table[STOP] = batch_starts + 12 + headers["size"]
    table[COUNT] = headers["count"]
    table[BASE_OFFSET] = headers["base_offset"]
    table[LAST_OFFSET] = table[BASE_OFFSET] + headers["last_offset_delta"]
    table[BASE_TIMESTAMP] = headers["base_timestamp"]
    table[MAX_TIMESTAMP] = headers["max_timestamp"]
    table[CODEC] = attributes & 7
    table[KIND] = table[APPENDED] = attributes >> 3 & 1
    table[PART] = part_of_batch
    table[LEAST] = ALL
    is_valid = (
        (headers["magic"] == 2)
        & (headers["last_offset_delta"] >= 0)
        & (table[LAST_OFFSET] >= table[BASE_OFFSET])
        & (headers["count"] >= 0)
        & (table[CODEC] < len(CODECS))
    )
    if not is_valid.all() or (check_crc and (headers["crc"] != np.array(computed_crcs, np.uint32)).any()):
        return None
    is_control = attributes & 0x20 != 0
    return table[:, ~is_control] if is_control.any() and not control else table

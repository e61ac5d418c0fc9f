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
    LEAST,  # Records of the batch below this offset are left out.
    WIDTH,
) = range(13)

Table = NDArray[np.int64]
# The value of LEAST for batches that are returned completely.
ALL = -(1 << 63)

_NO_BATCHES = np.empty((WIDTH, 0), np.int64)
# If all parts together have at least this number of bytes, numpy reads the batch headers faster than Python.
_MANY_BATCHES = 64 << 10
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

_SIZE = struct.Struct(">i").unpack_from


@dataclass(slots=True)
class FetchedPart:
    """The records field of one partition, and the arguments of `rows` that select records in the field."""

    data: Data
    aborted: Sequence[tuple[int, int]] = ()
    from_offset: int | None = None


def wanted_batches(
    part: FetchedPart, check_crc: bool, control: bool, max_decompressed: int | None
) -> Iterator[Batch]:
    """Iterate over the batches of a part; skip those without records that the reader wants."""
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
    plain = [index for index, part in enumerate(parts) if not part.aborted]
    headers = None
    if sum(len(parts[index].data) for index in plain) > _MANY_BATCHES:
        headers = _headers(parts, plain, check_crc, control)
    listed = [_NO_BATCHES if headers is None else headers]
    for index, part in enumerate(parts):
        if headers is None or part.aborted:
            if (batch_rows := _list(part, index, check_crc, control, max_decompressed)) is None:
                return None
            listed.append(batch_rows)
    table = listed[0]
    if len(listed) > 1:
        table = np.concatenate(listed, 1)
        table = table[:, np.argsort(table[PART], kind="stable")]
    if any(part.from_offset is not None for part in parts):
        each = [ALL if part.from_offset is None else part.from_offset for part in parts]
        least = np.array(each, np.int64)[table[PART]]
        table[LEAST] = np.where(table[BASE_OFFSET] < least, least, ALL)
        if (behind := table[LAST_OFFSET] < least).any():
            table = table[:, ~behind]
    return table


def _list(
    part: FetchedPart, index: int, check_crc: bool, control: bool, max_decompressed: int | None
) -> Table | None:
    """Build the table of a part, batch by batch, or return None if the part has a message set."""
    if bytes(part.data[16:17]) in (b"\0", b"\1"):
        # A message set is detected before the loop, because `wanted_batches` would decompress its first
        # wrapper.
        return None
    listed: list[tuple[int, ...]] = []
    for batch in wanted_batches(part, check_crc, control, max_decompressed):
        kind = TIMESTAMP_TYPES[batch.timestamp_type]
        if batch.magic < 2:
            return None
        listed.append(
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
    return np.array(listed, np.int64).reshape(-1, WIDTH).T


def _headers(parts: Sequence[FetchedPart], chosen: list[int], check_crc: bool, control: bool) -> Table | None:
    """Build the table of many batches with NumPy.

    Returns None if a batch is malformed or not of magic 2.
    """
    places: list[int] = []
    heads: list[memoryview] = []
    crcs: list[int] = []
    owners: list[int] = []
    for index in chosen:
        data = parts[index].data
        at, end = 0, len(data)
        view = memoryview(data)
        while end - at >= HEADER_SIZE:
            (size,) = _SIZE(data, at + 8)
            if size < HEADER_SIZE - 12:
                return None
            stop = at + 12 + size
            if stop > end:
                if data[at + 16] > 2:
                    return None
                break
            places.append(at)
            heads.append(view[at : at + HEADER_SIZE])
            owners.append(index)
            if check_crc:
                crcs.append(crc32c(view[at + 21 : stop]))
            at = stop
        else:
            if end - at >= 12:
                return None
    if not places:
        return None
    at_all = np.array(places, np.int64)
    head = np.frombuffer(b"".join(heads), _HEADER)
    attributes = head["attributes"].astype(np.int64)
    table = np.empty((WIDTH, len(places)), np.int64)
    table[AT] = at_all + HEADER_SIZE
    table[STOP] = at_all + 12 + head["size"]
    table[COUNT] = head["count"]
    table[BASE_OFFSET] = head["base_offset"]
    table[LAST_OFFSET] = table[BASE_OFFSET] + head["last_offset_delta"]
    table[BASE_TIMESTAMP] = head["base_timestamp"]
    table[MAX_TIMESTAMP] = head["max_timestamp"]
    table[CODEC] = attributes & 7
    table[KIND] = table[APPENDED] = attributes >> 3 & 1
    table[PART] = owners
    table[LEAST] = ALL
    regular = (
        (head["magic"] == 2)
        & (head["last_offset_delta"] >= 0)
        & (table[LAST_OFFSET] >= table[BASE_OFFSET])
        & (head["count"] >= 0)
        & (table[CODEC] < len(CODECS))
    )
    if not regular.all() or (check_crc and (head["crc"] != np.array(crcs, np.uint32)).any()):
        return None
    is_control = attributes & 0x20 != 0
    return table[:, ~is_control] if is_control.any() and not control else table

"""Encode columns to record batches with numpy and Arrow, without an object per record.

* A batch of the same rows has the same bytes as with `BatchBuilder`, but the batches may end at other rows.

* `BatchBuilder` adds up the actual sizes of records. This module ends a batch where it would be full if each
  varint had its *largest possible* size.

* The bytes before the values are computed for all records together, as a matrix of bytes and a mask of the
  used bytes.

* Arrow joins the bytes of the matrix with the values. Each batch is a slice of the result, with a header.

* If all values have the same length, no record has a key or headers, and timestamps ascend, numpy copies the
  values as a matrix, in a third of the time.

Needs the extra ``columns`` (numpy, pyarrow).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from importlib import import_module
from io import BytesIO
from itertools import pairwise
from typing import Any

from ..errors import ConfigError, EncodeError, MissingExtra

try:
    import numpy as np
    from numpy.typing import NDArray

    pa: Any = import_module("pyarrow")
    pc: Any = import_module("pyarrow.compute")
except ImportError as error:
    raise MissingExtra("columns", "numpy and pyarrow", "columns") from error

from .arrow_arrays import from_bytes
from .batch import HEADER_SIZE
from .builder import UnnumberedBatch, lay_out
from .compression import codec_number
from .record import Headers, encode_headers, zigzag

Int64s = NDArray[np.int64]

# The largest number of bytes to join in one call of Arrow, whose offsets have 32 bits.
_MOST = 1 << 30
# The smallest unsigned numbers whose varints have 2, 3, ... 10 bytes.
_LIMITS = [1 << (7 * size) for size in range(1, 10)]


def encode_columns(
    timestamp: Any,
    key: Any,
    value: Any,
    headers: Iterable[Headers] | None = None,
    *,
    compression: str = "none",
    level: int | None = None,
    max_bytes: int = 16384,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
) -> list[bytes]:
    """Encode rows into batches of magic 2 with base offset 0, as a producer sends them.

    `timestamp` is an array of int64 (ms). `key` and `value` are Arrow arrays of binary or string, or lists of
    bytes and None. If `key` or `value` is None, the column is null in every row.

    `headers` has a tuple of (key, value) pairs for each row.

    A batch has at most `max_bytes` bytes before compression, or consists of one larger row. If `producer_id`
    is set, the first row has the sequence number `base_sequence`.

    Raises `EncodeError` for columns of different lengths, and for a key or value that is not bytes, a string
    or null.

    Raises `ConfigError` for an unknown codec, and `MissingExtra` if its package is missing.
    """
    encoded: list[bytes] = []
    for batch in unnumbered(
        timestamp, key, value, headers, compression=compression, level=level, max_bytes=max_bytes
    ):
        sequence = base_sequence
        if producer_id >= 0:  # Sequence numbers wrap to 0, as in Java.
            base_sequence = (base_sequence + batch.count) & 0x7FFFFFFF
        encoded.append(
            batch.numbered(producer_id, producer_epoch, sequence, is_transactional=is_transactional)
        )
    return encoded


def unnumbered(
    timestamp: Any,
    key: Any,
    value: Any,
    headers: Iterable[Headers] | None = None,
    *,
    compression: str = "none",
    level: int | None = None,
    max_bytes: int = 16384,
) -> Iterator[UnnumberedBatch]:
    """Encode as `encode_columns` does, but yield batches without producer id, epoch and sequence."""
    codec = codec_number(compression)
    if max_bytes < 1:
        raise ConfigError("max_bytes", max_bytes, "it must be at least 1")
    moments = np.ascontiguousarray(timestamp, np.int64)
    rows = len(moments)
    keys, values = _binary(key, rows, "key"), _binary(value, rows, "value")
    tails = None if headers is None else from_bytes([encode_headers(row_headers) for row_headers in headers])
    if tails is not None and len(tails) != rows:
        raise EncodeError("RecordBatch", 2, "headers", f"{len(tails)} for {rows} rows")
    if rows == 0:
        return
    firsts, ends, largest = _cut(moments, keys, values, tails, max_bytes)
    earliest: list[int] = moments[firsts[:-1]].tolist()
    latest: list[int] = np.maximum.reduceat(moments, firsts[:-1]).tolist()
    cells = _cells(moments, keys, values) if tails is None else None
    batches: Iterator[tuple[BytesIO, int]]
    if cells is not None:
        alike = (_alike(moments[low:high], cells[low:high]) for low, high in pairwise(firsts))
        if codec:
            batches = (lay_out([whole.getbuffer()[HEADER_SIZE:]], level, codec) for whole in alike)
        else:
            batches = ((whole, whole.getbuffer().nbytes - HEADER_SIZE) for whole in alike)
    else:
        encoded = _encoded(moments, keys, values, tails, firsts, ends)
        batches = (lay_out([records], level, codec) for records in encoded)
    for index, (batch, records_size) in enumerate(batches):
        count = firsts[index + 1] - firsts[index]
        yield UnnumberedBatch(
            count, batch, codec, earliest[index], latest[index], largest[index], records_size
        )


def _binary(column: Any, rows: int, name: str) -> Any:
    """Convert a column to one BinaryArray."""
    if column is None:
        return pa.nulls(rows, pa.binary())
    array = column if isinstance(column, pa.Array | pa.ChunkedArray) else pa.array(column, pa.binary())
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
        # In older releases of pyarrow, `combine_chunks` may return a ChunkedArray.
        if isinstance(array, pa.ChunkedArray):
            array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.nulls(0, array.type)
    if array.type != pa.binary():
        array = array.cast(pa.binary())
    if len(array) != rows:
        raise EncodeError("RecordBatch", 2, name, f"{len(array)} for {rows} rows")
    return array


def _cut(
    moments: Int64s, keys: Any, values: Any, tails: Any, max_bytes: int
) -> tuple[list[int], list[int], list[int]]:
    """Cut the rows into batches of at most `max_bytes`.

    Returns three lists. The first contains the index of each batch's first row; its last element is the
    number of rows.

    The second list has an upper bound for the encoded bytes before each of these rows. The third has an upper
    bound for the bytes of each batch's largest record.
    """
    rows = len(moments)
    most_bytes = np.maximum(_sizes(keys), 0) + np.maximum(_sizes(values), 0)
    most_bytes += 1 if tails is None else _sizes(tails)
    # An upper bound for a record's overhead: its length, its attributes, and four varints of maximum width
    # (two deltas, and the lengths of the key and the value).
    spread = int(moments.max()) - int(moments.min())
    most_bytes += 1 + _widest(spread) + _widest(rows) + 2 * _widest(int(most_bytes.max()))
    most_bytes += _widest(int(most_bytes.max()))
    raw: Any = np.cumsum(most_bytes)
    total = memoryview(raw)  # bisect finds a single value faster than numpy's searchsorted does.
    room = max_bytes - HEADER_SIZE
    firsts, ends = [0], [0]
    while firsts[-1] < rows:
        firsts.append(max(bisect_right(total, ends[-1] + room, firsts[-1]), firsts[-1] + 1))
        ends.append(total[firsts[-1] - 1])
    return firsts, ends, np.maximum.reduceat(most_bytes, firsts[:-1]).tolist()


def _encoded(
    moments: Int64s, keys: Any, values: Any, tails: Any, firsts: list[int], ends: list[int]
) -> Iterator[memoryview]:
    """Iterate over the encoded records of each batch."""
    start = 0
    while start < len(firsts) - 1:  # Encode as many batches at a time as Arrow can join.
        stop = max(bisect_right(ends, ends[start] + _MOST) - 1, start + 1)
        low, high = firsts[start], firsts[stop]
        records, places = _encode(
            moments[low:high],
            keys.slice(low, high - low),
            values.slice(low, high - low),
            None if tails is None else tails.slice(low, high - low),
            np.array(firsts[start : stop + 1]) - low,
        )
        for behind, end in pairwise(places):
            yield records[behind:end]
        start = stop


def _widest(number: int) -> int:
    """Return an upper bound for the width, in bytes, of the varint of any number from 0 to `number`."""
    return (2 * number).bit_length() // 7 + 1


def _encode(
    moments: Int64s, keys: Any, values: Any, tails: Any, firsts: Int64s
) -> tuple[memoryview, list[int]]:
    """Encode the records of several batches together; return the bytes and the position of each batch.

    `firsts` contains the index of each batch's first row. Its last element is the number of rows.
    """
    count = np.diff(firsts)
    offset = np.arange(len(moments)) - np.repeat(firsts[:-1], count)
    moment = _zigzag(moments - np.repeat(moments[firsts[:-1]], count))
    place = offset << 1
    key_size, value_size = _sizes(keys), _sizes(values)
    key_zigzag, value_zigzag = _zigzag(key_size), _zigzag(value_size)
    widths = [_width(moment), _width(place), _width(key_zigzag), _width(value_zigzag)]
    size = np.maximum(key_size, 0) + np.maximum(value_size, 0)
    for width in widths:
        size += width
    size += 2 if tails is None else _sizes(tails) + 1
    length = size << 1
    nothing = np.zeros(len(moments), np.int64)
    front = [(length, _width(length)), (nothing, np.ones(len(moments), np.int8))]
    front += list(zip((moment, place, key_zigzag), widths[:3], strict=True))
    # Arrow joins the columns of `before_value` row by row. Without keys, all bytes before the value are in
    # one column, because fewer columns are joined faster.
    if keys.null_count == len(keys):
        before_value = [_varints([*front, (value_zigzag, widths[3])])]
    else:
        before_value = [_varints(front), keys, _varints([(value_zigzag, widths[3])])]
    joined = pc.binary_join_element_wise(
        *before_value,
        values,
        from_bytes([b"\x00"])[0] if tails is None else tails,
        from_bytes([b""])[0],
        null_handling="replace",
        null_replacement="",
    )
    _, offsets, data = joined.buffers()
    places = np.frombuffer(offsets, np.int32)[joined.offset : joined.offset + len(joined) + 1]
    return memoryview(data), places[firsts].tolist()


def _cells(moments: Int64s, keys: Any, values: Any) -> NDArray[np.uint8] | None:
    """Return the values as a matrix of bytes, one row for each value.

    Returns None unless all values have the same length, all keys are null and the timestamps are ascending.
    """
    sizes = _sizes(values)
    length = int(sizes[0])
    if keys.null_count < len(keys) or length < 1 or int(sizes.min()) < length or int(sizes.max()) > length:
        return None
    if bool(np.any(moments[1:] < moments[:-1])):
        return None
    _, offsets, data = values.buffers()
    start = int(np.frombuffer(offsets, np.int32)[values.offset])
    return np.frombuffer(data, np.uint8)[start : start + sizes.size * length].reshape(-1, length)


def _alike(moments: Int64s, cells: NDArray[np.uint8]) -> BytesIO:
    """Build a batch of the values in `cells`, in blocks of rows whose deltas have varints of equal width."""
    rows, length = cells.shape
    front, behind = b"\0", zigzag(-1) + zigzag(length)
    varying: list[Int64s] = [np.arange(rows, dtype=np.int64) << 1]
    if moments[-1] > moments[0]:
        varying.insert(0, _zigzag(moments - moments[0]))
    else:
        front += zigzag(0)
    widths = [_width(field) for field in varying]
    edges = np.flatnonzero(sum(np.diff(width) for width in widths)) + 1  # Widths never decrease.
    groups: list[tuple[int, int, list[int], bytes]] = []
    size = HEADER_SIZE
    for first, end in pairwise([0, *edges.tolist(), rows]):
        field_widths = [int(width[first]) for width in widths]
        head = front + bytes(sum(field_widths)) + behind
        head = zigzag(len(head) + length + 1) + head
        groups.append((first, end, field_widths, head))
        size += (len(head) + length + 1) * (end - first)
    # BytesIO makes these bytes writable without a copy, because nothing else refers to them.
    batch = BytesIO(bytes(size))
    at = HEADER_SIZE
    with batch.getbuffer() as view:
        for first, end, field_widths, head in groups:
            many, step = end - first, len(head) + length + 1
            np.ndarray(many, f"V{len(head)}", view, at, step)[:] = np.void(head)
            column = at + len(head) - len(behind) - sum(field_widths)
            for field, width in zip(varying, field_widths, strict=True):
                for byte in range(width):
                    cell: Int64s = field[first:end] >> 7 * byte
                    if width > 1:
                        cell = cell & 0x7F | (0x80 if byte + 1 < width else 0)
                    np.ndarray(many, np.uint8, view, column, step)[:] = cell
                    column += 1
            np.ndarray((many, length), np.uint8, view, at + len(head), (step, 1))[:] = cells[first:end]
            at += many * step
    return batch


def _sizes(column: Any) -> Int64s:
    """Return the length of each value in bytes, and -1 for nulls."""
    buffers = column.buffers()
    if column.null_count == len(column):
        return np.full(len(column), -1, np.int64)
    offsets = np.frombuffer(buffers[1], np.int32)[column.offset : column.offset + len(column) + 1]
    sizes = np.diff(offsets).astype(np.int64)
    if column.null_count:
        bits = np.frombuffer(buffers[0], np.uint8)
        valid = np.unpackbits(bits, count=column.offset + len(column), bitorder="little")[column.offset :]
        sizes[valid == 0] = -1
    return sizes


def _zigzag(values: Int64s) -> Int64s:
    return (values << 1) ^ (values >> 63)


def _width(zigzags: Int64s) -> NDArray[np.int8]:
    """Return the width in bytes of the varint of each zigzag number."""
    width = np.ones(len(zigzags), np.int8)
    unsigned = zigzags.view(np.uint64)
    highest = int(unsigned.max()) if len(unsigned) else 0
    for limit in _LIMITS:
        if highest < limit:
            break
        width += unsigned >= np.uint64(limit)
    return width


def _varints(fields: list[tuple[Int64s, NDArray[np.int8]]]) -> Any:
    """Return a BinaryArray whose rows are the concatenated varints of all fields.

    Each field is a pair: the zigzag numbers of all rows and the widths of their varints.
    """
    rows = len(fields[0][0])
    most = [int(width.max()) for _, width in fields]
    cells = np.empty((rows, sum(most)), np.uint8)
    mask = np.ones((rows, sum(most)), np.bool_)
    column = 0
    size = np.zeros(rows, np.int32)
    for (zigzags, width), widest in zip(fields, most, strict=True):
        size += width
        for byte in range(widest):
            cell = (zigzags >> (7 * byte)).astype(np.uint8)
            if byte == 9:
                cell &= 1  # The 64th bit.
            if byte + 1 < widest:
                cell &= 0x7F
                cell |= (width > byte + 1).view(np.uint8) << 7
            if byte:
                mask[:, column] = width > byte
            cells[:, column] = cell
            column += 1
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(size, out=offsets[1:])
    content = cells.ravel() if len(offsets) and int(offsets[-1]) == cells.size else cells[mask]
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(content)])

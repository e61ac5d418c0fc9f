"""Encode columns to record batches with numpy and Arrow, without an object per record.

* If this module and `BatchBuilder` encode the same rows as one batch, the bytes are the same.

* This module and `BatchBuilder` may divide rows into batches differently. `BatchBuilder` adds up the actual
  sizes of records. This module ends a batch where the batch would be full if each varint had its *largest
  possible* size.

* The varints are computed for all records together, as a matrix of bytes and a mask of the used bytes.

* Arrow joins the varints, keys, values and headers of the records of many batches. Each batch is a slice of
  the result, with a header.

* numpy copies the values as a matrix if three conditions hold: all values have the same length, no record has
  a key or headers, and the timestamps ascend. For values of 100 bytes in batches of 1 MB, this takes less
  than half the time of the general way.

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
_MAX_JOINED_BYTES = 1 << 30
# The smallest unsigned numbers whose varints have 2, 3, ... 10 bytes.
_VARINT_LIMITS = [1 << (7 * size) for size in range(1, 10)]


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
    timestamps = np.ascontiguousarray(timestamp, np.int64)
    rows = len(timestamps)
    keys, values = _binary_array(key, rows, "key"), _binary_array(value, rows, "value")
    encoded_headers = (
        None if headers is None else from_bytes([encode_headers(row_headers) for row_headers in headers])
    )
    if encoded_headers is not None and len(encoded_headers) != rows:
        raise EncodeError("RecordBatch", 2, "headers", f"{len(encoded_headers)} for {rows} rows")
    if rows == 0:
        return
    batch_starts, byte_bounds, largest = _divide_rows(timestamps, keys, values, encoded_headers, max_bytes)
    earliest: list[int] = timestamps[batch_starts[:-1]].tolist()
    latest: list[int] = np.maximum.reduceat(timestamps, batch_starts[:-1]).tolist()
    value_matrix = _value_matrix(timestamps, keys, values) if encoded_headers is None else None
    batches: Iterator[tuple[BytesIO, int]]
    if value_matrix is not None:
        uniform = (
            _build_uniform_batch(timestamps[low:high], value_matrix[low:high])
            for low, high in pairwise(batch_starts)
        )
        if codec:
            batches = (lay_out([batch.getbuffer()[HEADER_SIZE:]], level, codec) for batch in uniform)
        else:
            batches = ((batch, batch.getbuffer().nbytes - HEADER_SIZE) for batch in uniform)
    else:
        encoded = _encode_batches(timestamps, keys, values, encoded_headers, batch_starts, byte_bounds)
        batches = (lay_out([records], level, codec) for records in encoded)
    for index, (batch, records_size) in enumerate(batches):
        count = batch_starts[index + 1] - batch_starts[index]
        yield UnnumberedBatch(
            count, batch, codec, earliest[index], latest[index], largest[index], records_size
        )


def _binary_array(column: Any, rows: int, name: str) -> Any:
    """Convert a column to one BinaryArray. Raises EncodeError unless it has `rows` rows."""
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


def _divide_rows(
    timestamps: Int64s, keys: Any, values: Any, encoded_headers: Any, max_bytes: int
) -> tuple[list[int], list[int], list[int]]:
    """Divide the rows into batches of at most `max_bytes`.

    Returns three lists:

    * the index of each batch's first row, and at the end the number of rows;

    * for each of these indexes, an upper bound for the encoded bytes of all rows before it;

    * for each batch, an upper bound for the size in bytes of its largest record.
    """
    rows = len(timestamps)
    max_sizes = np.maximum(_value_sizes(keys), 0) + np.maximum(_value_sizes(values), 0)
    max_sizes += 1 if encoded_headers is None else _value_sizes(encoded_headers)
    # An upper bound for a record's overhead: its length, its attributes, and four varints of maximum width
    # (two deltas, and the lengths of the key and the value).
    timestamp_range = int(timestamps.max()) - int(timestamps.min())
    max_sizes += (
        1
        + _max_varint_width(timestamp_range)
        + _max_varint_width(rows)
        + 2 * _max_varint_width(int(max_sizes.max()))
    )
    max_sizes += _max_varint_width(int(max_sizes.max()))
    cumulative: Any = np.cumsum(max_sizes)
    totals = memoryview(cumulative)  # bisect finds a single value faster than numpy's searchsorted does.
    max_records_size = max_bytes - HEADER_SIZE
    batch_starts, byte_bounds = [0], [0]
    while (start := batch_starts[-1]) < rows:
        first_too_large = bisect_right(totals, byte_bounds[-1] + max_records_size, start)
        next_start = max(first_too_large, start + 1)
        batch_starts.append(next_start)
        byte_bounds.append(totals[next_start - 1])
    return batch_starts, byte_bounds, np.maximum.reduceat(max_sizes, batch_starts[:-1]).tolist()


def _encode_batches(
    timestamps: Int64s,
    keys: Any,
    values: Any,
    encoded_headers: Any,
    batch_starts: list[int],
    byte_bounds: list[int],
) -> Iterator[memoryview]:
    """Iterate over the encoded records of each batch. The last two arguments come from `_divide_rows`."""
    batch = 0
    while batch < len(batch_starts) - 1:  # Encode as many batches at a time as Arrow can join.
        fitting_end = bisect_right(byte_bounds, byte_bounds[batch] + _MAX_JOINED_BYTES) - 1
        next_batch = max(fitting_end, batch + 1)
        low, high = batch_starts[batch], batch_starts[next_batch]
        records, positions = _encode_records(
            timestamps[low:high],
            keys.slice(low, high - low),
            values.slice(low, high - low),
            None if encoded_headers is None else encoded_headers.slice(low, high - low),
            np.array(batch_starts[batch : next_batch + 1]) - low,
        )
        for start, end in pairwise(positions):
            yield records[start:end]
        batch = next_batch


def _max_varint_width(number: int) -> int:
    """Return an upper bound for the width, in bytes, of the varint of any number from 0 to `number`."""
    return (2 * number).bit_length() // 7 + 1


def _encode_records(
    timestamps: Int64s, keys: Any, values: Any, encoded_headers: Any, batch_starts: Int64s
) -> tuple[memoryview, list[int]]:
    """Encode the records of several batches together; return the bytes and the position of each batch.

    `batch_starts` contains the index of each batch's first row. Its last element is the number of rows. The
    last of the returned positions is the number of bytes.
    """
    count = np.diff(batch_starts)
    offset_delta = np.arange(len(timestamps)) - np.repeat(batch_starts[:-1], count)
    timestamp_zigzag = _zigzag(timestamps - np.repeat(timestamps[batch_starts[:-1]], count))
    offset_zigzag = offset_delta << 1
    key_size, value_size = _value_sizes(keys), _value_sizes(values)
    key_zigzag, value_zigzag = _zigzag(key_size), _zigzag(value_size)
    zigzags = [timestamp_zigzag, offset_zigzag, key_zigzag, value_zigzag]
    widths = [_varint_widths(zigzag_numbers) for zigzag_numbers in zigzags]
    size = np.maximum(key_size, 0) + np.maximum(value_size, 0)
    for width in widths:
        size += width
    # The attributes take one byte. Without headers, the number of headers also takes one byte.
    size += 2 if encoded_headers is None else _value_sizes(encoded_headers) + 1
    length = size << 1
    attributes = np.zeros(len(timestamps), np.int64)
    # Each field is a pair: zigzag numbers and the widths of their varints.
    before_key = [(length, _varint_widths(length)), (attributes, np.ones(len(timestamps), np.int8))]
    before_key += list(zip(zigzags[:3], widths[:3], strict=True))
    value_length = (value_zigzag, widths[3])
    # Arrow joins the columns of `before_value` row by row. Without keys, all bytes before the value are in
    # one column, because fewer columns are joined faster.
    if keys.null_count == len(keys):
        before_value = [_join_varints([*before_key, value_length])]
    else:
        before_value = [_join_varints(before_key), keys, _join_varints([value_length])]
    joined = pc.binary_join_element_wise(
        *before_value,
        values,
        from_bytes([b"\x00"])[0] if encoded_headers is None else encoded_headers,
        from_bytes([b""])[0],
        null_handling="replace",
        null_replacement="",
    )
    _, offsets, data = joined.buffers()
    record_positions = np.frombuffer(offsets, np.int32)[joined.offset : joined.offset + len(joined) + 1]
    return memoryview(data), record_positions[batch_starts].tolist()


def _value_matrix(timestamps: Int64s, keys: Any, values: Any) -> NDArray[np.uint8] | None:
    """Return the values as a matrix of bytes, one row for each value.

    Returns None unless all values have the same length, all keys are null and the timestamps are ascending.
    """
    sizes = _value_sizes(values)
    length = int(sizes[0])
    if keys.null_count < len(keys) or length < 1 or int(sizes.min()) < length or int(sizes.max()) > length:
        return None
    if bool(np.any(timestamps[1:] < timestamps[:-1])):
        return None
    _, offsets, data = values.buffers()
    start = int(np.frombuffer(offsets, np.int32)[values.offset])
    return np.frombuffer(data, np.uint8)[start : start + sizes.size * length].reshape(-1, length)


def _build_uniform_batch(timestamps: Int64s, value_matrix: NDArray[np.uint8]) -> BytesIO:
    """Build a batch of the values in `value_matrix`, in blocks of rows whose deltas have equal widths.

    The bytes of the batch's header are left zero.
    """
    rows, length = value_matrix.shape
    # A record consists of its length, `before_deltas` (the attributes), the deltas, `after_deltas` (the null
    # key, and the length of the value), the value, and the number of headers.
    before_deltas, after_deltas = b"\0", zigzag(-1) + zigzag(length)
    deltas: list[Int64s] = [np.arange(rows, dtype=np.int64) << 1]
    if timestamps[-1] > timestamps[0]:
        deltas.insert(0, _zigzag(timestamps - timestamps[0]))
    else:
        before_deltas += zigzag(0)
    widths = [_varint_widths(delta) for delta in deltas]
    edges = np.flatnonzero(sum(np.diff(width) for width in widths)) + 1  # Widths never decrease.
    blocks: list[tuple[int, int, list[int], bytes]] = []
    size = HEADER_SIZE
    for first, end in pairwise([0, *edges.tolist(), rows]):
        delta_widths = [int(width[first]) for width in widths]
        # The bytes of a record before its value, with zeros for the deltas.
        prefix = before_deltas + bytes(sum(delta_widths)) + after_deltas
        prefix = zigzag(len(prefix) + length + 1) + prefix
        blocks.append((first, end, delta_widths, prefix))
        size += (len(prefix) + length + 1) * (end - first)
    # BytesIO makes these bytes writable without a copy, because nothing else refers to them.
    batch = BytesIO(bytes(size))
    position = HEADER_SIZE
    with batch.getbuffer() as view:
        for first, end, delta_widths, prefix in blocks:
            count, record_size = end - first, len(prefix) + length + 1
            # Each array below has one element per record of the block. Its elements are `record_size` bytes
            # apart.
            np.ndarray(count, f"V{len(prefix)}", view, position, record_size)[:] = np.void(prefix)
            byte_position = position + len(prefix) - len(after_deltas) - sum(delta_widths)
            for delta, width in zip(deltas, delta_widths, strict=True):
                for byte in range(width):
                    column: Int64s = delta[first:end] >> 7 * byte
                    if width > 1:
                        column = column & 0x7F | (0x80 if byte + 1 < width else 0)
                    np.ndarray(count, np.uint8, view, byte_position, record_size)[:] = column
                    byte_position += 1
            value_position, values = position + len(prefix), value_matrix[first:end]
            np.ndarray((count, length), np.uint8, view, value_position, (record_size, 1))[:] = values
            position += count * record_size
    return batch


def _value_sizes(column: Any) -> Int64s:
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


def _varint_widths(zigzags: Int64s) -> NDArray[np.int8]:
    """Return the width in bytes of the varint of each zigzag number."""
    width = np.ones(len(zigzags), np.int8)
    unsigned = zigzags.view(np.uint64)
    highest = int(unsigned.max()) if len(unsigned) else 0
    for limit in _VARINT_LIMITS:
        if highest < limit:
            break
        width += unsigned >= np.uint64(limit)
    return width


def _join_varints(fields: list[tuple[Int64s, NDArray[np.int8]]]) -> Any:
    """Return a BinaryArray whose rows are the concatenated varints of all fields.

    Each field of `fields` is a pair: the zigzag numbers of all rows and the widths of their varints.
    """
    rows = len(fields[0][0])
    max_widths = [int(widths.max()) for _, widths in fields]
    # One row per record, and one column for each byte that a varint may have. `is_used` marks the bytes that
    # belong to a varint.
    matrix = np.empty((rows, sum(max_widths)), np.uint8)
    is_used = np.ones((rows, sum(max_widths)), np.bool_)
    column = 0
    size = np.zeros(rows, np.int32)
    for (zigzags, widths), max_width in zip(fields, max_widths, strict=True):
        size += widths
        for byte in range(max_width):
            column_bytes = (zigzags >> (7 * byte)).astype(np.uint8)
            if byte == 9:
                column_bytes &= 1  # The 64th bit.
            if byte + 1 < max_width:
                column_bytes &= 0x7F
                column_bytes |= (widths > byte + 1).view(np.uint8) << 7
            if byte:
                is_used[:, column] = widths > byte
            matrix[:, column] = column_bytes
            column += 1
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(size, out=offsets[1:])
    uses_all = len(offsets) and int(offsets[-1]) == matrix.size
    content = matrix.ravel() if uses_all else matrix[is_used]
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(content)])

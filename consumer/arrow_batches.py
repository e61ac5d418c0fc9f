"""Converts Arrow tables to record batches for a producer (`Producer.send_columns`).

Rules:

* The columns have Spark's names (Kafka sink): value, and optionally key, headers, timestamp and partition.

* Any other column raises ConfigError, because its content would be lost.

* A row goes to the partition in its column `partition`. If a row has no partition, its key selects the
  partition. A row with neither a partition nor a key goes to the current sticky partition.

* Rows of one partition keep their order.

* No Python code runs for each row: numpy computes the hashes, and `kproto.records.column_encoder` encodes
  whole columns.

This module needs the extra ``columns`` (numpy, pyarrow).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any, cast

import msgspec

from kproto.errors import ConfigError, MissingExtra

try:
    import numpy as np
    from numpy.typing import NDArray

    pa: Any = import_module("pyarrow")
except ImportError as error:
    raise MissingExtra("send_columns", "numpy and pyarrow", "columns") from error

from kproto.records.arrow_arrays import from_numpy, to_numpy, validity
from kproto.records.builder import UnnumberedBatch
from kproto.records.column_encoder import unnumbered

from .producer_options import ProducerOptions
from .validation import MAX_PARTITION

Int64s = NDArray[np.int64]

_COLUMNS = ("key", "value", "headers", "timestamp", "partition")
# Maximum number of rows that are encoded together. With this limit, the first batches of a large table are
# sent before its remaining rows are encoded.
_ROWS_AT_ONCE = 32_768
_MURMUR2_SEED, _MURMUR2_MULTIPLIER = 0x9747B28C, 0x5BD1E995


class TableColumns(msgspec.Struct, frozen=True):
    """The columns of a table that has been checked."""

    rows: int
    keys: Any
    values: Any
    headers: list[tuple[tuple[str, bytes | None], ...]] | None
    timestamps: Int64s
    partitions: Int64s | None

    def take(self, rows: Int64s) -> TableColumns:
        """Return the columns, except `partition`, with only the given rows, in the given order.

        `rows` contains at least one row index, and the indexes increase.
        """
        low, high = int(rows[0]), int(rows[-1]) + 1
        if high - low == len(rows):  # Slices of adjacent rows need no copy.
            return TableColumns(
                len(rows),
                None if self.keys is None else self.keys.slice(low, len(rows)),
                None if self.values is None else self.values.slice(low, len(rows)),
                None if self.headers is None else self.headers[low:high],
                self.timestamps[low:high],
                None,
            )
        indexes = from_numpy(rows)
        return TableColumns(
            len(rows),
            None if self.keys is None else self.keys.take(indexes),
            None if self.values is None else self.values.take(indexes),
            None if self.headers is None else [self.headers[row] for row in rows.tolist()],
            self.timestamps[rows],
            None,
        )

    @property
    def has_partitions(self) -> bool:
        """Whether the column `partition` has a value in every row."""
        return self.partitions is not None and bool((self.partitions >= 0).all())

    def divide(self, count: int) -> Iterator[tuple[int | None, Int64s]]:
        """Group the rows by partition, for a topic with `count` partitions: yield (partition, row indexes).

        The partition is None for rows that have neither a partition nor a key.
        """
        all_rows = np.arange(self.rows)
        # The partition of each row, or -1 for the sticky partition.
        targets = np.full(self.rows, -1 if count > 1 else 0, np.int64)
        if self.keys is not None:
            targets[validity(self.keys)] = murmur2(self.keys.drop_null()) % count
        if self.partitions is not None:
            targets = np.where(self.partitions >= 0, self.partitions, targets)
        if self.rows and targets.min() == targets.max():
            yield (None if targets[0] < 0 else int(targets[0])), all_rows
            return
        sorted_rows = np.argsort(targets, kind="stable")
        group_starts = np.flatnonzero(np.diff(targets[sorted_rows])) + 1
        for rows in np.split(sorted_rows, group_starts):
            if len(rows):
                partition = int(targets[rows[0]])
                yield (None if partition < 0 else partition), rows


class Piece(msgspec.Struct, frozen=True):
    """One encoded batch, and the indexes of its rows in the table."""

    partition: int | None
    batch: UnnumberedBatch
    timestamps: Int64s
    rows: Int64s


def encode_batches(table: TableColumns, count: int, options: ProducerOptions) -> Iterator[Piece]:
    """Divide a table's rows among `count` partitions, and yield each partition's record batches.

    At most `_ROWS_AT_ONCE` rows are encoded together.
    """
    max_bytes = min(options.batch_size, options.max_request_size)
    for partition, partition_rows in table.divide(count):
        for first in range(0, len(partition_rows), _ROWS_AT_ONCE):
            rows = partition_rows[first : first + _ROWS_AT_ONCE]
            piece_columns = table.take(rows)
            batch_start = 0
            for batch in unnumbered(
                piece_columns.timestamps,
                piece_columns.keys,
                piece_columns.values,
                piece_columns.headers,
                compression=options.compression_type,
                level=options.compression_level,
                max_bytes=max_bytes,
            ):
                batch_end = batch_start + batch.count
                timestamps = piece_columns.timestamps[batch_start:batch_end]
                yield Piece(partition, batch, timestamps, rows[batch_start:batch_end])
                batch_start = batch_end


def check_table(batch: Any, now_ms: int) -> TableColumns:
    """Check a RecordBatch, a Table or a dict of columns, and return its columns.

    Raises ConfigError for columns whose values a record cannot contain.
    """
    if isinstance(batch, dict):
        try:
            batch = pa.table(batch)
        except Exception as error:  # An object that pyarrow cannot convert may raise any exception.
            raise ConfigError(
                "batch", list(cast("dict[str, Any]", batch)), f"columns of the same length ({error})"
            ) from None
    if not isinstance(batch, pa.RecordBatch | pa.Table):
        raise ConfigError("batch", batch, "a pyarrow RecordBatch or Table, or a dict of columns")
    names: Sequence[str] = batch.schema.names
    unknown = [name for name in names if name not in _COLUMNS]
    if unknown or "value" not in names or len(set(names)) < len(names):
        drop = f"; drop {', '.join(unknown)}" if unknown else ""
        allowed = f"the columns {', '.join(_COLUMNS)}: value, and what you like, each once{drop}"
        raise ConfigError("batch", list(names), allowed)
    rows = batch.num_rows
    columns: dict[str, Any] = {name: _combine_chunks(batch.column(name)) for name in names}
    return TableColumns(
        rows,
        _binary_column("key", columns.get("key")),
        _binary_column("value", columns["value"]),
        _header_rows(columns.get("headers")),
        _timestamp_values(columns.get("timestamp"), rows, now_ms),
        _partition_numbers(columns.get("partition")),
    )


def _combine_chunks(column: Any) -> Any:
    """Return the column of a Table or a RecordBatch as one array."""
    if isinstance(column, pa.ChunkedArray):
        return pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)
    return column


def _binary_column(name: str, column: Any) -> Any:
    """Return a column of texts or bytes as a BinaryArray, or None if it is missing or has the type null."""
    if column is None or pa.types.is_null(column.type):
        return None
    kind = column.type
    if kind == pa.binary():
        return column
    convertible_types = (pa.types.is_string, pa.types.is_large_string, pa.types.is_large_binary)
    # pyarrow 15 has no function that recognizes view types (`string_view`, `binary_view`), which polars uses.
    is_view = str(kind) in ("string_view", "binary_view")
    if is_view or any(test(kind) for test in convertible_types) or pa.types.is_fixed_size_binary(kind):
        try:
            return column.cast(pa.binary())
        except pa.ArrowNotImplementedError:  # pyarrow 16 cannot cast a `string_view` or `binary_view`.
            return pa.array(column.to_pylist(), pa.binary())
    if pa.types.is_dictionary(kind):
        # pyarrow cannot decode a dictionary of views, which polars uses for its categories.
        values = _binary_column(name, column.dictionary)
        return None if values is None else values.take(column.indices)
    raise ConfigError(f"column {name}", str(kind), "a column of type binary or string")


def _cast_column(name: str, column: Any, column_type: Any, *, safe: bool = True) -> Any:
    """Cast a column to an Arrow type.

    Raises ConfigError for a value that the type cannot hold. If `safe` is false, Arrow truncates the value
    instead.
    """
    try:
        return column.cast(column_type, safe=safe)
    except pa.ArrowInvalid as error:
        raise ConfigError(
            f"column {name}", str(column.type), f"all values must fit into {column_type} ({error})"
        ) from None


def _timestamp_values(column: Any, rows: int, now_ms: int) -> Int64s:
    """Return each row's timestamp (ms) in the column, or `now_ms` if the timestamp is null or missing."""
    if column is None:
        return np.full(rows, now_ms, np.int64)
    # The conversion to milliseconds drops only fractions of a millisecond.
    if pa.types.is_timestamp(column.type):
        column = _cast_column("timestamp", column, pa.timestamp("ms"), safe=column.type.unit == "s")
        column = column.cast(pa.int64())
    if not pa.types.is_integer(column.type):
        raise ConfigError("column timestamp", str(column.type), "int64 (ms since 1970) or a timestamp")
    column = _cast_column("timestamp", column, pa.int64())
    timestamps: Int64s = np.where(validity(column), to_numpy(column, np.int64), now_ms)
    if rows and timestamps.min() < 0:
        raise ConfigError("column timestamp", int(timestamps.min()), "milliseconds since 1970, 0 or more")
    return timestamps


def _partition_numbers(column: Any) -> Int64s | None:
    """Return each row's partition number in the column, or -1 if the number is null.

    Return None if the column is missing or has the type null.
    """
    if column is None or pa.types.is_null(column.type):
        return None
    if not pa.types.is_integer(column.type):
        raise ConfigError("column partition", str(column.type), "a column of integers")
    column = _cast_column("partition", column, pa.int64())
    partitions: Int64s = np.where(validity(column), to_numpy(column, np.int64), -1)
    non_null = partitions[validity(column)]
    invalid = non_null[(non_null < 0) | (non_null > MAX_PARTITION)]
    if len(invalid):
        allowed = f"from 0 to {MAX_PARTITION}, or null to let the partitioner select the partition"
        raise ConfigError("column partition", int(invalid[0]), allowed)
    return partitions


def _header_rows(column: Any) -> list[tuple[tuple[str, bytes | None], ...]] | None:
    """Return the headers of each row. A row that is null has an empty tuple.

    Return None if the column is missing or has the type null.
    """
    if column is None or pa.types.is_null(column.type):
        return None
    kind = column.type
    if pa.types.is_map(kind):
        rows = [() if row is None else tuple(row) for row in column.to_pylist()]
    elif (
        (pa.types.is_list(kind) or pa.types.is_large_list(kind))
        and pa.types.is_struct(kind.value_type)
        and kind.value_type.num_fields == 2
    ):
        rows = _pairs_of_structs(column)
    else:
        allowed = "a list of structs of key (string) and value (binary), or a map"
        raise ConfigError("column headers", str(kind), allowed)
    from .validation import header_pairs  # The import is in the function because few tables have headers.

    return [tuple(header_pairs(row)) if row else () for row in rows]


def _pairs_of_structs(column: Any) -> list[tuple[Any, ...]]:
    """Return the pairs (key, value) of each row of a column of lists of structs with two fields.

    If the fields are named key and value, their order does not matter. Otherwise the first field is the key,
    and the second the value.
    """
    struct = column.type.value_type
    key, value = struct.field(0).name, struct.field(1).name
    if {key, value} == {"key", "value"}:
        key, value = "key", "value"
    rows: list[Any] = column.to_pylist()
    for row in rows:
        for header in row or ():
            if header is None or header[key] is None:
                raise ConfigError("column headers", header, "neither a header nor its key may be null")
    return [() if row is None else tuple((header[key], header[value]) for header in row) for row in rows]


def murmur2(keys: Any) -> Int64s:
    """Return Kafka's murmur2 of each key, with the sign bit cleared. `keys` is a BinaryArray without nulls.

    `engine.producer.partitioner` computes the same hashes key by key. This function hashes a whole column.
    """
    _, offsets_buffer, data_buffer = keys.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32)[keys.offset : keys.offset + len(keys) + 1]
    content = np.zeros(0, np.uint8) if data_buffer is None else np.frombuffer(data_buffer, np.uint8)
    # The last 1 to 3 bytes of a key are read as part of a 4-byte word, so the last key needs bytes after it.
    content = np.concatenate((content, np.zeros(4, np.uint8)))
    starts, sizes = offsets[:-1].astype(np.int64), np.diff(offsets).astype(np.int64)
    hashes = np.uint32(_MURMUR2_SEED) ^ sizes.astype(np.uint32)
    m = np.uint32(_MURMUR2_MULTIPLIER)
    # A key consists of words of 4 bytes. Each iteration hashes one word of every key that is long enough. If
    # a key ends within this word, the iteration hashes the key's last 1 to 3 bytes instead.
    for word_index in range(int(sizes.max(initial=0)) // 4 + 1):
        positions = starts + 4 * word_index
        word_rows = np.flatnonzero(sizes >= 4 * word_index + 4)
        if len(word_rows):
            k = _read_words(content, positions[word_rows]) * m
            k = (k ^ (k >> np.uint32(24))) * m
            hashes[word_rows] = (hashes[word_rows] * m) ^ k
        tail_rows = np.flatnonzero((sizes // 4 == word_index) & (sizes % 4 > 0))
        if len(tail_rows):
            tail_bits = 8 * (sizes[tail_rows] % 4)
            mask = (np.uint32(1) << tail_bits.astype(np.uint32)) - np.uint32(1)
            tails = _read_words(content, positions[tail_rows]) & mask
            hashes[tail_rows] = (hashes[tail_rows] ^ tails) * m
    hashes = (hashes ^ (hashes >> np.uint32(13))) * m
    return ((hashes ^ (hashes >> np.uint32(15))) & np.uint32(0x7FFFFFFF)).astype(np.int64)


def _read_words(content: NDArray[np.uint8], positions: Int64s) -> NDArray[np.uint32]:
    """Return the little-endian number in the four bytes at each position."""
    words = content[positions].astype(np.uint32)
    for byte in range(1, 4):
        words |= content[positions + byte].astype(np.uint32) << np.uint32(8 * byte)
    return words

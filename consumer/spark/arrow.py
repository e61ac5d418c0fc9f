"""Converts fetched record batches to the Arrow batches that Spark accepts.

Spark rejects a first batch whose schema is not *exactly* the one that Spark derives from the source's
columns. It rejects dictionary types, large types, and timestamps other than microseconds in UTC.

The constant columns (topic, partition) are slices of cached columns. The number of rows of a cached column is
a power of two, or `ROWS` if that is less, so batches of similar sizes share a cached column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import pyarrow  # pyright: ignore[reportMissingTypeStubs]
from pyspark.sql.types import StructType

from kproto.errors import IllegalState, RecordError
from kproto.records import AbortedTransactions, Batch, batches, spans
from kproto.records.arrow_arrays import from_numpy, from_texts, to_numpy, validity
from kproto.records.batch import Data
from kproto.records.columns import Columns, columns
from kproto.records.reader import has_too_many_records

from ..engine.fetch.buffers import MAX_DECODED_BYTES, MAX_DECODED_RATIO, CompletedFetch
from ..schema_registry.wire_format import id_header
from .ranges import Range
from .values import ERROR, BadValue, ColumnFormat, Decode, module_of
from .values.arrow_types import arrow_type
from .values.wire_format import ids_from_headers

# pyarrow is imported as Any, because it has no type stubs.
pa: Any = pyarrow
RecordBatch: TypeAlias = Any
Column: TypeAlias = Any

# The aborted transactions of a fetch response, each as (producer id, first offset).
Aborted: TypeAlias = tuple[tuple[int, int], ...]

# The maximum number of rows in an Arrow batch. The JVM reads batches of 2,000 to 65,000 rows equally fast,
# but Python needs more CPU time for small ones: in batches of 2,000 rows, the same records cost a quarter
# more than in batches of 50,000.
ROWS = 50_000

_MAGIC_OFFSET = 16  # The offset (bytes) of the magic byte in a record batch, and in an older message.

_HEADERS = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))

# The Arrow types of the columns. The keys are the names of `schema.COLUMNS` in lower case.
TYPES: dict[str, Any] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamptype": pa.int32(),
    "headers": _HEADERS,
    ERROR: pa.string(),
}


def batches_before(records: Data, end: int) -> tuple[Data, int | None]:
    """Return the batches that begin before `end`, and the next offset to read.

    If `records` contains no batch, the next offset is None. A gap in the offsets at the end of a batch counts
    as read: no record will ever have these offsets.
    """
    next_offset: int | None = None
    size = 0
    for batch in spans(records):
        if batch.base_offset >= end:
            # If the first batch begins at `end` or later, no record exists between the fetch position and
            # `end`.
            return records[:size], end if next_offset is None else next_offset
        next_offset, size = batch.last_offset + 1, batch.end
    return records, next_offset


# The maximum size in bytes of the compressed batches that are decompressed together. The limit saves memory,
# because log lines may be a hundred times larger than their compressed form. For 600,000 records of 600
# bytes, a worker needs 245 MB with the limit, and 866 MB without it.
PIECE_BYTES = 1024 * 1024


def split_compressed(records: Data, aborted: Aborted = ()) -> Iterator[tuple[Data, Aborted]]:
    """Split record batches into pieces that can be decompressed one at a time.

    A piece of compressed batches has at most `PIECE_BYTES` bytes and `ROWS` rows, unless it is a single
    larger batch. Each piece is paired with the aborted transactions that are open at its start.
    """
    transactions, open_transactions = AbortedTransactions(aborted), aborted
    piece_start = end = 0  # Offsets in `records`: the start of the current piece, the end of the last batch.
    piece_bytes = piece_rows = 0  # The bytes and rows of the compressed batches of the current piece.
    for batch in batches(records, check_crc=False) if aborted else spans(records):
        batch_bytes, batch_rows = (batch.end - end, batch.count) if batch.codec else (0, 0)
        if piece_bytes and (piece_bytes + batch_bytes > PIECE_BYTES or piece_rows + batch_rows > ROWS):
            yield records[piece_start:end], open_transactions
            open_transactions = tuple(transactions.pairs)
            piece_start, piece_bytes, piece_rows = end, 0, 0
        # Without aborted transactions in the response, `batch` is a `BatchSpan`, and nothing is tracked.
        if isinstance(batch, Batch):
            try:
                transactions.skips(batch)
            except RecordError:
                # A transaction marker is malformed. `Builder.batches` raises the error with the offset in the
                # log.
                break
        end = batch.end
        piece_bytes, piece_rows = piece_bytes + batch_bytes, piece_rows + batch_rows
    yield records[piece_start:], open_transactions


def _is_message_set(records: Data) -> bool:
    """Return whether the records are in a message format older than Kafka 0.11 (magic 0 or 1)."""
    return len(records) > _MAGIC_OFFSET and records[_MAGIC_OFFSET] < 2


class Builder:
    """Builds the Arrow batches of one slice, with exactly the columns of a given schema."""

    def __init__(
        self,
        schema: StructType,
        range_: Range,
        *,
        check_crcs: bool = True,
        formats: Iterable[ColumnFormat] = (),
    ) -> None:
        self._check_crcs = check_crcs
        self._range = range_
        fields = {field.name.lower(): field for field in schema.fields}
        self._decoders: list[tuple[ColumnFormat, Decode]] = []
        types = dict(TYPES)
        for column_format in formats:
            if (field := fields.get(column_format.column)) is not None:
                self._decoders.append(
                    (column_format, module_of(column_format).decoder(column_format, field.dataType))
                )
                types[column_format.column] = arrow_type(column_format.option("schema"), field.dataType)
        self._schema = pa.schema(
            [pa.field(field.name, types[name], nullable=field.nullable) for name, field in fields.items()]
        )
        self._column_builders = {name: self._column_builder(name) for name in fields}

    def batches(self, records: Data, aborted: Aborted, position: int) -> Iterator[RecordBatch]:
        """Yield the records from the offset `position` to the end of the slice.

        Each batch has at most `ROWS` rows.
        """
        decoded = self._decode_together(records, aborted, position)
        if decoded is not None:
            yield from self._arrow_batches(decoded, position)
            return
        try:
            is_message_set = _is_message_set(records)
            fetch = CompletedFetch(records, position, aborted, self._check_crcs, in_parts=is_message_set)
        except RecordError as error:
            raise self._with_position(error, position) from None
        while not fetch.exhausted:
            try:
                decoded = fetch.columns()
            except RecordError as error:
                raise self._with_position(error, position) from None
            if decoded is not None:
                yield from self._arrow_batches(decoded, position)

    def _decode_together(self, records: Data, aborted: Aborted, position: int) -> Columns | None:
        """Decode all records together, or return None if they have to be decoded in several parts.

        Records have to be decoded in parts if they are too many to decode at once, if their decompressed size
        exceeds the limit `most`, or if their message format is older than Kafka 0.11.
        """
        if has_too_many_records(records) or _is_message_set(records):
            return None
        try:
            return columns(
                records,
                check_crc=self._check_crcs,
                aborted=aborted,
                from_offset=position,
                most=max(MAX_DECODED_BYTES, MAX_DECODED_RATIO * len(records)),
            )
        except IllegalState:
            return None
        except RecordError as error:
            raise self._with_position(error, position) from None

    def _arrow_batches(self, decoded: Columns, position: int) -> Iterator[RecordBatch]:
        """Yield the Arrow batches of decoded records that belong to the slice."""
        first_row, end_row = np.searchsorted(decoded.offset, [position, self._range.end]).tolist()
        for row in range(first_row, end_row, ROWS):
            yield self._arrow_batch(decoded, row, min(row + ROWS, end_row))

    def _arrow_batch(self, decoded: Columns, first_row: int, end_row: int) -> RecordBatch:
        """Build an Arrow batch of the rows from `first_row` to `end_row` (exclusive)."""
        formatted = self._decode_formats(decoded, first_row, end_row) if self._decoders else {}
        arrays = [
            formatted[name] if name in formatted else build(decoded, first_row, end_row)
            for name, build in self._column_builders.items()
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _decode_formats(self, records: Columns, first_row: int, end_row: int) -> dict[str, Column]:
        """Return the decoded columns (those with a format), and the column ``_error``.

        Raises BadValue for the first row that cannot be decoded, if the column's format has on_error="fail".
        """
        row_count = end_row - first_row
        formatted: dict[str, Column] = {}
        # The texts of ``_error``. In this and the following mappings, row 0 is `first_row`.
        errors: dict[int, str] = {}
        for column_format, decode in self._decoders:
            column_name = column_format.column
            values = (records.key if column_name == "key" else records.value).slice(first_row, row_count)
            header_errors: Mapping[int, str] = {}
            if column_format.registry is not None and records.has_headers:
                headers = records.slice(first_row, end_row).headers_array()
                name, indexed = id_header(column_name), column_format.format == "protobuf"
                values, header_errors = ids_from_headers(values, headers, name, indexed)
            column, value_errors = _decode_non_null(decode, values)
            column_errors = {**value_errors, **header_errors}
            if column_errors and column_format.on_error == "fail":
                partition, row = f"{self._range.topic}-{self._range.partition}", min(column_errors)
                offset = int(records.offset[first_row + row])
                raise BadValue(column_name, partition, offset, column_errors[row])
            for row, reason in column_errors.items():
                error = f"{column_name}: {reason}"
                errors[row] = f"{errors[row]}; {error}" if row in errors else error
            formatted[column_name] = column
        if errors:
            formatted[ERROR] = from_texts([errors.get(row) for row in range(row_count)])
        else:
            formatted[ERROR] = pa.nulls(row_count, pa.string())
        return formatted

    def _with_position(self, error: RecordError, position: int) -> RecordError:
        """Return a copy of `error` whose message also contains the position in the log.

        The message of a CRC error also names the option that skips the check.
        """
        problem = error.detail or "the bytes end too early"
        place = f"fetched at offset {position} of {self._range.topic}-{self._range.partition}"
        remedy = "; kafka.check.crcs=false skips the check" if error.field == "crc" else ""
        detail = f"{problem} ({place}, to be read up to {self._range.end}{remedy})"
        return RecordError(error.message, error.version, error.field, error.offset, detail)

    def _column_builder(self, name: str) -> Callable[[Columns, int, int], Column]:
        """Return a function of (records, a, b) that builds the column `name` from rows `a` to `b` - 1."""
        topic, partition = self._range.topic, self._range.partition
        match name:
            case "key":
                return lambda records, a, b: records.key.slice(a, b - a)
            case "value":
                return lambda records, a, b: records.value.slice(a, b - a)
            case "topic":
                return lambda _, a, b: _constant_column(topic, pa.string(), b - a)
            case "partition":
                return lambda _, a, b: _constant_column(partition, pa.int32(), b - a)
            case "offset":
                return lambda records, a, b: from_numpy(records.offset[a:b])
            case "timestamp":
                return lambda records, a, b: from_numpy(self._microseconds(records, a, b)).view(
                    TYPES["timestamp"]
                )
            case "_error":
                return lambda _, a, b: pa.nulls(b - a, pa.string())
            case "timestamptype":
                return lambda records, a, b: from_numpy(records.timestamp_type[a:b].astype(np.int32))
            case _:
                return _headers_column

    def _microseconds(self, records: Columns, first_row: int, end_row: int) -> Any:
        """Return the timestamps of records in microseconds.

        Raises RecordError if a timestamp does not fit into 64 bits.
        """
        timestamps = records.timestamp[first_row:end_row]
        is_out_of_range = (timestamps > _MAX_TIMESTAMP_MS) | (timestamps < -_MAX_TIMESTAMP_MS)
        if is_out_of_range.any():
            row = first_row + int(np.argmax(is_out_of_range))
            place = f"{self._range.topic}-{self._range.partition} at offset {records.offset[row]}"
            raise RecordError(
                "Record",
                -1,
                "timestamp",
                row,
                f"{place} has the timestamp {records.timestamp[row]} ms, outside Spark's range of "
                f"+/-{_MAX_TIMESTAMP_MS} ms; to "
                'read the record, omit the column timestamp, as with .schema("key BINARY, value BINARY")',
            )
        return timestamps * 1000


def _decode_non_null(decode: Decode, values: Column) -> tuple[Column, Mapping[int, str]]:
    """Decode the values that are not null, and return the errors by row. Nulls stay null in the result."""
    if not values.null_count:
        return decode(values)
    rows = np.flatnonzero(validity(values))
    column, errors = decode(values.drop_null())
    indexes = np.full(len(values), -1)  # The index in `column` of each row's value, or -1 for null.
    indexes[rows] = np.arange(len(rows))
    row_errors = {int(rows[index]): reason for index, reason in errors.items()}
    return column.take(from_numpy(indexes, indexes < 0)), row_errors


# The largest timestamp in milliseconds that fits as microseconds into 64 bits: the year 294247.
_MAX_TIMESTAMP_MS = (2**63 - 1) // 1000


def _constant_column(value: object, column_type: Any, rows: int) -> Column:
    """Return a column that repeats `value` `rows` times, as a slice of a cached column.

    The number of rows of the cached column is a power of two, or `ROWS` if that is less, so that few columns
    are cached.
    """
    return _cached_column(value, column_type, min(ROWS, 1 << rows.bit_length())).slice(0, rows)


@lru_cache(64)
def _cached_column(value: object, column_type: Any, rows: int) -> Column:
    array = from_texts([value]) if isinstance(value, str) else from_numpy(np.array([value])).cast(column_type)
    return pa.repeat(array[0], rows)


def _headers_column(records: Columns, first_row: int, end_row: int) -> Column:
    """Return the column of headers. A record without headers has the value null, as in Spark's own source."""
    if not records.has_headers:
        return pa.nulls(end_row - first_row, _HEADERS)
    lists = records.slice(first_row, end_row).headers_array()
    is_empty = np.diff(to_numpy(lists.offsets, np.int32)) == 0
    return pa.ListArray.from_arrays(lists.offsets, lists.values, type=_HEADERS, mask=from_numpy(is_empty))

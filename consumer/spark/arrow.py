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
from .offsets import Range
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

_MAGIC_AT = 16  # The offset (bytes) of the magic byte in a record batch, and in an older message.

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
    """Split record batches into pieces.

    A piece of compressed batches has at most `PIECE_BYTES` bytes and `ROWS` rows, unless it is a single
    larger batch. Each piece is paired with the aborted transactions that are open at its start.
    """
    transactions, open_ = AbortedTransactions(aborted), aborted
    begin = end = size = rows = 0
    for batch in batches(records, check_crc=False) if aborted else spans(records):
        length, count = (batch.end - end, batch.count) if batch.codec else (0, 0)
        if size and (size + length > PIECE_BYTES or rows + count > ROWS):
            yield records[begin:end], open_
            open_ = tuple(transactions.pairs)
            begin, size, rows = end, 0, 0
        # `batch` is a decoded `Batch` only if the response has aborted transactions.
        if isinstance(batch, Batch):
            try:
                transactions.skips(batch)
            except RecordError:
                # A transaction marker is malformed. `Builder.batches` raises the error with the offset in the
                # log.
                break
        end, size, rows = batch.end, size + length, rows + count
    yield records[begin:], open_


def _is_message_set(records: Data) -> bool:
    """Return whether the records are in a message format older than Kafka 0.11 (magic 0 or 1)."""
    return len(records) > _MAGIC_AT and records[_MAGIC_AT] < 2


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
        names = {field.name.lower(): field for field in schema.fields}
        self._decoded: list[tuple[ColumnFormat, Decode]] = []
        kinds = dict(TYPES)
        for column_format in formats:
            if (field := names.get(column_format.column)) is not None:
                self._decoded.append(
                    (column_format, module_of(column_format).decoder(column_format, field.dataType))
                )
                kinds[column_format.column] = arrow_type(column_format.option("schema"), field.dataType)
        self._schema = pa.schema(
            [pa.field(field.name, kinds[name], nullable=field.nullable) for name, field in names.items()]
        )
        self._makers = {name: self._maker(name) for name in names}

    def batches(self, records: Data, aborted: Aborted, position: int) -> Iterator[RecordBatch]:
        """Yield the records from the offset `position` to the end of the slice.

        Each batch has at most `ROWS` rows.
        """
        decoded = self._columns(records, aborted, position)
        if decoded is not None:
            yield from self._batches(decoded, position)
            return
        try:
            is_old = _is_message_set(records)
            fetch = CompletedFetch(records, position, aborted, self._check_crcs, in_parts=is_old)
        except RecordError as error:
            raise self._with_place(error, position) from None
        while not fetch.exhausted:
            try:
                decoded = fetch.columns()
            except RecordError as error:
                raise self._with_place(error, position) from None
            if decoded is not None:
                yield from self._batches(decoded, position)

    def _columns(self, records: Data, aborted: Aborted, position: int) -> Columns | None:
        """Decode all records together. Return None if there are too many records, if they are too large when
        decompressed, or if their format is old.
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
            raise self._with_place(error, position) from None

    def _batches(self, decoded: Columns, position: int) -> Iterator[RecordBatch]:
        """Yield the Arrow batches of decoded records that belong to the slice."""
        first, last = np.searchsorted(decoded.offset, [position, self._range.end]).tolist()
        for row in range(first, last, ROWS):
            yield self._batch(decoded, row, min(row + ROWS, last))

    def _batch(self, decoded: Columns, row: int, end: int) -> RecordBatch:
        """Build an Arrow batch of the rows from `row` to `end` (exclusive)."""
        formatted = self._decode(decoded, row, end) if self._decoded else {}
        arrays = [
            formatted[name] if name in formatted else make(decoded, row, end)
            for name, make in self._makers.items()
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _decode(self, records: Columns, first: int, last: int) -> dict[str, Column]:
        """Return the decoded columns (those with a format), and the column ``_error``. Raises BadValue."""
        formatted: dict[str, Column] = {}
        reasons: dict[int, str] = {}
        for column_format, decode in self._decoded:
            values = (records.key if column_format.column == "key" else records.value).slice(
                first, last - first
            )
            invalid: Mapping[int, str] = {}
            if column_format.registry is not None and records.has_headers:
                headers = records.slice(first, last).headers_array()
                name, indexed = id_header(column_format.column), column_format.format == "protobuf"
                values, invalid = ids_from_headers(values, headers, name, indexed)
            column, wrong = _decode_non_null(decode, values)
            bad = {**wrong, **invalid}
            if bad and column_format.on_error == "fail":
                partition, row = f"{self._range.topic}-{self._range.partition}", min(bad)
                raise BadValue(column_format.column, partition, int(records.offset[first + row]), bad[row])
            for row, reason in bad.items():
                reasons[row] = (
                    f"{reasons[row]}; {column_format.column}: {reason}"
                    if row in reasons
                    else f"{column_format.column}: {reason}"
                )
            formatted[column_format.column] = column
        errors = [reasons.get(row) for row in range(last - first)] if reasons else None
        formatted[ERROR] = from_texts(errors) if errors else pa.nulls(last - first, pa.string())
        return formatted

    def _with_place(self, error: RecordError, position: int) -> RecordError:
        """Return a copy of `error` whose message also contains the position in the log.

        The message of a CRC error also names the option that skips the check.
        """
        problem = error.detail or "the bytes end too early"
        place = f"fetched at offset {position} of {self._range.topic}-{self._range.partition}"
        remedy = "; kafka.check.crcs=false skips the check" if error.field == "crc" else ""
        detail = f"{problem} ({place}, to be read up to {self._range.end}{remedy})"
        return RecordError(error.message, error.version, error.field, error.offset, detail)

    def _maker(self, name: str) -> Callable[[Columns, int, int], Column]:
        """Return a function of (records, a, b) that builds the column `name` from rows `a` to `b` - 1."""
        topic, partition = self._range.topic, self._range.partition
        match name:
            case "key":
                return lambda records, a, b: records.key.slice(a, b - a)
            case "value":
                return lambda records, a, b: records.value.slice(a, b - a)
            case "topic":
                return lambda _, a, b: _constant(topic, pa.string(), b - a)
            case "partition":
                return lambda _, a, b: _constant(partition, pa.int32(), b - a)
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
                return _headers

    def _microseconds(self, records: Columns, first: int, last: int) -> Any:
        """Return the timestamps of records in microseconds.

        Raises RecordError if a timestamp does not fit into 64 bits.
        """
        times = records.timestamp[first:last]
        beyond = (times > _MOST_MS) | (times < -_MOST_MS)
        if beyond.any():
            row = int(np.argmax(beyond))
            place = f"{self._range.topic}-{self._range.partition} at offset {records.offset[first + row]}"
            raise RecordError(
                "Record",
                -1,
                "timestamp",
                first + row,
                f"{place} has the timestamp {times[row]} ms, outside Spark's range of +/-{_MOST_MS} ms; to "
                'read the record, omit the column timestamp, as with .schema("key BINARY, value BINARY")',
            )
        return times * 1000


def _decode_non_null(decode: Decode, values: Column) -> tuple[Column, Mapping[int, str]]:
    """Decode the values that are not null. Nulls stay null in the result."""
    if not values.null_count:
        return decode(values)
    rows = np.flatnonzero(validity(values))
    column, bad = decode(values.drop_null())
    places = np.full(len(values), -1)
    places[rows] = np.arange(len(rows))
    return column.take(from_numpy(places, places < 0)), {
        int(rows[row]): reason for row, reason in bad.items()
    }


# The largest timestamp in milliseconds that fits as microseconds into 64 bits: the year 294247.
_MOST_MS = (2**63 - 1) // 1000


def _constant(value: object, kind: Any, rows: int) -> Column:
    return _repeated(value, kind, min(ROWS, 1 << rows.bit_length())).slice(0, rows)


@lru_cache(64)
def _repeated(value: object, kind: Any, rows: int) -> Column:
    array = from_texts([value]) if isinstance(value, str) else from_numpy(np.array([value])).cast(kind)
    return pa.repeat(array[0], rows)


def _headers(records: Columns, first: int, last: int) -> Column:
    """Return the column of headers. A record without headers has the value null, as in Spark's own source."""
    if not records.has_headers:
        return pa.nulls(last - first, _HEADERS)
    lists = records.slice(first, last).headers_array()
    empty = np.diff(to_numpy(lists.offsets, np.int32)) == 0
    return pa.ListArray.from_arrays(lists.offsets, lists.values, type=_HEADERS, mask=from_numpy(empty))

"""Decode all records of a fetch together into columns, without an object per record.

* `columns` returns the same records as `kproto.records.rows`, in the same order and with the same errors.

* Headers are parsed when the caller reads them. Only then are malformed headers reported.

* Records that `column_decoder` cannot read are read row by row.

* `columns_of` decodes the records of many partitions. A call takes 0.2 ms, plus 0.2 µs per record, so decode
  all partitions of a fetch in one call.

* Without `lent`, the arrays own their bytes and do not refer to the fetched data. Each call decompresses
  batches into its own arena, so threads may decode at the same time.

* With `columns(lent=True)` the values are not copied: they are views into the fetched data or, after
  decompression, into the arena. `Columns.release` returns the arena to its pool.

* `lent` suits columns that are only converted to rows. With large values the conversion is 1.2 times as fast
  as without `lent`.

Needs the extra ``columns`` (numpy, pyarrow).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from itertools import repeat
from typing import Any

from ..errors import ConfigError, MissingExtra, RecordError
from ..lazy_imports import render_html

try:
    import numpy as np
    from numpy.typing import NDArray

    # Untyped, because pyarrow's type stubs contain nothing but Any.
    pa: Any = import_module("pyarrow")
except ImportError as error:
    raise MissingExtra("columns", "numpy and pyarrow", "columns") from error

from . import column_decoder
from .arena import Arena, too_many_bytes
from .arrow_arrays import from_bytes, from_numpy, from_texts, gather, views
from .batch import Data, check_data
from .batch_table import (
    ALL,
    APPENDED,
    AT,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    CODEC,
    COUNT,
    KIND,
    LAST_OFFSET,
    LEAST,
    MAX_TIMESTAMP,
    PART,
    STOP,
    TIMESTAMP_TYPES,
    FetchedPart,
    Table,
    build_table,
    wanted_batches,
)
from .column_encoder import encode_columns
from .header_decoder import HeaderColumns
from .record import Headers, Record
from .record_stream import record_lists

__all__ = ["TIMESTAMP_TYPES", "Columns", "FetchedPart", "columns", "columns_of", "encode_columns"]

# The number of rows to convert to objects at a time. Data of so few rows stays in the CPU cache.
_ROWS_PER_CHUNK = 1024
# The minimum number of records to decode with numpy. For fewer records, decoding row by row is faster.
_MIN_NUMPY_RECORDS = 150
# The minimum mean size (bytes) of the values that `_copy_chosen` copies through views.
_LARGE_MEAN_SIZE = 200
# The size in bytes of the smallest record: one byte for each of its seven fields.
_MIN_RECORD_SIZE = 7
# The estimated size in bytes of one decoded header.
_ESTIMATED_HEADER_SIZE = 100
# The largest number of bytes of decompressed records per call. Arrow's binary arrays cannot contain more than
# 2 GiB, because their offsets have 32 bits.
MOST = (1 << 31) - (1 << 20)


@dataclass(slots=True, repr=False)
class Columns:
    """Records as columns of equal length.

    `part` returns the columns of one partition, and `rows` converts the rows to `Record` objects.

    `key` and `value` are `pyarrow.BinaryArray`. `timestamp` is in ms since 1970. `timestamp_type` contains
    Kafka's number for each record's timestamp type. `TIMESTAMP_TYPES` maps the types' names to these numbers.
    """

    offset: NDArray[np.int64]
    timestamp: NDArray[np.int64]
    timestamp_type: NDArray[np.int8]
    key: Any
    value: Any
    # The number of rows of each part (the records of one partition), in the order of the parts.
    counts: list[int]
    # The undecoded headers. None if no row has headers, or if `_headers` contains the decoded headers.
    _undecoded_headers: HeaderColumns | None = field(default=None, repr=False)
    # The index in `_undecoded_headers` of the first row of these columns.
    _first_row: int = 0
    _headers: list[Headers] | None = field(default=None, repr=False)
    _arena: Arena | None = field(default=None, repr=False)  # The arena that `value` refers to.

    def __len__(self) -> int:
        return len(self.offset)

    @property
    def nbytes(self) -> int:
        """The size of the columns in bytes, without headers."""
        numbers_size = self.offset.nbytes + self.timestamp.nbytes + self.timestamp_type.nbytes
        size: int = numbers_size + self.key.nbytes + self.value.nbytes
        return size

    @property
    def has_headers(self) -> bool:
        """Whether a row may have headers. False means that no row has headers."""
        return self._undecoded_headers is not None or any(self._headers or ())

    @property
    def headers(self) -> list[Headers]:
        """The headers of every row, as in `Record`.

        The first access parses the headers, and raises `RecordError` if they are malformed.
        """
        if self._headers is None:
            self._headers = self.headers_between(0, len(self))
        return self._headers

    def headers_between(self, start: int, stop: int) -> list[Headers]:
        """Return the headers of the rows from `start` to `stop`.

        Raises `RecordError` if the headers of any row are malformed.
        """
        if self._headers is not None:
            return self._headers[start:stop]
        if self._undecoded_headers is None:
            return [()] * (stop - start)
        return self._undecoded_headers.rows(self._first_row + start, self._first_row + stop)

    def headers_array(self) -> Any:
        """Return the headers as a `pyarrow.ListArray` of structs of key (string) and value (binary).

        No list is null.
        """
        if self._undecoded_headers is not None:
            return self._undecoded_headers.array(self._first_row, self._first_row + len(self))
        offsets = np.cumsum([0, *map(len, self.headers)], dtype=np.int32)
        pairs = [pair for row in self.headers for pair in row]
        keys, values = from_texts([key for key, _ in pairs]), from_bytes([value for _, value in pairs])
        structs = pa.StructArray.from_arrays([keys, values], ["key", "value"])
        return pa.ListArray.from_arrays(from_numpy(offsets), structs)

    def part(self, index: int) -> Columns:
        """Return the columns of the part with this index, which has the records of one partition."""
        start = sum(self.counts[:index])
        return self.slice(start, start + self.counts[index])

    def slice(self, start: int, stop: int) -> Columns:
        """Return the columns of the rows from `start` to `stop`, without a copy."""
        start, stop, _ = slice(start, stop).indices(len(self))
        size = max(stop - start, 0)
        return Columns(
            self.offset[start:stop],
            self.timestamp[start:stop],
            self.timestamp_type[start:stop],
            self.key.slice(start, size),
            self.value.slice(start, size),
            [size],
            _undecoded_headers=self._undecoded_headers,
            _first_row=self._first_row + start,
            _headers=None if self._headers is None else self._headers[start:stop],
        )

    def to_arrow(self) -> Any:
        """Convert to a `pyarrow.Table`: offset, timestamp, timestamp_type, key, value, headers.

        `timestamp` is in ms since 1970, UTC, and null if the record has no timestamp (-1). The table shares
        the memory of the columns, but the headers are parsed into new arrays.

        If the columns were decoded with `lent`, the table refers to the arena: do not release the columns
        while the table is used.

        Raises `RecordError` if headers are malformed, because headers are parsed here.
        """
        return pa.table(
            {
                "offset": from_numpy(self.offset),
                "timestamp": from_numpy(self.timestamp, self.timestamp < 0).cast(
                    pa.timestamp("ms", tz="UTC")
                ),
                "timestamp_type": from_numpy(self.timestamp_type),
                "key": self.key,
                "value": self.value,
                "headers": self.headers_array(),
            }
        )

    def to_pandas(self) -> Any:
        """Convert to a `pandas.DataFrame` as `to_arrow` does. Raises `MissingExtra` if pandas is missing."""
        try:
            import_module("pandas")
        except ImportError as error:
            raise MissingExtra("to_pandas", "pandas", "spark") from error
        return self.to_arrow().to_pandas()

    def __repr__(self) -> str:
        ends = f", offsets {self.offset[0]} to {self.offset[-1]}" if len(self) else ""
        return f"<Columns: {len(self)} records{ends}>"

    def release(self) -> None:
        """Return the memory of lent columns to the pool, and set `value` to None.

        The values of columns that `part` or `slice` of this object returned become invalid.
        """
        self.value = None
        if self._arena is not None:
            self._arena.release()
            self._arena = None

    def _repr_html_(self) -> str:
        """Return the first rows as HTML, which a notebook displays."""
        return render_html("kproto.inspect.notebook:columns", self)

    def rows(self) -> list[Record]:
        """Convert the rows to `Record` objects. Raises `RecordError` for malformed headers."""
        return [record for records in self.row_lists(_ROWS_PER_CHUNK) for record in records]

    def row_lists(self, size: int = 500) -> Iterator[list[Record]]:
        """Convert the rows to lists of at most `size` `Record` objects.

        Raises `RecordError` for malformed headers.
        """
        if size < 1:
            raise ConfigError("size", size, "it must be at least 1")
        has_headers = self.has_headers
        for start in range(0, len(self), size):
            stop = min(start + size, len(self))
            yield list(
                map(
                    Record,
                    self.offset[start:stop].tolist(),
                    self.timestamp[start:stop].tolist(),
                    self.key.slice(start, stop - start).to_pylist(),
                    self.value.slice(start, stop - start).to_pylist(),
                    self.headers_between(start, stop) if has_headers else repeat(()),
                )
            )


def columns(
    data: Data,
    *,
    check_crc: bool = True,
    aborted: Sequence[tuple[int, int]] = (),
    from_offset: int | None = None,
    control: bool = False,
    max_decompressed: int | None = None,
    lent: bool = False,
    most: int = MOST,
) -> Columns:
    """Decode a `records` field into columns. Takes the arguments of `rows`, and raises its errors.

    With `lent`, if numpy decodes the records, `value` is a `pyarrow.BinaryViewArray`, which refers to `data`
    or to an arena of the pool. Call `Columns.release` as soon as such columns are no longer needed.
    """
    check_data(data)
    part = FetchedPart(data, aborted, from_offset)
    return columns_of(
        [part], check_crc=check_crc, control=control, max_decompressed=max_decompressed, lent=lent, most=most
    )


def columns_of(
    parts: Sequence[FetchedPart],
    *,
    check_crc: bool = True,
    control: bool = False,
    max_decompressed: int | None = None,
    lent: bool = False,
    most: int = MOST,
) -> Columns:
    """Decode the records in several `records` fields, one field after the other.

    `Columns.counts` has the number of records of each part. For `lent` see `columns`.

    Raises `RecordError` at the first malformed batch of any part. Raises `MissingExtra` if a codec's package
    is missing, and `IllegalState` if compressed records decompress to more than `most` bytes.
    """
    table = None
    with suppress(RecordError):
        table = build_table(parts, check_crc, control, max_decompressed)
    if table is not None and int(table[COUNT].sum()) >= _MIN_NUMPY_RECORDS:
        columns = _read_columns(parts, [part.data for part in parts], table, max_decompressed, lent, most)
        if columns is not None:
            return columns
    # Row by row: this finds the first error, and can also read message sets, which `build_table` rejects.
    return _read_rows(parts, check_crc, control, max_decompressed, most)


def _read_rows(
    parts: Sequence[FetchedPart], check_crc: bool, control: bool, max_decompressed: int | None, most: int
) -> Columns:
    """Decode row by row: faster for few records, and needed for records that numpy cannot decode."""
    records_read: list[Record] = []
    timestamp_types: list[str] = []
    counts: list[int] = []
    remaining_bytes = most
    for part in parts:
        before = len(records_read)
        for batch in wanted_batches(part, check_crc, control, max_decompressed):
            lists: Iterable[list[Record]] = (
                record_lists(batch, _ROWS_PER_CHUNK, max_decompressed)
                if batch.codec
                else (batch.records(max_decompressed),)
            )
            for records in lists:
                if batch.codec:
                    remaining_bytes -= sum(map(_estimated_size, records))
                    if remaining_bytes < 0:
                        raise too_many_bytes(most)
                if part.from_offset is not None and batch.base_offset < part.from_offset:
                    records = [record for record in records if record.offset >= part.from_offset]
                records_read += records
                timestamp_types += [batch.timestamp_type] * len(records)
        counts.append(len(records_read) - before)
    return columns_of_records(records_read, timestamp_types, counts)


def _estimated_size(record: Record) -> int:
    """Return the size of the key and the value in bytes, plus an estimate for the headers."""
    return len(record.key or b"") + len(record.value or b"") + _ESTIMATED_HEADER_SIZE * len(record.headers)


def columns_of_records(
    records: Sequence[Record], timestamp_types: Sequence[str], counts: list[int] | None = None
) -> Columns:
    """Convert records to columns. `timestamp_types` has the name of the timestamp type of each record.

    `counts` has the number of records of each part. It is None if there is only one part.
    """
    return Columns(
        np.array([record.offset for record in records], np.int64),
        np.array([record.timestamp for record in records], np.int64),
        np.array([TIMESTAMP_TYPES[name] for name in timestamp_types], np.int8),
        from_bytes([record.key for record in records]),
        from_bytes([record.value for record in records]),
        [len(records)] if counts is None else counts,
        _headers=[record.headers for record in records],
    )


def _read_columns(
    parts: Sequence[FetchedPart],
    sources: list[Data],
    table: Table,
    max_decompressed: int | None,
    lent: bool,
    most: int,
) -> Columns | None:
    """Decode all parts with numpy and Arrow. Return None if the caller must read row by row."""
    is_compressed = table[CODEC].any()
    if len(parts) == 1 and not is_compressed:
        try:
            return _decode_table(parts, np.frombuffer(sources[0], np.uint8), table, lent)
        except IndexError:
            # The last record is so close to the end of the data that a read of 8 bytes would go beyond it.
            # The records are therefore copied into an arena, which extends beyond the records.
            pass
    if len(parts) > 1 and not is_compressed and (columns := _read_in_place(parts, sources, table, lent)):
        return columns
    arena = Arena()
    try:
        arena.fill(sources, table, max_decompressed, most)
        columns = _decode_table(parts, arena.bytes, table, lent, arena if lent else None)
    except IndexError:
        # A field would extend beyond the arena. With the result None, the caller reads row by row.
        columns = None
    # If the records were not decoded, the arena does not return to the pool. Its memory is freed, because the
    # caller needs memory to read row by row.
    if columns is not None and not lent:
        arena.release()
    return columns


def _read_in_place(
    parts: Sequence[FetchedPart], sources: list[Data], table: Table, lent: bool
) -> Columns | None:
    """Decode parts that are views into one buffer, as in a fetch response. Return None for other parts."""
    buffer: object = None
    views: list[memoryview] = []
    for source in sources:
        if not isinstance(source, memoryview) or (views and source.obj is not buffer):
            return None
        buffer = source.obj
        views.append(source)
    data = np.frombuffer(memoryview(views[0].obj), np.uint8)
    addresses = np.array([_memory_address(np.frombuffer(view, np.uint8)) for view in views])
    positions = addresses - _memory_address(data)
    if (np.diff(positions) < 0).any():
        return None
    # The positions in `table` are relative to the start of the part that contains the batch. In `shifted`
    # they are relative to the start of the buffer.
    shifted = table.copy()
    shifted[AT] += positions[table[PART]]
    shifted[STOP] += positions[table[PART]]
    try:
        return _decode_table(parts, data, shifted, lent)
    except IndexError:
        return None


def _memory_address(array: NDArray[np.uint8]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _decode_table(
    parts: Sequence[FetchedPart],
    data: NDArray[np.uint8],
    table: Table,
    lent: bool,
    arena: Arena | None = None,
) -> Columns | None:
    """Decode the batches of `table`.

    The positions in `table` are relative to the start of `data`.

    Returns None if a record is irregular (see `column_decoder`), or if the size of a batch does not fit its
    number of records. Raises IndexError if reading a field of a record would go beyond the end of `data`.
    """
    is_empty = table[COUNT] == 0
    if is_empty.any():
        if (table[STOP] > table[AT])[is_empty].any():
            return None
        table = table[:, ~is_empty]
    count = table[COUNT]
    if (count > (table[STOP] - table[AT]) // _MIN_RECORD_SIZE).any():
        return None
    base_offset = table[BASE_OFFSET]
    gapless = table[LAST_OFFSET] - base_offset == count - 1
    fields = column_decoder.read(
        data,
        column_decoder.BatchArrays(
            table[AT], table[STOP], count, base_offset, table[BASE_TIMESTAMP], gapless
        ),
    )
    if fields is None:
        return None
    offset, timestamp = fields.offset, fields.timestamp
    if table[APPENDED].any():
        appended = np.repeat(table[APPENDED] != 0, count)
        np.copyto(timestamp, np.repeat(table[MAX_TIMESTAMP], count), where=appended)
    timestamp_type = np.repeat(table[KIND].astype(np.int8), count)
    counts = np.bincount(table[PART], count, len(parts)).astype(np.int64)
    chosen: NDArray[np.int64] | None = None  # The rows to return; None for all rows.
    if (table[LEAST] != ALL).any():
        chosen = np.flatnonzero(offset >= np.repeat(table[LEAST], count))
        counts = np.bincount(np.repeat(table[PART], count)[chosen], minlength=len(parts))
        offset, timestamp, timestamp_type = offset[chosen], timestamp[chosen], timestamp_type[chosen]
    undecoded_headers = None
    if fields.has_headers.any():
        undecoded_headers = HeaderColumns(_gather_chosen(data, _header_ranges(fields), None, chosen))
    return Columns(
        offset,
        timestamp,
        timestamp_type,
        _gather_chosen(data, fields.key, fields.null_key, chosen),
        (_view_chosen if lent else _copy_chosen)(data, fields.value, fields.null_value, chosen),
        counts.tolist(),
        undecoded_headers,
        _arena=arena,
    )


def _header_ranges(fields: column_decoder.FieldArrays) -> NDArray[np.int32]:
    """Return the range of each record's headers, from the end of the value to the end of the record."""
    ranges = np.empty_like(fields.value)
    ranges[::2] = fields.value[1::2]
    ranges[1::2] = fields.end
    return ranges


def _gather_chosen(data: NDArray[np.uint8], ranges: NDArray[np.int32], null: Any, chosen: Any) -> Any:
    """Copy the keys, values or headers of the chosen rows, or of all rows if `chosen` is None.

    `ranges` contains the start and the end of each row's bytes, alternately.
    """
    if chosen is None:
        return gather(data, ranges, np.arange(0, len(ranges), 2, dtype=np.int32), null)
    return gather(data, ranges, (2 * chosen).astype(np.int32), None if null is None else null[chosen])


def _copy_chosen(data: NDArray[np.uint8], ranges: NDArray[np.int32], null: Any, chosen: Any) -> Any:
    """Copy the same rows as `_gather_chosen`, but copy large values through Arrow views.

    Arrow computes the total size of the views first, so it allocates the memory only once. Large values are
    copied 1.3 times as fast as with `gather`.
    """
    if int((ranges[1::2] - ranges[::2]).sum()) < _LARGE_MEAN_SIZE * len(null):
        return _gather_chosen(data, ranges, null, chosen)
    return _view_chosen(data, ranges, null, chosen).cast(pa.binary())


def _view_chosen(data: NDArray[np.uint8], ranges: NDArray[np.int32], null: Any, chosen: Any) -> Any:
    """Return the keys, values or headers of the chosen rows as views into `data`."""
    start, stop = ranges[::2], ranges[1::2]
    if chosen is not None:
        start, stop, null = start[chosen], stop[chosen], None if null is None else null[chosen]
    return views(data, start, stop, null)

"""Records as columns: everything that one fetch returned, decoded at once, without an object per record.

Rules of this file:

* `columns` is exactly `kproto.records.rows` in another shape: same records, same order, same errors. What
  `column_decoder` cannot read is read row by row. Only headers differ: they are parsed when asked for.
* One call decodes the answers for many partitions (`columns_of`), because the first record costs 0.2 ms and
  the next ones 0.2 µs: decode all partitions of a fetch together.
* The arrays own their bytes; nothing points into the fetched data. The arena in which batches are
  decompressed is lent from a shelf and put back, so threads may decode at the same time.
* Rows need no copy of the values in between: `columns(lent=True)` has views into the arena instead, which
  `Columns.release` puts back on the shelf. Large values become rows 1.2 times as fast.

Needs the extra ``columns`` (numpy, pyarrow).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from itertools import repeat
from typing import Any

from ..errors import ConfigError, MissingExtra, RecordError

try:
    import numpy as np
    from numpy.typing import NDArray

    # Without types: pyarrow has none that say more than Any.
    pa: Any = import_module("pyarrow")
except ImportError as error:
    raise MissingExtra("columns", "numpy and pyarrow", "columns") from error

from . import column_decoder
from .arena import Arena
from .arrow_arrays import gather, views
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
from .header_decoder import HEADERS, HeaderColumns
from .record import Headers, Record

__all__ = ["TIMESTAMP_TYPES", "Columns", "FetchedPart", "columns", "columns_of", "encode_columns"]

_CHUNK = 1024  # objects that are filled while they are in the cache
_FEW = 150  # records below which the row by row way is faster
_LARGE = 200  # bytes of a value that is copied in another way
MOST = (1 << 31) - (1 << 20)  # Arrow's binary arrays have offsets of 32 bits


@dataclass(slots=True, repr=False)
class Columns:
    """Records as columns of equal length. Next: `part` for one partition's, `rows` for objects.

    `key` and `value` are `pyarrow.BinaryArray`; `timestamp` is in ms since 1970; `timestamp_type` has Kafka's
    numbers (`TIMESTAMP_TYPES`).
    """

    offset: NDArray[np.int64]
    timestamp: NDArray[np.int64]
    timestamp_type: NDArray[np.int8]
    key: Any
    value: Any
    # How many rows came from each part, in the order of the parts.
    counts: list[int]
    _tails: HeaderColumns | None = field(
        default=None, repr=False
    )  # None: no row has headers, or they are in `_headers`
    _first: int = 0  # the first row's number in `_tails`
    _headers: list[Headers] | None = field(default=None, repr=False)
    _arena: Arena | None = field(default=None, repr=False)  # that which `value` points into

    def __len__(self) -> int:
        return len(self.offset)

    @property
    def nbytes(self) -> int:
        """How much room they take, but for headers."""
        own = self.offset.nbytes + self.timestamp.nbytes + self.timestamp_type.nbytes
        size: int = own + self.key.nbytes + self.value.nbytes
        return size

    @property
    def has_headers(self) -> bool:
        """Whether any row may have headers."""
        return self._tails is not None or any(self._headers or ())

    @property
    def headers(self) -> list[Headers]:
        """The headers of every row, as in `Record`; parsed here, so this may raise `RecordError`."""
        if self._headers is None:
            self._headers = self.headers_between(0, len(self))
        return self._headers

    def headers_between(self, start: int, stop: int) -> list[Headers]:
        """The headers of some rows; raises `RecordError` if those of any row are broken."""
        if self._headers is not None:
            return self._headers[start:stop]
        if self._tails is None:
            return [()] * (stop - start)
        return self._tails.rows(self._first + start, self._first + stop)

    def headers_array(self) -> Any:
        """The headers as a `pyarrow.ListArray` of structs of key (string) and value (binary), none null."""
        if self._tails is not None:
            return self._tails.array(self._first, self._first + len(self))
        return pa.array([[{"key": k, "value": v} for k, v in row] for row in self.headers], HEADERS)

    def part(self, index: int) -> Columns:
        """The rows that came from one part."""
        start = sum(self.counts[:index])
        return self.slice(start, start + self.counts[index])

    def slice(self, start: int, stop: int) -> Columns:
        """The rows from `start` up to `stop`, without a copy."""
        start, stop, _ = slice(start, stop).indices(len(self))
        size = max(stop - start, 0)
        return Columns(
            self.offset[start:stop],
            self.timestamp[start:stop],
            self.timestamp_type[start:stop],
            self.key.slice(start, size),
            self.value.slice(start, size),
            [size],
            self._tails,
            self._first + start,
            None if self._headers is None else self._headers[start:stop],
        )

    def to_arrow(self) -> Any:
        """A `pyarrow.Table`: offset, timestamp, timestamp_type (Kafka's numbers), key, value, headers.

        `timestamp` is a time in ms since 1970, UTC, and null where the record has none (-1). No column is
        copied but that one; headers are parsed, so this may raise `RecordError`. Lent columns stay lent.
        """
        return pa.table(
            {
                "offset": pa.array(self.offset),
                "timestamp": pa.array(self.timestamp, mask=self.timestamp < 0).cast(
                    pa.timestamp("ms", tz="UTC")
                ),
                "timestamp_type": pa.array(self.timestamp_type),
                "key": self.key,
                "value": self.value,
                "headers": self.headers_array(),
            }
        )

    def to_pandas(self) -> Any:
        """`to_arrow` as a `pandas.DataFrame`. Raises `MissingExtra` without pandas."""
        try:
            import_module("pandas")
        except ImportError as error:
            raise MissingExtra("to_pandas", "pandas", "spark") from error
        return self.to_arrow().to_pandas()

    def __repr__(self) -> str:
        ends = f", offsets {self.offset[0]} to {self.offset[-1]}" if len(self) else ""
        return f"<Columns: {len(self)} records{ends}>"

    def release(self) -> None:
        """Let others have the memory of lent columns. `value` is None then, and that of slices is lost."""
        self.value = None
        if self._arena is not None:
            self._arena.release()
            self._arena = None

    def rows(self) -> list[Record]:
        """The same as objects; may raise `RecordError` for broken headers."""
        return [one for some in self.row_lists(_CHUNK) for one in some]

    def row_lists(self, size: int = 500) -> Iterator[list[Record]]:
        """The same as lists of at most `size` objects; may raise `RecordError` for broken headers."""
        if size < 1:
            raise ConfigError("size", size, "it must be at least 1")
        tailed = self.has_headers
        for start in range(0, len(self), size):
            stop = min(start + size, len(self))
            yield list(
                map(
                    Record,
                    self.offset[start:stop].tolist(),
                    self.timestamp[start:stop].tolist(),
                    self.key.slice(start, stop - start).to_pylist(),
                    self.value.slice(start, stop - start).to_pylist(),
                    self.headers_between(start, stop) if tailed else repeat(()),
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
    """The records of a records field as columns; arguments and errors are those of `rows`.

    `lent` columns may have a `pyarrow.BinaryViewArray` as `value`, which points into `data` or into memory
    that others wait for: for readers that call `Columns.release` as soon as they have used it.
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
    """The records of many records fields, one after the other; `Columns.counts` says how many each had.

    `lent` is that of `columns`.

    Raises `RecordError` at the first broken batch of any part, `MissingExtra`, and `IllegalState` for more
    than `most` bytes of compressed records, when they are decompressed.
    """
    table = None
    with suppress(RecordError):
        table = build_table(parts, check_crc, control, max_decompressed)
    if table is not None and int(table[COUNT].sum()) >= _FEW:
        found = _read_columns(parts, [part.data for part in parts], table, max_decompressed, lent, most)
        if found is not None:
            return found
    # It finds the first of all errors, and reads message sets.
    return _read_rows(parts, check_crc, control, max_decompressed)


def _read_rows(
    parts: Sequence[FetchedPart], check_crc: bool, control: bool, max_decompressed: int | None
) -> Columns:
    """Row by row: for few records, and for whatever isn't regular."""
    found: list[Record] = []
    kinds: list[int] = []
    counts: list[int] = []
    for part in parts:
        before = len(found)
        for batch in wanted_batches(part, check_crc, control, max_decompressed):
            records = batch.records(max_decompressed)
            if part.from_offset is not None and batch.base_offset < part.from_offset:
                records = [one for one in records if one.offset >= part.from_offset]
            found += records
            kinds += [TIMESTAMP_TYPES[batch.timestamp_type]] * len(records)
        counts.append(len(found) - before)
    return Columns(
        np.array([one.offset for one in found], np.int64),
        np.array([one.timestamp for one in found], np.int64),
        np.array(kinds, np.int8),
        pa.array([one.key for one in found], pa.binary()),
        pa.array([one.value for one in found], pa.binary()),
        counts,
        None,
        0,
        [one.headers for one in found],
    )


# --- the fast way -------------------------------------------------------------------------------------------


def _read_columns(
    parts: Sequence[FetchedPart],
    sources: list[Data],
    table: Table,
    max_decompressed: int | None,
    lent: bool,
    most: int,
) -> Columns | None:
    """By numpy and Arrow; None when the records aren't regular."""
    if len(parts) == 1 and not table[CODEC].any():
        try:
            return _decode(parts, np.frombuffer(sources[0], np.uint8), table, lent)
        except IndexError:
            pass  # the last record is too near to the end to be looked at in windows of 8 bytes
    if len(parts) > 1 and not table[CODEC].any() and (found := _in_place(parts, sources, table, lent)):
        return found
    arena = Arena()
    try:
        arena.fill(sources, table, max_decompressed, most)
        found = _decode(parts, arena.bytes, table, lent, arena if lent else None)
    except IndexError:
        found = None  # a length led out of the arena
    if found is not None and not lent:  # else the slow way comes next, and needs the memory
        arena.release()
    return found


def _in_place(parts: Sequence[FetchedPart], sources: list[Data], table: Table, lent: bool) -> Columns | None:
    """Several parts that are views into one buffer, as those of a fetch's answer are; None for any others."""
    whole: object = None
    views: list[memoryview] = []
    for source in sources:
        if not isinstance(source, memoryview) or (views and source.obj is not whole):
            return None
        whole = source.obj
        views.append(source)
    data = np.frombuffer(memoryview(views[0].obj), np.uint8)
    places = np.array([_address(np.frombuffer(view, np.uint8)) for view in views]) - _address(data)
    if (np.diff(places) < 0).any():
        return None
    moved = table.copy()
    moved[AT] += places[table[PART]]
    moved[STOP] += places[table[PART]]
    try:
        return _decode(parts, data, moved, lent)
    except IndexError:
        return None


def _address(array: NDArray[np.uint8]) -> int:
    place: int = array.__array_interface__["data"][0]
    return place


def _decode(
    parts: Sequence[FetchedPart],
    data: NDArray[np.uint8],
    table: Table,
    lent: bool,
    arena: Arena | None = None,
) -> Columns | None:
    empty = table[COUNT] == 0
    if empty.any():
        if (table[STOP] > table[AT])[empty].any():
            return None
        table = table[:, ~empty]
    count = table[COUNT]
    if (count > (table[STOP] - table[AT]) // 7).any():
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
    kind = np.repeat(table[KIND].astype(np.int8), count)
    counts = np.bincount(table[PART], count, len(parts)).astype(np.int64)
    chosen: NDArray[np.int64] | None = None
    if (table[LEAST] != ALL).any():
        chosen = np.flatnonzero(offset >= np.repeat(table[LEAST], count))
        counts = np.bincount(np.repeat(table[PART], count)[chosen], minlength=len(parts))
        offset, timestamp, kind = offset[chosen], timestamp[chosen], kind[chosen]
    headers = None
    if fields.has_headers.any():
        headers = HeaderColumns(_gather_chosen(data, _tails(fields), None, chosen))
    return Columns(
        offset,
        timestamp,
        kind,
        _gather_chosen(data, fields.key, fields.null_key, chosen),
        (_view_chosen if lent else _copy_chosen)(data, fields.value, fields.null_value, chosen),
        counts.tolist(),
        headers,
        _arena=arena,
    )


def _tails(fields: column_decoder.FieldArrays) -> NDArray[np.int32]:
    """The places of the headers: from the end of the value to that of the record."""
    places = np.empty_like(fields.value)
    places[::2] = fields.value[1::2]
    places[1::2] = fields.end
    return places


def _gather_chosen(data: NDArray[np.uint8], places: NDArray[np.int32], null: Any, chosen: Any) -> Any:
    """The keys, values or tails of the chosen rows; None chooses all."""
    if chosen is None:
        return gather(data, places, np.arange(0, len(places), 2, dtype=np.int32), null)
    return gather(data, places, (2 * chosen).astype(np.int32), None if null is None else null[chosen])


def _copy_chosen(data: NDArray[np.uint8], places: NDArray[np.int32], null: Any, chosen: Any) -> Any:
    """Copy as `_gather_chosen` does, but large values by way of views."""
    if int((places[1::2] - places[::2]).sum()) < _LARGE * len(null):
        return _gather_chosen(data, places, null, chosen)
    return _view_chosen(data, places, null, chosen).cast(pa.binary())


def _view_chosen(data: NDArray[np.uint8], places: NDArray[np.int32], null: Any, chosen: Any) -> Any:
    """The same without a copy: views into `data`."""
    start, stop = places[::2], places[1::2]
    if chosen is not None:
        start, stop, null = start[chosen], stop[chosen], None if null is None else null[chosen]
    return views(data, start, stop, null)

"""Records as columns: everything that one fetch returned, decoded at once, without an object per record.

Rules of this file:

* `columns` is exactly `kproto.records.rows` in another shape: same records, same order, same errors. What the
  fast way (`vectors`) doesn't know is read row by row. Only headers differ: they are parsed when asked for.
* One call decodes the answers for many partitions (`columns_of`), because the first record costs 0.2 ms and
  the next ones 0.2 µs: decode all partitions of a fetch together.
* The arrays own their bytes; nothing points into the fetched data. The arena in which batches are
  decompressed is lent from a shelf and put back, so threads may decode at the same time.
* Rows need no copy of the values in between: `columns(lent=True)` has views into the arena instead, which
  `Columns.give_back` puts back on the shelf. Large values become rows 1.2 times as fast.

Needs the extra ``columns`` (numpy, pyarrow).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from itertools import repeat
from typing import Any

from ..errors import ConfigError, IllegalState, MissingExtra, RecordError

try:
    import numpy as np
    from numpy.typing import NDArray

    # Without types: pyarrow has none that say more than Any.
    pa: Any = import_module("pyarrow")
except ImportError as error:
    raise MissingExtra("columns", "numpy and pyarrow", "columns") from error

from . import vectors
from .batch import HEADER_SIZE, Batch, Data, check_data
from .compression import CODECS, CodecError, decompress_into, size_hint
from .contents import gather, views
from .crc32c import crc32c
from .packing import encode_columns
from .reading import AbortedTransactions, batches
from .record import Headers, Record, begins_records
from .tails import KIND, Tails
from .windows import SLACK

__all__ = ["TIMESTAMP_TYPES", "Columns", "Part", "columns", "columns_of", "encode_columns"]

TIMESTAMP_TYPES = {"NoTimestampType": -1, "CreateTime": 0, "LogAppendTime": 1}
"""Kafka's numbers for what a timestamp is."""

_ALL = -(1 << 63)
_MANY_BATCHES = 64 << 10  # bytes from which headers are read by numpy
_CHUNK = 1024  # objects that are filled while they are in the cache
_FEW = 150  # records below which the row by row way is faster
_LARGE = 200  # bytes of a value that is copied in another way
_KEPT = 64 << 20  # bytes of the largest arena that is kept
_SHELF_SIZE = 2  # arenas that are kept
MOST = (1 << 31) - (1 << 20)  # Arrow's binary arrays have offsets of 32 bits


@dataclass(slots=True)
class Part:
    """What a fetch returned for one partition, and what of it is wanted; arguments as those of `rows`."""

    data: Data
    aborted: Sequence[tuple[int, int]] = ()
    from_offset: int | None = None


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
    counts: list[int]
    """How many rows came from each part, in the order of the parts."""
    _tails: Tails | None = field(
        default=None, repr=False
    )  # None: no row has headers, or they are in `_headers`
    _first: int = 0  # the first row's number in `_tails`
    _headers: list[Headers] | None = field(default=None, repr=False)
    _arena: _Arena | None = field(default=None, repr=False)  # that which `value` points into

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
        return pa.array([[{"key": k, "value": v} for k, v in row] for row in self.headers], KIND)

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

    def give_back(self) -> None:
        """Let others have the memory of lent columns. `value` is None then, and that of slices is lost."""
        self.value = None
        if self._arena is not None:
            self._arena.put_back()
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
    that others wait for: for readers that call `Columns.give_back` as soon as they have used it.
    """
    check_data(data)
    part = Part(data, aborted, from_offset)
    return columns_of(
        [part], check_crc=check_crc, control=control, max_decompressed=max_decompressed, lent=lent, most=most
    )


def columns_of(
    parts: Sequence[Part],
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
        table = _table(parts, check_crc, control, max_decompressed)
    if table is not None and int(table[_COUNT].sum()) >= _FEW:
        found = _fast(parts, [part.data for part in parts], table, max_decompressed, lent, most)
        if found is not None:
            return found
    # It finds the first of all errors, and reads message sets.
    return _slow(parts, check_crc, control, max_decompressed)


def _wanted(part: Part, check_crc: bool, control: bool, max_decompressed: int | None) -> Iterator[Batch]:
    """The batches of a part that have rows to give."""
    transactions = AbortedTransactions(part.aborted)
    for batch in batches(part.data, check_crc=check_crc, max_decompressed=max_decompressed):
        if not (
            transactions.skips(batch)
            or (batch.is_control and not control)
            or (part.from_offset is not None and batch.last_offset < part.from_offset)
        ):
            yield batch


def _slow(parts: Sequence[Part], check_crc: bool, control: bool, max_decompressed: int | None) -> Columns:
    """Row by row: for few records, and for whatever isn't regular."""
    found: list[Record] = []
    kinds: list[int] = []
    counts: list[int] = []
    for part in parts:
        before = len(found)
        for batch in _wanted(part, check_crc, control, max_decompressed):
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


# --- the headers of batches ---------------------------------------------------------------------------------

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

# The rows of a table that has a column for each batch.
(
    _AT,  # where the records start in the source, and then in the arena
    _STOP,
    _COUNT,
    _BASE_OFFSET,
    _LAST_OFFSET,
    _BASE_TIMESTAMP,
    _MAX_TIMESTAMP,
    _CODEC,
    _KIND,
    _APPENDED,  # 1: the batch's max timestamp is that of all records
    _PART,
    _LEAST,  # the lowest offset that is wanted
    _WIDTH,
) = range(13)

Table = NDArray[np.int64]


def _table(
    parts: Sequence[Part], check_crc: bool, control: bool, max_decompressed: int | None
) -> Table | None:
    """The wanted batches of all parts; None when one is a message set."""
    plain = [index for index, part in enumerate(parts) if not part.aborted]
    found = None
    if sum(len(parts[index].data) for index in plain) > _MANY_BATCHES:
        found = _headers(parts, plain, check_crc, control)
    listed = [_NO_BATCHES if found is None else found]
    for index, part in enumerate(parts):
        if found is None or part.aborted:
            if (one := _list(part, index, check_crc, control, max_decompressed)) is None:
                return None
            listed.append(one)
    table = listed[0]
    if len(listed) > 1:
        table = np.concatenate(listed, 1)
        table = table[:, np.argsort(table[_PART], kind="stable")]
    if any(part.from_offset is not None for part in parts):
        each = [_ALL if part.from_offset is None else part.from_offset for part in parts]
        least = np.array(each, np.int64)[table[_PART]]
        table[_LEAST] = np.where(table[_BASE_OFFSET] < least, least, _ALL)
        if (behind := table[_LAST_OFFSET] < least).any():
            table = table[:, ~behind]
    return table


def _list(
    part: Part, index: int, check_crc: bool, control: bool, max_decompressed: int | None
) -> Table | None:
    """The wanted batches of a part, one by one; None when one is a message set."""
    if bytes(part.data[16:17]) in (b"\0", b"\1"):
        return None  # before its wrapper is opened
    listed: list[tuple[int, ...]] = []
    for batch in _wanted(part, check_crc, control, max_decompressed):
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
                _ALL,
            )
        )
    return np.array(listed, np.int64).reshape(-1, _WIDTH).T


def _headers(parts: Sequence[Part], chosen: list[int], check_crc: bool, control: bool) -> Table | None:
    """The table of many batches of magic 2, by numpy; None when one of them is anything else, or broken."""
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
    table = np.empty((_WIDTH, len(places)), np.int64)
    table[_AT] = at_all + HEADER_SIZE
    table[_STOP] = at_all + 12 + head["size"]
    table[_COUNT] = head["count"]
    table[_BASE_OFFSET] = head["base_offset"]
    table[_LAST_OFFSET] = table[_BASE_OFFSET] + head["last_offset_delta"]
    table[_BASE_TIMESTAMP] = head["base_timestamp"]
    table[_MAX_TIMESTAMP] = head["max_timestamp"]
    table[_CODEC] = attributes & 7
    table[_KIND] = table[_APPENDED] = attributes >> 3 & 1
    table[_PART] = owners
    table[_LEAST] = _ALL
    regular = (
        (head["magic"] == 2)
        & (head["last_offset_delta"] >= 0)
        & (table[_LAST_OFFSET] >= table[_BASE_OFFSET])
        & (head["count"] >= 0)
        & (table[_CODEC] < len(CODECS))
    )
    if not regular.all() or (check_crc and (head["crc"] != np.array(crcs, np.uint32)).any()):
        return None
    is_control = attributes & 0x20 != 0
    return table[:, ~is_control] if is_control.any() and not control else table


# --- the fast way -------------------------------------------------------------------------------------------


def _fast(
    parts: Sequence[Part],
    sources: list[Data],
    table: Table,
    max_decompressed: int | None,
    lent: bool,
    most: int,
) -> Columns | None:
    """By numpy and Arrow; None when the records aren't regular."""
    if len(parts) == 1 and not table[_CODEC].any():
        try:
            return _decode(parts, np.frombuffer(sources[0], np.uint8), table, lent)
        except IndexError:
            pass  # the last record is too near to the end to be looked at in windows of 8 bytes
    if len(parts) > 1 and not table[_CODEC].any() and (found := _in_place(parts, sources, table, lent)):
        return found
    arena = _Arena()
    try:
        arena.fill(sources, table, max_decompressed, most)
        found = _decode(parts, arena.bytes, table, lent, arena if lent else None)
    except IndexError:
        found = None  # a length led out of the arena
    if found is not None and not lent:  # else the slow way comes next, and needs the memory
        arena.put_back()
    return found


def _in_place(parts: Sequence[Part], sources: list[Data], table: Table, lent: bool) -> Columns | None:
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
    moved[_AT] += places[table[_PART]]
    moved[_STOP] += places[table[_PART]]
    try:
        return _decode(parts, data, moved, lent)
    except IndexError:
        return None


def _address(array: NDArray[np.uint8]) -> int:
    place: int = array.__array_interface__["data"][0]
    return place


def _decode(
    parts: Sequence[Part], data: NDArray[np.uint8], table: Table, lent: bool, arena: _Arena | None = None
) -> Columns | None:
    empty = table[_COUNT] == 0
    if empty.any():
        if (table[_STOP] > table[_AT])[empty].any():
            return None
        table = table[:, ~empty]
    count = table[_COUNT]
    if (count > (table[_STOP] - table[_AT]) // 7).any():
        return None
    base_offset = table[_BASE_OFFSET]
    gapless = table[_LAST_OFFSET] - base_offset == count - 1
    fields = vectors.read(
        data, vectors.Batches(table[_AT], table[_STOP], count, base_offset, table[_BASE_TIMESTAMP], gapless)
    )
    if fields is None:
        return None
    offset, timestamp = fields.offset, fields.timestamp
    if table[_APPENDED].any():
        appended = np.repeat(table[_APPENDED] != 0, count)
        np.copyto(timestamp, np.repeat(table[_MAX_TIMESTAMP], count), where=appended)
    kind = np.repeat(table[_KIND].astype(np.int8), count)
    counts = np.bincount(table[_PART], count, len(parts)).astype(np.int64)
    chosen: NDArray[np.int64] | None = None
    if (table[_LEAST] != _ALL).any():
        chosen = np.flatnonzero(offset >= np.repeat(table[_LEAST], count))
        counts = np.bincount(np.repeat(table[_PART], count)[chosen], minlength=len(parts))
        offset, timestamp, kind = offset[chosen], timestamp[chosen], kind[chosen]
    return Columns(
        offset,
        timestamp,
        kind,
        _taken(data, fields.key, fields.null_key, chosen),
        (_viewed if lent else _copied)(data, fields.value, fields.null_value, chosen),
        counts.tolist(),
        Tails(_taken(data, _tails(fields), None, chosen)) if fields.has_headers.any() else None,
        _arena=arena,
    )


def _tails(fields: vectors.Fields) -> NDArray[np.int32]:
    """The places of the headers: from the end of the value to that of the record."""
    places = np.empty_like(fields.value)
    places[::2] = fields.value[1::2]
    places[1::2] = fields.end
    return places


def _taken(data: NDArray[np.uint8], places: NDArray[np.int32], null: Any, chosen: Any) -> Any:
    """The keys, values or tails of the chosen rows; None chooses all."""
    if chosen is None:
        return gather(data, places, np.arange(0, len(places), 2, dtype=np.int32), null)
    return gather(data, places, (2 * chosen).astype(np.int32), None if null is None else null[chosen])


def _copied(data: NDArray[np.uint8], places: NDArray[np.int32], null: Any, chosen: Any) -> Any:
    """As `_taken`. Large ones come from views: Arrow adds up their sizes first, and is 1.3 times as fast."""
    if int((places[1::2] - places[::2]).sum()) < _LARGE * len(null):
        return _taken(data, places, null, chosen)
    return _viewed(data, places, null, chosen).cast(pa.binary())


def _viewed(data: NDArray[np.uint8], places: NDArray[np.int32], null: Any, chosen: Any) -> Any:
    """The same without a copy: views into `data`."""
    start, stop = places[::2], places[1::2]
    if chosen is not None:
        start, stop, null = start[chosen], stop[chosen], None if null is None else null[chosen]
    return views(data, start, stop, null)


class _Arena:
    """One stretch of bytes with all batches in it. It is kept, as new memory costs more than decoding."""

    __slots__ = ("_view", "bytes", "used")

    def __init__(self) -> None:
        try:
            self.bytes = _shelf.pop()
        except IndexError:
            self.bytes = np.empty(1 << 20, np.uint8)
        self.used = 0
        self._view = _view(self.bytes)

    def _reserve(self, more: int) -> None:
        """Make room for `more` bytes behind those in use."""
        size = self.used + more + SLACK
        if size <= len(self.bytes):
            return
        larger = np.empty(max(size, 2 * self.used), np.uint8)
        larger[: self.used] = self.bytes[: self.used]
        self.bytes = larger
        self._view = _view(larger)

    def put_back(self) -> None:
        if len(self.bytes) <= _KEPT and len(_shelf) < _SHELF_SIZE:
            _shelf.append(self.bytes)

    def fill(self, sources: list[Data], table: Table, max_decompressed: int | None, most: int) -> None:
        """Put the records of all batches into the arena, and their places into the table."""
        self._reserve(int(((table[_STOP] - table[_AT]) << (table[_CODEC] != 0) * 2).sum()))
        opened = [memoryview(source) for source in sources]
        told: list[tuple[int, int, int, int]] = table[[_PART, _AT, _STOP, _CODEC]].T.tolist()
        at: list[int] = []
        stop: list[int] = []
        for part, start, end, codec in told:
            at.append(self.used)
            try:
                self._add(codec, opened[part][start:end], max_decompressed)
            except CodecError as error:
                detail = f"{CODECS[codec]}: {error}"
                raise RecordError("RecordBatch", 2, "records", start, detail) from None
            stop.append(self.used)
            if self.used > most:
                raise IllegalState(f"{self.used} bytes of records are too many for one call: hand it fewer")
        table[_AT] = at
        table[_STOP] = stop

    def _add(self, codec: int, body: memoryview, max_decompressed: int | None) -> None:
        start, size = self.used, len(body)
        if codec == 0 or size == 0:
            self._reserve(size)
            self._view[start : start + size] = body
            self.used += size
            return
        if len(self.bytes) - start < 8 * size:
            self._reserve(size_hint(codec, body))
        while True:
            out = self._view[start:-SLACK]
            written = decompress_into(codec, body, out, max_decompressed, begins_records)
            if written is not None:
                self.used += written
                return
            self._reserve(max(4 * len(out), 64 << 10))


def _view(array: Any) -> memoryview:  # an array is a buffer, though numpy doesn't say so
    return memoryview(array)


_shelf: list[NDArray[np.uint8]] = []
_NO_BATCHES = np.empty((_WIDTH, 0), np.int64)

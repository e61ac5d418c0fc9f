"""Record batches from the wire as the Arrow batches that Spark takes.

Spark compares the schema of the first batch *exactly* with its own: dictionary and large types are refused,
and so are timestamps other than microseconds in UTC. Constant columns (topic, partition) are built once,
for twice the rows at most, and sliced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import pyarrow  # pyright: ignore[reportMissingTypeStubs]
from pyspark.sql.types import StructType

from kproto.errors import RecordError
from kproto.records import AbortedTransactions, Batch, batches, spans
from kproto.records.batch import Data
from kproto.records.columns import Columns, columns

from .offsets import Range
from .values import ERROR, BadValue, ColumnFormat, Decode, module_of
from .values.arrow_types import arrow as to_arrow

# pyarrow has no types.
pa: Any = pyarrow
RecordBatch: TypeAlias = Any
Column: TypeAlias = Any

# The aborted transactions of a fetch answer: (producer id, first offset).
Aborted: TypeAlias = tuple[tuple[int, int], ...]

# Between 2 000 and 65 000 rows the JVM takes them equally fast, and small batches cost Python more: with
# mapInArrow 0.69 CPU-s for a million rows of 100 bytes in batches of 2 000, 0.58 of 20 000, 0.55 of these
# (medians of five turns on a full machine). Of that `read` takes 0.20, by a profile a quarter for fetching,
# an eighth for checksums, a half for finding records and fields, and the rest for copies of keys and values.
ROWS = 50_000

_HEADERS = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))

# By the names of `schema.COLUMNS`, in lower case.
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


def cut(records: Data, end: int) -> tuple[Data, int | None]:
    """The batches that begin before `end`, and the offset behind the last of them (None if there is none).

    A gap at a batch's end counts as read: no record will ever be there.
    """
    reached: int | None = None
    size = 0
    for batch in spans(records):
        if batch.base_offset >= end:
            # Also where nothing begins before `end`: then what was asked for is a gap.
            return records[:size], end if reached is None else reached
        reached, size = batch.last_offset + 1, batch.end
    return records, reached


# What is compressed is opened in pieces of so many bytes, and of `ROWS`: the lines of a log may take a
# hundred times the room. Of 600,000 lines of 600 bytes a worker took 866 MB when it opened a whole fetch of
# them, and takes 245, in 0.4 of the CPU. A fetch of them with an aborted transaction took 839 MB, and 193.
PIECE_BYTES = 1024 * 1024


def pieces(records: Data, aborted: Aborted = ()) -> Iterator[tuple[Data, Aborted]]:
    """The same batches, in pieces: of compressed ones `PIECE_BYTES` and `ROWS` at most, or a single one. Each
    with those of the `aborted` transactions of the answer that didn't end before it.
    """
    transactions, open_ = AbortedTransactions(aborted), aborted
    begin = end = size = rows = 0
    for batch in batches(records, check_crc=False) if aborted else spans(records):
        length, count = (batch.end - end, batch.count) if batch.codec else (0, 0)
        if size and (size + length > PIECE_BYTES or rows + count > ROWS):
            yield records[begin:end], open_
            open_ = tuple(transactions.pairs)
            begin, size, rows = end, 0, 0
        if isinstance(batch, Batch):  # else nothing was aborted
            try:
                transactions.skips(batch)
            except RecordError:
                break  # a marker that can't be read: who reads this piece says where that is
        end, size, rows = batch.end, size + length, rows + count
    yield records[begin:], open_


class Builder:
    """Makes the batches of one slice, with the columns of a schema and no others."""

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
        for format_ in formats:
            if (field := names.get(format_.column)) is not None:
                self._decoded.append((format_, module_of(format_).decoder(format_, field.dataType)))
                kinds[format_.column] = to_arrow(format_.option("schema"), field.dataType)
        self._schema = pa.schema(
            [pa.field(field.name, kinds[name], nullable=field.nullable) for name, field in names.items()]
        )
        self._makers = {name: self._maker(name) for name in names}

    def batches(self, records: Data, aborted: Aborted, position: int) -> Iterator[RecordBatch]:
        """The records of a fetch answer from `position` to the slice's end, in batches of at most `ROWS`."""
        try:
            found = columns(records, check_crc=self._check_crcs, aborted=aborted, from_offset=position)
        except RecordError as e:
            raise self._placed(e, position) from None
        first, last = np.searchsorted(found.offset, [position, self._range.end]).tolist()
        for at in range(first, last, ROWS):
            until = min(at + ROWS, last)
            shown = self._decode(found, at, until) if self._decoded else {}
            arrays = [
                shown[name] if name in shown else make(found, at, until)
                for name, make in self._makers.items()
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _decode(self, found: Columns, a: int, b: int) -> dict[str, Column]:
        """The columns that have a format, and what is wrong with them. Raises BadValue."""
        shown: dict[str, Column] = {}
        told: dict[int, str] = {}
        for format_, decode in self._decoded:
            given = (found.key if format_.column == "key" else found.value).slice(a, b - a)
            column, bad = _without_nulls(decode, given)
            if bad and format_.on_error == "fail":
                place, row = f"{self._range.topic}-{self._range.partition}", min(bad)
                raise BadValue(format_.column, place, int(found.offset[a + row]), bad[row])
            for row, why in bad.items():
                told[row] = (
                    f"{told[row]}; {format_.column}: {why}" if row in told else f"{format_.column}: {why}"
                )
            shown[format_.column] = column
        words = [told.get(row) for row in range(b - a)] if told else None
        shown[ERROR] = pa.array(words, pa.string()) if words else pa.nulls(b - a, pa.string())
        return shown

    def _placed(self, error: RecordError, position: int) -> RecordError:
        """The same error, with where in the log it is, and what can be done."""
        what = error.detail or "the bytes end too early"
        where = f"fetched at offset {position} of {self._range.topic}-{self._range.partition}"
        way_out = "; kafka.check.crcs=false reads on" if error.field == "crc" else ""
        detail = f"{what} ({where}, to be read up to {self._range.end}{way_out})"
        return RecordError(error.message, error.version, error.field, error.offset, detail)

    def _maker(self, name: str) -> Callable[[Columns, int, int], Column]:
        topic, partition = self._range.topic, self._range.partition
        match name:
            case "key":
                return lambda found, a, b: found.key.slice(a, b - a)
            case "value":
                return lambda found, a, b: found.value.slice(a, b - a)
            case "topic":
                return lambda _, a, b: _constant(topic, pa.string(), b - a)
            case "partition":
                return lambda _, a, b: _constant(partition, pa.int32(), b - a)
            case "offset":
                return lambda found, a, b: pa.array(found.offset[a:b])
            case "timestamp":
                return lambda found, a, b: pa.array(self._microseconds(found, a, b)).view(TYPES["timestamp"])
            case "_error":
                return lambda _, a, b: pa.nulls(b - a, pa.string())
            case "timestamptype":
                return lambda found, a, b: pa.array(found.timestamp_type[a:b].astype(np.int32))
            case _:
                return _headers

    def _microseconds(self, found: Columns, a: int, b: int) -> Any:
        times = found.timestamp[a:b]
        beyond = (times > _MOST_MS) | (times < -_MOST_MS)
        if beyond.any():
            at = int(np.argmax(beyond))
            where = f"{self._range.topic}-{self._range.partition} at offset {found.offset[a + at]}"
            raise RecordError(
                "Record",
                -1,
                "timestamp",
                a + at,
                f"{where} has the timestamp {times[at]} ms, and Spark's timestamps end at {_MOST_MS}: leave "
                'the column out to read on, as with .schema("key BINARY, value BINARY")',
            )
        return times * 1000


def _without_nulls(decode: Decode, given: Column) -> tuple[Column, Mapping[int, str]]:
    """Null stays null."""
    if not given.null_count:
        return decode(given)
    there = np.flatnonzero(given.is_valid().to_numpy(zero_copy_only=False))
    column, bad = decode(given.drop_null())
    places = np.full(len(given), -1)
    places[there] = np.arange(len(there))
    return column.take(pa.array(places, mask=places < 0)), {int(there[row]): why for row, why in bad.items()}


# Microseconds in 64 bits: the year 294247.
_MOST_MS = (2**63 - 1) // 1000


def _constant(value: object, kind: Any, rows: int) -> Column:
    return _repeated(value, kind, min(ROWS, 1 << rows.bit_length())).slice(0, rows)


@lru_cache(64)
def _repeated(value: object, kind: Any, rows: int) -> Column:
    return pa.repeat(pa.scalar(value, kind), rows)


def _headers(found: Columns, a: int, b: int) -> Column:
    """As in Spark's own source: a record without headers has null, not an empty list."""
    if not found.has_headers:
        return pa.nulls(b - a, _HEADERS)
    lists = found.slice(a, b).headers_array()
    none = np.diff(lists.offsets.to_numpy()) == 0
    return pa.ListArray.from_arrays(lists.offsets, lists.values, type=_HEADERS, mask=pa.array(none))

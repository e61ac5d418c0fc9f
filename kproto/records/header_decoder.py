"""Decode the headers of many records together.

* The headers section follows the record's value. It contains the number of headers, then the key and value of
  each header.

* The sections of all rows are decoded together when headers are first read. Slices of columns share the
  result.

* Each step reads one header of every record with numpy: all first headers, then all second ones, and so on.

* Each distinct key is decoded once, because a topic has few different keys.

* Irregular headers, and records with more than `_MOST_STEPS` headers, are read record by record. This also
  finds the position of an error.

Needs the extra ``columns`` (numpy, pyarrow).
"""

from __future__ import annotations

from importlib import import_module
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import RecordError
from .arrow_arrays import from_bytes, from_numpy, from_texts, gather, to_numpy
from .record import Headers, MalformedRecord, decode_header_key, parse_headers
from .windows import SLACK, Bools, Int64s, Windows, tables

pa: Any = import_module("pyarrow")

# The Arrow type of headers.
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

# The number of rows per slice: small enough for its arrays to stay in the second-level cache.
_SLICE = 16384
# Records with more headers than this are decoded one by one, without numpy.
_MOST_STEPS = 64


class HeaderColumns:
    """The headers of many records.

    `rows` and `array` decode the headers, and raise `RecordError` for malformed headers.
    """

    __slots__ = ("_first", "_name", "_names", "_raw", "_same", "_value")

    # The undecoded headers sections as a BinaryArray; None after they are decoded.
    _raw: Any
    # The index of each row's first header, followed by the total number of headers.
    _first: Int64s
    # The number of headers per row, or None if it differs between rows.
    _same: int | None
    # The different keys.
    _names: list[str]
    # The index of each header's key in `_names`.
    _name: NDArray[np.int32]
    # The values of all headers, a BinaryArray.
    _value: Any

    def __init__(self, raw: Any) -> None:
        self._raw = raw

    def rows(self, start: int, stop: int) -> list[Headers]:
        """Return the headers of the rows from `start` to `stop`, as in `Record`."""
        self._parse()
        low, high = int(self._first[start]), int(self._first[stop])
        names = map(self._names.__getitem__, self._name[low:high].tolist())
        pairs = zip(names, self._value.slice(low, high - low).to_pylist(), strict=True)
        if self._same:
            return list(zip(*[pairs] * self._same, strict=True))
        counts: list[int] = np.diff(self._first[start : stop + 1]).tolist()
        return [tuple(islice(pairs, count)) if count else () for count in counts]

    def array(self, start: int, stop: int) -> Any:
        """Return the headers of these rows as a `pyarrow.ListArray` of `HEADERS`, without null lists."""
        self._parse()
        low, high = int(self._first[start]), int(self._first[stop])
        keys = from_texts(self._names).take(from_numpy(self._name[low:high]))
        pairs = pa.StructArray.from_arrays([keys, self._value.slice(low, high - low)], ["key", "value"])
        return pa.ListArray.from_arrays(
            from_numpy((self._first[start : stop + 1] - low).astype(np.int32)), pairs
        )

    def _parse(self) -> None:
        if self._raw is None:
            return
        if not self._parse_fast():
            self._parse_slowly()
        counts = np.diff(self._first)
        self._same = int(counts[0]) if len(counts) and (counts == counts[0]).all() else None
        self._raw = None

    def _parse_fast(self) -> bool:
        """Decode all headers with numpy. Return False if a row's headers are irregular."""
        places = np.frombuffer(self._raw.buffers()[1], np.int32)
        places = places[self._raw.offset : self._raw.offset + len(self._raw) + 1]
        data = np.zeros(int(places[-1]) + SLACK, np.uint8)
        data[: places[-1]] = np.frombuffer(self._raw.buffers()[2], np.uint8)[: places[-1]]
        try:
            read = _read(Windows(data), places[:-1].astype(np.int64), places[1:].astype(np.int64))
        except IndexError:
            return False  # A field's length reaches beyond the data. `_parse_slowly` then raises the error.
        if read is None:
            return False
        self._first, spots, null = read
        every = np.arange(0, len(spots), 4, dtype=np.int32)
        keys = gather(data, spots, every).dictionary_encode()
        self._names = [decode_header_key(key) for key in keys.dictionary.to_pylist()]
        self._name = to_numpy(keys.indices, np.int32)
        self._value = gather(data, spots, every + 2, null)
        return True

    def _parse_slowly(self) -> None:
        known: dict[bytes, str] = {}
        numbers: dict[str, int] = {}
        names: list[int] = []
        values: list[bytes | None] = []
        first = [0]
        for row, data in enumerate(self._raw.to_pylist()):
            try:
                headers, end = parse_headers(data, 0, len(data), known)
                if end != len(data):
                    raise MalformedRecord(
                        "headers", end, f"the headers end at {end}, but the record ends at {len(data)}"
                    )
            except MalformedRecord as error:
                raise _broken(error.field, error.at, error.detail, row) from None
            except IndexError:
                raise _broken("headers", len(data), "", row) from None
            for name, value in headers:
                names.append(numbers.setdefault(name, len(numbers)))
                values.append(value)
            first.append(len(names))
        self._first = np.array(first, np.int64)
        self._names, self._name = list(numbers), np.array(names, np.int32)
        self._value = from_bytes(values)


def _broken(field: str, at: int, detail: str, row: int) -> RecordError:
    """Return the error for a row whose headers are malformed.

    The error's offset is relative to the start of the row's headers section.
    """
    detail = f"{detail or 'the bytes end too early'} (in row {row}, counted from the end of its value)"
    return RecordError("RecordBatch", 2, f"records.{field}", at, detail)


def _read(windows: Windows, at: Int64s, end: Int64s) -> tuple[Int64s, NDArray[np.int32], Bools] | None:
    """Return the index of each row's first header, the headers' positions, and a null mask.

    A header has four positions: the start and end of its key, and the start and end of its value. The mask is
    true for each header whose value is null.

    Returns None if a row's headers are irregular.
    """
    table, _ = tables()
    entry = table[windows.twos(at)]
    width, count = entry & 3, entry >> 2
    at = at + width
    if (width > 2).any() or (count < 0).any() or (2 * count > end - at).any():
        return None
    first = np.zeros(len(at) + 1, np.int64)
    np.cumsum(count, out=first[1:])
    if int(count.max(initial=0)) > _MOST_STEPS:
        return None
    places = np.empty((int(first[-1]), 4), np.int32)
    null = np.zeros(len(places), np.bool_)
    for low in range(0, len(at), _SLICE):
        rows = slice(low, low + _SLICE)
        if not _slice(windows, at[rows], end[rows], count[rows], first[rows], places, null):
            return None
    return first, places.ravel(), null


def _slice(
    windows: Windows,
    at: Int64s,
    end: Int64s,
    count: NDArray[np.int32],
    first: Int64s,
    places: NDArray[np.int32],
    null: Bools,
) -> bool:
    """Read the headers of a slice of rows into `places` and `null`.

    `at` contains the start of each row's headers.

    Returns False if a row's headers are irregular.
    """
    table, _ = tables()
    most = int(count.max())
    alike = int(count.min()) == most
    for step in range(most):
        active: Any = slice(None) if alike else np.flatnonzero(count > step)
        position, stop = at[active], end[active]
        into: Any = slice(first[0] + step, first[0] + most * len(at), most) if alike else first[active] + step
        entry = table[windows.twos(position)]
        width, size = entry & 3, entry >> 2
        key = position + width
        key_end = key + size
        if int(width.max()) > 2 or int(size.min()) < 0 or (key_end >= stop).any():
            return False
        entry = table[windows.twos(key_end)]
        width, size = entry & 3, entry >> 2
        value = key_end + width
        is_null = size < 0
        value_end = value + size + is_null
        if int(width.max()) > 2 or int(size.min()) < -1 or (value_end > stop).any():
            return False
        for column, place in enumerate((key, key_end, value, value_end)):
            places[into, column] = place
        null[into] = is_null
        at[active] = value_end
    return bool((at == end).all())

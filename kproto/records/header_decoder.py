"""Decode the headers of many records together.

* The headers section follows the record's value. It contains the number of headers, then the key and value of
  each header.

* The headers sections of all rows are decoded together when the headers of any row are first read. Slices of
  columns share the result.

* Each step reads one header of every record with numpy: all first headers, then all second ones, and so on.

* Each distinct key is decoded once, because a topic has few different keys.

* If a record has more than `_MAX_STEPS` headers, a malformed header, or a header with a length of more than
  two bytes, all headers are read record by record. This also finds the position of an error.

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
_SLICE_ROWS = 16384
# Records with more headers than this are decoded one by one, without numpy.
_MAX_STEPS = 64


class HeaderColumns:
    """The headers of many records.

    `rows` and `array` decode the headers, and raise `RecordError` for malformed headers.
    """

    __slots__ = ("_count_per_row", "_first_headers", "_key_indexes", "_keys", "_sections", "_values")

    # The undecoded headers sections as a BinaryArray; None after they are decoded.
    _sections: Any
    # The index of each row's first header, followed by the total number of headers.
    _first_headers: Int64s
    # The number of headers per row, or None if it differs between rows.
    _count_per_row: int | None
    # The different keys.
    _keys: list[str]
    # The index of each header's key in `_keys`.
    _key_indexes: NDArray[np.int32]
    # The values of all headers, a BinaryArray.
    _values: Any

    def __init__(self, raw: Any) -> None:
        self._sections = raw

    def rows(self, start: int, stop: int) -> list[Headers]:
        """Return the headers of each row from `start` to `stop` - 1, in the form of `Record.headers`."""
        self._parse()
        low, high = int(self._first_headers[start]), int(self._first_headers[stop])
        keys = map(self._keys.__getitem__, self._key_indexes[low:high].tolist())
        pairs = zip(keys, self._values.slice(low, high - low).to_pylist(), strict=True)
        if self._count_per_row:
            # All arguments of `zip` are the same iterator, so each row takes the next pairs.
            return list(zip(*[pairs] * self._count_per_row, strict=True))
        counts: list[int] = np.diff(self._first_headers[start : stop + 1]).tolist()
        return [tuple(islice(pairs, count)) if count else () for count in counts]

    def array(self, start: int, stop: int) -> Any:
        """Return the headers of these rows as a `pyarrow.ListArray` of `HEADERS`, without null lists."""
        self._parse()
        low, high = int(self._first_headers[start]), int(self._first_headers[stop])
        keys = from_texts(self._keys).take(from_numpy(self._key_indexes[low:high]))
        pairs = pa.StructArray.from_arrays([keys, self._values.slice(low, high - low)], ["key", "value"])
        list_offsets = self._first_headers[start : stop + 1] - low
        return pa.ListArray.from_arrays(from_numpy(list_offsets.astype(np.int32)), pairs)

    def _parse(self) -> None:
        """Decode the headers of all rows, unless they already are decoded.

        Raises `RecordError` if the headers are invalid.
        """
        if self._sections is None:
            return
        if not self._parse_fast():
            self._parse_slowly()
        counts = np.diff(self._first_headers)
        has_equal_counts = len(counts) and (counts == counts[0]).all()
        self._count_per_row = int(counts[0]) if has_equal_counts else None
        self._sections = None

    def _parse_fast(self) -> bool:
        """Decode all headers with numpy. Return False if the headers must be decoded row by row."""
        sections = self._sections
        _, offsets_buffer, data_buffer = sections.buffers()
        offsets = np.frombuffer(offsets_buffer, np.int32)
        offsets = offsets[sections.offset : sections.offset + len(sections) + 1]
        data = np.zeros(int(offsets[-1]) + SLACK, np.uint8)
        data[: offsets[-1]] = np.frombuffer(data_buffer, np.uint8)[: offsets[-1]]
        try:
            result = _find_headers(Windows(data), offsets[:-1].astype(np.int64), offsets[1:].astype(np.int64))
        except IndexError:
            return False  # A field's length reaches beyond the data. `_parse_slowly` then raises the error.
        if result is None:
            return False
        self._first_headers, positions, is_null = result
        key_starts = np.arange(0, len(positions), 4, dtype=np.int32)
        keys = gather(data, positions, key_starts).dictionary_encode()
        self._keys = [decode_header_key(key) for key in keys.dictionary.to_pylist()]
        self._key_indexes = to_numpy(keys.indices, np.int32)
        self._values = gather(data, positions, key_starts + 2, is_null)
        return True

    def _parse_slowly(self) -> None:
        """Decode the headers row by row. Raises `RecordError` for malformed headers."""
        decoded_keys: dict[bytes, str] = {}
        keys: dict[str, int] = {}
        key_indexes: list[int] = []
        values: list[bytes | None] = []
        first_headers = [0]
        for row, data in enumerate(self._sections.to_pylist()):
            try:
                headers, end = parse_headers(data, 0, len(data), decoded_keys)
                if end != len(data):
                    raise MalformedRecord(
                        "headers", end, f"the headers end at {end}, but the record ends at {len(data)}"
                    )
            except MalformedRecord as error:
                raise _row_error(error.field, error.at, error.detail, row) from None
            except IndexError:
                raise _row_error("headers", len(data), "", row) from None
            for key, value in headers:
                key_indexes.append(keys.setdefault(key, len(keys)))
                values.append(value)
            first_headers.append(len(values))
        self._first_headers = np.array(first_headers, np.int64)
        self._keys, self._key_indexes = list(keys), np.array(key_indexes, np.int32)
        self._values = from_bytes(values)


def _row_error(field: str, at: int, detail: str, row: int) -> RecordError:
    """Return the error for a row whose headers are malformed.

    The error's offset is relative to the start of the row's headers section.
    """
    detail = f"{detail or 'the bytes end too early'} (in row {row}, counted from the end of its value)"
    return RecordError("RecordBatch", 2, f"records.{field}", at, detail)


def _find_headers(
    windows: Windows, starts: Int64s, ends: Int64s
) -> tuple[Int64s, NDArray[np.int32], Bools] | None:
    """Return the index of each row's first header, the headers' positions, and a mask of null values.

    `starts` and `ends` are the limits of each row's headers section.

    A header has four positions: the start and end of its key, and the start and end of its value. The mask is
    true for each header whose value is null.

    Returns None if a row's headers are malformed, are more than `_MAX_STEPS`, or contain a varint of more
    than two bytes.
    """
    varint_table, _ = tables()
    entry = varint_table[windows.twos(starts)]
    width, count = entry & 3, entry >> 2
    at = starts + width
    # Each header takes at least two bytes, the lengths of its key and value.
    if (width > 2).any() or (count < 0).any() or (2 * count > ends - at).any():
        return None
    first = np.zeros(len(at) + 1, np.int64)
    np.cumsum(count, out=first[1:])
    if int(count.max(initial=0)) > _MAX_STEPS:
        return None
    positions = np.empty((int(first[-1]), 4), np.int32)
    is_null = np.zeros(len(positions), np.bool_)
    for low in range(0, len(at), _SLICE_ROWS):
        rows = slice(low, low + _SLICE_ROWS)
        if not _find_headers_of_slice(
            windows, at[rows], ends[rows], count[rows], first[rows], positions, is_null
        ):
            return None
    return first, positions.ravel(), is_null


def _find_headers_of_slice(
    windows: Windows,
    at: Int64s,
    ends: Int64s,
    count: NDArray[np.int32],
    first: Int64s,
    positions: NDArray[np.int32],
    is_null: Bools,
) -> bool:
    """Write the positions of the headers of a slice of rows into `positions` and `is_null`.

    `at` contains one position per row. This function advances each position from the row's first header to
    the end of the row's headers.

    Returns False if a row's headers are malformed or contain a varint of more than two bytes.
    """
    varint_table, _ = tables()
    max_count = int(count.max())
    has_equal_counts = int(count.min()) == max_count
    for step in range(max_count):
        # The rows with more than `step` headers, and the index of the next header of each of these rows.
        active: Any = slice(None) if has_equal_counts else np.flatnonzero(count > step)
        headers: Any = (
            slice(first[0] + step, first[0] + max_count * len(at), max_count)
            if has_equal_counts
            else first[active] + step
        )
        position, stop = at[active], ends[active]
        entry = varint_table[windows.twos(position)]
        width, size = entry & 3, entry >> 2
        key_start = position + width
        key_end = key_start + size
        if int(width.max()) > 2 or int(size.min()) < 0 or (key_end >= stop).any():
            return False
        entry = varint_table[windows.twos(key_end)]
        width, size = entry & 3, entry >> 2
        value_start = key_end + width
        has_null_value = size < 0
        # A null value has the size -1. It ends at `value_start`.
        value_end = value_start + size + has_null_value
        if int(width.max()) > 2 or int(size.min()) < -1 or (value_end > stop).any():
            return False
        for column, column_positions in enumerate((key_start, key_end, value_start, value_end)):
            positions[headers, column] = column_positions
        is_null[headers] = has_null_value
        at[active] = value_end
    return bool((at == ends).all())

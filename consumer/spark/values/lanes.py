"""Reads many encoded values together: each step reads the next field of all values.

Each value is a *lane*. A lane has a position, which advances, and an end, which the position never exceeds.
Each step is a numpy operation on some lanes, given by their numbers in ascending order.

The first error of a lane is stored, and ends the lane: the position moves to the end, and the values that are
read from the lane are discarded. Other lanes are not affected.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kproto.records.arrow_arrays import from_numpy, from_texts

from .wire_format import data_and_offsets

pa: Any = import_module("pyarrow")
pc: Any = import_module("pyarrow.compute")

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
# The number of bytes of padding after the last lane: a step may read beyond the end of a lane.
_PADDING_BYTES = 24


class Lanes:
    """The lanes of a BinaryArray without nulls. `bad` maps the number of a lane to its first error.

    The methods `varint`, `zigzag`, `fixed`, `skip`, `binary` and `text` move the positions of the lanes.
    """

    def __init__(self, values: Any) -> None:
        data, offsets = data_and_offsets(values)
        self._set_lanes(
            np.concatenate([data, np.zeros(_PADDING_BYTES, np.uint8)]), offsets[:-1].copy(), offsets[1:]
        )

    def _set_lanes(self, data: NDArray[np.uint8], at: Ints, end: Ints) -> None:
        """Initialize the lanes.

        `data` contains the bytes of all lanes. `at` and `end` contain offsets in `data`. `at` has each
        lane's position, which the reading methods advance. `end` has each lane's end.
        """
        self.data, self.at, self.end = data, at, end
        self.bad: dict[int, str] = {}
        self._int64_windows = self.windows("<i8")

    def within(self, start: Ints, stop: Ints) -> Lanes:
        """Return new lanes over the same bytes: lane i extends from `start[i]` to `stop[i]`.

        The offsets in `start` and in `stop` are ascending.
        """
        inner = Lanes.__new__(Lanes)
        inner._set_lanes(self.data, start.copy(), stop)
        return inner

    def __len__(self) -> int:
        return len(self.at)

    @property
    def view(self) -> memoryview:
        """A memoryview of the bytes of all lanes, for fast access to single bytes."""
        # A numpy array supports the buffer protocol, although its type stubs do not say so.
        data: Any = self.data
        return memoryview(data)

    def all(self) -> Ints:
        """Return the numbers that identify the lanes: 0, 1, 2 and so on."""
        return np.arange(len(self), dtype=np.int64)

    def windows(self, kind: str) -> NDArray[Any]:
        """Return an array of numbers of type `kind`: number i is read from the bytes at offset i."""
        size = np.dtype(kind).itemsize
        return np.ndarray((len(self.data) - size + 1,), kind, self.data, strides=(1,))

    def fail(self, lanes: Ints, wrong: Bools, reason: str) -> None:
        """Store `reason` as the error of each lane where `wrong` is true, and end these lanes."""
        if wrong.any():
            for lane in lanes[wrong].tolist():
                self.bad.setdefault(lane, reason)
            self.at[lanes[wrong]] = self.end[lanes[wrong]]

    def _advance(self, lanes: Ints, positions: Ints, name: str) -> Bools:
        """Move the lanes to new positions, and fail each lane whose new position exceeds its end.

        Return a mask of the lanes whose new position exceeds their end. The error of such a lane says that
        the bytes end in the middle of `name`, unless the lane has failed before.
        """
        exceeds_end: Bools = positions > self.end[lanes]
        self.at[lanes] = positions
        self.fail(lanes, exceeds_end, f"the bytes end in the middle of {name}")
        return exceeds_end

    def varint(self, lanes: Ints, name: str) -> Ints:
        """Read the next unsigned varint of each lane as a 64-bit number.

        If a varint is malformed, its lane gets an error, and the number is 0.

        `name` is the field's name for error messages.
        """
        at = self.at[lanes]
        window = self._int64_windows[at]  # The next 8 bytes of each lane.
        value = window & 127
        continues = window >> 7 & 1  # 1 if the varint has a byte after those that are already read, else 0.
        width = 1 + continues
        for byte in range(1, 8):
            if not continues.any():
                break
            value |= (window >> (8 * byte) & 127 & -continues) << (7 * byte)
            continues &= window >> (8 * byte + 7) & 1
            width += continues
        has_excess_bits = np.zeros(len(at), bool)
        wide = np.flatnonzero(continues)  # The varints that have a 9th byte, and perhaps a 10th.
        if len(wide):
            window = self._int64_windows[at[wide] + 8]
            has_10th = window >> 7 & 1
            value[wide] |= (window & 127) << 56 | (window >> 8 & 1 & has_10th) << 63
            width[wide] += has_10th
            has_excess_bits[wide] = (has_10th & ((window >> 8 & 0xFF) > 127)) != 0
        wrong = self._advance(lanes, at + width, name)
        self.fail(lanes, has_excess_bits & ~wrong, f"{name} has more than 64 bits")
        value[wrong | has_excess_bits] = 0
        return value

    def zigzag(self, lanes: Ints, name: str) -> Ints:
        """Read the next signed varint of each lane, in Avro's zigzag encoding."""
        encoded = self.varint(lanes, name)
        return (encoded >> 1 & (1 << 63) - 1) ^ -(encoded & 1)

    def fixed(self, lanes: Ints, kind: str, name: str) -> NDArray[Any]:
        """Read the next little-endian number of each lane. `kind` is its numpy type."""
        at = self.at[lanes]
        numbers = self.windows(kind)[at]
        self._advance(lanes, at + np.dtype(kind).itemsize, name)
        return numbers

    def skip(self, lanes: Ints, sizes: Ints, name: str) -> tuple[Ints, Ints]:
        """Skip the next `sizes[i]` bytes of lane `lanes[i]`, for each i.

        Returns the starts and the ends of the skipped bytes. For a lane with an error, the start and the end
        are equal.
        """
        at = self.at[lanes]
        wrong = (sizes < 0) | (sizes > self.end[lanes] - at)
        self.fail(lanes, wrong, f"{name} is longer than the remaining bytes")
        stop = np.where(wrong, self.at[lanes], at + sizes)
        start = np.where(wrong, stop, at)
        self.at[lanes] = stop
        return start, stop

    def binary(self, lanes: Ints, sizes: Ints, name: str) -> Any:
        """Read the next `sizes[i]` bytes of each lane `lanes[i]` as a BinaryArray."""
        return self.cut(*self.skip(lanes, sizes, name))

    def cut(self, start: Ints, stop: Ints) -> Any:
        """Return a BinaryArray with the bytes from `start[i]` to `stop[i]` for each i. The starts are
        ascending.
        """
        # An Arrow array can refer to `data` without a copy only if each value ends where the next one begins.
        # So `alternating` contains the requested values, and between any two of them a value with the bytes
        # in between. `take` returns only the requested values.
        offsets = np.empty(2 * len(start) + 1, np.int32)
        offsets[:-1:2], offsets[1::2] = start, stop
        offsets[-1] = offsets[-2] if len(start) else 0
        alternating = pa.Array.from_buffers(
            pa.binary(), 2 * len(start), [None, pa.py_buffer(offsets), pa.py_buffer(self.data)]
        )
        requested = from_numpy(np.arange(0, 2 * len(start), 2, dtype=np.int32))
        return pc.take(alternating, requested, boundscheck=False)

    def text(self, lanes: Ints, sizes: Ints, name: str) -> Any:
        """Read the next `sizes[i]` bytes of each lane `lanes[i]` as a StringArray.

        Invalid UTF-8 is an error of the lane.
        """
        return self.as_text(lanes, self.binary(lanes, sizes, name), name)

    def as_text(self, lanes: Ints, values: Any, name: str) -> Any:
        """Convert the bytes of these lanes to a StringArray.

        Invalid UTF-8 is an error of the lane.
        """
        try:
            return values.cast(pa.string())
        except pa.ArrowInvalid:
            texts, invalid = _decode_one_by_one(values)
            self.fail(lanes, np.isin(np.arange(len(lanes)), list(invalid)), f"{name} is not UTF-8")
            # Invalid strings become "", because the keys of a map cannot be null.
            return pc.coalesce(texts, from_texts([""])[0])

    def finish(self, name: str) -> None:
        """Store an error for each lane in which bytes remain after the value."""
        lanes = self.all()
        remaining = self.end - self.at
        self.fail(lanes, remaining > 0, f"there are bytes after the end of {name}")


def _decode_one_by_one(values: Any) -> Any:
    """Decode the values one by one. Return a StringArray, and the rows of values that are not UTF-8."""
    from .strings import decode

    return decode(values)


def scatter(column: Any, rows: Ints, count: int) -> Any:
    """Return a column of `count` rows, with the values of `column` in the rows `rows`.

    Row `rows[i]` has the value of row i of `column`. All other rows are null.
    """
    if len(column) == count:
        return column
    sources = np.full(count, -1, np.int64)
    sources[rows] = np.arange(len(rows))
    return column.take(from_numpy(sources, sources < 0))


def merge(columns: list[Any], rows_of_columns: list[Ints], count: int, kind: Any) -> Any:
    """Merge columns of the type `kind` into one column of `count` rows.

    Column i contains the values of the rows `rows_of_columns[i]`. Rows without a value are null.
    """
    if not columns:
        return pa.nulls(count, kind)
    if len(columns) == 1:
        return scatter(columns[0], rows_of_columns[0], count)
    rows = np.concatenate(rows_of_columns)
    order = np.argsort(rows, kind="stable")
    return scatter(pa.concat_arrays(columns).take(from_numpy(order)), rows[order], count)

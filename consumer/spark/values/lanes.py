"""Many short encodings, read side by side: one step reads the next field of all of them.

Each value is a lane with a place that moves on and an end that it never passes. What is wrong in a lane ends
it (its place is put at its end, where only zeros or nonsense is read, and nothing kept) and is told once: the
others don't notice. Steps are numpy's, on all lanes that take part in them, named by their rising numbers.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .wire_format import HEADER, content, split, without

if TYPE_CHECKING:
    from .types import Bad, Decode

pa: Any = import_module("pyarrow")
pc: Any = import_module("pyarrow.compute")

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
_SLACK = 24  # bytes that are read behind a lane's end at most


class Lanes:
    """The values of a BinaryArray without nulls. `bad` says by lane what was wrong."""

    def __init__(self, values: Any) -> None:
        data, offsets = content(values)
        self._begin(np.concatenate([data, np.zeros(_SLACK, np.uint8)]), offsets[:-1].copy(), offsets[1:])

    def _begin(self, data: NDArray[np.uint8], at: Ints, end: Ints) -> None:
        self.data, self.at, self.end = data, at, end
        self.bad: dict[int, str] = {}
        self._numbers = self.windows("<i8")

    def within(self, start: Ints, stop: Ints) -> Lanes:
        """Lanes of their own between these places, which rise."""
        inner = Lanes.__new__(Lanes)
        inner._begin(self.data, start.copy(), stop)
        return inner

    def __len__(self) -> int:
        return len(self.at)

    @property
    def view(self) -> memoryview:
        """All bytes, to look at one by one."""
        data: Any = self.data  # an array is a buffer, though numpy doesn't say so
        return memoryview(data)

    def all(self) -> Ints:
        """The numbers of all lanes."""
        return np.arange(len(self), dtype=np.int64)

    def windows(self, kind: str) -> NDArray[Any]:
        """A number at every byte."""
        size = np.dtype(kind).itemsize
        return np.ndarray((len(self.data) - size + 1,), kind, self.data, strides=(1,))

    def fail(self, lanes: Ints, wrong: Bools, why: str) -> None:
        """End these lanes where it is wrong."""
        if wrong.any():
            for lane in lanes[wrong].tolist():
                self.bad.setdefault(lane, why)
            self.at[lanes[wrong]] = self.end[lanes[wrong]]

    def _moved(self, lanes: Ints, to: Ints, what: str) -> Bools:
        """Go on there; which of the lanes end before."""
        beyond: Bools = to > self.end[lanes]
        self.at[lanes] = to
        self.fail(lanes, beyond, f"it ends in the middle of {what}")
        return beyond

    def varint(self, lanes: Ints, what: str) -> Ints:
        """The next unsigned varint of each, its 64 bits as they are; 0 where it is wrong."""
        at = self.at[lanes]
        window = self._numbers[at]
        value = window & 127
        more = window >> 7 & 1
        width = 1 + more
        for byte in range(1, 8):
            if not more.any():
                break
            value |= (window >> (8 * byte) & 127 & -more) << (7 * byte)
            more &= window >> (8 * byte + 7) & 1
            width += more
        long = np.zeros(len(at), bool)
        wide = np.flatnonzero(more)
        if len(wide):
            window = self._numbers[at[wide] + 8]
            last = window >> 7 & 1
            value[wide] |= (window & 127) << 56 | (window >> 8 & 1 & last) << 63
            width[wide] += last
            long[wide] = (last & ((window >> 8 & 0xFF) > 127)) != 0
        wrong = self._moved(lanes, at + width, what)
        self.fail(lanes, long & ~wrong, f"{what} has more than 64 bits")
        value[wrong | long] = 0
        return value

    def zigzag(self, lanes: Ints, what: str) -> Ints:
        """The next signed varint of each, as Avro writes numbers."""
        raw = self.varint(lanes, what)
        return (raw >> 1 & (1 << 63) - 1) ^ -(raw & 1)

    def fixed(self, lanes: Ints, kind: str, what: str) -> NDArray[Any]:
        """The next number of a fixed width (numpy's name of it) of each; little endian."""
        at = self.at[lanes]
        found = self.windows(kind)[at]
        self._moved(lanes, at + np.dtype(kind).itemsize, what)
        return found

    def skip(self, lanes: Ints, sizes: Ints, what: str) -> tuple[Ints, Ints]:
        """Pass over so many bytes of each; where they begin and end. Nothing where that isn't possible."""
        at = self.at[lanes]
        wrong = (sizes < 0) | (sizes > self.end[lanes] - at)
        self.fail(lanes, wrong, f"{what} is longer than what is there")
        stop = np.where(wrong, self.at[lanes], at + sizes)
        start = np.where(wrong, stop, at)
        self.at[lanes] = stop
        return start, stop

    def binary(self, lanes: Ints, sizes: Ints, what: str) -> Any:
        """The next bytes of each, as a BinaryArray."""
        return self.cut(*self.skip(lanes, sizes, what))

    def cut(self, start: Ints, stop: Ints) -> Any:
        """A BinaryArray of the bytes between these places, which rise; one copy, made by Arrow."""
        places = np.empty(2 * len(start) + 1, np.int32)
        places[:-1:2], places[1::2] = start, stop
        places[-1] = places[-2] if len(start) else 0
        every = pa.Array.from_buffers(
            pa.binary(), 2 * len(start), [None, pa.py_buffer(places), pa.py_buffer(self.data)]
        )
        return pc.take(every, pa.array(np.arange(0, 2 * len(start), 2), pa.int32()), boundscheck=False)

    def text(self, lanes: Ints, sizes: Ints, what: str) -> Any:
        """The next bytes of each, which must be UTF-8, as a StringArray."""
        return self.as_text(lanes, self.binary(lanes, sizes, what), what)

    def as_text(self, lanes: Ints, found: Any, what: str) -> Any:
        """Bytes of these lanes, which must be UTF-8, as a StringArray."""
        try:
            return found.cast(pa.string())
        except pa.ArrowInvalid:
            good, bad = _texts(found)
            self.fail(lanes, np.isin(np.arange(len(lanes)), list(bad)), f"{what} isn't UTF-8")
            return pc.fill_null(good, "")  # a map's key can't be null

    def finish(self, what: str) -> None:
        """Whatever is left of a lane is too much."""
        every = self.all()
        left = self.end - self.at
        self.fail(every, left > 0, f"there are bytes behind {what}")


def _texts(found: Any) -> Any:
    from .strings import decode

    return decode(found)


def spread(column: Any, places: Ints, count: int) -> Any:
    """A column of `count` rows that has the given one's at these places, and else nulls."""
    if len(column) == count:
        return column
    from_ = np.full(count, -1, np.int64)
    from_[places] = np.arange(len(places))
    return column.take(pa.array(from_, mask=from_ < 0))


def behind_ids(decode: Decode) -> Decode:
    """The same for values in a registry's wire format, whichever schemas they name."""

    def registered(values: Any) -> tuple[Any, Bad]:
        bad: dict[int, str] = {}
        every = [rows for _, rows in split(values, bad)]
        there = np.sort(np.concatenate([np.zeros(0, np.int64), *every]))
        column, wrong = decode(without(values if not bad else values.take(pa.array(there)), HEADER))
        bad.update({int(there[row]): why for row, why in wrong.items()})
        return spread(column, there, len(values)), bad

    return registered

"""Create Arrow arrays from values in a buffer, and convert between Arrow and numpy.

The conversions replace `pa.array`, `pa.scalar`, `to_numpy` and `np.asarray`. Those functions import pandas if
it is installed, which takes 350 ms of CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from itertools import accumulate
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .windows import Bools

# Untyped, because pyarrow's type stubs contain nothing but Any.
pa: Any = import_module("pyarrow")
pc: Any = import_module("pyarrow.compute")

# The largest number of bytes in an array with 32-bit offsets.
_MAX_BYTES: Final = (1 << 31) - 1

# The maximum size in bytes of a value that a view of an Arrow BinaryView array contains. The view of a larger
# value refers to a buffer.
_MAX_INLINE_SIZE = 12


def gather(
    data: NDArray[np.uint8], places: NDArray[np.int32], wanted: NDArray[np.int32], null: Bools | None = None
) -> Any:
    """Copy values from `data` into a BinaryArray.

    `places` are ascending positions in `data`. Each index i in `wanted` selects the bytes from `places[i]` to
    `places[i + 1]`. `null` says which of the selected values are null. A null value has no bytes.

    The bytes are copied once, by `pc.take`.
    """
    size = len(wanted)
    null_count = 0 if null is None else int(np.count_nonzero(null))
    if null_count == size:
        return pa.nulls(size, pa.binary())
    all_values = pa.Array.from_buffers(
        pa.binary(), len(places) - 1, [None, pa.py_buffer(places), pa.py_buffer(data)]
    )
    indices = pa.Array.from_buffers(pa.int32(), size, [None, pa.py_buffer(wanted)])
    selected = pc.take(all_values, indices, boundscheck=False)
    if null_count == 0 or null is None:
        return selected
    _, offsets, content = selected.buffers()
    validity_buffer = pa.py_buffer(np.packbits(~null, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(), size, [validity_buffer, offsets, content], null_count)


def views(
    data: NDArray[np.uint8], start: NDArray[np.int32], stop: NDArray[np.int32], null: Bools | None
) -> Any:
    """Return a BinaryViewArray of the bytes from each start to its stop, without a copy.

    `null` marks the values that are null. A value of more than 12 bytes stays in `data`. For a shorter value,
    the 12 bytes from its start are copied into the view, so `data` must extend at least 12 bytes beyond
    each start.
    """
    size = len(start)
    # The four numbers of a view: length, prefix (the first four bytes, for comparisons only), buffer index,
    # offset.
    view = np.zeros((size, 4), np.int32)
    view[:, 0] = stop - start
    view[:, 3] = start
    short = np.flatnonzero(view[:, 0] <= _MAX_INLINE_SIZE)
    if len(short):
        view.view(np.uint8)[short, 4:] = data[start[short, None] + np.arange(_MAX_INLINE_SIZE)]
    validity_buffer = None if null is None else pa.py_buffer(np.packbits(~null, bitorder="little"))
    return pa.Array.from_buffers(
        pa.binary_view(), size, [validity_buffer, pa.py_buffer(view), pa.py_buffer(data)]
    )


def from_numpy(values: NDArray[Any], null: Bools | None = None) -> Any:
    """Return an Arrow array of numbers or booleans. Numbers are not copied.

    `null` says which values are null.
    """
    values = np.ascontiguousarray(values)
    data = np.packbits(values, bitorder="little") if values.dtype == np.bool_ else values
    validity_buffer = None if null is None else pa.py_buffer(np.packbits(~null, bitorder="little"))
    arrow_type = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(arrow_type, len(values), [validity_buffer, pa.py_buffer(data)])


def to_numpy(array: Any, dtype: type[np.generic]) -> NDArray[Any]:
    """Return the numbers of an Arrow array without a copy. The array must have type `dtype` and no nulls."""
    return np.frombuffer(array.buffers()[1], dtype)[array.offset : array.offset + len(array)]


def validity(array: Any) -> NDArray[np.bool_]:
    """Return a boolean array that is true where a value of an Arrow array is not null."""
    bits = array.buffers()[0]
    if bits is None:
        return np.full(len(array), array.null_count == 0)
    count = array.offset + len(array)
    unpacked = np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little", count=count)
    return unpacked[array.offset :].view(np.bool_)


def from_bytes(values: Sequence[bytes | None]) -> Any:
    """Return a BinaryArray of these values; a ChunkedArray if they exceed 2 GiB."""
    return _binary_array(values, pa.binary())


def from_texts(values: Sequence[str | None]) -> Any:
    """Return a StringArray of these values; a ChunkedArray if they exceed 2 GiB."""
    return _binary_array([None if value is None else value.encode() for value in values], pa.string())


def _binary_array(values: Sequence[bytes | None], arrow_type: Any) -> Any:
    """Return an array of `arrow_type`, binary or string; a ChunkedArray above 2 GiB of values."""
    ends = [0, *accumulate(0 if value is None else len(value) for value in values)]
    if ends[-1] > _MAX_BYTES:
        return pa.array(values, arrow_type)
    validity_buffer = None
    if None in values:
        bits = np.packbits([value is not None for value in values], bitorder="little")
        validity_buffer = pa.py_buffer(bits)
    content = pa.py_buffer(b"".join(value for value in values if value))
    return pa.Array.from_buffers(
        arrow_type, len(values), [validity_buffer, pa.py_buffer(np.array(ends, np.int32)), content]
    )

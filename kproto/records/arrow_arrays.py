"""Make Arrow arrays of bytes from places in a buffer, by copying the bytes or as views of them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .windows import Bools

# Untyped, because pyarrow's type stubs contain nothing but Any.
pa: Any = import_module("pyarrow")
pc: Any = import_module("pyarrow.compute")

_INLINE = 12  # The largest value, in bytes, that Arrow stores in the view itself.


def gather(
    data: NDArray[np.uint8], places: NDArray[np.int32], wanted: NDArray[np.int32], null: Bools | None = None
) -> Any:
    """Copy values from `data` into a BinaryArray. A value lies between a `wanted` place and the next place.

    Arrow copies the bytes once: all places, which must be ascending, become the offsets of an array that
    contains the values and the gaps between them. `null` says which of the wanted values are null. The places
    of null values are empty.
    """
    size = len(wanted)
    nulls = 0 if null is None else int(np.count_nonzero(null))
    if nulls == size:
        return pa.nulls(size, pa.binary())
    every = pa.Array.from_buffers(
        pa.binary(), len(places) - 1, [None, pa.py_buffer(places), pa.py_buffer(data)]
    )
    indices = pa.Array.from_buffers(pa.int32(), size, [None, pa.py_buffer(wanted)])
    chosen = pc.take(every, indices, boundscheck=False)
    if nulls == 0 or null is None:
        return chosen
    _, offsets, content = chosen.buffers()
    valid = pa.py_buffer(np.packbits(~null, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(), size, [valid, offsets, content], nulls)


def views(
    data: NDArray[np.uint8], start: NDArray[np.int32], stop: NDArray[np.int32], null: Bools | None
) -> Any:
    """Return a BinaryViewArray of the bytes from each start to its stop, without a copy.

    The bytes stay in `data`. Values of up to 12 bytes are stored in the view itself, so 12 bytes must be
    readable from each start. `null` says which values are null.
    """
    size = len(start)
    # The columns of Arrow's view: length, first four bytes (used in comparisons only), buffer number, place.
    view = np.zeros((size, 4), np.int32)
    view[:, 0] = stop - start
    view[:, 3] = start
    short = np.flatnonzero(view[:, 0] <= _INLINE)
    if len(short):
        view.view(np.uint8)[short, 4:] = data[start[short, None] + np.arange(_INLINE)]
    valid = None if null is None else pa.py_buffer(np.packbits(~null, bitorder="little"))
    return pa.Array.from_buffers(pa.binary_view(), size, [valid, pa.py_buffer(view), pa.py_buffer(data)])

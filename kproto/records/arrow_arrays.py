"""Arrow's arrays of bytes whose places are known: copied in one stretch, or views into where they lie."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .windows import Bools

# Without types: pyarrow has none that say more than Any.
pa: Any = import_module("pyarrow")
pc: Any = import_module("pyarrow.compute")

_INLINE = 12  # bytes that Arrow's views hold themselves


def gather(
    data: NDArray[np.uint8], places: NDArray[np.int32], wanted: NDArray[np.int32], null: Bools | None = None
) -> Any:
    """A BinaryArray of the bytes between each of the `wanted` places and the next; one copy, made by Arrow.

    All places, which rise, are taken as the offsets of an array that has the gaps between values as elements
    too. `null` says which of the wanted ones are null: their places are empty.
    """
    size = len(wanted)
    nulls = 0 if null is None else int(np.count_nonzero(null))
    if nulls == size:
        return pa.nulls(size, pa.binary())
    every = pa.Array.from_buffers(
        pa.binary(), len(places) - 1, [None, pa.py_buffer(places), pa.py_buffer(data)]
    )
    indices = pa.Array.from_buffers(pa.int32(), size, [None, pa.py_buffer(wanted)])
    taken = pc.take(every, indices, boundscheck=False)
    if nulls == 0 or null is None:
        return taken
    _, offsets, content = taken.buffers()
    valid = pa.py_buffer(np.packbits(~null, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(), size, [valid, offsets, content], nulls)


def views(
    data: NDArray[np.uint8], start: NDArray[np.int32], stop: NDArray[np.int32], null: Bools | None
) -> Any:
    """A BinaryViewArray of the bytes between each start and stop, which lie in `data` still: no copy.

    Up to 12 bytes stand in the view itself; so many must be readable at every start. `null` as in `gather`.
    """
    size = len(start)
    view = np.zeros((size, 4), np.int32)  # length, four bytes that only comparisons look at, buffer, place
    view[:, 0] = stop - start
    view[:, 3] = start
    short = np.flatnonzero(view[:, 0] <= _INLINE)
    if len(short):
        view.view(np.uint8)[short, 4:] = data[start[short, None] + np.arange(_INLINE)]
    valid = None if null is None else pa.py_buffer(np.packbits(~null, bitorder="little"))
    return pa.Array.from_buffers(pa.binary_view(), size, [valid, pa.py_buffer(view), pa.py_buffer(data)])

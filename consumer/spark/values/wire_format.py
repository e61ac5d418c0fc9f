"""Confluent's wire format: a byte 0, the id of its writer's schema in four bytes (the first one most
significant), and then what was written.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np

pa: Any = import_module("pyarrow")

HEADER = 5  # bytes before what was written


def split(values: Any, bad: dict[int, str]) -> Iterator[tuple[int, Any]]:
    """The ids in a BinaryArray, and the rows of each; what has none is bad."""
    data, offsets = content(values)
    size = np.diff(offsets)
    short = size < HEADER
    begins = np.where(short, 0, offsets[:-1])
    room = np.concatenate([data, np.zeros(HEADER, np.uint8)])
    wrong = ~short & (room[begins] != 0)
    for row in np.flatnonzero(short | wrong).tolist():
        told = "it is too short" if short[row] else f"it begins with byte {room[begins[row]]}, not 0"
        bad[row] = f"it isn't in the registry's wire format: {told}"
    number = np.zeros(len(size), np.int64)
    for byte in range(1, HEADER):
        number = number << 8 | room[begins + byte]
    fine = ~(short | wrong)
    for one in np.unique(number[fine]).tolist():
        yield one, np.flatnonzero(fine & (number == one))


def content(values: Any) -> tuple[Any, Any]:
    """The bytes of a BinaryArray, and where each value begins in them, and the last one ends."""
    _, places, data = values.buffers()
    if not len(values):
        return np.zeros(0, np.uint8), np.zeros(1, np.int64)
    offsets = np.frombuffer(places, np.int32)[values.offset : values.offset + len(values) + 1].astype(
        np.int64
    )
    whole = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return whole[offsets[0] : offsets[-1]], offsets - offsets[0]


def without(values: Any, header: int) -> Any:
    """The same values without their first bytes."""
    data, offsets = content(values)
    sizes = np.diff(offsets) - header
    places = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    wanted = np.ones(len(data), bool)
    for byte in range(header):
        wanted[offsets[:-1] + byte] = False
    buffers = [None, pa.py_buffer(places), pa.py_buffer(data[wanted])]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)

"""Confluent's wire format: the byte 0, the schema id as a big-endian int32, and the encoded value."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np

pa: Any = import_module("pyarrow")

HEADER = 5  # The size in bytes of the header: the byte 0 and the schema id.


def rows_by_schema_id(values: Any, bad: dict[int, str]) -> Iterator[tuple[int, Any]]:
    """Yield each schema id in a BinaryArray, with the rows that have it. Add rows without an id to `bad`."""
    data, offsets = data_and_offsets(values)
    size = np.diff(offsets)
    short = size < HEADER
    begins = np.where(short, 0, offsets[:-1])
    room = np.concatenate([data, np.zeros(HEADER, np.uint8)])
    wrong = ~short & (room[begins] != 0)
    for row in np.flatnonzero(short | wrong).tolist():
        first = room[begins[row]]
        reason = f"there are fewer than {HEADER} bytes" if short[row] else f"the first byte is {first}, not 0"
        bad[row] = f"the bytes are not in the registry's wire format: {reason}"
    number = np.zeros(len(size), np.int64)
    for byte in range(1, HEADER):
        number = number << 8 | room[begins + byte]
    fine = ~(short | wrong)
    for schema_id in np.unique(number[fine]).tolist():
        yield schema_id, np.flatnonzero(fine & (number == schema_id))


def data_and_offsets(values: Any) -> tuple[Any, Any]:
    """Return the bytes of a BinaryArray, and the offsets of its values with the end of the last one."""
    _, places, data = values.buffers()
    if not len(values):
        return np.zeros(0, np.uint8), np.zeros(1, np.int64)
    offsets = np.frombuffer(places, np.int32)[values.offset : values.offset + len(values) + 1].astype(
        np.int64
    )
    whole = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return whole[offsets[0] : offsets[-1]], offsets - offsets[0]


def strip_header(values: Any, header: int) -> Any:
    """Return the values without their first `header` bytes."""
    data, offsets = data_and_offsets(values)
    sizes = np.diff(offsets) - header
    places = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    wanted = np.ones(len(data), bool)
    for byte in range(header):
        wanted[offsets[:-1] + byte] = False
    buffers = [None, pa.py_buffer(places), pa.py_buffer(data[wanted])]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)

"""Confluent's wire format for columns of values; `consumer.schema_registry.wire_format` describes it."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any, Final
from uuid import UUID

import numpy as np

from kproto.records.arrow_arrays import from_bytes, from_numpy, from_texts, to_numpy, validity

from ...schema_registry.registry import SchemaId
from ...schema_registry.wire_format import SIZES, header_id

pa: Any = import_module("pyarrow")
pc: Any = import_module("pyarrow.compute")

_LONGEST: Final = max(SIZES.values())
_SHORTEST: Final = min(SIZES.values())


def rows_by_schema_id(values: Any, bad: dict[int, str]) -> Iterator[tuple[SchemaId, Any]]:
    """Yield each schema id in a BinaryArray, with its rows. Add rows without an id to `bad`."""
    data, offsets = data_and_offsets(values)
    size = np.diff(offsets)
    short = size < _SHORTEST
    begins = np.where(short, 0, offsets[:-1])
    room = np.concatenate([data, np.zeros(_LONGEST, np.uint8)])
    first = room[begins]
    short |= (first == 1) & (size < SIZES[1])
    wrong = ~short & (first > 1)
    for row in np.flatnonzero(short | wrong).tolist():
        wrong_byte = f"the first byte is {first[row]}, not 0 or 1"
        reason = f"there are only {size[row]} bytes" if short[row] else wrong_byte
        bad[row] = f"the bytes are not in the registry's wire format: {reason}"
    for kind, length in SIZES.items():
        rows = np.flatnonzero((first == kind) & ~(short | wrong))
        if not len(rows):
            continue
        ids = room[begins[rows][:, None] + np.arange(1, length)]
        schema_ids, owners = np.unique(ids, axis=0, return_inverse=True)
        for number, encoded in enumerate(schema_ids):
            raw = encoded.tobytes()
            schema_id = UUID(bytes=raw) if kind else int.from_bytes(raw, "big")
            yield schema_id, rows[owners.reshape(-1) == number]


def ids_from_headers(values: Any, headers: Any, name: str, indexed: bool) -> tuple[Any, dict[int, str]]:
    """Put the schema id from each record's header `name` before the value.

    Return the values, and the rows with invalid headers. The value of such a row is null.

    `headers` contains a list of headers for each value. If a value has several headers with this name, the
    last one is used. With `indexed`, message indexes follow the id.
    """
    start = headers.offsets[0].as_py() if len(headers) else 0
    places = to_numpy(headers.offsets, np.int32) - start
    entries = headers.flatten()
    matches = pc.indices_nonzero(pc.equal(entries.field("key"), from_texts([name])[0]))
    at = to_numpy(matches, np.uint64).astype(np.int64)
    if not len(at):
        return values, {}
    last = np.full(len(values), -1)
    last[np.searchsorted(places, at, side="right") - 1] = at
    header_values = entries.field("value").take(from_numpy(last, last < 0)).dictionary_encode()
    ids = [header_id(header, indexed=indexed) for header in header_values.dictionary.to_pylist()]
    numbers = np.where(validity(header_values.indices), to_numpy(header_values.indices, np.int32), -1)
    invalid = np.array([schema_id is None for schema_id in ids] + [True])
    present = validity(values)
    more = ", and message indexes" if indexed else ""
    allowed = f"the byte 0 and an id of 4 bytes, or the byte 1 and a GUID of 16 bytes{more}"
    reason = f"the header {name} has no schema id; expected: {allowed}"
    bad = dict.fromkeys(np.flatnonzero((last >= 0) & present & invalid[numbers]).tolist(), reason)
    # A value without the header has an empty prefix. A value with an invalid header has a null prefix, so
    # that joining prefix and value gives null.
    choice = np.where(numbers >= 0, numbers, np.where(last >= 0, len(ids), len(ids) + 1))
    prefixes = from_bytes([*ids, None, b""]).take(from_numpy(choice))
    return pc.binary_join_element_wise(prefixes, values, from_bytes([b""])[0]), bad


def data_and_offsets(values: Any) -> tuple[Any, Any]:
    """Return the bytes of a BinaryArray, and the offsets at which its values begin.

    The last offset is the end of the last value.
    """
    _, places, data = values.buffers()
    if not len(values):
        return np.zeros(0, np.uint8), np.zeros(1, np.int64)
    offsets = np.frombuffer(places, np.int32)[values.offset : values.offset + len(values) + 1].astype(
        np.int64
    )
    whole = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return whole[offsets[0] : offsets[-1]], offsets - offsets[0]


def strip_header(values: Any, header: int) -> Any:
    """Return each value without its first `header` bytes."""
    data, offsets = data_and_offsets(values)
    sizes = np.diff(offsets) - header
    places = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    wanted = np.ones(len(data), bool)
    for byte in range(header):
        wanted[offsets[:-1] + byte] = False
    buffers = [None, pa.py_buffer(places), pa.py_buffer(data[wanted])]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)

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

_MAX_ID_SIZE: Final = max(SIZES.values())
_MIN_ID_SIZE: Final = min(SIZES.values())


def rows_by_schema_id(values: Any, bad: dict[int, str]) -> Iterator[tuple[SchemaId, Any]]:
    """Yield each schema id in a BinaryArray, with its rows. Add rows without an id to `bad`."""
    data, offsets = data_and_offsets(values)
    sizes = np.diff(offsets)
    is_too_short = sizes < _MIN_ID_SIZE
    starts = np.where(is_too_short, 0, offsets[:-1])
    # The padding makes index 0 valid, even if all values are empty.
    padded_data = np.concatenate([data, np.zeros(_MAX_ID_SIZE, np.uint8)])
    first_bytes = padded_data[starts]
    is_too_short |= (first_bytes == 1) & (sizes < SIZES[1])
    is_wrong_byte = ~is_too_short & (first_bytes > 1)
    is_bad = is_too_short | is_wrong_byte
    for row in np.flatnonzero(is_bad).tolist():
        wrong_byte = f"the first byte is {first_bytes[row]}, not 0 or 1"
        reason = f"there are only {sizes[row]} bytes" if is_too_short[row] else wrong_byte
        bad[row] = f"the bytes are not in the registry's wire format: {reason}"
    for first_byte, id_size in SIZES.items():
        rows = np.flatnonzero((first_bytes == first_byte) & ~is_bad)
        if not len(rows):
            continue
        ids = padded_data[starts[rows][:, None] + np.arange(1, id_size)]
        unique_ids, id_indexes = np.unique(ids, axis=0, return_inverse=True)
        for index, id_array in enumerate(unique_ids):
            id_bytes = id_array.tobytes()
            schema_id = UUID(bytes=id_bytes) if first_byte else int.from_bytes(id_bytes, "big")
            yield schema_id, rows[id_indexes.reshape(-1) == index]


def ids_from_headers(values: Any, headers: Any, name: str, indexed: bool) -> tuple[Any, dict[int, str]]:
    """Put the schema id from each record's header `name` before the value.

    Return the values, and the rows with invalid headers. The value of such a row is null.

    `headers` contains a list of headers for each value. If a record has several headers `name`, the last one
    is used. With `indexed`, message indexes follow the id in the header.
    """
    start = headers.offsets[0].as_py() if len(headers) else 0
    row_starts = to_numpy(headers.offsets, np.int32) - start
    entries = headers.flatten()
    is_named = pc.equal(entries.field("key"), from_texts([name])[0])
    named_entries = to_numpy(pc.indices_nonzero(is_named), np.uint64).astype(np.int64)
    if not len(named_entries):
        return values, {}
    # The index in `entries` of each row's last header with this name, or -1 if the row has none.
    last_entries = np.full(len(values), -1)
    last_entries[np.searchsorted(row_starts, named_entries, side="right") - 1] = named_entries
    has_header = last_entries >= 0
    header_values = entries.field("value").take(from_numpy(last_entries, ~has_header)).dictionary_encode()
    ids = [header_id(header, indexed=indexed) for header in header_values.dictionary.to_pylist()]
    # The index in `ids` of each row's id, or -1 if the row has no header or a header whose value is null.
    id_indexes = np.where(validity(header_values.indices), to_numpy(header_values.indices, np.int32), -1)
    # The index -1 selects the last entry.
    is_invalid_id = np.array([schema_id is None for schema_id in ids] + [True])
    message_indexes = ", and message indexes" if indexed else ""
    allowed = f"the byte 0 and an id of 4 bytes, or the byte 1 and a GUID of 16 bytes{message_indexes}"
    reason = f"the header {name} has no schema id; expected: {allowed}"
    is_bad = has_header & validity(values) & is_invalid_id[id_indexes]
    bad = dict.fromkeys(np.flatnonzero(is_bad).tolist(), reason)
    # A value without the header has an empty prefix. A value with an invalid header has a null prefix, so
    # that joining prefix and value gives null.
    null_prefix, empty_prefix = len(ids), len(ids) + 1
    prefix_indexes = np.where(id_indexes >= 0, id_indexes, np.where(has_header, null_prefix, empty_prefix))
    prefixes = from_bytes([*ids, None, b""]).take(from_numpy(prefix_indexes))
    return pc.binary_join_element_wise(prefixes, values, from_bytes([b""])[0]), bad


def data_and_offsets(values: Any) -> tuple[Any, Any]:
    """Return the bytes of a BinaryArray, and the offsets at which its values begin.

    The last offset is the end of the last value.
    """
    _, offsets_buffer, data_buffer = values.buffers()
    if not len(values):
        return np.zeros(0, np.uint8), np.zeros(1, np.int64)
    all_offsets = np.frombuffer(offsets_buffer, np.int32)
    offsets = all_offsets[values.offset : values.offset + len(values) + 1].astype(np.int64)
    data = np.zeros(0, np.uint8) if data_buffer is None else np.frombuffer(data_buffer, np.uint8)
    return data[offsets[0] : offsets[-1]], offsets - offsets[0]


def strip_header(values: Any, size: int) -> Any:
    """Return each value without its first `size` bytes. No value may be null or shorter than `size`."""
    data, offsets = data_and_offsets(values)
    remaining_sizes = np.diff(offsets) - size
    new_offsets = np.concatenate([[0], np.cumsum(remaining_sizes)]).astype(np.int32)
    is_kept = np.ones(len(data), bool)
    for byte in range(size):
        is_kept[offsets[:-1] + byte] = False
    buffers = [None, pa.py_buffer(new_offsets), pa.py_buffer(data[is_kept])]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)

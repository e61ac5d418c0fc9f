"""Reads Avro values of types that contain no other types, such as numbers, strings, enums and decimals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kproto.records.arrow_arrays import from_numpy, from_texts

from .avro_resolution import symbols_read
from .avro_schema import AvroNode
from .lanes import Ints, Lanes, pa

if TYPE_CHECKING:
    from .types import Column

# Spark's timestamps are microseconds in 64 bits.
_MAX_TIMESTAMP_MS = (2**63 - 1) // 1000
_DAY_US = 24 * 3600 * 1_000_000


def read_leaf(
    lanes: Lanes, lane_ids: Ints, writer: AvroNode, reader: AvroNode, target: Any, path: str
) -> Column:
    """Read the next value of a type that contains no other types, for each lane in `lane_ids`.

    A lane reads one row (see `lanes`). Return a column of the type `target`, or None if `target` is None.
    `path` names the field in error messages.
    """
    match writer.kind:
        case "null":
            return None if target is None else pa.nulls(len(lane_ids), target)
        case "int" | "long":
            value = lanes.zigzag(lane_ids, path)
            if writer.kind == "int":
                lanes.fail(lane_ids, value != value.astype(np.int32), f"{path} has more than 32 bits")
            if target is None:
                return None
            if pa.types.is_timestamp(target):
                if writer.logical.endswith("millis"):
                    lanes.fail(
                        lane_ids,
                        np.abs(value) > _MAX_TIMESTAMP_MS,
                        f"{path} is outside of the range of Spark's timestamps",
                    )
                    value = value * 1000
                return from_numpy(value).view(target)
            if pa.types.is_time(target):
                outside = (value < 0) | (value >= _DAY_US)
                lanes.fail(lane_ids, outside, f"{path} is not a time of day")
                return from_numpy(np.where(outside, 0, value) * 1000).view(target)
            column = from_numpy(value.astype(np.int32 if writer.kind == "int" else np.int64))
            return column.view(target) if pa.types.is_date(target) else column.cast(target, safe=False)
        case "float" | "double":
            value = lanes.fixed(lane_ids, "<f4" if writer.kind == "float" else "<f8", path)
            return None if target is None else from_numpy(value).cast(target)
        case "boolean":
            value = lanes.fixed(lane_ids, "u1", path)
            lanes.fail(lane_ids, value > 1, f"{path} is neither true nor false")
            return None if target is None else from_numpy(value == 1)
        case "enum":
            number = lanes.zigzag(lane_ids, path)
            unknown = (number < 0) | (number >= len(writer.symbols))
            lanes.fail(lane_ids, unknown, f"{path} has a symbol number that its enum does not have")
            if target is None:
                return None
            symbols = symbols_read(writer, reader)
            for position in (n for n, symbol in enumerate(symbols) if symbol is None):
                reason = f"{path} is {writer.symbols[position]}, which the enum of the reader's schema lacks"
                lanes.fail(lane_ids, number == position, reason)
            return from_texts(symbols).take(from_numpy(number.astype(np.int32), unknown))
        case "fixed":
            sizes = np.full(len(lane_ids), writer.size, np.int64)
        case _:
            sizes = lanes.zigzag(lane_ids, f"the size of {path}")
    if writer.kind == "string":
        # A string is read even if it is not selected, because invalid UTF-8 is an error.
        column = lanes.text(lane_ids, sizes, path)
        return None if target is None else column.cast(target)
    start, stop = lanes.skip(lane_ids, sizes, path)
    if target is None:
        return None
    if pa.types.is_decimal(target):
        return _decimals(lanes, lane_ids, start, stop, target, path)
    column = lanes.cut(start, stop)
    if not pa.types.is_string(target):
        return column
    return lanes.as_text(lane_ids, column, path)


def _decimals(lanes: Lanes, lane_ids: Ints, start: Ints, stop: Ints, target: Any, path: str) -> Column:
    """Convert big-endian numbers to Arrow's little-endian decimals of 16 bytes.

    As Java's BigInteger requires, a number has at least one byte. A number may begin with bytes that only
    repeat its sign. If a number is too large, the error is stored for its lane, and the lane's row in the
    returned column contains an arbitrary value.
    """
    size = stop - start
    lanes.fail(lane_ids, size == 0, f"{path} is a decimal without bytes")
    # A number of 16 bytes has more than 38 digits only if its first byte is outside of this range.
    first_byte = lanes.data[start].view(np.int8)
    too_large = (size > 16) | (size == 16) & ((first_byte < -0x4B) | (first_byte >= 0x4B))
    for row in np.flatnonzero(too_large).tolist():
        number = lanes.data[start[row] : stop[row]].tobytes()
        too_large[row] = abs(int.from_bytes(number, "big", signed=True)) >= 10**38
    lanes.fail(lane_ids, too_large, f"{path} has more than 38 digits")
    size = np.minimum(size, 16)
    is_negative = (size > 0) & (lanes.data[start] > 127)
    sign_byte = np.where(is_negative, 255, 0).astype(np.uint8)
    numbers = np.repeat(sign_byte[:, None], 16, axis=1)
    for byte in range(int(size.max(initial=0))):
        rows = np.flatnonzero(size > byte)
        numbers[rows, byte] = lanes.data[stop[rows] - 1 - byte]
    buffer = pa.py_buffer(np.ascontiguousarray(numbers))
    widest_type = pa.decimal128(38, target.scale)
    column = pa.Array.from_buffers(widest_type, len(size), [None, buffer])
    try:
        return column.cast(target)
    except pa.ArrowInvalid:
        limit = 10**target.precision
        integers = [int.from_bytes(number.tobytes(), "little", signed=True) for number in numbers]
        too_large = np.array([abs(integer) >= limit for integer in integers])
        lanes.fail(lane_ids, too_large, f"{path} has more than {target.precision} digits")
        numbers[too_large] = 0
        buffer = pa.py_buffer(np.ascontiguousarray(numbers))
        return pa.Array.from_buffers(widest_type, len(size), [None, buffer]).cast(target)

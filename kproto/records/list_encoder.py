"""Encode a whole batch from lists of its rows' fields, with loops in C (`map`, `join`).

`BatchBuilder` encodes the same rows to the same bytes, but takes three times as long. This module uses it
only if a number is not in the tables of small varints.

The pieces of each record are joined first. Joining the pieces of all records in one call takes three times as
long for a batch of 100 records.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import chain, islice, repeat
from typing import Any

from ..errors import EncodeError
from .builder import BatchBuilder, UnnumberedBatch, lay_out
from .compression import codec_number
from .encode_errors import UNWRITABLE
from .record import (
    NULL,
    TABLE_SIZE,
    ZERO_BYTE,
    Headers,
    encode_headers,
    length_of_bytes,
    small_varints,
    zigzag,
)

_join = b"".join


def unnumbered(
    timestamps: Sequence[int],
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    headers: Sequence[Headers] | None = None,
    *,
    compression: str = "none",
    level: int | None = None,
) -> UnnumberedBatch:
    """Encode one batch of magic 2 with base offset 0, without producer id, epoch and sequence.

    `timestamps` are in ms. `headers` contains the (key, value) pairs of each row, or is None if no row has
    headers.

    Raises `EncodeError` for lists of different lengths and for values that no record can hold. Raises
    `ConfigError` for an unknown codec, and `MissingExtra` if the codec's package is missing.
    """
    count = len(timestamps)
    for name, column in (("keys", keys), ("values", values), ("headers", headers)):
        if column is not None and len(column) != count:
            raise EncodeError("RecordBatch", 2, name, f"{len(column)} for {count} timestamps")
    codec = codec_number(compression)
    has_headers = headers is not None and headers.count(()) < count and any(headers)
    try:
        if not has_headers and _are_rows_uniform(timestamps, keys, values):
            pieces, largest_record = _encode_uniform_rows(timestamps, values)
            max_timestamp = timestamps[-1]
        else:
            pieces, largest_record = _encode_rows(timestamps, keys, values, headers if has_headers else None)
            max_timestamp = max(timestamps)
    except (LookupError, *UNWRITABLE):
        builder = BatchBuilder(compression, level=level)
        for row in zip(timestamps, keys, values, headers or repeat(()), strict=False):
            builder.append(*row)
        return builder.unnumbered()
    laid_out, records_size = lay_out(pieces, level, codec)
    return UnnumberedBatch(count, laid_out, codec, timestamps[0], max_timestamp, largest_record, records_size)


def _encode_rows(
    timestamps: Sequence[int],
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    headers: Sequence[Headers] | None,
) -> tuple[list[bytes | bytearray], int]:
    """Return the encoded records in pieces, and the size (bytes) of the largest record.

    Raises LookupError for numbers without a cached varint.
    """
    count = len(timestamps)
    varints, _ = small_varints()
    offset_deltas: Iterable[bytes] = islice(varints, count)
    if count > TABLE_SIZE:
        offset_deltas = chain(varints, map(zigzag, range(TABLE_SIZE, count)))
    encoded_headers: Iterable[bytes] = repeat(ZERO_BYTE)
    if headers is not None:
        encoded_headers = map(encode_headers, headers)
    attributes_and_deltas = _attributes_and_deltas(timestamps)
    key_lengths, key_bytes = _lengths_and_bytes(keys)
    value_lengths, value_bytes = _lengths_and_bytes(values)
    columns = (
        attributes_and_deltas, offset_deltas,
        key_lengths, key_bytes, value_lengths, value_bytes, encoded_headers,
    )  # fmt: skip
    bodies = list(map(_join, zip(*columns, strict=False)))
    sizes = list(map(len, bodies))
    lengths = map(varints.__getitem__, sizes)
    largest_body = max(sizes)
    pieces: list[bytes | bytearray] = list(chain.from_iterable(zip(lengths, bodies, strict=True)))
    return pieces, largest_body + len(varints[largest_body])


def _attributes_and_deltas(timestamps: Sequence[int]) -> list[bytes]:
    """Return the first bytes of each record after its length: the attributes and the timestamp delta."""
    base = timestamps[0]
    min_delta, max_delta = min(timestamps) - base, max(timestamps) - base
    if not min_delta and max_delta < TABLE_SIZE:
        _, deltas = small_varints()
        return [deltas[timestamp - base] for timestamp in timestamps]
    if min_delta < -_LONG_DELTA or max_delta >= _LONG_DELTA:
        return [ZERO_BYTE + zigzag(timestamp - base) for timestamp in timestamps]
    whole, first, middle, last = _varint_tables()
    # The deltas in zigzag encoding. Each table maps 14 bits of such a number to two bytes of its varint.
    numbers = [delta << 1 ^ delta >> 63 for delta in [timestamp - base for timestamp in timestamps]]
    return [
        whole[number]
        if number < 1 << 14
        else first[number & _MASK] + last[number >> 14]
        if number < 1 << 28
        else first[number & _MASK] + middle[number >> 14 & _MASK] + last[number >> 28]
        for number in numbers
    ]


def _lengths_and_bytes(column: Sequence[bytes | None]) -> tuple[Iterable[bytes], Iterable[bytes]]:
    """Return two lists for a column of keys or values: the varints of their lengths, and their bytes."""
    varints, _ = small_varints()
    return (
        [NULL if content is None else varints[length_of_bytes(content)] for content in column],
        [b"" if content is None else content for content in column],
    )


def _are_rows_uniform(
    timestamps: Sequence[int], keys: Sequence[bytes | None], values: Sequence[bytes | None]
) -> bool:
    """Return whether `_encode_uniform_rows` can encode the rows, and is fast for them.

    The rows must have no keys, values of equal length, and ascending timestamps. There must be more than
    eight rows per millisecond on average, so that many rows share a timestamp.
    """
    count = len(timestamps)
    if keys.count(None) < count or not 1 < count <= _MAX_UNIFORM_ROWS:
        return False
    if 8 * (timestamps[-1] - timestamps[0]) >= count:  # Too few rows per ms: eight or fewer on average.
        return False
    try:
        if len(set(map(length_of_bytes, values))) > 1:  # type: ignore[arg-type]
            return False
    except TypeError:  # The value is null, or is not of type bytes.
        return False
    return list(timestamps) == sorted(timestamps)


def _encode_uniform_rows(
    timestamps: Sequence[int], values: Sequence[Any]
) -> tuple[list[bytes | bytearray], int]:
    """Encode rows that have no keys and have values of equal length.

    The rows of each timestamp are encoded together, so the function is fast only if many rows share a
    timestamp. The result also contains the size (bytes) of the largest record.

    In the records of one timestamp, the bytes before each value differ only in the offset delta. One slice
    assignment writes the first byte of all these offset deltas, another one the second byte, and so on.
    """
    varints, deltas = small_varints()
    count, base, value_length = len(timestamps), timestamps[0], len(values[0])
    # The bytes between the offset delta and the value: a null key, and the length of the value.
    key_and_length = NULL + zigzag(value_length)
    delta_bytes = _offset_delta_bytes()
    pieces: list[bytes | bytearray] = []
    # The rows from `first` to `end` have the same timestamp, and offset deltas of the same width.
    first = largest_record = 0
    while first < count:
        end = bisect_right(timestamps, timestamps[first], first)
        end = min(end, next((limit for limit in _WIDENING_DELTAS if limit > first), end))
        attributes_and_delta, width = deltas[timestamps[first] - base], len(varints[first])
        size = len(attributes_and_delta) + width + len(key_and_length) + value_length + 1
        start = varints[size] + attributes_and_delta
        # The values of these rows, joined. What stands between two values ends one record (it has 0 headers)
        # and starts the next one. The offset delta of the next record is filled in below.
        joined = bytearray(ZERO_BYTE + start + bytes(width) + key_and_length).join(values[first:end])
        # The position in `joined` of the first offset delta, and the distance between the starts of
        # consecutive offset deltas.
        delta_at, record_size = value_length + 1 + len(start), len(varints[size]) + size
        for byte in range(width):
            joined[delta_at + byte :: record_size] = delta_bytes[byte][first + 1 : end]
        pieces += (start + varints[first] + key_and_length, joined, ZERO_BYTE)
        largest_record = max(largest_record, record_size)
        first = end
    return pieces, largest_record


# The smallest offset deltas whose varints take two and three bytes.
_WIDENING_DELTAS = (64, 8192)
# The number of offset deltas in the table of `_offset_delta_bytes`.
_MAX_UNIFORM_ROWS = 16384
# A mask for the 14 bits in two bytes of a varint.
_MASK = (1 << 14) - 1
# The smallest timestamp delta, in ms (69 years), whose varint takes more than six bytes.
_LONG_DELTA = 1 << 41


@cache
def _varint_tables() -> tuple[list[bytes], list[bytes], list[bytes], list[bytes]]:
    """Return four tables that map 14 bits to two bytes of a varint.

    The first table contains varints of two bytes. The others contain pairs of bytes of longer varints: the
    first two, the middle two, and the last two bytes.

    The entries of the first two tables begin with the record's attributes byte.
    """
    last = [bytes((bits,)) if bits < 128 else bytes((bits & 127 | 128, bits >> 7)) for bits in range(1 << 14)]
    middle = [bytes((bits & 127 | 128, bits >> 7 | 128)) for bits in range(1 << 14)]
    whole = [ZERO_BYTE + two_bytes for two_bytes in last]
    first = [ZERO_BYTE + two_bytes for two_bytes in middle]
    return whole, first, middle, last


@cache
def _offset_delta_bytes() -> list[bytes]:
    """Return three byte strings: the first, second and third bytes of the varints of all offset deltas."""
    varints, _ = small_varints()
    return [
        bytes(column)
        for column in zip(
            *[varint.ljust(3, ZERO_BYTE) for varint in varints[:_MAX_UNIFORM_ROWS]], strict=True
        )
    ]

"""Lists to record batches: the rows of a whole batch encoded at once, by loops that run in C.

The bytes are those that `BatchBuilder` makes of the same rows, in a third of its time: a producer keeps what
it was given, and encodes when it sends. What is beyond the tables of small varints goes the builder's way.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache
from itertools import chain, islice, pairwise, repeat
from operator import add, itemgetter
from typing import Any

from ..errors import EncodeError
from .batch import TRANSACTIONAL
from .building import BatchBuilder, finish
from .compression import codec_number
from .record import NOTHING, NULL, TABLED, Headers, encode_headers, small_varints, zigzag
from .unwritable import UNWRITABLE

_join = b"".join


def encode_lists(
    timestamps: Sequence[int],
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    headers: Sequence[Headers] | None = None,
    *,
    compression: str = "none",
    level: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
) -> bytes:
    """One batch of magic 2 with these rows and base offset 0, as a producer sends it.

    `timestamps` are in ms; `headers` has the pairs of each row, None is for rows without any. Raises
    `EncodeError` for lists of different lengths and for what no record can hold, `ConfigError` for an unknown
    codec and `MissingExtra` without its package.
    """
    count = len(timestamps)
    for name, column in (("keys", keys), ("values", values), ("headers", headers)):
        if column is not None and len(column) != count:
            raise EncodeError("RecordBatch", 2, name, f"{len(column)} for {count} timestamps")
    try:
        whole = _encoded(timestamps, keys, values, headers)
    except (LookupError, *UNWRITABLE):
        builder = BatchBuilder(compression, level=level)
        for row in zip(timestamps, keys, values, headers or repeat(()), strict=False):
            builder.append(*row)
        return builder.build(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            is_transactional=is_transactional,
        )
    return finish(
        [whole],
        level,
        base_offset=0,
        last_delta=count - 1,
        leader_epoch=-1,
        attributes=codec_number(compression) | TRANSACTIONAL * is_transactional,
        base_timestamp=timestamps[0],
        max_timestamp=max(timestamps),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        count=count,
    )


def _encoded(
    timestamps: Sequence[int],
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    headers: Sequence[Headers] | None,
) -> bytes | bytearray:
    """The records; LookupError for numbers that are in no table."""
    named = headers is not None and headers.count(()) < len(headers) and any(headers)
    if not named and len(timestamps) > 1 and (keys[0] is not None or keys.count(None) == len(keys)):
        with suppress(LookupError, TypeError):  # a null has no length
            return _small(timestamps, None if keys[0] is None else keys, values)
    varints, deltas = small_varints()
    count = len(timestamps)
    base = timestamps[0]
    if min(timestamps) < base:  # which is an index, too
        raise IndexError
    moments = [deltas[timestamp - base] for timestamp in timestamps]
    places: Iterable[bytes] = islice(varints, count)
    if count > TABLED:
        places = chain(varints, map(zigzag, range(TABLED, count)))
    tails: Iterable[bytes] = repeat(NOTHING)
    if headers is not None and named:
        tails = map(encode_headers, headers)
    bodies = list(map(_join, zip(moments, places, *_sized(keys), *_sized(values), tails, strict=False)))
    lengths = map(varints.__getitem__, map(len, bodies))
    return _join(chain.from_iterable(zip(lengths, bodies, strict=True)))


def _sized(column: Sequence[bytes | None]) -> tuple[Iterable[bytes], Iterable[bytes]]:
    """The varints of the lengths, and the contents."""
    varints, _ = small_varints()
    return (
        [NULL if content is None else varints[len(content)] for content in column],
        [b"" if content is None else content for content in column],
    )


def _small(
    timestamps: Sequence[int], keys: Sequence[bytes | None] | None, values: Sequence[bytes | None]
) -> bytes | bytearray:
    """The records of a batch like most are: without headers, all with a key or none, all with a value, none
    large, in the order of their times. LookupError for any other.

    All pieces of all records are laid out in one list, column by column, and joined once. The end of a record
    is one byte, so it stands with the length of the next one.
    """
    varints, deltas = small_varints()
    count, base = len(timestamps), timestamps[0]
    if timestamps[-1] - base >= _MOST or count > _MOST or list(timestamps) != sorted(timestamps):
        raise LookupError
    lengths = list(map(len, values))  # type: ignore[arg-type]
    if keys is None and _same(lengths) and 8 * (timestamps[-1] - base) < count:
        return _alike(timestamps, values, lengths[0])
    moments: list[bytes] = []
    while len(moments) < count:  # a millisecond has many records
        now = timestamps[len(moments)]
        first = len(moments)
        moments += [deltas[now - base]] * (bisect_right(timestamps, now, first) - first)
    sized = _sizes()
    sizes = _pick(sized, lengths)
    columns: list[Sequence[bytes | None]] = [moments, varints[:count]]
    if keys is None:
        extra = 2
        columns += [_pick(_behind_null(), lengths), values]
    else:
        extra = 1
        key_lengths = list(map(len, keys))  # type: ignore[arg-type]
        sizes = list(map(add, sizes, _pick(sized, key_lengths)))
        columns += [_pick(varints, key_lengths), keys, _pick(varints, lengths), values]
    # The widths of a record's time and place change seldom, and the rest is in `sizes`.
    turns = {0, count, *(bisect_left(timestamps, base + limit) for limit in _WIDER)}
    turns.update(limit for limit in _WIDER if limit < count)
    starts: list[bytes] = []
    for first, end in pairwise(sorted(turns)):
        width = len(moments[first]) + len(varints[first])
        # The end of one record, and the length of the next: what is in front of a time, too.
        starts += _pick(deltas[width + extra : width + extra + _MOST], sizes[first:end])
    wide = len(columns) + 1
    pieces: list[Any] = [b""] * (wide * count)
    pieces[::wide] = starts
    for number, column in enumerate(columns, 1):
        pieces[number::wide] = column
    pieces[0] = starts[0][1:]
    pieces.append(NOTHING)
    return _join(pieces)


def _alike(timestamps: Sequence[int], values: Sequence[Any], length: int) -> bytearray:
    """The same, for values of one length and many of a millisecond, without keys: what stands before a value
    is always the same but for its place, and places are written into all records at once.
    """
    varints, deltas = small_varints()
    places, null = _places(), NULL + zigzag(length)
    count, base = len(timestamps), timestamps[0]
    pieces: list[bytes] = []
    spans: list[tuple[int, int, int, int, int]] = []
    first = size = 0
    while first < count:
        end = bisect_right(timestamps, timestamps[first], first)
        end = min(end, next((limit for limit in _WIDER if limit > first), end))
        moment, width = deltas[timestamps[first] - base], len(varints[first])
        behind = moment + bytes(width) + null
        before = varints[len(behind) + length + 1] + behind
        pieces += (before, (NOTHING + before).join(values[first:end]), NOTHING)
        step = len(before) + length + 1
        spans.append((size + len(before) - len(null) - width, step, width, first, end))
        size += step * (end - first)
        first = end
    whole = bytearray().join(pieces)
    for at, step, width, first, end in spans:
        for byte in range(width):
            whole[at + byte : at + step * (end - first) : step] = places[byte][first:end]
    return whole


def _same(numbers: Sequence[int]) -> bool:
    first, count = numbers[0], len(numbers)
    return first == numbers[count >> 1] == numbers[-1] and numbers.count(first) == count


def _pick(table: Any, indices: Sequence[int]) -> Sequence[Any]:
    """What the table has for each index; IndexError and KeyError are LookupErrors."""
    if _same(indices):
        return [table[indices[0]]] * len(indices)
    picked: Sequence[Any] = itemgetter(*indices)(table)
    return picked


_WIDER = (64, 8192)  # from these on a varint takes one byte more
_MOST = 16384  # the tables of small records end here


@cache
def _sizes() -> list[int]:
    """The bytes that a key or value of this length takes, with its length."""
    varints, _ = small_varints()
    return [length + len(varint) for length, varint in enumerate(varints[:_MOST])]


@cache
def _behind_null() -> list[bytes]:
    """A key that is null, and the length of a value."""
    varints, _ = small_varints()
    return [NULL + varint for varint in varints[:_MOST]]


@cache
def _places() -> list[bytes]:
    """The first, the second and the third byte of a record's place."""
    varints, _ = small_varints()
    return [
        bytes(column)
        for column in zip(*[varint.ljust(3, NOTHING) for varint in varints[:_MOST]], strict=True)
    ]

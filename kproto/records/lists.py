"""Lists to record batches: the rows of a whole batch encoded at once, by loops that run in C.

The bytes are those that `BatchBuilder` makes of the same rows, in a third of its time: a producer keeps what
it was given, and encodes when it sends. What is beyond the tables of small varints goes the builder's way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, islice, repeat

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
) -> bytes:
    """The records; LookupError for numbers that are in no table."""
    varints, deltas = small_varints()
    count = len(timestamps)
    base = timestamps[0]
    if min(timestamps) < base:  # which is an index, too
        raise IndexError
    moments: Iterable[bytes] = repeat(deltas[0])
    if max(timestamps) > base:
        moments = [deltas[timestamp - base] for timestamp in timestamps]
    places: Iterable[bytes] = islice(varints, count)
    if count > TABLED:
        places = chain(varints, map(zigzag, range(TABLED, count)))
    tails: Iterable[bytes] = repeat(NOTHING)
    if headers is not None and any(headers):
        tails = map(encode_headers, headers)
    bodies = list(map(_join, zip(moments, places, *_sized(keys), *_sized(values), tails, strict=False)))
    lengths = map(varints.__getitem__, map(len, bodies))
    return _join(chain.from_iterable(zip(lengths, bodies, strict=True)))


def _sized(column: Sequence[bytes | None]) -> tuple[Iterable[bytes], Iterable[bytes]]:
    """The varints of the lengths, and the contents."""
    varints, _ = small_varints()
    nulls = column.count(None)
    if nulls == len(column):
        return repeat(NULL), repeat(b"")
    if nulls:
        return (
            [NULL if content is None else varints[len(content)] for content in column],
            [b"" if content is None else content for content in column],
        )
    return map(varints.__getitem__, map(len, column)), column  # type: ignore[arg-type, return-value]

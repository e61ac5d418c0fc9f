"""The records of a records field as objects, one by one or in lists."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, TypedDict

from ..errors import ConfigError, MissingExtra, RecordError
from .batch import HEADER_SIZE, Data, check_data
from .reader import AbortedTransactions, batches, has_many_records
from .record import Record

if TYPE_CHECKING:
    from .columns import Columns


class _Wanted(TypedDict):
    """What `rows` and `row_lists` were asked for."""

    check_crc: bool
    aborted: Sequence[tuple[int, int]]
    from_offset: int | None
    control: bool


def rows(
    data: Data,
    *,
    check_crc: bool = True,
    aborted: Sequence[tuple[int, int]] = (),
    from_offset: int | None = None,
    control: bool = False,
    max_decompressed: int | None = None,
) -> list[Record]:
    """The records of a records field, in order; raises `RecordError` or `MissingExtra`.

    A cut last batch gives none, as brokers cut their answers at a number of bytes (`batches`). Control
    records are left out unless `control` asks for them. `aborted` are the (producer id, first offset) of a
    fetch answer: with them, records of aborted transactions are left out too (isolation level
    read_committed). Brokers send whole batches, so the first may start below the offset that was asked for:
    records below `from_offset` are left out.

    With numpy and pyarrow installed, thousands of records are read as columns first: 2 to 4 times as fast.
    """
    check_data(data)
    wanted = _Wanted(check_crc=check_crc, aborted=aborted, from_offset=from_offset, control=control)
    columns, known = _as_columns(data, max_decompressed, wanted)
    if columns is not None:
        try:
            return columns.rows()
        finally:
            columns.release()
    found: list[Record] = []
    for records in _row_by_row(data, known, max_decompressed, **wanted):
        found += records
    return found


def row_lists(
    data: Data,
    size: int = 500,
    *,
    check_crc: bool = True,
    aborted: Sequence[tuple[int, int]] = (),
    from_offset: int | None = None,
    control: bool = False,
    max_decompressed: int | None = None,
) -> Iterator[list[Record]]:
    """The records of `rows` in lists of at most `size`, as a poll hands them out; other arguments as there.

    Twice as fast as one long list where each is dropped before the next. What lies before a broken batch is
    given before its `RecordError` is raised. Raises `ConfigError` for a `size` below 1.
    """
    if size < 1:
        raise ConfigError("size", size, "it must be at least 1")
    wanted = _Wanted(check_crc=check_crc, aborted=aborted, from_offset=from_offset, control=control)
    columns, known = _as_columns(data, max_decompressed, wanted)
    if columns is not None:
        try:
            yield from columns.row_lists(size)
        finally:
            columns.release()
        return
    for found in _row_by_row(data, known, max_decompressed, **wanted):
        for start in range(0, len(found), size):
            yield found[start : start + size]


def _as_columns(
    data: Data, max_decompressed: int | None, wanted: _Wanted
) -> tuple[Columns | None, RecordError | None]:
    """All as columns, where that is faster; or the error that this met: the loop says where it is."""
    if (read := _columns(data)) is None:
        return None, None
    try:
        columns = read(data, **wanted, max_decompressed=max_decompressed, lent=True)
        columns.headers_between(0, 0)  # which parses all of them
    except RecordError as error:
        return None, _drop_traceback(error)
    return columns, None


def _drop_traceback(error: RecordError) -> RecordError:
    """The error without the frames that it went through, and the megabytes that these hold."""
    error.__context__ = None
    return error.with_traceback(None)


def _row_by_row(
    data: Data,
    known: RecordError | None,
    max_decompressed: int | None,
    *,
    check_crc: bool,
    aborted: Sequence[tuple[int, int]],
    from_offset: int | None,
    control: bool,
) -> Iterator[list[Record]]:
    """The wanted records of one batch after the other.

    `known` is an error that is met at the latest: a bomb need not go off again to be one.
    """
    transactions = AbortedTransactions(aborted)
    for batch in batches(data, check_crc=check_crc, max_decompressed=max_decompressed):
        if transactions.skips(batch) or (batch.is_control and not control):
            continue
        if from_offset is not None and batch.last_offset < from_offset:
            continue
        if known and (known.field, known.offset) == ("records", batch.start + HEADER_SIZE):
            raise known
        found = batch.parse(batch, max_decompressed)
        if from_offset is not None and batch.base_offset < from_offset:
            found = [one for one in found if one.offset >= from_offset]
        yield found


def _columns(data: Data) -> Callable[..., Columns] | None:
    """The reader of columns, where it is there and faster."""
    return _read_columns() if has_many_records(data) else None


@cache
def _read_columns() -> Callable[..., Columns] | None:
    try:
        from .columns import columns
    except MissingExtra:
        return None
    return columns

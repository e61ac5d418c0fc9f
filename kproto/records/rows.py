"""Decode a `records` field to `Record` objects, in one list or in several."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, TypedDict

from ..errors import ConfigError, IllegalState, MissingExtra, RecordError
from .batch import HEADER_SIZE, Data, check_data
from .reader import AbortedTransactions, batches, has_many_records, has_too_many_records
from .record import Record
from .record_stream import record_lists

if TYPE_CHECKING:
    from .columns import Columns


# `row_lists` decodes to columns only up to this number of decompressed bytes, or up to 16 times the size of
# the `records` field if that is more.
_MAX_COLUMN_BYTES = 32 << 20


class _Selection(TypedDict):
    """The arguments with which `rows` and `row_lists` select records."""

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
    """Decode the records of a `records` field.

    Raises `RecordError` for a malformed batch, and `MissingExtra` if a codec's package is missing.

    A truncated last batch is ignored, because brokers limit responses to a number of bytes. Control records
    are returned only if `control` is set.

    `aborted` lists pairs (producer id, first offset) from a fetch response. The records of these transactions
    are left out, as in isolation level read_committed.

    Records below `from_offset` are left out. Brokers send whole batches, so the first batch may begin below
    the requested offset.

    If numpy and pyarrow are installed, and the batches of magic 2 announce at least 1000 records, `data` is
    first decoded to columns. This is 2 to 4 times as fast as decoding it row by row.
    """
    check_data(data)
    selection = _Selection(check_crc=check_crc, aborted=aborted, from_offset=from_offset, control=control)
    columns, column_error = _decode_to_columns(data, max_decompressed, selection)
    if columns is not None:
        try:
            return columns.rows()
        finally:
            columns.release()
    decoded: list[Record] = []
    for records in _decode_by_row(data, column_error, max_decompressed, None, **selection):
        decoded += records
    return decoded


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
    """Decode record batches as `rows` does, into lists of at most `size` records.

    The other arguments have the same meaning as in `rows`.

    `row_lists` takes half the time of `rows` if the caller drops each list before it requests the next one.

    If a batch is malformed, the records before it are yielded, then `RecordError` is raised. Raises
    `ConfigError` for a `size` below 1.

    If a compressed batch has very many or very large records, it is decompressed and decoded list by list to
    limit memory.
    """
    if size < 1:
        raise ConfigError("size", size, "it must be at least 1")
    selection = _Selection(check_crc=check_crc, aborted=aborted, from_offset=from_offset, control=control)
    columns, column_error = None, None
    if not has_too_many_records(data):
        with suppress(IllegalState):
            columns, column_error = _decode_to_columns(
                data, max_decompressed, selection, max(_MAX_COLUMN_BYTES, 16 * len(data))
            )
    if columns is not None:
        try:
            yield from columns.row_lists(size)
        finally:
            columns.release()
        return
    for decoded in _decode_by_row(data, column_error, max_decompressed, size, **selection):
        if decoded:
            yield decoded


def _decode_to_columns(
    data: Data, max_decompressed: int | None, selection: _Selection, most: int | None = None
) -> tuple[Columns | None, RecordError | None]:
    """Decode to columns if this is faster than decoding row by row.

    Returns (columns, None), or (None, error) if decoding failed. Returns (None, None) if decoding to columns
    is not faster, or if numpy or pyarrow is missing.

    After an error, the caller reads row by row to return the records before the error.

    Raises `IllegalState` if the records decompress to more than `most` bytes.
    """
    if (read := _column_reader(data)) is None:
        return None, None
    try:
        limit = {} if most is None else {"most": most}
        columns = read(data, **selection, max_decompressed=max_decompressed, lent=True, **limit)
        # `headers_between` decodes the headers of all rows, so that malformed headers raise an error here.
        columns.headers_between(0, 0)
    except RecordError as error:
        return None, _drop_traceback(error)
    return columns, None


def _drop_traceback(error: RecordError) -> RecordError:
    """Remove the traceback and the context of an error, because their frames keep megabytes of data alive."""
    error.__context__ = None
    return error.with_traceback(None)


def _decode_by_row(
    data: Data,
    column_error: RecordError | None,
    max_decompressed: int | None,
    size: int | None,
    *,
    check_crc: bool,
    aborted: Sequence[tuple[int, int]],
    from_offset: int | None,
    control: bool,
) -> Iterator[list[Record]]:
    """Yield a list of records for each batch, or lists of at most `size` records if it is set.

    `column_error` is the error of an earlier decoding to columns, or None. When the iteration reaches the
    batch of this error, the error is raised without decompressing the batch again.
    """
    transactions = AbortedTransactions(aborted)
    for batch in batches(data, check_crc=check_crc, max_decompressed=max_decompressed):
        if transactions.skips(batch) or (batch.is_control and not control):
            continue
        if from_offset is not None and batch.last_offset < from_offset:
            continue
        if (
            column_error
            and column_error.field == "records"
            and column_error.offset == batch.start + HEADER_SIZE
        ):
            raise column_error
        lists: Iterable[list[Record]]
        if size is None:
            lists = (batch.parse(batch, max_decompressed),)
        else:
            lists = record_lists(batch, size, max_decompressed)
        for records in lists:
            if from_offset is not None and batch.base_offset < from_offset:
                yield [record for record in records if record.offset >= from_offset]
            else:
                yield records


def _column_reader(data: Data) -> Callable[..., Columns] | None:
    """Return the function `columns`, or None if `data` has few records or a required package is missing."""
    return _import_column_reader() if has_many_records(data) else None


@cache
def _import_column_reader() -> Callable[..., Columns] | None:
    """Return the function `columns`, or None if numpy or pyarrow is missing."""
    try:
        from .columns import columns
    except MissingExtra:
        return None
    return columns

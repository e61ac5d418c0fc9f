"""The buffer of one fetch, whose bytes are decoded when poll needs records (Java's CompletedFetch).

Rules:

* After a batch whose records are not returned, such as a control batch or a batch of an aborted transaction,
  the position is the offset after the batch.

* The first batch may begin before the position. Its records before the position are skipped.

* Each attempt to read an invalid batch raises RecordError. The records before the batch are returned first.

* A batch is also invalid if it begins before the end of the previous batch, contains a record outside of its
  offset range, or contains the largest int64 offset.

* Within a batch, offsets may repeat or decrease. Brokers accept such batches from producers if they are not
  compressed.

* A compressed batch of a few kilobytes may have millions of records. So a large batch is decoded in parts of
  `PART_RECORDS` records, unless its fetch is decoded as columns.

* A part is decoded when a poll needs its records. If a record is malformed, the records of the previous parts
  are still returned.

* The records of a large fetch are decoded as columns, which is twice as fast as decoding them one by one.
  Rows are converted to objects when a poll needs them.

* A fetch with few or invalid records is decoded batch by batch, with the same result. All fetches are decoded
  in this way if numpy and pyarrow are not imported.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from itertools import repeat
from operator import itemgetter
from typing import TYPE_CHECKING

from kproto.errors import IllegalState, RecordError
from kproto.records import AbortedTransactions, Batch, Record, batches
from kproto.records.batch import SMALLEST_RECORD, Data
from kproto.records.reader import TOO_MANY, WORTH_COLUMNS
from kproto.records.record_stream import record_lists

from ...column_module import columns_if_loaded, load_columns
from ...errors import without_traceback
from ...records import ConsumerRecord
from .batch_headers import read_end

if TYPE_CHECKING:
    from kproto.records.columns import Columns

# The bytes of a partition are copied if they are less than one eighth of the response, because a view would
# keep the whole response in memory.
MIN_VIEW_SHARE = 8

# A fetch is decoded batch by batch if its decompressed size (bytes) exceeds both `MAX_DECODED_BYTES` and
# `MAX_DECODED_RATIO` times its fetched size.
MAX_DECODED_BYTES = 32 << 20
MAX_DECODED_RATIO = 16

# A fetch with more records than this is decoded in parts if it has fewer than seven bytes per record, which
# is possible only with compression.
MAX_DECODED_RECORDS = TOO_MANY

# Number of records per part, if a fetch is decoded in parts.
PART_RECORDS = 10_000

# If the decompressed size (bytes) of a compressed batch exceeds this limit, the batch is decoded in parts.
# This applies only to fetches that are decoded batch by batch.
SMALL_BATCH_BYTES = 1 << 20

# Minimum number of rows that are converted to records at a time, because converting one row takes as long as
# converting fifty.
ROWS_AHEAD = 64

# The fetches of one response are decoded together until their total size (bytes) reaches this limit. No
# record is returned until all of these fetches are decoded.
MAX_JOINT_BYTES = 4 << 20


_first_offset = itemgetter(0)


class CompletedFetch:
    """The record batches that one fetch returned for one partition.

    `position` is the offset of the next record to return. `end` is the offset of the partition's next fetch.

    With `in_parts`, even a fetch with few records is decoded in parts.

    The constructor raises RecordError if no complete, valid batch in the data ends at or after the position.
    """

    __slots__ = (
        "_aborted",
        "_batch",
        "_batch_position",
        "_batches",
        "_check_crcs",
        "_columns",
        "_converted",
        "_converted_from",
        "_decoded",
        "_end_error",
        "_epochs",
        "_error",
        "_lent",
        "_max_decompressed",
        "_next_row",
        "_parts",
        "_record_count",
        "_siblings",
        "_transactions",
        "data",
        "decodes_in_parts",
        "end",
        "fetched",
        "position",
    )

    def __init__(
        self,
        data: Data,
        position: int,
        aborted: Sequence[tuple[int, int]] | None,
        check_crcs: bool,
        max_decompressed: int | None = None,
        siblings: list[CompletedFetch] | None = None,
        *,
        in_parts: bool = False,
    ) -> None:
        if isinstance(data, memoryview) and len(data) * MIN_VIEW_SHARE < memoryview(data.obj).nbytes:
            data = bytes(data)
        self._max_decompressed = max_decompressed
        # The completed fetches of the same response, in the order of the response's partitions.
        # `_decode_together` decodes small fetches together.
        self._siblings: list[CompletedFetch] = [] if siblings is None else siblings
        # Whether `_columns` has views of pooled memory, which `Columns.release` returns to the pool.
        self._lent = False
        self.position = position
        # `_epochs`: a pair (first offset, leader epoch) for the first batch, and for each batch whose epoch
        # differs from the previous batch's epoch.
        self.end, self._epochs, record_count, self._end_error = read_end(data)
        if self._end_error is not None and self.end <= position:
            raise self._end_error
        # `fetched` contains all bytes of the fetch. `data` contains only the bytes before an invalid batch.
        self.fetched = data
        self.data = data if self._end_error is None else data[: self._end_error.offset]
        # `aborted` is None with read_uncommitted, which returns the records of every transaction.
        self._aborted = aborted or ()
        self._check_crcs = check_crcs
        # True if the caller requires decoding in parts, or if the fetch has very many records for its size.
        self.decodes_in_parts = in_parts or (
            record_count > MAX_DECODED_RECORDS and record_count * SMALLEST_RECORD > len(self.data)
        )
        # Number of records according to the batch headers. The count of a malformed header may be far too
        # large, so the number of bytes limits it.
        self._record_count = min(record_count, len(self.data))
        self._columns: Columns | None = None
        # Rows of `_columns` that were converted to records ahead of the polls that return them, and the
        # number of the first of these rows.
        self._converted: list[ConsumerRecord] = []
        self._converted_from = 0
        self._batches: Iterator[Batch] | None = None
        self._transactions: AbortedTransactions | None = None
        # The batch that is being decoded, the position at its start, and its parts that are not decoded yet.
        self._batch: Batch | None = None
        self._batch_position = position
        self._parts: Iterator[list[Record]] = iter(())
        self._decoded: list[ConsumerRecord] = []  # The records of the part that was decoded last.
        self._next_row = 0  # The next record to return: its index in `_columns` or `_decoded`.
        # The error of an invalid batch. After the records before this batch, every call of `rows` raises it.
        self._error: RecordError | None = None
        if isinstance(data, memoryview):
            # The fetch is added to the list last, so that the list never contains a fetch whose constructor
            # raised.
            self._siblings.append(self)

    @property
    def leader_epoch(self) -> int | None:
        """The leader epoch of the last batch before the position, or None if it is unknown."""
        return self._epoch_at(self.position - 1)

    def _epoch_at(self, offset: int) -> int | None:
        """Return the leader epoch of the batch that contains `offset`, or None if it is unknown."""
        epochs = self._epochs
        index = bisect_right(epochs, offset, key=_first_offset) - 1 if len(epochs) > 1 else 0
        epoch = epochs[max(index, 0)][1]
        return epoch if epoch >= 0 else None

    def _epochs_at(self, offsets: list[int]) -> Iterable[int | None]:
        """Return the leader epoch of the record at each of these offsets."""
        return map(self._epoch_at, offsets) if len(self._epochs) > 1 else repeat(self._epoch_at(0))

    @property
    def record_count(self) -> int:
        """Number of records according to the batch headers, including those that poll never returns."""
        return self._record_count

    @property
    def exhausted(self) -> bool:
        """Whether all records were returned."""
        return self.position >= self.end and self._end_error is None

    @property
    def error_offset(self) -> int:
        """An offset within the batch that made `rows` or `columns` raise RecordError.

        The offset is `position`, but at most the last offset of the batch.
        """
        return self.position if self._batch is None else min(self.position, self._batch.last_offset)

    def rows(self, topic: str, partition: int, limit: int) -> list[ConsumerRecord]:
        """Return the next records, at most `limit`, and advance `position` past them."""
        if self._end_error is not None and self.position >= self.end:
            raise self._end_error
        if self._columns is None and self._batches is None:
            self._start_decoding()
        if self._columns is not None:
            return self._column_rows(self._columns, topic, partition, limit)
        return self._batch_rows(topic, partition, limit)

    def _start_decoding(self) -> None:
        """Start decoding the records, as columns if possible.

        Other fetches, for example a fetch with few records, are decoded batch by batch.
        """
        self._batch, self._error, self._decoded, self._converted, self._next_row = None, None, [], [], 0
        self._parts = iter(())
        self._transactions = AbortedTransactions(self._aborted) if self._aborted else None
        if len(self._siblings) > 1 and self._decode_together(lent=True):
            return
        decodes_columns = self._record_count >= WORTH_COLUMNS and not self.decodes_in_parts
        module = columns_if_loaded() if decodes_columns else None
        if module is not None:
            try:
                self._lent = True
                columns = self._read_columns(self.data, lent=True)
                _ = columns.headers_between(0, 0)  # Raises for invalid headers.
            except (RecordError, IllegalState):
                pass
            else:
                self._columns = columns
                return
        self._batches = batches(
            self.data, check_crc=self._check_crcs, max_decompressed=self._max_decompressed
        )

    def _decode_first_part(self, batch: Batch) -> list[Record]:
        """Return a batch's records, or its first part if it is decoded in parts; `_parts` yields the rest."""
        if not (self.decodes_in_parts or batch.codec):
            return _checked(batch, batch.records(self._max_decompressed))
        if not self.decodes_in_parts and batch.magic == 2 and batch.count <= PART_RECORDS:
            # A small batch is decoded as a whole, because decoding it in parts takes up to twice as long.
            with suppress(RecordError):
                max_bytes = min(SMALL_BATCH_BYTES, self._max_decompressed or SMALL_BATCH_BYTES)
                return _checked(batch, batch.records(max_bytes))
        parts = record_lists(batch, PART_RECORDS, self._max_decompressed)
        self._parts = (_checked(batch, records) for records in parts)
        return next(self._parts, list[Record]())

    def _has_valid_offsets(self, columns: Columns) -> bool:
        """Return whether each record's offset is below the end offset of the fetch's last batch."""
        return not len(columns.offset) or bool(columns.offset.max() < self.end)

    def _read_columns(self, data: Data, *, lent: bool = False) -> Columns:
        """Decode the records of `data`, from the position on, as columns.

        Raises IllegalState if the records have too many bytes to be decoded as a whole.
        """
        columns: Columns = load_columns().columns(
            data,
            check_crc=self._check_crcs,
            aborted=self._aborted,
            from_offset=self.position,
            max_decompressed=self._max_decompressed,
            lent=lent,
            most=max(MAX_DECODED_BYTES, MAX_DECODED_RATIO * len(data)),
        )
        if not self._has_valid_offsets(columns):
            columns.release()
            detail = f"a record at offset {columns.offset.max()}, and the batches end with {self.end - 1}"
            raise RecordError("RecordBatch", 2, "records.offsetDelta", 0, detail)
        return columns

    def _decode_together(self, *, lent: bool) -> bool:
        """Decode the fetches of one response together if possible, and return whether it was possible.

        The fetches must be decoded separately, for example, if a batch is compressed, or if the fetches have
        too few records for columns.

        For small fetches one call of the decoder is faster than several, because each call has a fixed cost.
        This cost equals the cost of decoding a thousand records.
        """
        size, fetches = 0, list[CompletedFetch]()
        for sibling in self._siblings:
            is_untouched = sibling._columns is None and sibling._batches is None
            if sibling is self or (is_untouched and size < MAX_JOINT_BYTES):
                fetches.append(sibling)
                size += len(sibling.data)
        load = columns_if_loaded if lent else load_columns
        module = load() if len(fetches) > 1 and self in fetches else None
        if module is None or sum(fetch._record_count for fetch in fetches) < WORTH_COLUMNS:
            return False
        encoded = [module.FetchedPart(fetch.data, fetch._aborted, fetch.position) for fetch in fetches]
        try:
            columns = module.columns_of(encoded, check_crc=self._check_crcs, lent=lent, most=0)
            _ = columns.headers_between(0, 0)  # Raises for invalid headers.
        except (RecordError, IllegalState):
            return False  # A batch is compressed or invalid: decode each fetch separately.
        decoded = [columns.part(index) for index in range(len(fetches))]
        if not all(fetch._has_valid_offsets(part) for fetch, part in zip(fetches, decoded, strict=True)):
            columns.release()
            return False
        for fetch, part in zip(fetches, decoded, strict=True):
            fetch._columns, fetch._lent, fetch._next_row = part, lent, 0
        return True

    def _column_rows(self, columns: Columns, topic: str, partition: int, limit: int) -> list[ConsumerRecord]:
        """Return the next rows of the columns, at most `limit`, as records."""
        start = self._next_row
        stop = min(start + limit, len(columns))
        if limit >= ROWS_AHEAD:
            records = self._rows_to_records(columns, topic, partition, start, stop)
        else:
            if not self._converted_from <= start <= stop <= self._converted_from + len(self._converted):
                self._converted = self._rows_to_records(
                    columns, topic, partition, start, min(start + ROWS_AHEAD, len(columns))
                )
                self._converted_from = start
            records = self._converted[start - self._converted_from : stop - self._converted_from]
        self._next_row = stop
        if stop == len(columns):
            self.position = max(self.position, self.end)
            self._converted = []
            columns.release()
            self._leave_siblings()
        elif records:
            self.position = records[-1].offset + 1
        return records

    def _rows_to_records(
        self, columns: Columns, topic: str, partition: int, start: int, stop: int
    ) -> list[ConsumerRecord]:
        """Return the rows from `start` to `stop` (exclusive) as records."""
        types = columns.timestamp_type[start:stop]
        names = _timestamp_type_names()
        is_uniform = len(types) > 0 and bool((types == types[0]).all())
        offsets: list[int] = columns.offset[start:stop].tolist()
        return list(
            map(
                ConsumerRecord,
                repeat(topic),
                repeat(partition),
                offsets,
                columns.timestamp[start:stop].tolist(),
                repeat(names[int(types[0])]) if is_uniform else map(names.__getitem__, types.tolist()),
                columns.key.slice(start, stop - start).to_pylist(),
                columns.value.slice(start, stop - start).to_pylist(),
                columns.headers_between(start, stop) if columns.has_headers else repeat(()),
                self._epochs_at(offsets),
            )
        )

    def _batch_rows(self, topic: str, partition: int, limit: int) -> list[ConsumerRecord]:
        """Return the next records, at most `limit`, batch by batch."""
        records: list[ConsumerRecord] = []
        while len(records) < limit:
            remaining = len(self._decoded) - self._next_row
            if remaining:
                count = min(remaining, limit - len(records))
                records += self._decoded[self._next_row : self._next_row + count]
                self._next_row += count
                self.position = records[-1].offset + 1
                if count < remaining:
                    break
            self._decoded, self._next_row = [], 0
            try:
                if self._error is not None:
                    raise without_traceback(self._error)
                decoded = next(self._parts, None)
                if decoded is None:
                    if self._batch is not None:
                        self.position = max(self.position, self._batch.last_offset + 1)
                        self._batch = None
                    batch = self._next_batch()
                    if batch is None:
                        self.position = max(self.position, self.end)
                        break
                    self._batch_position = self.position
                    decoded = self._decode_first_part(batch)
                    self._batch = batch
                assert self._batch is not None
                time_type, start = self._batch.timestamp_type, self._batch_position
                epoch = self._epoch_at(self._batch.base_offset)
                self._decoded = [
                    ConsumerRecord(
                        topic, partition, r.offset, r.timestamp, time_type, r.key, r.value, r.headers, epoch
                    )
                    for r in decoded
                    if r.offset >= start
                ]
            except RecordError as error:
                self._error = error
                if records:
                    return records
                raise
        return records

    def _next_batch(self) -> Batch | None:
        """Return the next batch with records for the application, or None if no such batch is left.

        Control batches and batches of aborted transactions are skipped: the position moves past them.
        """
        assert self._batches is not None
        for batch in self._batches:
            hidden = self._transactions is not None and self._transactions.skips(batch)
            if not hidden and not batch.is_control and batch.last_offset >= self.position:
                return batch
            self.position = max(self.position, batch.last_offset + 1)
        return None

    def discard_decoded(self) -> None:
        """Free the decoded records. Those that have not been returned are decoded again later."""
        columns, self._columns, self._batches = self._columns, None, None
        if columns is not None and self._lent:
            columns.release()
        self._batch, self._decoded, self._converted = None, [], []
        self._parts = iter(())

    def columns(self) -> Columns | None:
        """Return the remaining records as columns, or None if no record is left for the application.

        If the remaining records need at most `MAX_DECODED_BYTES`, the call returns all of them. Otherwise it
        returns only the records of the next batch.

        If `decodes_in_parts` is true, or the next batch needs more than `MAX_DECODED_BYTES`, the call returns
        at most `PART_RECORDS` records.
        """
        if self._end_error is not None and self.position >= self.end:
            raise self._end_error
        if self.decodes_in_parts:
            return self._columns_of_part()
        data, end = self.data, self.end
        self._converted = []
        if self._columns is not None and self._lent:
            # The application may keep the columns, so their values must not be views of pooled memory.
            self._columns.release()
            self._columns = None
        elif self._batches is None:
            self._decode_together(lent=False)
        try:
            if self._columns is None:
                columns = self._read_columns(data)
            else:
                columns, self._columns = self._columns.slice(self._next_row, len(self._columns)), None
        except IllegalState:  # The records have too many bytes to be decoded as a whole.
            data, end, _ = self._valid_data(to_position=True)
            try:
                columns = self._read_columns(data)
            except IllegalState:
                self.decodes_in_parts = True
                return self._columns_of_part()
        except RecordError as error:
            data, end, batch_error = self._valid_data()
            if end <= self.position:
                raise (batch_error or error) from None
            columns = self._read_columns(data)
        self.position = max(self.position, end)
        self._decoded = []
        if self.exhausted:
            self._leave_siblings()
        return columns if len(columns) else None

    def _columns_of_part(self) -> Columns | None:
        """Return the next records, at most `PART_RECORDS`, as columns; None if no record is left."""
        if self._batches is None:
            self._start_decoding()
        rows = self._batch_rows("", 0, PART_RECORDS)
        if self.exhausted:
            self._leave_siblings()
        records = [Record(row.offset, row.timestamp, row.key, row.value, row.headers) for row in rows]
        columns: Columns | None = None
        if records:
            columns = load_columns().columns_of_records(records, [row.timestamp_type for row in rows])
        return columns

    def _leave_siblings(self) -> None:
        """Remove this fetch from those of its response (`_siblings`), so that its memory can be freed."""
        if self in self._siblings:
            self._siblings.remove(self)

    def _valid_data(self, *, to_position: bool = False) -> tuple[Data, int, RecordError | None]:
        """Return the data before the first invalid batch, the offset after that data, and the error.

        With `to_position`, the data ends with the first batch whose last offset is at or after the position.
        """
        data_end, end, error = 0, self.position, None
        transactions = AbortedTransactions(self._aborted)
        try:
            for batch in batches(
                self.data, check_crc=self._check_crcs, max_decompressed=self._max_decompressed
            ):
                if not to_position:  # Decode all markers and records, to find an invalid one now.
                    transactions.skips(batch)
                    for records in record_lists(batch, PART_RECORDS, self._max_decompressed):
                        _checked(batch, records)
                data_end, end = batch.end, batch.last_offset + 1
                if to_position and end > self.position:
                    break
        except RecordError as invalid:
            error = invalid
        return self.data[:data_end], end, error


def _checked(batch: Batch, records: list[Record]) -> list[Record]:
    """Return `records`, which belong to `batch`. Raise RecordError if an offset is outside the batch."""
    first, last = batch.base_offset, batch.last_offset
    for record in records:
        if not first <= record.offset <= last:
            detail = f"a record at offset {record.offset}, but the batch has offsets {first} to {last}"
            raise RecordError("RecordBatch", batch.magic, "records.offsetDelta", batch.start, detail)
    return records


@cache
def _timestamp_type_names() -> dict[int, str]:
    """Return a map from Kafka's number for each timestamp type to the type's name."""
    from kproto.records.columns import TIMESTAMP_TYPES

    return {number: name for name, number in TIMESTAMP_TYPES.items()}

"""Fetched bytes on their way to the application: decoded when asked for, handed out in pieces.

Rules that hold here:

* Offsets come from the batch headers: a batch whose records were compacted away still moves the position
  behind its last offset, and so do control batches and aborted transactions, which are never handed out.
* The first batch may begin before the position; those records are skipped.
* A broken batch raises RecordError each time it is reached, after what is before it was handed out. So does
  one that doesn't begin behind the last offset of the one before it, as each in a log does, a record outside
  of its batch, and a batch at the last offset that int64 has: what they hold would come again, or the
  position go back, or be behind all offsets. Java believes them. Within a batch offsets may stand still or
  go back, as brokers take that from producers without compression.
* Many records are decoded as columns and made into objects a poll's worth at a time, which is twice as fast
  as record by record; few, and broken ones, batch by batch. Both hand out the same.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import repeat
from typing import TYPE_CHECKING, Any

from kproto.errors import IllegalState, MissingExtra, RecordError
from kproto.records import AbortedTransactions, Batch, Record, batches
from kproto.records.batch import HEADER_SIZE, INT64_MAX, OVERHEAD, Data
from kproto.records.reader import has_many_records

from ...errors import again
from ...records import ConsumerRecord

if TYPE_CHECKING:
    from kproto.records.columns import Columns

SHARE = 8
"""A view of less than an eighth of an answer is copied: it would keep the whole answer in memory."""

AT_ONCE = 256 << 20
"""Decompressed bytes up to which a whole chunk is decoded at once; more are read batch by batch."""

AHEAD = 64
"""Records of columns that are made at once where fewer are asked for: one costs as much as fifty."""

TOGETHER = 4 << 20
"""Bytes from which on chunks of one answer are decoded without the next: the first record waits for all."""

_HEAD = struct.Struct(">qiib6xi").unpack_from  # base offset, size, leader epoch, magic, last offset's delta


@cache
def _columns() -> Any:
    """The `kproto.records.columns` module, None where its packages are not installed."""
    try:
        from kproto.records import columns
    except MissingExtra:
        return None
    return columns


class CompletedFetch:
    """What one fetch returned for one partition. Raises RecordError when it holds no complete batch, or none
    that reaches the position before one that is out of order.

    `position` is the offset of the next record to hand out, `end` where the next fetch goes on.
    """

    __slots__ = (
        "_aborted",
        "_ahead",
        "_ahead_from",
        "_at",
        "_batch",
        "_batches",
        "_check",
        "_columns",
        "_error",
        "_lent",
        "_mates",
        "_most",
        "_rows",
        "_torn",
        "_transactions",
        "data",
        "end",
        "leader_epoch",
        "position",
    )

    def __init__(
        self,
        data: Data,
        position: int,
        aborted: Sequence[tuple[int, int]] | None,
        check_crcs: bool,
        max_decompressed: int | None = None,
        mates: list[CompletedFetch] | None = None,
    ) -> None:
        if isinstance(data, memoryview) and len(data) * SHARE < memoryview(data.obj).nbytes:
            data = bytes(data)
        self._most = max_decompressed
        # Those of the same answer, in its order: they are decoded together.
        self._mates: list[CompletedFetch] = [] if mates is None else mates
        self._lent = False
        self.position = position
        self.end, self.leader_epoch, self._torn = _end_of(data)
        if self._torn is not None and self.end <= position:
            raise self._torn
        self.data = data if self._torn is None else data[: self._torn.offset]
        # None: read_uncommitted, nothing is filtered.
        self._aborted = aborted or ()
        self._check = check_crcs
        self._columns: Columns | None = None
        # Records of the columns, from this row on.
        self._ahead: list[ConsumerRecord] = []
        self._ahead_from = 0
        self._batches: Iterator[Batch] | None = None
        self._transactions = AbortedTransactions(())
        self._batch: Batch | None = None
        self._rows: list[ConsumerRecord] = []
        self._at = 0
        self._error: RecordError | None = None
        if isinstance(data, memoryview):
            self._mates.append(self)  # last: of one that can't be made nobody else may know

    @property
    def exhausted(self) -> bool:
        return self.position >= self.end and self._torn is None

    # ---- rows

    def rows(self, topic: str, partition: int, limit: int) -> list[ConsumerRecord]:
        """The next records, at most `limit`; moves `position` behind them."""
        if self._torn is not None and self.position >= self.end:
            raise self._torn
        if self._columns is None and self._batches is None:
            self._begin()
        if self._columns is not None:
            return self._from_columns(self._columns, topic, partition, limit)
        return self._from_batches(topic, partition, limit)

    def _begin(self) -> None:
        """Chooses the way; what isn't wholly sound is read batch by batch, up to where it breaks."""
        self._batch, self._error, self._rows, self._ahead, self._at = None, None, [], [], 0
        self._transactions = AbortedTransactions(self._aborted)
        if len(self._mates) > 1 and self._together(lent=True):
            return
        module = _columns() if has_many_records(self.data) else None
        if module is not None:
            try:
                self._lent = True
                found = self._read(self.data, lent=True)
                _ = found.headers_between(0, 0)  # which finds broken ones
            except (RecordError, IllegalState):
                pass
            else:
                self._columns = found
                return
        self._batches = batches(self.data, check_crc=self._check, max_decompressed=self._most)

    def _records(self, batch: Batch) -> list[Record]:
        """Those of the batch; raises RecordError, also where one lies outside of it."""
        found, first, last = batch.records(self._most), batch.base_offset, batch.last_offset
        for one in found:
            if not first <= one.offset <= last:
                detail = f"a record at offset {one.offset}, and the batch goes from {first} to {last}"
                raise RecordError("RecordBatch", batch.magic, "records.offsetDelta", batch.start, detail)
        return found

    def _within(self, found: Columns) -> bool:
        """Whether no record of these columns lies behind the batches."""
        return not len(found.offset) or bool(found.offset.max() < self.end)

    def _read(self, data: Data, *, lent: bool = False, most: int | None = None) -> Columns:
        """What is left of `data` as columns."""
        found: Columns = _columns().columns(
            data,
            check_crc=self._check,
            aborted=self._aborted,
            from_offset=self.position,
            max_decompressed=self._most,
            lent=lent,
            most=AT_ONCE if most is None else most,
        )
        if not self._within(found):
            found.release()
            detail = f"a record at offset {found.offset.max()}, and the batches end with {self.end - 1}"
            raise RecordError("RecordBatch", 2, "records.offsetDelta", 0, detail)
        return found

    def _together(self, *, lent: bool) -> bool:
        """Decodes what came in the same answer at once, as the first record costs as much as a thousand more;
        False where that isn't possible, or nothing came with this."""
        size, mates = 0, list[CompletedFetch]()
        for mate in self._mates:
            if mate is self or (mate._columns is None and mate._batches is None and size < TOGETHER):
                mates.append(mate)
                size += len(mate.data)
        module = _columns() if len(mates) > 1 and self in mates else None
        if module is None or not has_many_records(*(mate.data for mate in mates)):
            return False
        parts = [module.FetchedPart(mate.data, mate._aborted, mate.position) for mate in mates]
        try:
            found = module.columns_of(parts, check_crc=self._check, lent=lent, most=0)
            _ = found.headers_between(0, 0)
        except (RecordError, IllegalState):
            return False  # compressed, or broken: each for itself
        each = [found.part(index) for index in range(len(mates))]
        if not all(mate._within(part) for mate, part in zip(mates, each, strict=True)):
            found.release()
            return False
        for mate, part in zip(mates, each, strict=True):
            mate._columns, mate._lent, mate._at = part, lent, 0
        return True

    def _from_columns(self, columns: Columns, topic: str, partition: int, limit: int) -> list[ConsumerRecord]:
        start = self._at
        stop = min(start + limit, len(columns))
        if limit >= AHEAD:
            found = _made(columns, topic, partition, start, stop)
        else:
            if not self._ahead_from <= start <= stop <= self._ahead_from + len(self._ahead):
                self._ahead = _made(columns, topic, partition, start, min(start + AHEAD, len(columns)))
                self._ahead_from = start
            found = self._ahead[start - self._ahead_from : stop - self._ahead_from]
        self._at = stop
        if stop == len(columns):
            self.position = max(self.position, self.end)
            self._ahead = []
            columns.release()
            self._leave()
        elif found:
            self.position = found[-1].offset + 1
        return found

    def _from_batches(self, topic: str, partition: int, limit: int) -> list[ConsumerRecord]:
        found: list[ConsumerRecord] = []
        while len(found) < limit:
            rest = len(self._rows) - self._at
            if rest:
                take = min(rest, limit - len(found))
                found += self._rows[self._at : self._at + take]
                self._at += take
                if take < rest:
                    self.position = found[-1].offset + 1
                    break
            if self._batch is not None:
                self.position = max(self.position, self._batch.last_offset + 1)
                self._batch = None
            self._rows, self._at = [], 0
            try:
                if self._error is not None:
                    raise again(self._error)
                batch = self._next()
                if batch is None:
                    self.position = max(self.position, self.end)
                    break
                kind, start = batch.timestamp_type, self.position
                self._rows = [
                    ConsumerRecord(topic, partition, r.offset, r.timestamp, kind, r.key, r.value, r.headers)
                    for r in self._records(batch)
                    if r.offset >= start
                ]
            except RecordError as error:
                self._error = error
                if found:
                    return found
                raise
            self._batch = batch
        return found

    def _next(self) -> Batch | None:
        """The next batch with records to hand out; what must not be seen is passed over."""
        assert self._batches is not None
        for batch in self._batches:
            hidden = self._transactions.skips(batch)
            if not hidden and not batch.is_control and batch.last_offset >= self.position:
                return batch
            self.position = max(self.position, batch.last_offset + 1)
        return None

    def fold(self) -> None:
        """Gives up what is decoded; what is left is decoded again."""
        columns, self._columns, self._batches = self._columns, None, None
        if columns is not None and self._lent:
            columns.release()
        self._batch, self._rows, self._ahead = None, [], []

    # ---- columns

    def columns(self) -> Columns | None:
        """All that is left, as columns; None when nothing of it may be seen. Uses the chunk up, or where that
        would take too much memory at once, its next batch."""
        if self._torn is not None and self.position >= self.end:
            raise self._torn
        data, end = self.data, self.end
        self._ahead = []
        if self._columns is not None and self._lent:
            self._columns.release()
            self._columns = None
        elif self._batches is None:
            self._together(lent=False)
        try:
            if self._columns is None:
                found = self._read(data)
            else:
                found, self._columns = self._columns.slice(self._at, len(self._columns)), None
        except IllegalState:
            data, end, _ = self._sound_part(first=True)
            found = self._read(data, most=_columns().MOST)
        except RecordError as error:
            data, end, why = self._sound_part()
            if end <= self.position:
                raise (why or error) from None
            found = self._read(data)
        self.position = max(self.position, end)
        self._rows = []
        if self.exhausted:
            self._leave()
        return found if len(found) else None

    def _leave(self) -> None:
        """Those that came with this one need not keep it."""
        if self in self._mates:
            self._mates.remove(self)

    def _sound_part(self, *, first: bool = False) -> tuple[Data, int, RecordError | None]:
        """The data before the first broken batch, the offset behind it, and what is wrong; or only up to the
        end of the first batch that reaches the position."""
        stop, end, why = 0, self.position, None
        transactions = AbortedTransactions(self._aborted)
        try:
            for batch in batches(self.data, check_crc=self._check, max_decompressed=self._most):
                if not first:
                    transactions.skips(batch)
                    self._records(batch)
                stop, end = batch.end, batch.last_offset + 1
                if first and end > self.position:
                    break
        except RecordError as error:
            why = error
        return self.data[:stop], end, why


def _made(columns: Columns, topic: str, partition: int, start: int, stop: int) -> list[ConsumerRecord]:
    """The rows of columns from `start` up to `stop` as objects."""
    kinds = columns.timestamp_type[start:stop]
    names = _kind_names()
    alike = len(kinds) > 0 and bool((kinds == kinds[0]).all())
    return list(
        map(
            ConsumerRecord,
            repeat(topic),
            repeat(partition),
            columns.offset[start:stop].tolist(),
            columns.timestamp[start:stop].tolist(),
            repeat(names[int(kinds[0])]) if alike else map(names.__getitem__, kinds.tolist()),
            columns.key.slice(start, stop - start).to_pylist(),
            columns.value.slice(start, stop - start).to_pylist(),
            columns.headers_between(start, stop) if columns.has_headers else repeat(()),
        )
    )


@cache
def _kind_names() -> dict[int, str]:
    """Kafka's number of a timestamp type -> its name."""
    from kproto.records.columns import TIMESTAMP_TYPES

    return {number: name for name, number in TIMESTAMP_TYPES.items()}


def _end_of(data: Data) -> tuple[int, int, RecordError | None]:
    """(offset behind the last complete batch, its leader epoch, None), from the headers alone; the last one
    before a batch whose offsets can't be, and the error of that."""
    stop, end = 0, len(data)
    last, leader_epoch = -INT64_MAX - 2, -1
    while end - stop >= HEADER_SIZE:
        base, size, epoch, magic, delta = _HEAD(data, stop)
        behind = stop + OVERHEAD + size
        if magic != 2:
            return _end_of_strange(data)
        if size < HEADER_SIZE - OVERHEAD or behind > end:
            break
        if delta < 0 or base <= last or base + delta >= INT64_MAX:
            return _end_of_strange(data)
        last, leader_epoch, stop = base + delta, epoch, behind
    else:
        if end - stop >= OVERHEAD:
            return _end_of_strange(data)
    return (last + 1, leader_epoch, None) if stop else _end_of_strange(data)


def _end_of_strange(data: Data) -> tuple[int, int, RecordError | None]:
    """The same of old messages, and of what is broken or not there."""
    last: Batch | None = None
    try:
        for batch in batches(data, check_crc=False):
            detail = ""
            if batch.last_offset == INT64_MAX:
                detail = f"no offset is behind {INT64_MAX}"
            elif last is not None and batch.base_offset <= last.last_offset:
                which = f"a batch that begins with {batch.base_offset}"
                detail = f"{which} comes after {last.last_offset}; offsets must grow"
            if detail:
                torn = RecordError("RecordBatch", batch.magic, "baseOffset", batch.start, detail)
                if last is None:
                    raise torn
                return last.last_offset + 1, last.partition_leader_epoch, torn
            last = batch
    except RecordError:
        if last is None:
            raise
    if last is None:
        detail = f"{len(data)} bytes hold no complete batch: raise max_partition_fetch_bytes"
        raise RecordError("RecordBatch", -1, "size", 0, detail)
    return last.last_offset + 1, last.partition_leader_epoch, None

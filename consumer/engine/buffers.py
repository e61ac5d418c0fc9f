"""Fetched bytes on their way to the application: decoded when asked for, handed out in pieces.

Rules that hold here:

* Offsets come from the batch headers: a batch whose records were compacted away still moves the position
  behind its last offset, and so do control batches and aborted transactions, which are never handed out.
* The first batch may begin before the position; those records are skipped.
* A broken batch raises RecordError each time it is reached, after what is before it was handed out. So does
  one at the last offset that int64 has: no position can be behind it.
* No record moves the position behind the end that the headers tell, whatever offset it says that it has.
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
from kproto.records import AbortedTransactions, Batch, batches
from kproto.records.batch import HEADER_SIZE, INT64_MAX, OVERHEAD, Data
from kproto.records.reading import has_many_records

from ..records import ConsumerRecord

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

_SIZE = struct.Struct(">i").unpack_from
_START = struct.Struct(">qii").unpack_from


@cache
def _columns() -> Any:
    """The `kproto.records.columns` module, None where its packages are not installed."""
    try:
        from kproto.records import columns
    except MissingExtra:
        return None
    return columns


class Chunk:
    """What one fetch returned for one partition. Raises RecordError when it holds no complete batch.

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
        mates: list[Chunk] | None = None,
    ) -> None:
        if isinstance(data, memoryview) and len(data) * SHARE < memoryview(data.obj).nbytes:
            data = bytes(data)
        self._most = max_decompressed
        # Those of the same answer, in its order: they are decoded together.
        self._mates: list[Chunk] = [] if mates is None else mates
        self._lent = False
        self.position = position
        stop, self.end, self.leader_epoch = _end_of(data)
        self.data = data[:stop]
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
        return self.position >= self.end

    def _reach(self, offset: int) -> None:
        self.position = max(self.position, min(offset, self.end))

    # ---- rows

    def rows(self, topic: str, partition: int, limit: int) -> list[ConsumerRecord]:
        """The next records, at most `limit`; moves `position` behind them."""
        if self._columns is None and self._batches is None:
            self._begin()
        if self._columns is not None:
            return self._from_columns(self._columns, topic, partition, limit)
        return self._from_batches(topic, partition, limit)

    def holds(self, limit: int) -> bool:
        """Whether more than `limit` records are decoded already."""
        return self._at + limit < len(self._rows if self._columns is None else self._columns)

    def _begin(self) -> None:
        """Chooses the way; what isn't wholly sound is read batch by batch, up to where it breaks."""
        self._batch, self._error, self._rows, self._ahead, self._at = None, None, [], [], 0
        self._transactions = AbortedTransactions(self._aborted)
        if self._together(lent=True):
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
        self._batches = self._all()

    def _all(self) -> Iterator[Batch]:
        return batches(self.data, check_crc=self._check, max_decompressed=self._most)

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
        return found

    def _together(self, *, lent: bool) -> bool:
        """Decodes what came in the same answer at once, as the first record costs as much as a thousand more;
        False where that isn't possible, or nothing came with this."""
        size, mates = 0, list[Chunk]()
        for mate in self._mates:
            if mate is self or (mate._columns is None and mate._batches is None and size < TOGETHER):
                mates.append(mate)
                size += len(mate.data)
        module = _columns() if len(mates) > 1 and self in mates else None
        if module is None or not has_many_records(*(mate.data for mate in mates)):
            return False
        parts = [module.Part(mate.data, mate._aborted, mate.position) for mate in mates]
        try:
            found = module.columns_of(parts, check_crc=self._check, lent=lent, most=0)
            _ = found.headers_between(0, 0)
        except (RecordError, IllegalState):
            return False  # compressed, or broken: each for itself
        for index, mate in enumerate(mates):
            mate._columns, mate._lent, mate._at = found.part(index), lent, 0
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
            self._reach(self.end)
            self._ahead = []
            columns.give_back()
            self._leave()
        elif found:
            self._reach(found[-1].offset + 1)
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
                    self._reach(found[-1].offset + 1)
                    break
            if self._batch is not None:
                self._reach(self._batch.last_offset + 1)
                self._batch = None
            self._rows, self._at = [], 0
            try:
                if self._error is not None:
                    raise self._error
                batch = self._next()
                if batch is None:
                    self._reach(self.end)
                    break
                kind, start = batch.timestamp_type, self.position
                self._rows = [
                    ConsumerRecord(topic, partition, r.offset, r.timestamp, kind, r.key, r.value, r.headers)
                    for r in batch.records(self._most)
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
            self._reach(batch.last_offset + 1)
        return None

    def fold(self) -> None:
        """Gives up what is decoded; what is left is decoded again."""
        columns, self._columns, self._batches = self._columns, None, None
        if columns is not None and self._lent:
            columns.give_back()
        self._batch, self._rows, self._ahead = None, [], []

    # ---- columns

    def columns(self) -> Columns | None:
        """All that is left, as columns; None when nothing of it may be seen. Uses the chunk up, or where that
        would take too much memory at once, its next batch."""
        data, end = self.data, self.end
        self._ahead = []
        if self._columns is not None and self._lent:
            self._columns.give_back()
            self._columns = None
        elif self._batches is None:
            self._together(lent=False)
        try:
            if self._columns is None:
                found = self._read(data)
            else:
                found, self._columns = self._columns.slice(self._at, len(self._columns)), None
        except IllegalState:
            data, end = self._sound_part(first=True)
            found = self._read(data, most=_columns().MOST)
        except RecordError:
            data, end = self._sound_part()
            if end <= self.position:
                raise
            found = self._read(data)
        self._reach(end)
        self._rows = []
        if self.exhausted:
            self._leave()
        return found if len(found) else None

    def _leave(self) -> None:
        """Those that came with this one need not keep it."""
        if self in self._mates:
            self._mates.remove(self)

    def _sound_part(self, *, first: bool = False) -> tuple[Data, int]:
        """The data before the first broken batch, and the offset behind it; or only up to the end of the
        first batch that reaches the position."""
        stop, end = 0, self.position
        transactions = AbortedTransactions(self._aborted)
        try:
            for batch in self._all():
                if not first:
                    transactions.skips(batch)
                    batch.records(self._most)
                stop, end = batch.end, batch.last_offset + 1
                if first and end > self.position:
                    break
        except RecordError:
            pass
        return self.data[:stop], end


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


def _end_of(data: Data) -> tuple[int, int, int]:
    """(where what can be read ends, the offset behind its last complete batch, that one's leader epoch), from
    the headers alone."""
    at = place = -1
    stop, end = 0, len(data)
    while end - stop >= HEADER_SIZE and data[stop + 16] == 2:
        at, size = stop, _SIZE(data, stop + 8)[0]
        stop = at + OVERHEAD + size
        if size < HEADER_SIZE - OVERHEAD or stop > end:
            break
        place = at
    if place >= 0 and (at != place or end - stop < OVERHEAD):
        base, _, epoch = _START(data, place)
        (delta,) = _SIZE(data, place + 23)
        if delta >= 0 and base + delta < INT64_MAX:
            return end, base + delta + 1, epoch
    return _end_of_strange(data)


def _end_of_strange(data: Data) -> tuple[int, int, int]:
    """The same of old messages, and of what is broken or not there."""
    stop, last = len(data), None
    try:
        for batch in batches(data, check_crc=False):
            if batch.last_offset == INT64_MAX:
                stop = batch.start
                detail = f"no offset is behind {INT64_MAX}"
                raise RecordError("RecordBatch", batch.magic, "baseOffset", stop, detail)
            last = batch
    except RecordError:
        if last is None:
            raise
    if last is None:
        detail = f"{len(data)} bytes hold no complete batch: raise max_partition_fetch_bytes"
        raise RecordError("RecordBatch", -1, "size", 0, detail)
    return stop, last.last_offset + 1, last.partition_leader_epoch

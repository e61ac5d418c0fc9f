"""Fetched bytes on their way to the application: decoded when asked for, handed out in pieces.

Rules that hold here:

* Offsets come from the batch headers: a batch whose records were compacted away still moves the position
  behind its last offset, and so do control batches and aborted transactions, which are never handed out.
* The first batch may begin before the position; those records are skipped.
* A broken batch raises RecordError each time it is reached, after what is before it was handed out.
* Many records are decoded as columns and made into objects a poll's worth at a time, which is twice as fast
  as record by record; few, and broken ones, batch by batch. Both hand out the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import repeat
from typing import TYPE_CHECKING, Any

from kproto.errors import MissingExtra, RecordError
from kproto.records import AbortedTransactions, Batch, batches
from kproto.records.reading import has_many_records

from ..records import ConsumerRecord

if TYPE_CHECKING:
    from kproto.records.columns import Columns


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
        "_at",
        "_batch",
        "_batches",
        "_check",
        "_columns",
        "_error",
        "_rows",
        "_transactions",
        "data",
        "end",
        "leader_epoch",
        "position",
    )

    def __init__(
        self, data: bytes, position: int, aborted: Sequence[tuple[int, int]] | None, check_crcs: bool
    ) -> None:
        self.data = data
        self.position = position
        self.end, self.leader_epoch = _end_of(data)
        # None: read_uncommitted, nothing is filtered.
        self._aborted = aborted or ()
        self._transactions = AbortedTransactions(self._aborted)
        self._check = check_crcs
        self._columns: Columns | None = None
        self._batches: Iterator[Batch] | None = None
        self._batch: Batch | None = None
        self._rows: list[ConsumerRecord] = []
        self._at = 0
        self._error: RecordError | None = None

    @property
    def exhausted(self) -> bool:
        return self.position >= self.end

    # ---- rows

    def rows(self, topic: str, partition: int, limit: int) -> list[ConsumerRecord]:
        """The next records, at most `limit`; moves `position` behind them."""
        if self._columns is None and self._batches is None:
            self._begin()
        if self._columns is not None:
            return self._from_columns(self._columns, topic, partition, limit)
        return self._from_batches(topic, partition, limit)

    def _begin(self) -> None:
        """Chooses the way; what isn't wholly sound is read batch by batch, up to where it breaks."""
        module = _columns() if has_many_records(self.data) else None
        if module is not None:
            try:
                found = module.columns(
                    self.data, check_crc=self._check, aborted=self._aborted, from_offset=self.position
                )
                _ = found.headers_between(0, 0)  # which finds broken ones
            except RecordError:
                pass
            else:
                self._columns = found
                return
        self._batches = batches(self.data, check_crc=self._check)

    def _from_columns(self, columns: Columns, topic: str, partition: int, limit: int) -> list[ConsumerRecord]:
        start = self._at
        stop = min(start + limit, len(columns))
        names = _kind_names()
        found = list(
            map(
                ConsumerRecord,
                repeat(topic),
                repeat(partition),
                columns.offset[start:stop].tolist(),
                columns.timestamp[start:stop].tolist(),
                map(names.__getitem__, columns.timestamp_type[start:stop].tolist()),
                columns.key.slice(start, stop - start).to_pylist(),
                columns.value.slice(start, stop - start).to_pylist(),
                columns.headers_between(start, stop) if columns.has_headers else repeat(()),
            )
        )
        self._at = stop
        if stop == len(columns):
            self.position = max(self.position, self.end)
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
                    raise self._error
                batch = self._next()
                if batch is None:
                    self.position = max(self.position, self.end)
                    break
                kind, start = batch.timestamp_type, self.position
                self._rows = [
                    ConsumerRecord(topic, partition, r.offset, r.timestamp, kind, r.key, r.value, r.headers)
                    for r in batch.records()
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

    # ---- columns

    def columns(self) -> Columns | None:
        """Everything that is left, as columns; None when nothing of it may be seen. Uses the chunk up."""
        if self._columns is not None:
            found = self._columns.slice(self._at, len(self._columns))
            self.position = max(self.position, self.end)
        else:
            from kproto.records.columns import columns

            data, end = self.data, self.end
            try:
                found = columns(data, check_crc=self._check, aborted=self._aborted, from_offset=self.position)
            except RecordError:
                data, end = self._sound_part()
                if end <= self.position:
                    raise
                found = columns(data, check_crc=self._check, aborted=self._aborted, from_offset=self.position)
            self.position = max(self.position, end)
        self._rows, self._columns = [], None
        return found if len(found) else None

    def _sound_part(self) -> tuple[bytes, int]:
        """The data before the first broken batch, and the offset behind it."""
        stop, end = 0, self.position
        try:
            for batch in batches(self.data, check_crc=self._check):
                batch.records()
                stop, end = batch.end, batch.last_offset + 1
        except RecordError:
            pass
        return self.data[:stop], end


@cache
def _kind_names() -> dict[int, str]:
    """Kafka's number of a timestamp type -> its name."""
    from kproto.records.columns import TIMESTAMP_TYPES

    return {number: name for name, number in TIMESTAMP_TYPES.items()}


def _end_of(data: bytes) -> tuple[int, int]:
    """(offset behind the last complete batch, its leader epoch), from the headers alone."""
    last: Batch | None = None
    try:
        for batch in batches(data, check_crc=False):
            last = batch
    except RecordError:
        if last is None:
            raise
    if last is None:
        detail = f"{len(data)} bytes hold no complete batch: raise max_partition_fetch_bytes"
        raise RecordError("RecordBatch", -1, "size", 0, detail)
    return last.last_offset + 1, last.partition_leader_epoch

"""Fetched bytes on their way to the application: decoded batch by batch, only when asked for.

Rules that hold here:

* Offsets come from the batch headers: a batch whose records were compacted away still moves the position
  behind its last offset, and so do control batches and aborted transactions, which are never handed out.
* The first batch may begin before the position; those records are skipped.
* A broken batch raises RecordError each time it is reached, after what is before it was handed out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kproto.errors import RecordError
from kproto.records.batch import AbortedTransactions, Batch, batches

from ..records import ConsumerRecord

if TYPE_CHECKING:
    from kproto.records.columns import Columns


class Chunk:
    """What one fetch returned for one partition. Raises RecordError when it holds no complete batch."""

    __slots__ = (
        "_aborted",
        "_at",
        "_batch",
        "_batches",
        "_check",
        "_error",
        "_rows",
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
        self._aborted = None if aborted is None else AbortedTransactions(aborted)
        self._check = check_crcs
        self._batches: Iterator[Batch] = batches(data, check_crc=check_crcs)
        self._batch: Batch | None = None
        self._error: RecordError | None = None
        self._rows: list[ConsumerRecord] = []
        self._at = 0

    @property
    def exhausted(self) -> bool:
        return self.position >= self.end

    def rows(self, topic: str, partition: int, limit: int) -> list[ConsumerRecord]:
        """The next records, at most `limit`; moves `position` behind them."""
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
            self._rows = []
            self._at = 0
            try:
                if self._error is not None:
                    raise self._error
                batch = self._next()
                if batch is None:
                    self.position = max(self.position, self.end)
                    break
                kind = batch.timestamp_type
                start = self.position
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
        for batch in self._batches:
            hidden = self._aborted is not None and self._aborted.skips(batch)
            if not hidden and not batch.is_control and batch.last_offset >= self.position:
                return batch
            self.position = max(self.position, batch.last_offset + 1)
        return None

    def _rest(self) -> bytes:
        """The data from the first batch on that isn't wholly before the position."""
        for batch in batches(self.data, check_crc=False):
            if batch.last_offset >= self.position:
                return self.data[batch.start :] if batch.start else self.data
        return b""

    def columns(self) -> Columns | None:
        """Everything that is left, as columns; None when nothing of it may be seen. Uses the chunk up."""
        from kproto.records.columns import columns

        aborted = self._aborted
        found = columns(
            self._rest(),
            check_crc=self._check,
            aborted=() if aborted is None else aborted.pairs,
            from_offset=self.position,
        )
        self.position = max(self.position, self.end)
        self._rows = []
        return found if len(found.offset) else None


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

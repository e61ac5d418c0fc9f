"""The closing of an offset manager, or of some of its partitions (sarama offset_manager.go, v1.61.1).

* Dirty offsets are flushed up to Offsets.Retry.Max + 1 times. Those that are still dirty are then dropped.

* Without auto commit, closing commits no offsets.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

from ...group.subscription import TopicPartition
from .offset_manager import Flush, OffsetManager
from .routines import Routine, States, Table, row


class LastState(States):
    STOPPING = "stopping"  # The closing manager waits until the ticker's flush is complete.
    FLUSHING = "flushing"
    DONE = "done"


L = LastState


class LastFlush(Routine):
    """One call that closes the manager (Close) or some of its partitions (removePartitions).

    Flushes repeat until all offsets are committed, at most Offsets.Retry.Max + 1 times. Then `caller` resumes
    with "offsets_closed". If `targets` is None, the ticker is stopped first, and the whole manager is closed
    with all partitions.
    """

    __slots__ = ("attempts", "caller", "offsets", "targets")
    TABLE: ClassVar[Table]
    EDGES: ClassVar = {L.STOPPING: {L.FLUSHING, L.DONE}, L.FLUSHING: {L.DONE}, L.DONE: set()}

    def __init__(
        self, offsets: OffsetManager, caller: Routine, targets: Collection[TopicPartition] | None = None
    ) -> None:
        super().__init__(L.STOPPING)
        self.offsets, self.caller, self.targets = offsets, caller, targets
        self.attempts = offsets.client.settings.offsets_retry_max + 1

    def start(self) -> None:
        """Start the flush, which runs in the caller's goroutine."""
        committer = self.offsets.committer
        if self.targets is None and committer is not None:
            self.offsets.client.resume(committer, "stop", self)
        else:
            _on_stopped(self, None)


def _on_stopped(last: LastFlush, payload: object) -> None:
    offsets = last.offsets
    offsets.close(list(offsets.partition_offsets) if last.targets is None else last.targets)
    if offsets.committer is None or last.attempts <= 0:
        _finish(last)
        return
    last.move(L.FLUSHING)
    _flush(last)


def _flush(last: LastFlush) -> None:
    last.attempts -= 1
    Flush(last.offsets, last, last.targets).start()


def _on_flushed(last: LastFlush, payload: object) -> None:
    remaining = last.offsets.release_closed(False, last.targets)
    if remaining and last.attempts > 0:
        _flush(last)
    else:
        _finish(last)


def _finish(last: LastFlush) -> None:
    last.offsets.release_closed(True, last.targets)
    if last.targets is None:
        last.offsets.broker = None
    last.move(L.DONE)
    last.offsets.client.resume(last.caller, "offsets_closed")


LastFlush.TABLE = {
    "stopped": row(L, STOPPING=_on_stopped),
    "flushed": row(L, FLUSHING=_on_flushed),
}

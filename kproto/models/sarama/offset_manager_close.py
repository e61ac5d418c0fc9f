"""The closing of an offset manager, or of some of its partitions (sarama offset_manager.go, v1.61.1).

* Dirty offsets are flushed up to Offsets.Retry.Max + 1 times. Offsets that are still dirty are then dropped.

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
    with "offsets_closed". If `targets` is None, the call stops the ticker and closes all partitions.
    Otherwise, it closes only the partitions in `targets`.
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


def _on_stopped(closing: LastFlush, payload: object) -> None:
    """Close the partitions, and start the first flush if offsets are committed automatically."""
    offsets = closing.offsets
    offsets.close(list(offsets.partition_offsets) if closing.targets is None else closing.targets)
    if offsets.committer is None or closing.attempts <= 0:
        _end_closing(closing)
        return
    closing.move(L.FLUSHING)
    _start_flush(closing)


def _start_flush(closing: LastFlush) -> None:
    """Use one of the remaining attempts to flush the dirty offsets."""
    closing.attempts -= 1
    Flush(closing.offsets, closing, closing.targets).start()


def _on_flushed(closing: LastFlush, payload: object) -> None:
    remaining = closing.offsets.release_closed(force=False, targets=closing.targets)
    if remaining and closing.attempts > 0:
        _start_flush(closing)
    else:
        _end_closing(closing)


def _end_closing(closing: LastFlush) -> None:
    """Drop the offsets that are still dirty, and resume the caller."""
    closing.offsets.release_closed(force=True, targets=closing.targets)
    if closing.targets is None:
        closing.offsets.broker = None
    closing.move(L.DONE)
    closing.offsets.client.resume(closing.caller, "offsets_closed")


LastFlush.TABLE = {
    "stopped": row(L, STOPPING=_on_stopped),
    "flushed": row(L, FLUSHING=_on_flushed),
}

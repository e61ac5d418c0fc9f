"""The end of an offset manager, or of some of its partitions (sarama offset_manager.go, v1.61.1).

* What is still dirty is flushed Offsets.Retry.Max + 1 times, and then given up. Without auto commit nothing
  is committed at the end.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

from ...group.subscription import TopicPartition
from .offset_manager import Flush, Offsets
from .routines import Routine, States, Table, only


class LastState(States):
    stopping = "stopping"  # waits for the ticker's flush
    flushing = "flushing"
    done = "done"


L = LastState


class LastFlush(Routine):
    """Close and removePartitions: flush until all is clean, at most Offsets.Retry.Max + 1 times.

    `caller` goes on with "let_go". `targets` None is Close: everything, and the ticker stops first.
    """

    __slots__ = ("caller", "left", "offsets", "targets")
    TABLE: ClassVar[Table]
    EDGES: ClassVar = {L.stopping: {L.flushing, L.done}, L.flushing: {L.done}, L.done: set()}

    def __init__(
        self, offsets: Offsets, caller: Routine, targets: Collection[TopicPartition] | None = None
    ) -> None:
        super().__init__(L.stopping)
        self.offsets, self.caller, self.targets = offsets, caller, targets
        self.left = offsets.client.settings.offsets_retry_max + 1

    def start(self) -> None:
        """The caller goes on into it."""
        committer = self.offsets.committer
        if self.targets is None and committer is not None:
            self.offsets.client.resume(committer, "stop", self)
        else:
            _flush_last(self, None)


def _flush_last(last: LastFlush, what: object) -> None:
    offsets = last.offsets
    offsets.close(list(offsets.managed) if last.targets is None else last.targets)
    if offsets.committer is None or last.left <= 0:
        _give_up(last)
        return
    last.move(L.flushing)
    _again(last)


def _again(last: LastFlush) -> None:
    last.left -= 1
    Flush(last.offsets, last, last.targets).start()


def _flushed_last(last: LastFlush, what: object) -> None:
    remaining = last.offsets.release(False, last.targets)
    if remaining and last.left > 0:
        _again(last)
    else:
        _give_up(last)


def _give_up(last: LastFlush) -> None:
    last.offsets.release(True, last.targets)
    if last.targets is None:
        last.offsets.broker = None
    last.move(L.done)
    last.offsets.client.resume(last.caller, "let_go")


LastFlush.TABLE = {
    "stopped": only(L, stopping=_flush_last),
    "flushed": only(L, flushing=_flushed_last),
}

"""Seeks that came before the assignment: they wait for it, and not for ever.

Rules that hold here:

* Of several seeks of a partition the last one counts.
* What the group gives to somebody else is that member's to read: a seek that waited for it is over, and told.
  Much later it would lead the partition back to where it was meant to start long ago.
* In a cooperative rebalance a partition that another member has comes with the generation after the next:
  for that one a seek waits, too, but for no longer than its owner may take to give the partition back.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable

import msgspec

from kproto.group.subscription import TopicPartition

from .partition_states import PartitionState

Apply = Callable[[PartitionState], None]


class _Seek(msgspec.Struct, eq=False):
    apply: Apply
    # Set by the first assignment without the partition.
    until: int | None = None


class PendingSeeks:
    """`patience_ms` is max.poll.interval.ms: how long the group waits for who has to let go."""

    def __init__(self, patience_ms: int) -> None:
        self._patience = patience_ms
        self._waiting: dict[TopicPartition, _Seek] = {}

    def put(self, partition: TopicPartition, apply: Apply) -> None:
        self._waiting[partition] = _Seek(apply)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self._waiting.pop(partition, None)

    def clear(self) -> None:
        self._waiting.clear()

    def over(self, owned: Container[TopicPartition], now: int, *, last: bool) -> list[TopicPartition]:
        """An assignment came: those whose seeks are over. `last`: no partition comes behind it."""
        found: list[TopicPartition] = []
        for partition, seek in list(self._waiting.items()):
            late = seek.until is not None and (now > seek.until or partition not in owned)
            if late or (last and partition not in owned):
                found.append(partition)
                del self._waiting[partition]
            elif partition not in owned:
                seek.until = now + self._patience
        return sorted(found)

    def apply(self, state: PartitionState) -> None:
        """The partition is ours now."""
        seek = self._waiting.pop(state.partition, None)
        if seek is not None:
            seek.apply(state)

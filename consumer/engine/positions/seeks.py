"""Seeks that were made before the assignment.

Rules:

* The last of several seeks of a partition counts.
* A seek ends, and is reported, when the group assigns its partition to another member. Applied much later, it
  would move the partition back to a start from long ago.
* In a cooperative rebalance a partition of another member arrives with the generation after the next. A seek
  waits for it, but no longer than its owner may take to revoke the partition.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable

import msgspec

from kproto.group.subscription import TopicPartition

from .partition_states import PartitionState

Apply = Callable[[PartitionState], None]


class _Seek(msgspec.Struct, eq=False):
    """A seek that waits for its partition."""

    apply: Apply
    # Set by the first assignment that does not contain the partition.
    until: int | None = None


class PendingSeeks:
    """The waiting seeks. `max_wait_ms` is max.poll.interval.ms: how long an owner may take to revoke."""

    def __init__(self, max_wait_ms: int) -> None:
        self._patience = max_wait_ms
        self._waiting: dict[TopicPartition, _Seek] = {}

    def put(self, partition: TopicPartition, apply: Apply) -> None:
        """Remember a seek; it replaces an earlier one."""
        self._waiting[partition] = _Seek(apply)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop the seeks of these partitions."""
        for partition in partitions:
            self._waiting.pop(partition, None)

    def clear(self) -> None:
        """Drop all seeks."""
        self._waiting.clear()

    def over(self, owned: Container[TopicPartition], now: int, *, last: bool) -> list[TopicPartition]:
        """Return the partitions whose seeks end with this assignment (`last`: of its rebalance)."""
        ended: list[TopicPartition] = []
        for partition, seek in list(self._waiting.items()):
            late = seek.until is not None and (now > seek.until or partition not in owned)
            if late or (last and partition not in owned):
                ended.append(partition)
                del self._waiting[partition]
            elif partition not in owned:
                seek.until = now + self._patience
        return sorted(ended)

    def apply(self, state: PartitionState) -> None:
        """Apply the seek of a partition that was just assigned."""
        seek = self._waiting.pop(state.partition, None)
        if seek is not None:
            seek.apply(state)

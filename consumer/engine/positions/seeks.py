"""Seeks in partitions that are not assigned yet.

Rules:

* Only the last seek of a partition counts.
* A seek ends, and is reported, when the group assigns its partition to another member. After a much later
  assignment it would return the partition to an outdated offset.
* In a cooperative rebalance the partition of another member arrives one generation later. A seek waits for
  the partition, but no longer than the other member may take to revoke it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable

import msgspec

from kproto.group.subscription import TopicPartition

from .partition_states import PartitionState

Apply = Callable[[PartitionState], None]


class _Seek(msgspec.Struct, eq=False):
    """A seek that waits for the assignment of its partition."""

    apply: Apply
    # When the seek ends (ms). Set by the first assignment that does not contain the partition.
    until: int | None = None


class PendingSeeks:
    """The waiting seeks. `max_wait_ms` is max.poll.interval.ms, the time that a member has to revoke."""

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
        """Remove the seeks that end with this assignment, and return their partitions.

        `last`: no further generation of the rebalance assigns partitions.
        """
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

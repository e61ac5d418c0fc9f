"""Seeks of partitions that are not assigned yet.

Rules:

* After several seeks of one partition, only the last seek is applied.

* A seek is dropped and reported when the group assigns its partition to another member. If the seek waited
  until the partition was assigned to this member again, its offset could be outdated.

* In a cooperative rebalance, another member may have to revoke the partition first, so this member gets it
  one generation later. The seek waits for at most max.poll.interval.ms, the other member's limit for
  revoking.
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
    # When the seek is dropped (ms); None until the first assignment that does not contain the partition.
    until: int | None = None


class PendingSeeks:
    """The seeks that wait for an assignment of their partitions.

    `max_wait_ms` is max.poll.interval.ms, within which a member must revoke partitions.
    """

    def __init__(self, max_wait_ms: int) -> None:
        self._max_wait_ms = max_wait_ms
        self._seeks: dict[TopicPartition, _Seek] = {}

    def put(self, partition: TopicPartition, apply: Apply) -> None:
        """Store a seek until its partition is assigned; drop an earlier seek in the partition."""
        self._seeks[partition] = _Seek(apply)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop the seeks of these partitions."""
        for partition in partitions:
            self._seeks.pop(partition, None)

    def clear(self) -> None:
        """Drop all seeks."""
        self._seeks.clear()

    def drop_ended(
        self, owned: Container[TopicPartition], now: int, *, ends_rebalance: bool
    ) -> list[TopicPartition]:
        """Drop the seeks that no later assignment of this rebalance can apply; return their partitions.

        If `ends_rebalance` is true, no assignment of this rebalance follows. If it is false, a cooperative
        rebalance continues with another JoinGroup, and the next assignment may still contain the partition.
        """
        ended: list[TopicPartition] = []
        for partition, seek in list(self._seeks.items()):
            has_ended = seek.until is not None and (now > seek.until or partition not in owned)
            if has_ended or (ends_rebalance and partition not in owned):
                ended.append(partition)
                del self._seeks[partition]
            elif partition not in owned:
                seek.until = now + self._max_wait_ms
        return sorted(ended)

    def apply(self, state: PartitionState) -> None:
        """Apply the waiting seek of a partition that was just assigned, if the partition has one."""
        seek = self._seeks.pop(state.partition, None)
        if seek is not None:
            seek.apply(state)

"""What an application may want to do when partitions come and go."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

from kproto.group.subscription import TopicPartition


class RebalanceListener:
    """Override what you need. The methods of an `AsyncConsumer`'s listener may be coroutines.

    They run inside poll, close and unsubscribe, on the caller's thread; the rebalance waits for them, while
    heartbeats go on. Exceptions are raised from that call, after the rebalance went on.
    """

    def assigned(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """These were added to the assignment (maybe none). A seek in here comes before the first record."""
        return None

    def revoked(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """These will be given back when this returns: finish, store, commit. Positions are still there."""
        return None

    def lost(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """These belong to somebody else already; nothing can be committed. Calls `revoked`, as in Java."""
        return self.revoked(partitions)

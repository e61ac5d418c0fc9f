"""Callbacks for changes of a consumer's assignment."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

from kproto.group.subscription import TopicPartition


class RebalanceListener:
    """The callbacks of a rebalance. Override those that you need. With an `AsyncConsumer` they may be
    coroutines.

    The callbacks run inside poll, close and unsubscribe, in the caller's thread. The rebalance waits for
    them, while heartbeats continue. Their exceptions are raised from that call, after the rebalance has
    continued.
    """

    def assigned(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """These partitions were added; the list may be empty. A seek here takes effect before the first
        record.
        """
        return None

    def revoked(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """Finish, store and commit the work on these partitions: they are released when this method returns.

        Positions and the right to commit are still valid.
        """
        return None

    def lost(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """Stop the work on these partitions: another member may own them already, and commits fail. By
        default this method calls `revoked`, as Java does.
        """
        return self.revoked(partitions)

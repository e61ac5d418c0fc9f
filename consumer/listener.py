"""Callbacks for changes of a consumer's assignment."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

from kproto.group.subscription import TopicPartition


class RebalanceListener:
    """The callbacks of a rebalance; override those that you need. For an `AsyncConsumer` they may be
    coroutines.

    They run inside poll, close and unsubscribe, in the caller's thread. The rebalance waits for them, while
    heartbeats continue. Exceptions are raised from that call, after the rebalance has continued.
    """

    def assigned(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """These partitions were added (perhaps none). A seek here takes effect before the first record."""
        return None

    def revoked(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """These partitions are released when this returns:

        finish, store, commit. Positions are still valid.
        """
        return None

    def lost(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """Another member owns these partitions already, and nothing can be committed. Calls `revoked`, as
        Java does.
        """
        return self.revoked(partitions)

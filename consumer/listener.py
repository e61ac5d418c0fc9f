"""Callbacks for changes of a consumer's assignment."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

from kproto.group.subscription import TopicPartition


class RebalanceListener:
    """The callbacks of a rebalance. Override the methods that you need.

    The callbacks run inside poll, close and unsubscribe, in the caller's thread. With an `AsyncConsumer` they
    may be coroutine functions. The rebalance waits for the callbacks, while heartbeats continue.

    If a callback raises an exception, the rebalance continues. Then the method that ran the callback raises
    the exception.
    """

    def assigned(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """Start the work on these partitions, which were added to the assignment. The sequence may be empty.

        A seek in this method takes effect before the first record of the partition is returned.
        """
        return None

    def revoked(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """Finish and commit the work on these partitions. They are released after this method has returned.

        While this method runs, the positions are valid, and commits are accepted. With auto commit, the
        processed offsets are committed after the method, before the partitions are released.
        """
        return None

    def lost(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """Stop the work on these partitions, which may already belong to another member.

        Offsets of these partitions cannot be committed any more. By default this method calls `revoked`, as
        Java does.
        """
        return self.revoked(partitions)

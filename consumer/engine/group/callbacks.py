"""The queue of rebalance callbacks, and the callback that is running."""

from __future__ import annotations

from collections import deque

import msgspec

from kproto.group.subscription import TopicPartition


class RebalanceCallback(msgspec.Struct, eq=False):
    """One call of the application's rebalance listener."""

    # "assigned", "revoked" or "lost".
    kind: str
    partitions: tuple[TopicPartition, ...]
    reason: str
    # Whether the member waits for the event `Released`. The membership sends this event after the callback
    # has returned and the commit of its partitions is complete.
    releases: bool = False
    # Whether no commit follows the return of the callback. Java commits before the callback instead.
    is_committed: bool = False
    # Whether the commit for these partitions has been requested. The membership then reports a failure of
    # this commit.
    is_committing: bool = False


class CallbackQueue:
    """The rebalance callbacks that wait or run, in the order of the rebalances. They run one at a time."""

    def __init__(self) -> None:
        self.waiting: deque[RebalanceCallback] = deque()
        self.running: RebalanceCallback | None = None

    @property
    def is_empty(self) -> bool:
        """Whether no callback is waiting or running."""
        return self.running is None and not self.waiting

    @property
    def has_loss(self) -> bool:
        """Whether a "lost" callback is waiting or running. Thread-safe."""
        return any(
            callback is not None and callback.kind == "lost" for callback in (self.running, *self.waiting)
        )

    def add(self, callback: RebalanceCallback) -> None:
        """Add a callback at the end of the queue."""
        self.waiting.append(callback)

    def discard(self, callback: RebalanceCallback) -> None:
        """Remove a callback that has not started."""
        if callback in self.waiting:
            self.waiting.remove(callback)

    def start_next(self) -> RebalanceCallback | None:
        """Start and return the next callback; None if the queue is empty or a callback is running."""
        if self.running is not None or not self.waiting:
            return None
        self.running = self.waiting.popleft()
        return self.running

    def finish(self) -> RebalanceCallback | None:
        """Mark the running callback as returned, and return it; None if no callback is running."""
        callback, self.running = self.running, None
        return callback

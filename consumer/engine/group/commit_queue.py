"""The queue of commits that wait to be sent, and the timeouts of commits."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping
from uuid import UUID

import msgspec

from kproto.errors import KprotoError, RequestTimedOut
from kproto.group.protocol import Identity
from kproto.group.subscription import TopicPartition

from ..network.call import Call
from ..positions.partition_states import PartitionState
from .initial_commits import Offsets, OnCommitted


class QueuedCommit(msgspec.Struct, eq=False):
    """A commit that waits or is in flight. A commit without offsets only waits for the earlier commits."""

    offsets: Offsets
    deadline: int
    timeout_ms: int
    # Called exactly once.
    on_committed: OnCommitted
    # Whether the commit may be sent only while this client is a member of the group.
    requires_membership: bool
    # The partition states at the time of the call. If a partition now has another state object, it was
    # revoked in the meantime.
    states: Mapping[TopicPartition, PartitionState]
    # Whether partitions that were revoked after the call are removed from the commit. If false, as for
    # commits of the application, the commit fails instead.
    drops_revoked: bool = False
    # The member id and generation that the commit must carry. If None, the commit carries the member id
    # and generation that are current when it is sent. Set in two cases: for the commit before a member leaves
    # during a rebalance, and, with `policy="java"`, for the commit before JoinGroup.
    required_identity: Identity | None = None
    # Whether this is an initial commit, which stores the start offset of a partition without a committed
    # offset. Close does not wait for a retry of an initial commit.
    is_initial: bool = False
    # Whether to look up the committed offsets before this initial commit is sent. True if the commit had to
    # wait or an attempt has failed.
    needs_check: bool = False
    # Whether the lookup that `needs_check` requires has succeeded.
    is_checked: bool = False
    # Whether the commit is sent only once, like Java's commitAsync (M130).
    is_single_attempt: bool = False
    retry_at: int = 0  # When the commit may be sent again (ms).
    failures: int = 0
    # Why the commit has not succeeded yet. If the commit times out, its error contains this reason.
    reason: str = ""
    sent_identity: Identity | None = None
    call: Call | None = None
    is_completed: bool = False
    # Topic -> the id of the topic to which the offsets belong. A re-created topic has another id.
    topic_ids: dict[str, UUID] = msgspec.field(default_factory=dict[str, UUID])
    # Topic -> the topic id in the last OffsetCommit request. The id comes from `topic_ids`, else from the
    # cached metadata.
    sent_topic_ids: dict[str, UUID] = msgspec.field(default_factory=dict[str, UUID])
    # Whether the coordinator has confirmed the topic ids, so that the commit may use names. The coordinator
    # does not know `unknown_topics`, and has other ids for `recreated_topics`.
    is_confirmed: bool = False
    unknown_topics: set[str] = msgspec.field(default_factory=set[str])
    recreated_topics: set[str] = msgspec.field(default_factory=set[str])

    def complete(self, error: KprotoError | None) -> None:
        """Call `on_committed`, unless it has been called before."""
        if not self.is_completed:
            self.is_completed = True
            self.on_committed(error)


class CommitQueue:
    """The commits that wait to be sent, and the timeouts of all commits that have not completed."""

    def __init__(self) -> None:
        self._waiting: deque[QueuedCommit] = deque()
        # A heap of (deadline, number of the commit, commit).
        self._deadlines: list[tuple[int, int, QueuedCommit]] = []
        self._count_added = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def first(self) -> QueuedCommit | None:
        """The first commit of the queue that has not timed out, or None if there is no such commit.

        Commits that have timed out are removed from the front of the queue.
        """
        while self._waiting and self._waiting[0].is_completed:
            self._waiting.popleft()
        return self._waiting[0] if self._waiting else None

    def add(self, commit: QueuedCommit) -> None:
        """Add a new commit at the end of the queue, or at the front if it has a required identity.

        A commit with a required identity (member id and generation) cannot be sent in a later generation.
        Other commits can.
        """
        if commit.required_identity is None:
            self._waiting.append(commit)
        else:
            self._waiting.appendleft(commit)
        self._count_added += 1
        heapq.heappush(self._deadlines, (commit.deadline, self._count_added, commit))
        if len(self._deadlines) > 100 + 2 * len(self._waiting):
            # Remove completed commits from the heap: most commits complete long before their deadlines.
            self._deadlines = [entry for entry in self._deadlines if not entry[2].is_completed]
            heapq.heapify(self._deadlines)

    def add_again(self, commit: QueuedCommit) -> None:
        """Put a commit at the front of the queue, so that it is sent again before newer commits."""
        self._waiting.appendleft(commit)

    def pop(self) -> QueuedCommit:
        """Remove and return the first commit of the queue, which the caller sends."""
        return self._waiting.popleft()

    def due(self) -> int | None:
        """Return the time (ms) of the earliest deadline in the queue; None if no commit has a deadline."""
        return self._deadlines[0][0] if self._deadlines else None

    def expire(self, now: int, in_flight: QueuedCommit | None) -> None:
        """Fail the commits whose timeout has passed. Their error is RequestTimedOut.

        The commit in flight is an exception: if its OffsetCommit request has also timed out, the commit fails
        later, with the error of the request.
        """
        while self._deadlines:
            deadline, _, commit = self._deadlines[0]
            if deadline > now and not commit.is_completed:
                return
            # The commit has timed out, or it completed earlier. In the second case, `complete` has no effect.
            heapq.heappop(self._deadlines)
            if commit is in_flight and commit.call is not None:
                if commit.call.deadline <= now:
                    # The commit will fail with the error of its OffsetCommit request, which is more
                    # specific.
                    continue
                commit.reason = commit.reason or "the coordinator has not answered yet"
            commit.complete(RequestTimedOut("OffsetCommit", commit.timeout_ms, commit.reason))

    def clear(self) -> list[QueuedCommit]:
        """Remove and return all commits that wait to be sent."""
        commits = list(self._waiting)
        self._waiting.clear()
        return commits

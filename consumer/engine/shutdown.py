"""How a consumer stops: by `unsubscribe`, after which it may subscribe again, or for good, by `close`.

* The group is left first, with its callbacks and commits; then the brokers hear that fetch sessions are over;
  then the connections are shut.
* Close ends within the time that it was given, in whatever phase it is then.
* Who waits for either of them hears of it exactly once, and of the commit that failed on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kproto.errors import IllegalState, KprotoError, RequestTimedOut
from kproto.group.subscription import TopicPartition

from ..options import ConsumerOptions
from . import events as ev
from .admin.runner import PlanRunner
from .core import ClientCore
from .events import Done
from .fetch.fetcher import Fetcher
from .group.commits import Committer, offsets_of
from .group.membership import Membership
from .group.status import Place
from .metadata.updater import MetadataUpdater
from .positions.partition_states import PartitionState

# How long close waits for the brokers to hear that fetch sessions are over.
SESSIONS_CLOSE_MS = 1_000


class Leaving:
    """Who waits for the end of what, and until when."""

    def __init__(
        self,
        core: ClientCore[ConsumerOptions],
        metadata: MetadataUpdater,
        group: Membership,
        committer: Committer,
        fetcher: Fetcher,
        runner: PlanRunner,
    ) -> None:
        self._core = core
        self._standing = core.standing
        self._metadata = metadata
        self._group = group
        self._committer = committer
        self._fetcher = fetcher
        self._runner = runner
        self.closed = False
        self.close_at: int | None = None
        self._closing: ev.Close | None = None
        self._left = False  # the group, or there was none; the fetch sessions are being closed
        # What had a position when close was asked for: where others would have begun nobody needs to save.
        self._placed: frozenset[TopicPartition] = frozenset()
        self._unsubscribing: list[Any] = []
        self._saving = False  # what was processed of partitions that were assigned by hand

    # ---- for a while

    def unsubscribe(self, event: ev.Unsubscribe) -> None:
        self._unsubscribing.append(event.token)
        self._group.uncommitted = None
        if self._standing.in_group:
            self._group.unsubscribe()
        else:
            options = self._core.options
            self._group.unsubscribe_by_hand()
            self._saving = True
            self._save(list(self._core.partitions), options.request_timeout_ms, self._saved)
            self._core.partitions.clear()
            self._standing.place = Place.nowhere

    def give_up(self, partitions: Sequence[TopicPartition]) -> None:
        """The application assigned others by hand: what it processed of these is committed, as it may be."""
        if partitions:
            self._save(partitions, self._core.options.request_timeout_ms, lambda: None)
        for partition in partitions:
            self._core.partitions.drop(partition)

    def _save(self, partitions: Sequence[TopicPartition], timeout_ms: int, then: Callable[[], None]) -> None:
        """Commits what was processed of partitions that were assigned by hand, if commits are automatic,
        behind the commits that were asked for."""
        options, states = self._core.options, dict[TopicPartition, PartitionState]()
        if options.enable_auto_commit and not (options.as_java and not self._closing):
            states = self._committer.consumed(partitions)

        def done(error: KprotoError | None) -> None:
            if states and error is not None:
                self._group.not_committed(states, error)
            then()

        if states:
            self._committer.commit(offsets_of(states), timeout_ms, done)
        else:
            self._committer.drain(timeout_ms, done)

    def _saved(self) -> None:
        self._saving = False

    def look(self) -> None:
        """Whether everything was given back."""
        if not self._unsubscribing or self._saving or not self._group.settled:
            return
        if not self._group.wanted and not self._standing.by_hand:  # else there is something new meanwhile
            self._core.partitions.clear()
            self._standing.place = Place.nowhere
            self._metadata.watch(frozenset())
        self._unsubscribed(self._group.uncommitted)

    def _unsubscribed(self, error: KprotoError | None) -> None:
        self._core.actions.extend(Done(token, None, error) for token in self._unsubscribing)
        self._unsubscribing.clear()

    # ---- for good

    def close(self, event: ev.Close) -> None:
        core = self._core
        if self._closing is not None or self.closed:
            core.actions.append(Done(event.token, None, None))
            return
        self._closing = event
        self.close_at = core.now + event.timeout_ms
        self._fetcher.stopped = True
        self._committer.hurry()
        self._group.uncommitted = None
        if event.processed:
            core.partitions.mark_processed()
        self._placed = frozenset(p for p, state in core.partitions.states.items() if state.has_position)
        # The deadline before the last one, so that leaving is said even when a callback or a commit hangs.
        timeout = max(1, event.timeout_ms - min(500, event.timeout_ms // 4))
        if self._standing.in_group:
            self._group.close(event.leave, timeout)
            return
        self._save(list(core.partitions), timeout, self.left)

    def left(self) -> None:
        """Nothing more is said to the group; the brokers keep fetch sessions for nobody."""
        if self._closing is None or self._left or self.closed:
            return
        self._left = True
        core = self._core
        assert self.close_at is not None
        self.close_at = min(self.close_at, core.now + SESSIONS_CLOSE_MS)
        self._end_commits()
        core.partitions.clear()
        self._fetcher.close(self._end, max(1, self.close_at - core.now))

    def _end_commits(self) -> None:
        """Time is over: for commits that are under way, and for what was processed and not even sent, as a
        callback took it, or there was none. Before the partitions go, as nobody else has taken them."""
        core = self._core
        self._committer.close()
        left = core.partitions.to_commit(self._placed) if core.options.enable_auto_commit else {}
        if left and self._closing is not None and not self._group.saving and not self._group.uncommitted:
            why = "the consumer was closed before this was sent"
            self._group.not_committed(left, RequestTimedOut("OffsetCommit", self._closing.timeout_ms, why))

    def look_at_clock(self) -> None:
        if self.close_at is not None and self.close_at <= self._core.now:
            self._end()

    def _end(self) -> None:
        if self._closing is None or self.closed:
            return
        self.closed = True
        self.close_at = None
        core = self._core
        self._end_commits()
        core.partitions.clear()
        self._runner.end(IllegalState("this consumer was closed meanwhile"))
        core.report("closed")
        core.actions.extend(core.network.actions)
        core.network.actions.clear()
        core.network.close(core.now)
        self._unsubscribed(None)
        core.actions.append(Done(self._closing.token, None, self._group.uncommitted))

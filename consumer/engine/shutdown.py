"""The calls of `unsubscribe()` and `close()`. After `unsubscribe()` the consumer may subscribe again.

* `close()` leaves the group after the required callbacks and commits. Then it closes the fetch sessions at
  the brokers, and finally the connections (M98). Meanwhile the client pushes its last metrics (KIP-714).

* `close()` returns within its timeout.

* Each call of `unsubscribe()` or `close()` completes exactly once. If a commit of the call fails, the call
  fails with the same error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from kproto.errors import IllegalState, KprotoError, RequestTimedOut
from kproto.group.subscription import TopicPartition

from ..consumer_options import ConsumerOptions
from . import events as ev
from .admin.runner import PlanRunner
from .core import ClientCore
from .events import Done
from .fetch.fetcher import Fetcher
from .group.commits import Committer, offsets_of
from .group.membership import Membership
from .group.status import AssignmentSource
from .metadata.updater import MetadataUpdater
from .positions.partition_states import PartitionState
from .telemetry.reporter import ClientTelemetry

# How long (ms) close waits for the responses to the requests that close the fetch sessions and push the last
# metrics.
CLOSE_SESSIONS_MS = 1_000


class ConsumerShutdown:
    """The calls of `unsubscribe()` and `close()` that have not completed."""

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
        self._status = core.group_status
        self._metadata = metadata
        self._group = group
        self._committer = committer
        self._fetcher = fetcher
        self._runner = runner
        self.closed = False
        self.telemetry: ClientTelemetry | None = None
        # Time (ms) at which close ends, even if it still waits for responses or callbacks.
        self.close_ends_at: int | None = None
        self._close_event: ev.Close | None = None
        # Whether close has left the group (if any) and has begun to close the fetch sessions.
        self._has_left = False
        # Whether the requests that close the fetch sessions have ended.
        self._has_closed_sessions = False
        # The partitions that had a position when `close()` was called. Only their processed offsets have to
        # be committed.
        self._partitions_at_close: frozenset[TopicPartition] = frozenset()
        self._unsubscribe_tokens: list[Any] = []
        # Identifies the commit that the last `unsubscribe()` of manually assigned partitions has started.
        # None once this commit and all earlier commits have completed.
        self._manual_commit: object | None = None

    # ---- unsubscribe

    def unsubscribe(self, event: ev.Unsubscribe) -> None:
        """Start releasing all partitions. The call completes in `complete_unsubscribe`."""
        self._unsubscribe_tokens.append(event.token)
        self._group.commit_error = None
        if self._status.in_group:
            self._group.unsubscribe()
        else:
            timeout_ms = self._core.options.request_timeout_ms
            self._group.note_manual_unsubscribe()
            self._manual_commit = commit = object()
            self._commit_processed(
                list(self._core.partitions), timeout_ms, partial(self._on_manual_committed, commit)
            )
            self._core.partitions.clear()
            self._status.source = AssignmentSource.NONE

    def release_manual_partitions(self, partitions: Sequence[TopicPartition]) -> None:
        """Start to commit the offsets of partitions that a new assignment omits, and drop the partitions."""
        if partitions:
            timeout_ms = self._core.options.request_timeout_ms
            self._commit_processed(partitions, timeout_ms, lambda: None)
        for partition in partitions:
            self._core.partitions.drop(partition)

    def _commit_processed(
        self, partitions: Sequence[TopicPartition], timeout_ms: int, on_ended: Callable[[], None]
    ) -> None:
        """Commit processed offsets of manually assigned partitions if auto commit is on.

        `on_ended` is called when this commit and all earlier commits have completed, or after `timeout_ms`.
        If the commit fails, the error is reported first. With `policy="java"`, processed offsets are
        committed only during close (M99).
        """
        options = self._core.options
        states: dict[TopicPartition, PartitionState] = {}
        if options.enable_auto_commit and (self._close_event or not options.as_java):
            states = self._committer.states_to_commit(partitions)

        def on_committed(error: KprotoError | None) -> None:
            if states and error is not None:
                self._group.report_uncommitted(states, error)
            on_ended()

        if states:
            self._committer.commit(offsets_of(states), timeout_ms, on_committed)
        else:
            self._committer.wait_for_pending(timeout_ms, on_committed)

    def _on_manual_committed(self, commit: object) -> None:
        # A later `unsubscribe()` may have started another commit, which all pending calls wait for.
        if self._manual_commit is commit:
            self._manual_commit = None

    def complete_unsubscribe(self) -> None:
        """Complete the `unsubscribe()` calls if all partitions have been released."""
        if not self._unsubscribe_tokens or self._manual_commit is not None or not self._group.is_settled:
            return
        # If the application has subscribed or assigned since it called `unsubscribe()`, its new partitions
        # are kept.
        if not self._group.subscription.is_active and not self._status.is_manual:
            self._core.partitions.clear()
            self._status.source = AssignmentSource.NONE
            self._metadata.watch(frozenset())
        self._complete_unsubscribe_calls(self._group.commit_error)

    def _complete_unsubscribe_calls(self, error: KprotoError | None) -> None:
        """Complete all pending calls of `unsubscribe()`."""
        self._core.actions.extend(Done(token, None, error) for token in self._unsubscribe_tokens)
        self._unsubscribe_tokens.clear()

    # ---- close

    def close(self, event: ev.Close) -> None:
        """Start closing the consumer. If it is already closing or closed, the call completes immediately."""
        core = self._core
        if self._close_event is not None or self.closed:
            core.actions.append(Done(event.token, None, None))
            return
        self._close_event = event
        # Even with a timeout of 0, LeaveGroup is sent, but its response is not awaited (as in Java).
        self.close_ends_at = core.now + max(1, event.timeout_ms)
        self._fetcher.stopped = True
        self._committer.prepare_close()
        self._group.commit_error = None
        if self.telemetry is not None:
            self.telemetry.begin_close()
        if event.processed:
            core.partitions.mark_processed()
        self._partitions_at_close = frozenset(
            p for p, state in core.partitions.states.items() if state.has_position
        )
        # The member gets less time than `close()`, so that LeaveGroup can still be sent if a callback or a
        # commit does not finish.
        leave_group_ms = min(500, event.timeout_ms // 4)
        member_timeout_ms = max(1, event.timeout_ms - leave_group_ms)
        if self._status.in_group:
            self._group.close(event.leave, member_timeout_ms)
            return
        self._commit_processed(list(core.partitions), member_timeout_ms, self.on_left)

    def on_left(self) -> None:
        """Continue `close()` after the member has left its group: close the fetch sessions at the brokers.

        Outside of a group, `close()` continues here after its last commit.
        """
        if self._close_event is None or self._has_left or self.closed:
            return
        self._has_left = True
        core = self._core
        assert self.close_ends_at is not None
        self.close_ends_at = min(self.close_ends_at, core.now + CLOSE_SESSIONS_MS)
        self._fail_commits()
        core.partitions.clear()
        self._fetcher.close(self._on_sessions_closed, max(1, self.close_ends_at - core.now))

    def _on_sessions_closed(self) -> None:
        self._has_closed_sessions = True
        self.complete_close()

    def complete_close(self) -> None:
        """Complete the `close()` call once the fetch sessions are closed and the last push has ended."""
        if self._has_closed_sessions and (self.telemetry is None or self.telemetry.has_ended):
            self._finish()

    def _fail_commits(self) -> None:
        """Fail all commits that have not completed, and report processed offsets for which no commit was
        sent.

        Must be called before the partitions are released, because the method reads their processed offsets.
        """
        core = self._core
        self._committer.close()
        states = (
            core.partitions.states_to_commit(self._partitions_at_close)
            if core.options.enable_auto_commit
            else {}
        )
        is_reported = self._group.is_committing_revoked or self._group.commit_error is not None
        if states and self._close_event is not None and not is_reported:
            why = "the consumer was closed before the commit was sent"
            error = RequestTimedOut("OffsetCommit", self._close_event.timeout_ms, why)
            self._group.report_uncommitted(states, error)

    def end_if_late(self) -> None:
        """End `close()` if its timeout has expired."""
        if self.close_ends_at is not None and self.close_ends_at <= self._core.now:
            self._finish()

    def _finish(self) -> None:
        """End `close()`: close the connections, and complete or fail all pending calls."""
        if self._close_event is None or self.closed:
            return
        self.closed = True
        self.close_ends_at = None
        core = self._core
        self._fail_commits()
        core.partitions.clear()
        self._runner.fail_all(IllegalState("this consumer was closed"))
        core.report("closed")
        core.actions.extend(core.network.actions)
        core.network.actions.clear()
        core.network.close(core.now)
        self._complete_unsubscribe_calls(None)
        error = self._group.commit_error
        # With a timeout of 0, the last commit is sent, but its response is not awaited.
        if self._close_event.timeout_ms == 0 and isinstance(error, IllegalState):
            error = RequestTimedOut("OffsetCommit", 0, str(error))
        core.actions.append(Done(self._close_event.token, None, error))

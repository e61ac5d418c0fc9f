"""Commits the processed or stored offsets every `auto_commit_interval_ms` (M122).

* A record counts as processed when the application calls poll again after the poll that returned it.

* With `enable_auto_offset_store=False`, the offsets that the application stores are committed instead of the
  processed offsets.

* Offsets that have not changed since the last commit are committed again only once per hour (`REFRESH_MS`),
  or at each interval with `policy="java"`.

* An error is reported once, even if the following commits fail with the same error. The commit of the next
  interval serves as the retry (M123).

* Besides the report, the next poll raises a broker's error, unless the error is retriable, CommitFailed or
  Fenced. With `policy="java"` the poll raises no error of an automatic commit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kproto.errors import BrokerError, CommitFailed, Fenced, KprotoError, Retriable
from kproto.group.subscription import TopicPartition

from ...consumer_options import ConsumerOptions
from ..core import ClientCore
from ..positions.partition_states import PartitionState
from .initial_commits import OnCommitted

States = Mapping[TopicPartition, PartitionState]


class AutoCommit:
    """The timer of automatic commits. It calls `commit(states, on_committed)` after each interval."""

    def __init__(
        self,
        core: ClientCore[ConsumerOptions],
        states_to_commit: Callable[[], States],
        commit: Callable[[States, OnCommitted], None],
    ) -> None:
        self._core = core
        self._status = core.group_status
        self._states_to_commit = states_to_commit
        self._commit = commit
        # When the interval ends (ms); None while the timer is stopped.
        self._next_at: int | None = None
        self._in_flight = False
        self._last_error: str | None = None

    def start(self) -> None:
        """Start the timer if it is stopped."""
        if self._next_at is None:
            self.restart()

    def restart(self) -> None:
        """Start a new interval, as Java does after each assignment (M87, M125)."""
        if self._core.options.enable_auto_commit:
            self._next_at = self._core.now + max(1, self._core.options.auto_commit_interval_ms)

    def stop(self) -> None:
        """Stop the timer."""
        self._next_at = None

    def due(self) -> int | None:
        """Return when the interval ends (ms), or None if the timer is stopped or a commit is in flight."""
        return None if self._in_flight else self._next_at

    def pump(self) -> None:
        """Commit processed offsets if the interval has ended.

        Partitions that are being revoked are left out: `Membership` commits their offsets.
        """
        core = self._core
        if self._next_at is None or self._in_flight or self._next_at > core.now:
            return
        states = {
            partition: state for partition, state in self._states_to_commit().items() if not state.revoking
        }
        self._next_at = core.now + max(1, core.options.auto_commit_interval_ms)
        has_no_generation = self._status.in_group and self._status.identity is None
        if not states or has_no_generation or self._status.group_error is not None:
            return
        self._in_flight = True
        self._commit(states, self._on_committed)

    def _on_committed(self, error: KprotoError | None) -> None:
        self._in_flight = False
        if error is None:
            self._last_error = None
        elif str(error) != self._last_error:
            # An error is not reported again if the next commit fails with the same error.
            self._last_error = str(error)
            self._core.report("uncommitted", reason=str(error))
            is_only_reported = isinstance(error, (CommitFailed, Fenced, Retriable))
            if isinstance(error, BrokerError) and not is_only_reported and not self._core.options.as_java:
                self._core.queue_error(error)

"""Initial commits: a partition without a commit gets one before its first record is returned.

* M206 After a crash before the first commit of the application, "latest" would otherwise mean a later end,
  and the records between would be skipped (M203). Start offsets that are found together are committed
  together.
* A commit without a response, or with the identity of another generation, is retried with a growing backoff.
  Until it succeeds no record of the partition is returned. After any other error the error is raised and the
  partition is read.
* Close does not wait for a second attempt. Then the start is reported as uncommitted, and the next owner of
  the partition chooses it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from kproto.error_codes import ErrorCode
from kproto.errors import AuthenticationFailed, BrokerError, ConnectionFailed, KprotoError, RequestTimedOut
from kproto.group.subscription import TopicPartition

from ...options import ConsumerOptions
from ..core import ClientCore
from ..positions.partition_states import PartitionState

# Partition -> offset, leader epoch, metadata.
Offsets = Mapping[TopicPartition, tuple[int, int | None, str]]
# Called once with None, or with the error of the commit.
OnCommitted = Callable[[KprotoError | None], None]

# These errors mean that the coordinator has not responded.
NO_RESPONSE = (RequestTimedOut, ConnectionFailed, AuthenticationFailed)


class InitialCommits:
    """The partitions whose start offsets have to be committed. `commit(offsets, on_committed)` does that."""

    def __init__(
        self, core: ClientCore[ConsumerOptions], commit: Callable[[Offsets, OnCommitted], None]
    ) -> None:
        self._core = core
        self._commit = commit
        self._waiting: dict[TopicPartition, PartitionState] = {}
        self._retry_at = 0
        self._in_flight = False
        self._failures = 0
        # Set by close: a commit that fails is not retried.
        self.is_closing = False

    def add(self, state: PartitionState) -> None:
        """Commit the position of this partition. Until that succeeds it returns no records."""
        state.start_uncommitted = True
        self._waiting[state.partition] = state
        state.mark_dirty()

    def due(self) -> int | None:
        """Return when the next commit is due (ms), or None."""
        return self._retry_at if self._waiting and not self._in_flight else None

    def pump(self) -> None:
        """Commit the start offsets that wait, in one commit."""
        if not self._waiting or self._in_flight or self._retry_at > self._core.now:
            return
        waiting, self._waiting = self._waiting, {}
        states = {
            partition: state
            for partition, state in waiting.items()
            if state.start_uncommitted and not state.released
        }
        if not states:
            return
        epochs = {partition: state.epoch for partition, state in states.items()}
        self._in_flight = True

        def on_committed(error: KprotoError | None) -> None:
            self._in_flight = False
            current = [
                state
                for partition, state in states.items()
                if state.epoch == epochs[partition] and not state.released
            ]
            self._on_committed(current, error)

        offsets = {partition: (state.position, state.leader_epoch, "") for partition, state in states.items()}
        self._commit(offsets, on_committed)

    def _on_committed(self, states: Iterable[PartitionState], error: KprotoError | None) -> None:
        core = self._core
        retried: list[PartitionState] = []
        uncommitted: list[TopicPartition] = []
        for state in states:
            if error is None or state.committed == state.position:
                state.on_start_committed()
            elif self.is_closing:
                uncommitted.append(state.partition)
            elif isinstance(error, NO_RESPONSE) or _is_of_other_generation(error):
                retried.append(state)
            else:
                state.on_start_committed()
                core.queue_error(error)
        if uncommitted:
            core.report("uncommitted", uncommitted, reason=f"the start offset was not committed: {error}")
        if retried:
            if error is not None and not isinstance(error, (RequestTimedOut, BrokerError)):
                core.queue_error(error)
            self._retry_at = core.now + core.backoff.after(self._failures)
            self._failures += 1
            self._waiting.update({state.partition: state for state in retried})
        else:
            self._failures = 0
        core.wake_poll()

    def clear(self) -> None:
        """Drop everything: no commit can be sent any more."""
        self._waiting.clear()


def _is_of_other_generation(error: KprotoError) -> bool:
    code = getattr(error, "code", None)
    return code in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID)

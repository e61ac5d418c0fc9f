"""Initial commits: a partition without a commit gets one before its first record is returned.

* An initial commit (M206) protects against skipped records. Without it, after a crash before the
  application's first commit, the policy "latest" would select the end of the log at the restart (M203).
* Start offsets that are looked up together are committed together. A later crash therefore cannot make the
  consumer skip records of a new partition (M209).
* An initial commit never overwrites a commit of the application. All commits are sent in the order of their
  requests. If an earlier commit of the application succeeds, the initial commit of its partitions is dropped.
* An initial commit that gets no response, or is rejected because its member id and generation are outdated,
  is retried with a growing backoff. Until it succeeds, no record of the partition is returned. After any
  other error, poll raises the error and then returns the records.
* A consumer that is being closed does not wait for a second attempt. The start offset is reported as
  uncommitted, and the next owner of the partition looks up a start offset again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from kproto.error_codes import ErrorCode
from kproto.errors import AuthenticationFailed, BrokerError, ConnectionFailed, KprotoError, RequestTimedOut
from kproto.group.subscription import TopicPartition

from ...options import ConsumerOptions
from ..core import ClientCore
from ..positions.partition_states import PartitionState

# The offsets to commit: partition -> (offset, leader epoch, metadata).
Offsets = Mapping[TopicPartition, tuple[int, int | None, str]]
# A callback that is called once, with None or with the error of the commit.
OnCommitted = Callable[[KprotoError | None], None]

# Errors after which the client does not know whether the coordinator has received the commit.
NO_RESPONSE = (RequestTimedOut, ConnectionFailed, AuthenticationFailed)


class InitialCommits:
    """Commits the start offsets of partitions, by calling `commit(offsets, on_committed)`."""

    def __init__(
        self, core: ClientCore[ConsumerOptions], commit: Callable[[Offsets, OnCommitted], None]
    ) -> None:
        self._core = core
        self._commit = commit
        self._waiting: dict[TopicPartition, PartitionState] = {}
        self._retry_at = 0
        self._in_flight = False
        self._failures = 0
        # Whether the consumer is being closed. An initial commit that fails is then not retried.
        self.is_closing = False

    def add(self, state: PartitionState) -> None:
        """Add a partition whose start offset has to be committed.

        Until the commit succeeds, no record of the partition is returned.
        """
        state.start_uncommitted = True
        self._waiting[state.partition] = state
        state.mark_dirty()

    def due(self) -> int | None:
        """Return when the next initial commit is due (ms), or None."""
        return self._retry_at if self._waiting and not self._in_flight else None

    def pump(self) -> None:
        """Send one commit with all start offsets that are not committed yet."""
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
            if error is None or state.committed is not None:
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
        """Drop all start offsets that are not committed yet, because no commit can be sent any more."""
        self._waiting.clear()


def _is_of_other_generation(error: KprotoError) -> bool:
    code = getattr(error, "code", None)
    return code in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID)

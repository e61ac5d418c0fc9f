"""Initial commits: commits of start offsets, for partitions without a committed offset.

The start offset is committed before the first record of the partition is returned.

* An initial commit (M206) protects against skipped records. Without it, the policy "latest" would restart an
  application at the end of the log after a crash (M203).

* Start offsets that are looked up together are committed together, before any record is returned. So if the
  consumer crashes, the next owner skips no record of a new partition (M209).

* An initial commit never overwrites offsets that the application has committed with this consumer. Commits
  are sent in the order of the calls, and an initial commit omits partitions with a committed offset.

* If the application calls seek(), the initial commit of the partition is dropped. If the commit is already in
  flight, the records wait for its response.

* The application may commit offsets in a transaction, on another connection. An initial commit can overwrite
  such an offset only if the offset reaches the coordinator after the last lookup and before the initial
  commit.

* Before an initial commit, the committed offsets are looked up again if the initial commit had to wait, or if
  an earlier commit of these partitions has not succeeded. The coordinator may have received offsets in the
  meantime.

* The committed offsets are also looked up again if the application has requested the group metadata for a
  transaction, because the transaction may have committed offsets.

* A lookup of committed offsets waits for the end of open transactions (KIP-447).

* An initial commit is retried with an exponential backoff if it gets no response, or if its member id and
  generation are outdated.

* No records of a partition are returned while its initial commit is being retried.

* After an error that is not retried, one poll raises the error, and later polls return the records.

* A consumer that is being closed attempts an initial commit only once. If the attempt fails, the start offset
  is reported as uncommitted, and the partition's next owner looks up a start offset again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from kproto.error_codes import ErrorCode, describe
from kproto.errors import AuthenticationFailed, BrokerError, ConnectionFailed, KprotoError, RequestTimedOut
from kproto.group.subscription import TopicPartition
from kproto.messages.offset_fetch import OffsetFetchResponse

from ...consumer_options import ConsumerOptions
from ..core import ClientCore
from ..network.call import Call
from ..positions.partition_states import PartitionState
from ..requests import (
    LAST_VERSION_WITH_NAMES,
    CommittedOffset,
    offset_fetch_request,
    offset_fetch_result,
    version_limit,
)

# The offsets to commit: partition -> (offset, leader epoch, metadata).
Offsets = Mapping[TopicPartition, tuple[int, int | None, str]]
# A callback that is called once: with None if the commit has succeeded, otherwise with its error.
OnCommitted = Callable[[KprotoError | None], None]

# Errors after which the client does not know whether the coordinator has received the commit.
NO_RESPONSE_ERRORS = (RequestTimedOut, ConnectionFailed, AuthenticationFailed)


class InitialCommits:
    """Commits the start offsets of partitions, by calling `commit(offsets, on_committed, needs_check)`.

    If `needs_check` is true, the committed offsets of the partitions are looked up before the commit.
    """

    def __init__(
        self, core: ClientCore[ConsumerOptions], commit: Callable[[Offsets, OnCommitted, bool], None]
    ) -> None:
        self._core = core
        self._commit = commit
        # The partitions whose start offset the next initial commit contains.
        self._uncommitted_states: dict[TopicPartition, PartitionState] = {}
        self._retry_at = 0
        self._in_flight = False
        self._failures = 0
        # Whether the lookup of a start offset was retried. If so, the application may have committed
        # meanwhile, and the committed offsets are looked up again.
        self._needs_check = False
        # Whether the consumer is being closed. An initial commit that fails is then not retried.
        self.is_closing = False

    def add(self, state: PartitionState, *, was_retried: bool) -> None:
        """Add a partition whose start offset has to be committed.

        No record of the partition is returned until the commit succeeds, or fails with an error after which
        it is not retried. `was_retried` says whether the lookup of the start offset was retried.
        """
        state.start_uncommitted = True
        self._needs_check |= was_retried
        self._uncommitted_states[state.partition] = state
        state.mark_dirty()

    def due(self) -> int | None:
        """Return when the next initial commit is due (ms).

        The result is None if no start offset waits for its commit, or if a commit is in flight.
        """
        return self._retry_at if self._uncommitted_states and not self._in_flight else None

    def pump(self) -> None:
        """Send one commit with all start offsets that are not committed yet."""
        if not self._uncommitted_states or self._in_flight or self._retry_at > self._core.now:
            return
        uncommitted_states, self._uncommitted_states = self._uncommitted_states, {}
        states = {
            partition: state
            for partition, state in uncommitted_states.items()
            if state.start_uncommitted and not state.released
        }
        if not states:
            return
        offsets = {partition: (state.position, state.leader_epoch, "") for partition, state in states.items()}
        self._in_flight = True

        def on_committed(error: KprotoError | None) -> None:
            self._in_flight = False
            # The commit is outdated for a partition whose position was changed by seek(), or that has a new
            # start offset. The epoch of the state does not show this, because it also changes when a buffer
            # is dropped.
            current_states = [
                state
                for partition, state in states.items()
                if state.start_uncommitted
                and partition not in self._uncommitted_states
                and not state.released
            ]
            self._on_committed(current_states, error)

        needs_check = self._needs_check or self._failures > 0
        self._needs_check = False
        self._commit(offsets, on_committed, needs_check)

    def request_committed_offsets(
        self, partitions: Collection[TopicPartition], node: int, then: Callable[[Call], None]
    ) -> Call:
        """Request the committed offsets of these partitions from the coordinator `node`."""
        core = self._core
        group_id = core.options.group_id
        assert group_id is not None
        topics = {partition.topic for partition in partitions}
        return core.send(
            offset_fetch_request(group_id, partitions, core.view),
            then,
            node=node,
            max_version=version_limit(core.view, topics, LAST_VERSION_WITH_NAMES),
        )

    def record_committed_offsets(
        self, partitions: Iterable[TopicPartition], call: Call, response: OffsetFetchResponse
    ) -> tuple[int, str]:
        """Record the committed offsets that the response contains.

        Return the error code and the reason of the failure: 0 and "" if the lookup has succeeded. If the
        response does not contain the group, the code is 0, but the reason is not empty.
        """
        core = self._core
        result = offset_fetch_result(core.view, response, call.version, core.options.group_id or "")
        if result is None:
            return 0, "the response does not contain the group"
        code, offsets = result
        if code:
            return code, describe(code)
        reason = ""
        for partition in partitions:
            value = offsets.get(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if isinstance(value, CommittedOffset):
                if (state := core.partitions.get(partition)) is not None:
                    state.on_committed(value.offset)
            elif value:
                code, reason = value, describe(value)
        return code, reason

    def _on_committed(self, states: Iterable[PartitionState], error: KprotoError | None) -> None:
        """Let polls return records of the committed partitions, and schedule retries for others.

        If a commit cannot be retried, polls return the records, too, and the next poll raises `error`.
        While the consumer is being closed, no commit is retried, and the partitions are reported as
        uncommitted.
        """
        core = self._core
        states_to_retry: list[PartitionState] = []
        uncommitted_at_close: list[TopicPartition] = []
        for state in states:
            if error is None or state.committed is not None:
                state.on_start_committed()
            elif self.is_closing:
                uncommitted_at_close.append(state.partition)
            elif isinstance(error, NO_RESPONSE_ERRORS) or _is_generation_error(error):
                states_to_retry.append(state)
            else:
                state.on_start_committed()
                core.queue_error(error)
        if uncommitted_at_close:
            reason = f"the start offset was not committed: {error}"
            core.report("uncommitted", uncommitted_at_close, reason=reason)
        if states_to_retry:
            if error is not None and not isinstance(error, (RequestTimedOut, BrokerError)):
                core.queue_error(error)
            self._retry_at = core.now + core.backoff.after(self._failures)
            self._failures += 1
            self._uncommitted_states.update({state.partition: state for state in states_to_retry})
        else:
            self._failures = 0
        core.wake_poll()

    def clear(self) -> None:
        """Drop all start offsets that are not committed yet, because no further commit can be sent."""
        self._uncommitted_states.clear()


def _is_generation_error(error: KprotoError) -> bool:
    code = getattr(error, "code", None)
    return code in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID)

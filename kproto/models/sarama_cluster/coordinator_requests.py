"""Requests of sarama-cluster to its coordinator (consumer.go, v2.1.15).

The routines follow CommitOffsets, release and closeCoordinator.

* The coordinator is looked up before a request if it is unknown. The connection is closed if a request gets
  no response, and after any error of JoinGroup or SyncGroup.

* After NOT_COORDINATOR or COORDINATOR_NOT_AVAILABLE, the coordinator is looked up again, but the error is
  still returned (M68).

* One commit runs at a time, with the dirty offsets: those that were marked but not yet committed. Without
  dirty offsets no request is sent.

* A commit is retried immediately, up to Group.Offsets.Retry.Max times (3). It fails if any of its partitions
  has an error.

* A release stops all partition consumers, then dwells, then commits. The dwell is a pause of 100 ms, so that
  other members can commit. A closing Consumer does not dwell.
"""

from __future__ import annotations

from typing import ClassVar

from ...error_codes import ErrorCode
from ...group.subscription import TopicPartition
from ...messages.join_group import JoinGroupResponse
from ...messages.offset_commit import OffsetCommitResponse
from ...messages.sync_group import SyncGroupResponse
from ...wire.message import Message
from ..common import OffsetToCommit, commit_errors, offset_commit_request
from ..sarama import errors
from ..sarama.broker import BrokerResponse, SaramaBroker
from ..sarama.errors import GoError
from ..sarama.routines import Routine, States, Table, row
from .consumer_state import ClusterConsumer

_MOVED_CODES = {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}


class CoordinatorRequestState(States):
    FINDING_COORDINATOR = "finding_coordinator"
    REQUESTING = "requesting"
    REDISCOVERING = "rediscovering"
    DONE = "done"


A = CoordinatorRequestState


class CoordinatorRequest(Routine):
    """One request to the coordinator.

    When the request is complete, `caller` is resumed with the signal "response", which carries the response
    or a GoError.
    """

    __slots__ = ("caller", "consumer", "error", "request")
    TABLE: ClassVar[Table]
    EDGES: ClassVar = {
        A.FINDING_COORDINATOR: {A.REQUESTING, A.REDISCOVERING, A.DONE},
        A.REQUESTING: {A.REDISCOVERING, A.DONE},
        A.REDISCOVERING: {A.DONE},
        A.DONE: set(),
    }

    def __init__(self, consumer: ClusterConsumer, caller: Routine, request: Message) -> None:
        super().__init__(A.FINDING_COORDINATOR)
        self.consumer, self.caller, self.request = consumer, caller, request
        self.error = errors.INCOMPLETE  # The error to return after the coordinator has been looked up again.

    def start(self) -> None:
        """Start the request, which runs in the caller's goroutine."""
        broker = self.consumer.client.coordinator.cached()
        if broker is None:
            self.consumer.client.coordinator.look_up(self)
        else:
            self.move(A.REQUESTING)
            broker.call(self, self.request)


def _on_coordinator_found(call: CoordinatorRequest, error: GoError | None) -> None:
    broker = call.consumer.client.coordinator.cached()
    if error is None and broker is not None:
        call.move(A.REQUESTING)
        broker.call(call, call.request)
    else:
        _close_coordinator(call, None, error or errors.COORDINATOR_NOT_AVAILABLE)


def _on_response(call: CoordinatorRequest, broker_response: BrokerResponse) -> None:
    response = broker_response.response
    if response is None:
        _close_coordinator(call, broker_response.broker, broker_response.error or errors.INCOMPLETE)
    elif isinstance(response, JoinGroupResponse | SyncGroupResponse) and response.error_code:
        _close_coordinator(call, broker_response.broker, errors.kafka(response.error_code))
    else:
        _finish_request(call, response)


def _close_coordinator(call: CoordinatorRequest, broker: SaramaBroker | None, error: GoError) -> None:
    """Close the coordinator's connection, and finish the request with `error` (closeCoordinator).

    If the error shows that the coordinator has moved, the new coordinator is looked up before the request
    finishes.
    """
    if broker is not None:
        broker.close()
    if error.code in _MOVED_CODES:
        call.error = error
        call.move(A.REDISCOVERING)
        call.consumer.client.coordinator.look_up(call)
    else:
        _finish_request(call, error)


def _on_rediscovered(call: CoordinatorRequest, error: GoError | None) -> None:
    _finish_request(call, call.error)


def _finish_request(call: CoordinatorRequest, result: Message | GoError) -> None:
    call.move(A.DONE)
    call.consumer.client.resume(call.caller, "response", result)


CoordinatorRequest.TABLE = {
    "coordinator_found": row(A, FINDING_COORDINATOR=_on_coordinator_found, REDISCOVERING=_on_rediscovered),
    "response": row(A, REQUESTING=_on_response),
}


# -- commits


class CommitOffsetsState(States):
    WAITING = "waiting"  # The commit waits until the commit in progress is complete.
    REQUESTING = "requesting"
    DONE = "done"


C = CommitOffsetsState


class CommitOffsets(Routine):
    """One call of commitOffsetsWithRetry. At its end it resumes `caller` with "committed" and an error.

    The error is None if the commit succeeded.
    """

    __slots__ = ("caller", "consumer", "retries", "sent")
    TABLE: ClassVar[Table]
    EDGES: ClassVar = {C.WAITING: {C.REQUESTING, C.DONE}, C.REQUESTING: {C.WAITING, C.DONE}, C.DONE: set()}

    def __init__(self, consumer: ClusterConsumer, caller: Routine, retries: int) -> None:
        super().__init__(C.WAITING)
        self.consumer, self.caller, self.retries = consumer, caller, retries
        self.sent: dict[TopicPartition, int] = {}

    def start(self) -> None:
        """Start the commit, which runs in the caller's goroutine."""
        if self.consumer.committing:
            self.consumer.waiting_commits.append(self)
        else:
            self.consumer.committing = True
            _send_commit(self, None)


def _send_commit(commit: CommitOffsets, payload: object) -> None:
    consumer = commit.consumer
    dirty = {
        partition: OffsetToCommit(offset.offset, -1, offset.metadata)
        for partition, offset in sorted(consumer.partition_offsets().items())
        if offset.dirty
    }
    if not dirty:
        _finish_commit(commit, None)
        return
    commit.sent = {partition: offset.offset for partition, offset in dirty.items()}
    commit.move(C.REQUESTING)
    group_id = consumer.client.settings.group_id
    request = offset_commit_request(group_id, consumer.generation, consumer.member_id, None, dirty)
    CoordinatorRequest(consumer, commit, request).start()


def _on_commit_response(commit: CommitOffsets, result: Message | GoError) -> None:
    error = result if isinstance(result, GoError) else None
    if isinstance(result, OffsetCommitResponse):
        offsets = commit.consumer.partition_offsets()
        for partition, code in commit_errors(result).items():
            if code:
                error = errors.kafka(code)
            elif partition in offsets and offsets[partition].offset == commit.sent.get(partition):
                offsets[partition].dirty = False
    if error is not None and commit.retries > 0:
        commit.retries -= 1
        commit.move(C.WAITING)
        _send_commit(commit, None)
    else:
        _finish_commit(commit, error)


def _finish_commit(commit: CommitOffsets, error: GoError | None) -> None:
    commit.move(C.DONE)
    consumer = commit.consumer
    consumer.committing = bool(consumer.waiting_commits)
    if consumer.waiting_commits:
        consumer.client.wake(consumer.waiting_commits.pop(0), "commit_turn")
    consumer.client.resume(commit.caller, "committed", error)


CommitOffsets.TABLE = {
    "commit_turn": row(C, WAITING=_send_commit),
    "response": row(C, REQUESTING=_on_commit_response),
}


# -- release


class ReleaseState(States):
    STOPPING = "stopping"
    DWELLING = "dwelling"
    COMMITTING = "committing"
    DONE = "done"


R = ReleaseState


class Release(Routine):
    """One call of release. Afterwards it resumes `caller` with "released" and either the error of the commit
    or None.
    """

    __slots__ = ("caller", "consumer")
    TABLE: ClassVar[Table]
    EDGES: ClassVar = {
        R.STOPPING: {R.DWELLING},
        R.DWELLING: {R.COMMITTING},
        R.COMMITTING: {R.DONE},
        R.DONE: set(),
    }

    def __init__(self, consumer: ClusterConsumer, caller: Routine) -> None:
        super().__init__(R.STOPPING)
        self.consumer, self.caller = consumer, caller

    def start(self) -> None:
        """Start the release. `ClusterConsumer.wake_waiters` lets the release check whether all partitions
        have stopped.
        """
        self.consumer.release = self
        for partition in self.consumer.partitions.values():
            partition.stop()
        _check_stopped(self, None)


def _check_stopped(release: Release, payload: object) -> None:
    consumer = release.consumer
    if all(partition.is_closed for partition in consumer.partitions.values()):
        release.move(R.DWELLING)
        consumer.client.sleep(release, consumer.client.now + consumer.client.settings.dwell_time)
        _check_dying(release, None)


def _check_dying(release: Release, payload: object) -> None:
    """End the dwell immediately if the Consumer is being closed."""
    if release.consumer.dying:
        _commit_offsets(release, None)


def _commit_offsets(release: Release, payload: object) -> None:
    release.move(R.COMMITTING)
    CommitOffsets(release.consumer, release, release.consumer.client.settings.offsets_retry_max).start()


def _on_committed(release: Release, error: GoError | None) -> None:
    release.move(R.DONE)
    consumer = release.consumer
    consumer.release = None
    consumer.partitions.clear()
    consumer.client.resume(release.caller, "released", error)


Release.TABLE = {
    "check": row(R, STOPPING=_check_stopped, DWELLING=_check_dying),
    "timer_elapsed": row(R, DWELLING=_commit_offsets),
    "committed": row(R, COMMITTING=_on_committed),
}

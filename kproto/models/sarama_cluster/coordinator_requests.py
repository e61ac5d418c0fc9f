"""How sarama-cluster asks its coordinator (consumer.go: CommitOffsets, release, closeCoordinator, v2.1.15).

* Each request looks the coordinator up if it is unknown. A request without an answer closes the connection; a
  refused JoinGroup or SyncGroup closes it, too, whatever the error. NOT_COORDINATOR and
  COORDINATOR_NOT_AVAILABLE look the coordinator up again, and the error is returned all the same (M68).
* One commit at a time. It carries what was marked and not committed, is tried Group.Offsets.Retry.Max times
  more (3), at once, and fails with the error of any of its partitions. Nothing dirty is no request.
* Release: stop all partition consumers, dwell (100 ms, for other members to commit; not while closing), and
  commit.
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
from ..sarama.broker import Answer, Broker
from ..sarama.errors import Trouble
from ..sarama.routines import Routine, States, Table, only
from .consumer_state import Consumer

_REDISCOVER = {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}


class AskState(States):
    finding = "finding"
    asking = "asking"
    rediscovering = "rediscovering"
    done = "done"


A = AskState


class Ask(Routine):
    """One request to the coordinator: `caller` goes on with "asked" and the response, or the trouble."""

    __slots__ = ("caller", "consumer", "request", "trouble")
    TABLE: ClassVar[Table]
    EDGES: ClassVar = {
        A.finding: {A.asking, A.rediscovering, A.done},
        A.asking: {A.rediscovering, A.done},
        A.rediscovering: {A.done},
        A.done: set(),
    }

    def __init__(self, consumer: Consumer, caller: Routine, request: Message) -> None:
        super().__init__(A.finding)
        self.consumer, self.caller, self.request = consumer, caller, request
        self.trouble = errors.INCOMPLETE

    def start(self) -> None:
        """The caller goes on into it."""
        broker = self.consumer.client.coordinator.cached()
        if broker is None:
            self.consumer.client.coordinator.look_up(self)
        else:
            self.move(A.asking)
            broker.call(self, self.request)


def _found(ask: Ask, trouble: Trouble | None) -> None:
    broker = ask.consumer.client.coordinator.cached()
    if trouble is None and broker is not None:
        ask.move(A.asking)
        broker.call(ask, ask.request)
    else:
        _refuse(ask, None, trouble or errors.COORDINATOR_NOT_AVAILABLE)


def _answered(ask: Ask, answer: Answer) -> None:
    response = answer.response
    if response is None:
        _refuse(ask, answer.broker, answer.error or errors.INCOMPLETE)
    elif isinstance(response, JoinGroupResponse | SyncGroupResponse) and response.error_code:
        _refuse(ask, answer.broker, errors.kafka(response.error_code))
    else:
        _finish(ask, response)


def _refuse(ask: Ask, broker: Broker | None, trouble: Trouble) -> None:
    """closeCoordinator."""
    if broker is not None:
        broker.close()
    if trouble.code in _REDISCOVER:
        ask.trouble = trouble
        ask.move(A.rediscovering)
        ask.consumer.client.coordinator.look_up(ask)
    else:
        _finish(ask, trouble)


def _rediscovered(ask: Ask, trouble: Trouble | None) -> None:
    _finish(ask, ask.trouble)


def _finish(ask: Ask, result: Message | Trouble) -> None:
    ask.move(A.done)
    ask.consumer.client.resume(ask.caller, "asked", result)


Ask.TABLE = {
    "found": only(A, finding=_found, rediscovering=_rediscovered),
    "answered": only(A, asking=_answered),
}


# -- commits


class CommitState(States):
    waiting = "waiting"  # for the commit before it
    asking = "asking"
    done = "done"


C = CommitState


class CommitOffsets(Routine):
    """commitOffsetsWithRetry: `caller` goes on with "committed" and the trouble, or None."""

    __slots__ = ("caller", "consumer", "retries", "sent")
    TABLE: ClassVar[Table]
    EDGES: ClassVar = {C.waiting: {C.asking, C.done}, C.asking: {C.waiting, C.done}, C.done: set()}

    def __init__(self, consumer: Consumer, caller: Routine, retries: int) -> None:
        super().__init__(C.waiting)
        self.consumer, self.caller, self.retries = consumer, caller, retries
        self.sent: dict[TopicPartition, int] = {}

    def start(self) -> None:
        """The caller goes on into it."""
        if self.consumer.committing:
            self.consumer.commits.append(self)
        else:
            self.consumer.committing = True
            _commit(self, None)


def _commit(commit: CommitOffsets, what: object) -> None:
    consumer = commit.consumer
    dirty = {
        partition: OffsetToCommit(one.offset, -1, one.metadata)
        for partition, one in sorted(consumer.managed().items())
        if one.dirty
    }
    if not dirty:
        _end_commit(commit, None)
        return
    commit.sent = {partition: one.offset for partition, one in dirty.items()}
    commit.move(C.asking)
    group_id = consumer.client.settings.group_id
    request = offset_commit_request(group_id, consumer.generation, consumer.member_id, None, dirty)
    Ask(consumer, commit, request).start()


def _commit_asked(commit: CommitOffsets, found: Message | Trouble) -> None:
    trouble = found if isinstance(found, Trouble) else None
    if isinstance(found, OffsetCommitResponse):
        managed = commit.consumer.managed()
        for partition, code in commit_errors(found).items():
            if code:
                trouble = errors.kafka(code)
            elif partition in managed and managed[partition].offset == commit.sent.get(partition):
                managed[partition].dirty = False
    if trouble is not None and commit.retries > 0:
        commit.retries -= 1
        commit.move(C.waiting)
        _commit(commit, None)
    else:
        _end_commit(commit, trouble)


def _end_commit(commit: CommitOffsets, trouble: Trouble | None) -> None:
    commit.move(C.done)
    consumer = commit.consumer
    consumer.committing = bool(consumer.commits)
    if consumer.commits:
        consumer.client.wake(consumer.commits.pop(0), "turn")
    consumer.client.resume(commit.caller, "committed", trouble)


CommitOffsets.TABLE = {
    "turn": only(C, waiting=_commit),
    "asked": only(C, asking=_commit_asked),
}


# -- release


class ReleaseState(States):
    stopping = "stopping"
    dwelling = "dwelling"
    committing = "committing"
    done = "done"


R = ReleaseState


class Release(Routine):
    """release: `caller` goes on with "released" and the trouble of the commit, or None."""

    __slots__ = ("caller", "consumer")
    TABLE: ClassVar[Table]
    EDGES: ClassVar = {
        R.stopping: {R.dwelling},
        R.dwelling: {R.committing},
        R.committing: {R.done},
        R.done: set(),
    }

    def __init__(self, consumer: Consumer, caller: Routine) -> None:
        super().__init__(R.stopping)
        self.consumer, self.caller = consumer, caller

    def start(self) -> None:
        """The caller goes on into it; `Consumer.look` makes it look whether all have stopped."""
        self.consumer.release = self
        for partition in self.consumer.partitions.values():
            partition.stop()
        _look_stopped(self, None)


def _look_stopped(release: Release, what: object) -> None:
    consumer = release.consumer
    if all(partition.is_closed for partition in consumer.partitions.values()):
        release.move(R.dwelling)
        consumer.client.sleep(release, consumer.client.now + consumer.client.settings.dwell_time)
        _look_dwelling(release, None)


def _look_dwelling(release: Release, what: object) -> None:
    if release.consumer.dying:
        _dwelt(release, None)


def _dwelt(release: Release, what: object) -> None:
    release.move(R.committing)
    CommitOffsets(release.consumer, release, release.consumer.client.settings.offsets_retry_max).start()


def _released(release: Release, trouble: Trouble | None) -> None:
    release.move(R.done)
    consumer = release.consumer
    consumer.release = None
    consumer.partitions.clear()
    consumer.client.resume(release.caller, "released", trouble)


Release.TABLE = {
    "look": only(R, stopping=_look_stopped, dwelling=_look_dwelling),
    "elapsed": only(R, dwelling=_dwelt),
    "committed": only(R, committing=_released),
}

"""The offset manager of a session (sarama offset_manager.go, v1.61.1).

* Every partition has one offset: the offset of the first message that is not processed yet. `mark` only
  moves it forward. `reset` only moves it back, or keeps it and changes the metadata (M135).

* `mark` and `reset` make the offset dirty, which means that it has to be committed.

* A commit contains the offsets that are dirty when the broker's lock is taken. A successful response makes an
  offset clean, unless the offset has changed since the request (M135).

* The first flush or OffsetFetch looks the coordinator up, even if no offset is dirty. After an error that
  releases the coordinator, the next flush looks it up again (M61).

* Offsets are fetched one partition after another. Stable offsets are requested only under read_committed.

* After NOT_COORDINATOR or COORDINATOR_NOT_AVAILABLE, an OffsetFetch is repeated after a wait and a lookup of
  the coordinator, up to Metadata.Retry.Max times. After COORDINATOR_LOAD_IN_PROGRESS or
  UNSTABLE_OFFSET_COMMIT, it is repeated after the wait, without a lookup (M62).

* Only OffsetCommit v2 to v4 has a field for Offsets.Retention. Its default 0 is sent as -1, which selects the
  broker's retention.

* With auto commit a ticker flushes every AutoCommit.Interval (M127). The last flush is in
  `offset_manager_close`.

* Commit errors are reported on the Errors channel, one for each partition (M61). Only FENCED_INSTANCE_ID ends
  the session. NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS,
  NOT_LEADER_OR_FOLLOWER and LEADER_NOT_AVAILABLE are not reported, because the next flush commits the offsets
  again.

* While a cooperative member joins, commits wait. They are then sent with the new generation (M95).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import ClassVar

from ...error_codes import ErrorCode
from ...group.subscription import TopicPartition, by_topic
from ...messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ...wire.message import Message
from . import errors
from .broker import BrokerResponse, SaramaBroker
from .client import SaramaClient
from .config import api_key
from .errors import GoError
from .routines import Routine, States, Table, Ticker, row

# After these errors the coordinator is looked up again (redispatch). They are not reported.
_REDISPATCH = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
# After these errors, which are reported, the coordinator is kept.
_KEEPS_COORDINATOR = {ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
_INSTANCE_SINCE = 7  # OffsetCommit's group_instance_id


class PartitionOffset:
    """The offset of one partition: sarama's partitionOffsetManager."""

    __slots__ = ("dirty", "done", "epoch", "metadata", "offset")

    def __init__(self, offset: int, epoch: int, metadata: str) -> None:
        self.offset, self.epoch, self.metadata = offset, epoch, metadata
        self.dirty = False
        # Whether the partition is closed. A closed partition is removed as soon as its offset is committed.
        self.done = False

    def mark(self, offset: int, metadata: str = "") -> None:
        """Advance the offset (MarkOffset). A lower offset is ignored."""
        if offset > self.offset:
            self.offset, self.metadata, self.dirty = offset, metadata, True

    def reset(self, offset: int, metadata: str = "") -> None:
        """Set a lower offset, or new metadata for the same offset (ResetOffset); ignore a higher offset."""
        if offset <= self.offset:
            self.offset, self.metadata, self.dirty = offset, metadata, True

    def on_committed(self, offset: int, metadata: str) -> None:
        """Mark the offset as clean, unless it has changed since the commit."""
        if (self.offset, self.metadata) == (offset, metadata):
            self.dirty = False


class OffsetManagerState(States):
    IDLE = "idle"
    # The manager looks the coordinator up for the routines in `waiting`.
    FINDING_COORDINATOR = "finding_coordinator"


class OffsetManager(Routine):
    """The session's partitions, its coordinator, and the generation that commits carry."""

    __slots__ = (
        "broker",
        "cancel",
        "client",
        "committer",
        "generation",
        "locked_out",
        "member_id",
        "partition_offsets",
        "readers",
        "report",
        "waiting",
        "writer",
        "writing",
    )
    TABLE: ClassVar[Table]
    EDGES: ClassVar = {
        OffsetManagerState.IDLE: {OffsetManagerState.FINDING_COORDINATOR},
        OffsetManagerState.FINDING_COORDINATOR: {OffsetManagerState.IDLE},
    }

    def __init__(
        self,
        client: SaramaClient,
        member_id: str,
        generation: int,
        report: Callable[[GoError, TopicPartition], None],
        cancel: Callable[[GoError], None],
    ) -> None:
        super().__init__(OffsetManagerState.IDLE)
        self.client = client
        self.member_id, self.generation = member_id, generation
        self.report, self.cancel = report, cancel
        self.partition_offsets: dict[TopicPartition, PartitionOffset] = {}
        self.broker: SaramaBroker | None = None
        self.waiting: deque[Routine] = deque()
        # The number of flushes in progress in the current generation.
        self.readers = 0
        # The routine that changes the generation when the flushes in progress are complete.
        self.writer: Routine | None = None
        self.writing = False  # Whether the generation is changing. No flush starts while it changes.
        self.locked_out: list[Flush] = []
        self.committer: MainLoop | None = None
        if client.settings.offsets_auto_commit:
            self.committer = MainLoop(self)

    # -- the coordinator

    def find_coordinator(self, routine: Routine) -> None:
        """Look the coordinator up, unless it is known. `routine` then resumes with "coordinator" and either
        the broker or the error.
        """
        if self.broker is not None:
            self.client.resume(routine, "coordinator", self.broker)
            return
        self.waiting.append(routine)
        if self.state is OffsetManagerState.IDLE:
            self.move(OffsetManagerState.FINDING_COORDINATOR)
            self.client.coordinator.look_up(self)

    def release_coordinator(self, broker: SaramaBroker) -> None:
        if self.broker is broker:
            self.broker = None

    # -- the generation

    def lock_generation(self, routine: Routine) -> None:
        """Block new commits. `routine` resumes with "commits_locked" when the commits in progress are
        complete.
        """
        self.writing, self.writer = True, routine
        if not self.readers:
            self.client.resume(routine, "commits_locked")

    def unlock_generation(self, member_id: str, generation: int) -> None:
        """Set the member id and the generation, and send the blocked commits."""
        self.member_id, self.generation = member_id, generation
        self.writing, self.writer = False, None
        flushes, self.locked_out = self.locked_out, []
        for flush in flushes:
            self.client.wake(flush, "unlocked")

    # -- requests and responses

    def build_request(self, targets: Collection[TopicPartition] | None) -> OffsetCommitRequest | None:
        """Build a commit of the dirty offsets among `targets`, or return None if none is dirty.

        `targets` is None for all partitions (constructRequest).
        """
        dirty = [
            partition
            for partition, offset in self.partition_offsets.items()
            if offset.dirty and (targets is None or partition in targets)
        ]
        if not dirty:
            return None
        settings = self.client.settings
        version = self.client.version(api_key(OffsetCommitRequest))
        return OffsetCommitRequest(
            group_id=settings.group_id,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            group_instance_id=settings.instance_id if version >= _INSTANCE_SINCE else None,
            retention_time_ms=settings.offsets_retention or -1,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[self._build_block(TopicPartition(topic, index)) for index in indexes],
                )
                for topic, indexes in by_topic(dirty)
            ],
        )

    def _build_block(self, partition: TopicPartition) -> OffsetCommitRequestPartition:
        offset = self.partition_offsets[partition]
        return OffsetCommitRequestPartition(
            partition_index=partition.partition,
            committed_offset=offset.offset,
            committed_leader_epoch=offset.epoch,
            committed_metadata=offset.metadata,
        )

    def on_response(
        self, broker: SaramaBroker, request: OffsetCommitRequest, response: OffsetCommitResponse
    ) -> None:
        """Handle the error code of every partition (handleResponse)."""
        codes = {
            TopicPartition(topic.name, partition.partition_index): partition.error_code
            for topic in response.topics
            for partition in topic.partitions
        }
        releases_coordinator = False
        for topic in request.topics:
            for block in topic.partitions:
                partition = TopicPartition(topic.name, block.partition_index)
                if partition in self.partition_offsets:
                    code = codes.get(partition)
                    releases_coordinator = (
                        self._on_partition_response(partition, block, code) or releases_coordinator
                    )
        if releases_coordinator:
            self.release_coordinator(broker)

    def _on_partition_response(
        self, partition: TopicPartition, block: OffsetCommitRequestPartition, code: int | None
    ) -> bool:
        """Handle one partition's error code; return whether to look the coordinator up again."""
        if code is None:
            self.report(errors.INCOMPLETE, partition)
        elif code == ErrorCode.NONE:
            self.partition_offsets[partition].on_committed(
                block.committed_offset, block.committed_metadata or ""
            )
        elif code in _REDISPATCH:
            return True
        elif code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            pass  # The offset stays dirty, so that the next flush commits it again.
        else:
            self.report(errors.kafka(code), partition)
            if code == ErrorCode.FENCED_INSTANCE_ID:
                self.cancel(errors.FENCED)
            return code not in _KEEPS_COORDINATOR and code != ErrorCode.FENCED_INSTANCE_ID
        return False

    def report_failure(self, error: GoError, targets: Collection[TopicPartition] | None) -> None:
        """Report `error` for each of `targets`; None stands for all partitions (handleErrorFor).

        Partitions with a clean offset are included.
        """
        for partition in list(self.partition_offsets):
            if targets is None or partition in targets:
                self.report(error, partition)

    def close(self, partitions: Iterable[TopicPartition]) -> None:
        """Close partitions: each is removed as soon as its offset is clean (AsyncClose)."""
        for partition in partitions:
            if partition in self.partition_offsets:
                self.partition_offsets[partition].done = True

    def release_closed(self, force: bool, targets: Collection[TopicPartition] | None) -> int:
        """Remove closed partitions; return how many partitions remain (releasePOMs).

        Without `force`, closed partitions with a dirty offset are kept. Partitions outside `targets` are
        neither removed nor counted; None stands for all partitions.
        """
        remaining = 0
        for partition, offset in list(self.partition_offsets.items()):
            if targets is not None and partition not in targets:
                continue
            if offset.done and (force or not offset.dirty):
                del self.partition_offsets[partition]
            else:
                remaining += 1
        return remaining


def _on_coordinator(offsets: OffsetManager, error: GoError | None) -> None:
    """Pass the coordinator to all waiting routines.

    If the lookup failed, pass the error only to the first routine, and repeat the lookup for the others.
    """
    client = offsets.client
    offsets.move(OffsetManagerState.IDLE)
    first = offsets.waiting.popleft()
    broker = client.coordinator.cached() if error is None else None
    if broker is not None:
        offsets.broker = broker
        waiting = list(offsets.waiting)
        offsets.waiting.clear()
        client.resume(first, "coordinator", broker)
        for routine in waiting:
            client.wake(routine, "coordinator", broker)
        return
    client.resume(first, "coordinator", error or errors.COORDINATOR_NOT_AVAILABLE)
    if offsets.waiting and offsets.state is OffsetManagerState.IDLE:
        offsets.move(OffsetManagerState.FINDING_COORDINATOR)
        client.coordinator.look_up(offsets)


OffsetManager.TABLE = {"coordinator_found": row(OffsetManagerState, FINDING_COORDINATOR=_on_coordinator)}


# -- one flush


class FlushState(States):
    LOCKED_OUT = "locked_out"  # The flush waits while the generation is changing.
    FINDING_COORDINATOR = "finding_coordinator"
    SENDING = "sending"
    DONE = "done"


F = FlushState


class Flush(Routine):
    """One call of flushToBrokerFor. At its end, `caller` resumes with "flushed"."""

    __slots__ = ("caller", "offsets", "targets")
    TABLE: ClassVar[Table]
    EDGES: ClassVar = {
        F.LOCKED_OUT: {F.FINDING_COORDINATOR},
        F.FINDING_COORDINATOR: {F.SENDING, F.DONE},
        F.SENDING: {F.DONE},
        F.DONE: set(),
    }

    def __init__(
        self, offsets: OffsetManager, caller: Routine, targets: Collection[TopicPartition] | None = None
    ) -> None:
        super().__init__(F.LOCKED_OUT)
        self.offsets, self.caller, self.targets = offsets, caller, targets

    def start(self) -> None:
        """Start the flush, which runs in the caller's goroutine."""
        _begin(self, None)


def _begin(flush: Flush, payload: object) -> None:
    """Start the flush. While the generation is changing, leave the start to `unlock_generation`."""
    if flush.offsets.writing:
        flush.offsets.locked_out.append(flush)
        return
    flush.offsets.readers += 1
    flush.move(F.FINDING_COORDINATOR)
    flush.offsets.find_coordinator(flush)


def _on_coordinator_found(flush: Flush, coordinator: SaramaBroker | GoError) -> None:
    if isinstance(coordinator, GoError):
        flush.offsets.report_failure(coordinator, flush.targets)
        _finish(flush)
        return
    offsets, targets = flush.offsets, flush.targets

    def build_request() -> Message | None:
        return offsets.build_request(targets)

    flush.move(F.SENDING)
    coordinator.call(flush, build_request, keeps_lock=False)


def _on_response(flush: Flush, response: BrokerResponse) -> None:
    offsets = flush.offsets
    if response.error is not None:
        offsets.report_failure(response.error, flush.targets)
        offsets.release_coordinator(response.broker)
        response.broker.close()
    elif isinstance(response.request, OffsetCommitRequest):
        assert isinstance(response.response, OffsetCommitResponse)
        offsets.on_response(response.broker, response.request, response.response)
    _finish(flush)


def _finish(flush: Flush) -> None:
    flush.move(F.DONE)
    offsets = flush.offsets
    offsets.readers -= 1
    if not offsets.readers and offsets.writer is not None:
        offsets.client.wake(offsets.writer, "commits_locked")
    offsets.client.resume(flush.caller, "flushed")


Flush.TABLE = {
    "unlocked": row(F, LOCKED_OUT=_begin),
    "coordinator": row(F, FINDING_COORDINATOR=_on_coordinator_found),
    "response": row(F, SENDING=_on_response),
}


# -- the ticker


class CommitterState(States):
    WAITING = "waiting"
    FLUSHING = "flushing"
    STOPPED = "stopped"


C = CommitterState


class MainLoop(Routine):
    """The goroutine mainLoop, which flushes the offsets every AutoCommit.Interval."""

    __slots__ = ("closing", "offsets", "ticker")
    TABLE: ClassVar[Table]
    EDGES: ClassVar = {
        C.WAITING: {C.FLUSHING, C.STOPPED},
        C.FLUSHING: {C.WAITING, C.STOPPED},
        C.STOPPED: set(),
    }

    def __init__(self, offsets: OffsetManager) -> None:
        super().__init__(C.WAITING)
        client = offsets.client
        self.offsets = offsets
        self.closing: Routine | None = None  # The routine that waits for the loop to stop.
        self.ticker = Ticker(client.now, client.settings.offsets_auto_commit_interval)
        client.sleep(self, self.ticker.at)


def _on_tick(committer: MainLoop, payload: object) -> None:
    committer.ticker.take_tick(committer.offsets.client.now)
    committer.move(C.FLUSHING)
    Flush(committer.offsets, committer).start()


def _on_flushed(committer: MainLoop, payload: object) -> None:
    client = committer.offsets.client
    committer.offsets.release_closed(False, None)
    if committer.closing is not None:
        committer.move(C.STOPPED)
        client.wake(committer.closing, "stopped")
        return
    committer.move(C.WAITING)
    client.sleep(committer, committer.ticker.at)


def _stop(committer: MainLoop, closing: Routine) -> None:
    committer.move(C.STOPPED)
    committer.offsets.client.resume(closing, "stopped")


def _stop_later(committer: MainLoop, closing: Routine) -> None:
    committer.closing = closing


MainLoop.TABLE = {
    "timer_elapsed": row(C, WAITING=_on_tick),
    "flushed": row(C, FLUSHING=_on_flushed),
    "stop": row(C, WAITING=_stop, FLUSHING=_stop_later),
}

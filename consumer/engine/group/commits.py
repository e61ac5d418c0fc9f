"""Committing offsets, safely in every phase of a rebalance.

Rules that hold here:

* Commits are sent one after the other, in the order they were asked for: an older offset never overtakes a
  newer.
* A member's commit carries its identity of the moment it is sent. While a rebalance is under way it waits,
  and then goes out with the new generation, if all of its partitions were owned all the while; else it fails
  with CommitFailed. It never makes the member lose anything, and fetching goes on.
* Commits and JoinGroups travel on two connections, so a commit may be read after the group went on to the
  next generation. ILLEGAL_GENERATION means something only if the identity is still what it was sent with.
* An offset is one of the topic that had the name when the commit was asked for. In one that was created anew
  it means nothing: it is not stored there, whoever asks for that, and however late.
* Every commit ends: committed, refused, or when its time is over; at the latest when the consumer is closed.
  Who commits everything is told when partitions were lost that had something to commit (M95).
* Retriable errors are retried until the commit's deadline, with a growing pause; a lost coordinator is looked
  up again.
* Automatic commits say what was *processed*: what was handed out before the last poll. Nothing new, no
  request, but for one in an hour that keeps what was committed from being forgotten. One that is refused for
  good is told once by the next poll, and tried again at the next interval.
* The starts of partitions without a commit stand in the same queue (`starts`).
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from uuid import UUID

import msgspec

from kproto.error_codes import ErrorCode, describe
from kproto.errors import (
    BrokerError,
    CommitFailed,
    Fenced,
    IllegalState,
    KprotoError,
    NoOffsetForPartition,
    RequestTimedOut,
    Retriable,
)
from kproto.group.protocol import Identity
from kproto.group.subscription import TopicPartition
from kproto.messages.offset_commit import OffsetCommitResponse

from ...errors import broker_error
from ...options import ConsumerOptions
from ..core import ClientCore
from ..error_actions import OFFSET_COMMIT, ErrorAction, action_for
from ..metadata.updater import MetadataUpdater
from ..network.connection import Call, Outcome
from ..positions.partition_states import PartitionState
from ..requests import ids_of, offset_commit_codes, offset_commit_request
from .coordinator import Coordinator
from .initial_commits import Offsets, Starts, Then

# Java's classic consumer speaks no version of OffsetCommit and OffsetFetch that names topics by id.
LAST_WITH_NAMES = 9

# What coordinators answer that can't write offsets now: of NOT_ENOUGH_REPLICAS and the like.
CANT_WRITE = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT)
REBALANCING = "a rebalance is under way"

# Coordinators forget what a group without members committed, offsets.retention.minutes after that; before
# Kafka 2.1 also what one with members did. So it is said again where nothing is new, by who says all.
AGAIN_MS = 3_600_000


class _Commit(msgspec.Struct, eq=False):
    """One commit on its way. `then` is called exactly once. Without offsets: waits for those before it."""

    offsets: Offsets
    deadline: int
    timeout_ms: int
    then: Then
    # A member's: never sent by somebody who is none any more.
    in_group: bool
    # As what its partitions were held when it was asked for: one that went and came back is another one.
    held: Mapping[TopicPartition, PartitionState]
    # Partitions that went away are left out, and nobody minds.
    trim: bool = False
    # To be sent with this identity and no other (what Java commits before it joins again).
    only_as: Identity | None = None
    # It saves the starts of partitions of which nothing was read: close doesn't wait for its second try.
    start: bool = False
    # What an application of Java's doesn't wait for is not sent twice (M130).
    once: bool = False
    retry_at: int = 0
    failures: int = 0
    why: str = ""
    sent_as: Identity | None = None
    call: Call | None = None
    ended: bool = False
    # Whose offsets these are: of the topics of these ids, and of no others of their names.
    ids: dict[str, UUID] = msgspec.field(default_factory=dict[str, UUID])
    # The ids by which it went out: these, and what is known of the others.
    sent_to: dict[str, UUID] = msgspec.field(default_factory=dict[str, UUID])


class Committer:
    """The queue of commits, and the clock of the automatic ones.

    `answered(code, identity)` is called for each refusal of a member's commit: the member has to know.
    """

    def __init__(
        self,
        core: ClientCore[ConsumerOptions],
        coordinator: Coordinator,
        answered: Callable[[int, Identity], None],
        metadata: MetadataUpdater,
    ) -> None:
        self._core = core
        self._standing = core.standing
        self._coordinator = coordinator
        self._answered = answered
        self._metadata = metadata
        self._queue: deque[_Commit] = deque()
        self._open: _Commit | None = None
        self._deadlines: list[tuple[int, int, _Commit]] = []
        self._asked = 0
        self._auto_at: int | None = None
        self._auto_open = False
        self._auto_told: str | None = None
        self._again_at: int | None = None
        self._refused_before = False
        self.starts = Starts(core, self._commit_starts)
        # Lost with something to commit, and the application doesn't know it yet.
        self._lost: dict[TopicPartition, tuple[int, int | None]] = {}

    def start_timer(self) -> None:
        """Commits in time from now on; a clock that runs goes on."""
        if self._auto_at is None:
            self.restart_timer()

    def restart_timer(self) -> None:
        if self._core.options.enable_auto_commit:
            self._auto_at = self._core.now + max(1, self._core.options.auto_commit_interval_ms)

    def due(self) -> int | None:
        now = self._core.now
        times: list[int] = []
        if self._deadlines:
            times.append(self._deadlines[0][0])
        if self._queue and self._open is None and self._queue[0].retry_at > now:
            times.append(self._queue[0].retry_at)
        if self._auto_at is not None and not self._auto_open:
            times.append(self._auto_at)
        if (starts_at := self.starts.due()) is not None:
            times.append(starts_at)
        return min(times, default=None)

    @property
    def idle(self) -> bool:
        return self._open is None and not self._queue

    # ---- asking

    def commit(self, offsets: Offsets, timeout_ms: int, then: Then, once: bool = False) -> None:
        """Commits; `then` gets None, or the error that ended it."""
        if (over := self._standing.hopeless) is not None:
            then(over)
        elif offsets:
            self._enqueue(offsets, timeout_ms, then, once=once)
        else:
            then(None)

    def commit_all(
        self, timeout_ms: int, then: Then, held: Mapping[TopicPartition, int], once: bool = False
    ) -> None:
        """Commits everything that was handed out, below `held`. Fails when some of it was lost meanwhile
        (M95)."""
        if self._lost:
            lost = self._lost
            partition, (position, committed) = next(iter(lost.items()))
            more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
            detail = (
                f"{partition}{more}: lost before it was committed (it was handed out up to {position}, "
                f"committed is {'nothing' if committed is None else committed}); whoever owns it now reads "
                "that again"
            )
            then(broker_error(ErrorCode.UNKNOWN_MEMBER_ID, "OffsetCommit", detail))
            return
        self._core.partitions.mark_processed(held)
        self.commit(offsets_of(self.consumed()), timeout_ms, then, once)

    def consumed(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, PartitionState]:
        """What there is to commit, of these partitions or of all; Java: everything, new or not."""
        now, positions = self._core.now, self._core.partitions
        if self._core.options.as_java:
            return positions.processed_at_all()
        found = positions.to_commit(partitions)
        if partitions is None and (self._again_at is None or self._again_at <= now):
            if self._again_at is not None:
                found = {**positions.committed_before(), **found}
            self._again_at = now + AGAIN_MS
        return found

    def drain(self, timeout_ms: int, then: Then) -> None:
        """Calls `then` when everything that was asked for before is over, or (with an error) this time is."""
        if self.idle:
            then(None)
        else:
            self._enqueue({}, timeout_ms, then)

    def hurry(self) -> None:
        """The consumer closes, and commits what there is: nothing is due in time any more, and what nobody
        has read of needs no more than one try."""
        self._auto_at = None
        self.starts.closing = True

    def commit_as(self, identity: Identity, offsets: Offsets, timeout_ms: int, then: Then) -> None:
        """Commits with this identity, before anything else is done with it."""
        self._enqueue(offsets, timeout_ms, then, only_as=identity, trim=True)

    def _commit_starts(self, offsets: Offsets, then: Then) -> None:
        self._enqueue(offsets, self._core.options.request_timeout_ms, then, trim=True, start=True)

    def forget_lost(self) -> None:
        """The application was told of what was lost, or has it again."""
        self._lost.clear()

    def lost(self, state: PartitionState) -> None:
        """A partition went to somebody else before it was committed."""
        if state.has_position and state.has_returned and not state.has_committed(state.position):
            self._lost[state.partition] = (state.position, state.committed)

    def _enqueue(
        self,
        offsets: Offsets,
        timeout_ms: int,
        then: Then,
        *,
        trim: bool = False,
        only_as: Identity | None = None,
        start: bool = False,
        once: bool = False,
    ) -> None:
        deadline = self._core.now + timeout_ms
        in_group = self._standing.in_group
        positions = self._core.partitions
        held = {p: state for p in offsets if in_group and (state := positions.get(p)) is not None}
        commit = _Commit(
            offsets,
            deadline,
            timeout_ms,
            then,
            in_group,
            held,
            trim=trim,
            only_as=only_as,
            start=start,
            once=once,
        )
        for partition in offsets:
            if (known := self._id_of(partition)) is not None:
                commit.ids[partition.topic] = known
        if only_as is None:
            self._queue.append(commit)
            for partition, (offset, _, _) in offsets.items():
                if (state := positions.get(partition)) is not None:
                    state.on_commit_sent(offset, commit)
        else:
            self._queue.appendleft(commit)  # the others wait for the generation that comes after it
        self._asked += 1
        heapq.heappush(self._deadlines, (deadline, self._asked, commit))
        if len(self._deadlines) > 100 + 2 * len(self._queue):  # most of them ended long before their time
            self._deadlines = [entry for entry in self._deadlines if not entry[2].ended]
            heapq.heapify(self._deadlines)

    # ---- sending

    def pump(self) -> None:
        self._expire()
        if self._open is not None:
            self._leave_old_coordinator()
        self._commit_in_time()
        self.starts.pump()
        while self._open is None and self._queue:
            head = self._queue[0]
            if head.ended:
                self._queue.popleft()
            elif not self._ready(head):
                return

    def _leave_old_coordinator(self) -> None:
        """What the old one was asked, and hasn't answered, the new one is asked."""
        commit, node = self._open, self._coordinator.node
        if commit is None or commit.call is None or node is None or node == commit.call.node:
            return
        self._open, commit.call = None, None
        if commit.once:
            detail = f"node {node} is the coordinator now, and the one before it has not answered"
            self._end(commit, broker_error(ErrorCode.NOT_COORDINATOR, "OffsetCommit", detail))
        else:
            self._queue.appendleft(commit)

    def _ready(self, head: _Commit) -> bool:
        """Sends or ends the oldest commit; False when it has to wait."""
        core, standing = self._core, self._standing
        if head.deadline <= core.now:
            self._end(head, RequestTimedOut("OffsetCommit", head.timeout_ms, head.why))
            return True
        if head.start and self.starts.closing and (head.failures or self._coordinator.node is None):
            self._end(
                head, RequestTimedOut("OffsetCommit", core.now - head.deadline + head.timeout_ms, head.why)
            )
            return True
        if head.retry_at > core.now:
            return False
        if not head.offsets:
            self._end(head, None)
            return True
        theirs = head.in_group and not self._as_java(head)
        gone = [p for p in head.offsets if theirs and self._is_gone(head, p)]
        other = [p for p in head.offsets if self._is_another(head, p.topic)]
        if (gone or other) and head.trim:
            left_out = {*gone, *other}
            head.offsets = {p: value for p, value in head.offsets.items() if p not in left_out}
            return True
        if other:
            detail = f"{other[0]}: the topic was created anew, and what is committed is of the one before"
            self._end(head, broker_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "OffsetCommit", detail))
            return True
        if gone or (head.in_group and not standing.in_group):
            detail = f"{next(iter(gone or head.offsets))} is not assigned to this consumer (any more)"
            code = ErrorCode.UNKNOWN_MEMBER_ID if standing.identity is None else ErrorCode.ILLEGAL_GENERATION
            self._end(head, broker_error(code, "OffsetCommit", detail))
            return True
        identity = head.only_as or standing.identity
        if standing.in_group and identity is None:
            if self._as_java(head):
                self._end(head, broker_error(ErrorCode.REBALANCE_IN_PROGRESS, "OffsetCommit", REBALANCING))
                return True
            head.why = REBALANCING
            return False
        node = self._coordinator.want()
        if node is None:
            why = self._coordinator.trouble
            head.why = f"the group's coordinator is not known{why and f': {why}'}"
            return False
        self._send(head, node, identity)
        return True

    def _is_gone(self, commit: _Commit, partition: TopicPartition) -> bool:
        state = self._core.partitions.get(partition)
        return state is None or commit.held.get(partition, state) is not state

    def _is_another(self, commit: _Commit, topic: str) -> bool:
        """Whether the topic isn't the one that the offsets are of. Java's consumer knows names only."""
        core, before = self._core, commit.ids.get(topic)
        return not core.options.as_java and before is not None and core.topic_ids.get(topic) != before

    def _id_of(self, partition: TopicPartition) -> UUID | None:
        """Which topic an offset is of that is asked for now; None where nobody looks after it: what is known
        of its name may be old."""
        if (state := self._core.partitions.get(partition)) is not None:
            return state.topic_id
        return self._core.topic_ids.get(partition.topic) if self._metadata.watches(partition.topic) else None

    def _send(self, commit: _Commit, node: int, identity: Identity | None) -> None:
        core = self._core
        group = core.options.group_id
        assert group is not None
        commit.sent_as = identity
        commit.sent_to = {**ids_of(core.view, commit.offsets), **commit.ids}
        request = offset_commit_request(
            commit.sent_to,
            group,
            commit.offsets,
            generation=-1 if identity is None else identity.generation,
            member_id="" if identity is None else identity.member_id,
            instance_id=None if identity is None else identity.group_instance_id,
        )
        # However short its own time is: a request that is late takes its connection with it.
        named = core.options.as_java or any(topic not in commit.sent_to for topic, _ in commit.offsets)
        commit.call = core.send(
            request,
            lambda call: self._finished(commit, call),
            node=node,
            max_version=LAST_WITH_NAMES if named else None,
        )
        self._open = self._queue.popleft()

    def _commit_in_time(self) -> None:
        core = self._core
        if self._auto_at is None or self._auto_open or self._auto_at > core.now:
            return
        states = {p: state for p, state in self.consumed().items() if not state.revoking}
        self._auto_at = core.now + max(1, core.options.auto_commit_interval_ms)
        lost = self._standing.in_group and self._standing.identity is None
        if not states or lost or self._standing.hopeless is not None:
            return
        self._auto_open = True
        self._enqueue(offsets_of(states), core.options.request_timeout_ms, self._committed_in_time, trim=True)

    def _committed_in_time(self, error: KprotoError | None) -> None:
        self._auto_open = False
        if error is None:
            self._auto_told = None
        elif str(error) != self._auto_told:
            # It is tried again at the next interval; the same refusal is not told again.
            self._auto_told = str(error)
            self._core.report("uncommitted", reason=str(error))
            if isinstance(error, BrokerError) and not isinstance(error, (CommitFailed, Fenced, Retriable)):
                self._core.queue_error(error)

    # ---- answers

    def _finished(self, commit: _Commit, call: Call) -> None:
        if commit.call is not call:
            return  # another coordinator was asked meanwhile
        self._open = None
        core = self._core
        if not isinstance(call.response, OffsetCommitResponse):
            if call.outcome is Outcome.NO_RESPONSE:
                self._in_vain(commit.offsets, str(call.error))
                self._coordinator.lost(call.node, str(call.error))
                self._again(commit, str(call.error), call.error)
            else:
                self._end(commit, call.error)
            return
        codes = offset_commit_codes(commit.sent_to, call.response, call.version, commit.offsets)
        for partition, (offset, _, _) in commit.offsets.items():
            state = core.partitions.get(partition)
            same = state is not None and commit.held.get(partition, state) is state
            if codes.get(partition) == ErrorCode.NONE and state is not None and same:
                state.on_committed(offset, commit)
                if isinstance(state.error, NoOffsetForPartition):
                    state.await_committed_offset()  # it has one now
        bad = {partition: code for partition, code in codes.items() if code}
        sent_as = commit.sent_as
        overtaken = (
            bool(bad) and ErrorCode.ILLEGAL_GENERATION in bad.values() and self._standing.identity != sent_as
        )
        first = next(iter(bad.values()), 0)
        if first and sent_as is not None and not overtaken and not self._doubts(first):
            self._answered(first, sent_as)
        if overtaken and self._standing.in_group and commit.only_as is None:
            error = broker_error(ErrorCode.REBALANCE_IN_PROGRESS, "OffsetCommit", REBALANCING)
            self._again(commit, REBALANCING, error)
        elif not bad and (unsaid := commit.offsets.keys() - codes.keys()):
            self._in_vain(sorted(unsaid), "the answer doesn't mention it")
            self._again(commit, f"the coordinator's answer doesn't mention {min(unsaid)}")
        elif not bad:
            self._refused_before = False
            self._coordinator.heard()
            self._end(commit, None)
        else:
            self._refused(commit, call, bad)

    def _refused(self, commit: _Commit, call: Call, bad: Mapping[TopicPartition, int]) -> None:
        partition, code = next(iter(bad.items()))
        why = f"{partition} was answered with {describe(code)}"
        do = action_for(OFFSET_COMMIT, code)
        if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and self._as_java(commit):
            do = ErrorAction.RETRY
        if code == ErrorCode.UNKNOWN_TOPIC_ID and self._core.view.topic_id(partition.topic) is None:
            do = ErrorAction.RAISE  # brokers that answer Metadata know of none, either
        group = self._core.options.group_id
        error = broker_error(code, "OffsetCommit", f"group {group!r}, {partition}")
        if do in (ErrorAction.FIND_COORDINATOR, ErrorAction.RETRY, ErrorAction.REFRESH_METADATA):
            self._in_vain([one for one in bad if bad[one] == code], describe(code))
        match do:
            case ErrorAction.FIND_COORDINATOR:
                (self._coordinator.doubted if self._doubts(code) else self._coordinator.lost)(call.node, why)
                self._again(commit, why, error)
            case ErrorAction.REJOIN if self._standing.in_group and not (
                commit.only_as or self._as_java(commit)
            ):
                self._again(commit, REBALANCING)
            case ErrorAction.RETRY | ErrorAction.REFRESH_METADATA:
                if do is ErrorAction.REFRESH_METADATA:  # by which ids, or names, it goes out
                    self._metadata.need()
                    for topic in {one.topic for one in bad if not self._metadata.watches(one.topic)}:
                        self._metadata.look_up(topic)
                self._again(commit, why, error)
            case _:
                by_itself = commit.once or (commit.trim and commit.only_as is None)
                if isinstance(error, Fenced) and self._core.options.as_java and by_itself:
                    # ConsumerCoordinator.asyncCommitFenced: from now on each poll says so, and each commit.
                    self._standing.over = error
                self._end(commit, error)

    def _in_vain(self, partitions: Iterable[TopicPartition], why: str) -> None:
        for partition in partitions:
            self._core.report_failure("OffsetCommit", why, partition, again=self._refused_before)
        self._refused_before = True

    def _doubts(self, code: int) -> bool:
        """Whether it is the coordinator all the same. In Java it is lost, and heartbeats with it."""
        return code in CANT_WRITE and not self._core.options.as_java

    def _as_java(self, commit: _Commit) -> bool:
        """An application's commit fails in Java while the group rebalances (RebalanceInProgressException)."""
        return self._core.options.as_java and not commit.trim

    def _again(self, commit: _Commit, why: str, error: KprotoError | None = None) -> None:
        """Once more, after a backoff; one that is not sent twice ends with `error`."""
        if commit.ended:
            return
        if commit.once and error is not None:
            self._end(commit, error)
            return
        commit.why = why
        commit.retry_at = self._core.now + self._core.backoff.after(commit.failures)
        commit.failures += 1
        self._queue.appendleft(commit)

    # ---- ends

    def _end(self, commit: _Commit, error: KprotoError | None) -> None:
        if commit.ended:
            return
        commit.ended = True
        commit.then(error)

    def _expire(self) -> None:
        while self._deadlines and (self._deadlines[0][2].ended or self._deadlines[0][0] <= self._core.now):
            _, _, commit = heapq.heappop(self._deadlines)
            if commit is self._open and commit.call is not None:
                if commit.call.deadline <= self._core.now:
                    continue  # its request ends at the same moment, and says more
                commit.why = commit.why or "the coordinator has not answered yet"
            self._end(commit, RequestTimedOut("OffsetCommit", commit.timeout_ms, commit.why))

    def close(self) -> None:
        """Nothing is sent any more: what is left fails."""
        left = [*([self._open] if self._open is not None else []), *self._queue]
        self._queue.clear()
        self.starts.clear()
        self._auto_at = None
        for commit in left:
            detail = f" ({commit.why})" if commit.why else ""
            self._end(commit, IllegalState(f"the consumer was closed before this was committed{detail}"))


def offsets_of(states: Mapping[TopicPartition, PartitionState]) -> Offsets:
    """What an OffsetCommit says of what was processed."""
    return {p: (s.processed or 0, s.leader_epoch, "") for p, s in states.items()}

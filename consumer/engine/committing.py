"""Committing offsets, safely in every phase of a rebalance.

Rules that hold here:

* Commits are sent one after the other, in the order they were asked for: an older offset never overtakes a
  newer.
* A member's commit carries its identity of the moment it is sent. While a rebalance is under way it waits,
  and then goes out with the new generation, if all of its partitions are still owned; else it fails with
  CommitFailed. It never makes the member lose anything, and fetching goes on.
* Commits and JoinGroups travel on two connections, so a commit may be read after the group went on to the
  next generation. ILLEGAL_GENERATION means something only if the identity is still what it was sent with.
* Retriable errors are retried until the commit's deadline; a lost coordinator is looked up again.
* Automatic commits say what was *processed*: what was handed out before the last poll. Nothing new, no
  request.
* The start offset of a partition without a commit is saved here before its first record is handed out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from kproto.errors import BrokerError, KprotoError, RequestTimedOut, UnsupportedVersion
from kproto.group.member import Identity
from kproto.group.subscription import TopicPartition
from kproto.messages.offset_commit import OffsetCommitResponse

from ..errors import broker_error, is_retriable
from ..options import ConsumerOptions
from .connection import Call
from .core import Core
from .positions import PartitionState
from .requests import most_for_ids, offset_commit_codes, offset_commit_request

Offsets = Mapping[TopicPartition, tuple[int, int | None, str]]

ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS, FENCED_INSTANCE_ID = 22, 25, 27, 82
COORDINATOR_TROUBLE = (14, 15, 16)


@dataclass(slots=True)
class _Commit:
    offsets: Offsets
    deadline: int
    timeout_ms: int
    then: Callable[[KprotoError | None], None]
    retry_at: int = 0
    why: str = ""
    sent_as: Identity | None = None


class Committer:
    """The queue of commits, and the clock of the automatic ones."""

    def __init__(self, core: Core[ConsumerOptions]) -> None:
        self._core = core
        self._queue: deque[_Commit] = deque()
        self._open: _Commit | None = None
        self._auto_at: int | None = None
        self._auto_open = False
        # Set by the engine: the group's side of a commit.
        self.subscribed: Callable[[], bool] = lambda: False
        self.identity: Callable[[], Identity | None] = lambda: None
        self.coordinator: Callable[[], int | None] = lambda: None
        self.coordinator_lost: Callable[[str], None] = lambda why: None
        self.answered: Callable[[int, Identity], None] = lambda code, identity: None

    def restart_timer(self) -> None:
        if self._core.options.enable_auto_commit:
            self._auto_at = self._core.now + self._core.options.auto_commit_interval_ms

    def due(self) -> int | None:
        times = [commit.deadline for commit in self._queue]
        times += [commit.retry_at for commit in self._queue if commit.retry_at > self._core.now]
        if self._auto_at is not None and not self._auto_open:
            times.append(self._auto_at)
        return min(times, default=None)

    # ---- what is there to commit

    def consumed(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, PartitionState]:
        """The partitions (of these, or all) with something processed that isn't committed."""
        states = self._core.partitions
        chosen = states if partitions is None else [p for p in partitions if p in states]
        return {
            p: states[p]
            for p in chosen
            if states[p].known
            and states[p].processed is not None
            and states[p].processed != states[p].committed
        }

    @staticmethod
    def offsets_of(states: Mapping[TopicPartition, PartitionState]) -> Offsets:
        return {p: (s.processed or 0, s.leader_epoch, "") for p, s in states.items()}

    # ---- asking

    def commit(self, offsets: Offsets, timeout_ms: int, then: Callable[[KprotoError | None], None]) -> None:
        """Commits; `then` gets None, or the error that ended it."""
        if not offsets:
            then(None)
            return
        self._queue.append(_Commit(offsets, self._core.now + timeout_ms, timeout_ms, then))
        self.pump()

    def save(self, state: PartitionState) -> None:
        """Commits the start of a partition that had no commit; it delivers when that is done."""
        epoch = state.epoch

        def saved(error: KprotoError | None) -> None:
            current = self._core.partitions.get(state.partition)
            if current is not state or state.epoch != epoch:
                return
            if error is None:
                state.unsaved = False
                self._core.wake()
            elif isinstance(error, RequestTimedOut) or (
                isinstance(error, BrokerError) and error.code in (ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID)
            ):
                self.save(state)  # still owned: the start must be safe before anything is read
            else:
                state.unsaved = False
                self._core.fail(error)

        start = {state.partition: (state.position, state.leader_epoch, "")}
        self.commit(start, self._core.options.request_timeout_ms, saved)

    def pump(self) -> None:
        self._expire()
        self._commit_in_time()
        now = self._core.now
        if self._open is not None or not self._queue:
            return
        head = self._queue[0]
        if head.retry_at > now:
            return
        gone = [p for p in head.offsets if self.subscribed() and p not in self._core.partitions]
        if gone:
            self._queue.popleft()
            detail = f"{gone[0]} is not assigned to this consumer (any more)"
            head.then(
                broker_error(UNKNOWN_MEMBER_ID if self.identity() is None else 22, "OffsetCommit", detail)
            )
            self.pump()
            return
        identity = self.identity()
        node = self.coordinator()
        if node is None:
            head.why = "the group's coordinator is not known"
            return
        if self.subscribed() and identity is None:
            head.why = "a rebalance is under way"
            return
        self._send(head, node, identity)

    def _send(self, commit: _Commit, node: int, identity: Identity | None) -> None:
        core = self._core
        group = core.options.group_id
        assert group is not None
        self._queue.popleft()
        self._open = commit
        commit.sent_as = identity
        request = offset_commit_request(
            core.view,
            group,
            commit.offsets,
            generation=-1 if identity is None else identity.generation,
            member_id="" if identity is None else identity.member_id,
            instance_id=None if identity is None else identity.group_instance_id,
        )
        core.ask(
            request,
            lambda call: self._finished(commit, call),
            node=node,
            timeout_ms=max(1, min(core.options.request_timeout_ms, commit.deadline - core.now)),
            max_version=most_for_ids(core.view, {p.topic for p in commit.offsets}, 9),
        )

    def _commit_in_time(self) -> None:
        core = self._core
        if self._auto_at is None or self._auto_open or self._auto_at > core.now:
            return
        states = {p: state for p, state in self.consumed().items() if not state.revoking}
        self._auto_at = core.now + core.options.auto_commit_interval_ms
        if not states or (self.subscribed() and self.identity() is None):
            return
        self._auto_open = True

        def done(error: KprotoError | None) -> None:
            self._auto_open = False
            if error is not None and core.options.retry_backoff_ms < core.options.auto_commit_interval_ms:
                self._auto_at = core.now + core.options.retry_backoff_ms

        self._queue.append(
            _Commit(
                self.offsets_of(states),
                core.now + core.options.request_timeout_ms,
                core.options.request_timeout_ms,
                done,
            )
        )

    # ---- answers

    def _finished(self, commit: _Commit, call: Call) -> None:
        self._open = None
        core = self._core
        if not isinstance(call.response, OffsetCommitResponse):
            if isinstance(call.error, UnsupportedVersion):
                commit.then(call.error)
            else:
                self.coordinator_lost(str(call.error))
                self._again(commit, str(call.error))
            return
        codes = offset_commit_codes(core.view, call.response, call.version)
        for partition, (offset, _, _) in commit.offsets.items():
            state = core.partitions.get(partition)
            if codes.get(partition) == 0 and state is not None:
                state.committed = offset
        bad = {partition: code for partition, code in codes.items() if code}
        overtaken = ILLEGAL_GENERATION in bad.values() and self.identity() != commit.sent_as
        if commit.sent_as is not None and not overtaken:
            self.answered(next(iter(bad.values()), 0), commit.sent_as)
        if overtaken and self.subscribed():
            self._again(commit, "a rebalance is under way")
            return
        if not bad:
            commit.then(None)
            self.pump()
            return
        partition, code = next(iter(bad.items()))
        self._refused(commit, partition, code)

    def _refused(self, commit: _Commit, partition: TopicPartition, code: int) -> None:
        why = f"{partition} was answered with error {code}"
        if code in COORDINATOR_TROUBLE:
            if commit.sent_as is None:
                self.coordinator_lost(why)
            self._again(commit, why)
        elif code == REBALANCE_IN_PROGRESS and self.subscribed():
            self._again(commit, "a rebalance is under way")
        elif is_retriable(code) and code != 3:
            self._again(commit, why)
        else:
            group = self._core.options.group_id
            commit.then(broker_error(code, "OffsetCommit", f"group {group!r}, {partition}"))
            self.pump()

    def _again(self, commit: _Commit, why: str) -> None:
        commit.why = why
        commit.retry_at = self._core.now + self._core.options.retry_backoff_ms
        self._queue.appendleft(commit)

    def _expire(self) -> None:
        late = [commit for commit in self._queue if commit.deadline <= self._core.now]
        for commit in late:
            self._queue.remove(commit)
            commit.then(RequestTimedOut("OffsetCommit", commit.timeout_ms, commit.why))

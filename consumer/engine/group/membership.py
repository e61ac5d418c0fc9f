"""The consumer's side of its group: the member's actions done, its callbacks queued, its partitions kept.

Rules that hold here:

* Callbacks run one at a time, in the order the group's life demands, and only while the application polls (or
  closes, or unsubscribes). Until the callback has returned the member waits; heartbeats go on.
* Inside poll the application is alive, however long it waits; inside a callback only for
  max.poll.interval.ms (as Java's).
* Revoked: nothing more is handed out of these; the callback runs; what was processed is committed, if commits
  are automatic, and every commit that the application asked for is over; only then the partitions are given
  back (so nobody else reads them before the commit arrived). A commit that fails doesn't stop the rebalance,
  and is told. The partitions that stay are read on all the while.
* Lost: the partitions are gone at once; nothing is committed; then the callback runs. Who leaves while it
  joins loses them, too, but commits before.
* Assigned: partitions are looked up and fetched at once, but handed out only after the callback returned,
  so a seek inside it comes first.
* As Java: what was processed is committed before the callback of a revocation, before each JoinGroup and when
  closing, and not by unsubscribe.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

import msgspec

from kproto.error_codes import ErrorCode, describe
from kproto.errors import KprotoError
from kproto.group import protocol
from kproto.group.members import create_member
from kproto.group.protocol import ClientMember, Identity, MemberConfig, Purpose
from kproto.group.subscription import TopicPartition

from ...errors import broker_error, helpful
from ...options import ConsumerOptions
from ..core import ClientCore
from ..events import CallListener
from ..metadata.updater import MetadataUpdater
from ..network.client import GROUP, MAIN
from ..network.connection import Call, Outcome, Prepared
from ..positions.offset_lookup import OffsetLookup
from ..positions.partition_states import PartitionState
from ..positions.seeks import Apply, PendingSeeks
from ..timing import FIRST_RESPONSE_TIMEOUT_MS
from .commits import Committer, offsets_of
from .coordinator import Coordinator
from .status import Place
from .subscription import Interests

# What coordinators answer to commits of a generation when the next one begins.
NEXT_BEGINS = (ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS)


class _Callback(msgspec.Struct, eq=False):
    kind: str
    partitions: tuple[TopicPartition, ...]
    reason: str
    # Commit and tell the member when the callback has returned.
    release: bool = False
    # As Java: what is to be committed is committed before the callback.
    committed: bool = False
    # Its commit is on its way, and tells what becomes of it.
    saving: bool = False


class Membership:
    """The member, and the callbacks that wait for the application. `left()` is called when it has left."""

    def __init__(
        self,
        core: ClientCore[ConsumerOptions],
        metadata: MetadataUpdater,
        coordinator: Coordinator,
        finder: OffsetLookup,
        committer: Committer,
        left: Callable[[], None],
        group_protocol: str,
    ) -> None:
        self._core = core
        self._standing = core.standing
        self._metadata = metadata
        self._coordinator = coordinator
        self._finder = finder
        self._committer = committer
        self._left = left
        self._group_protocol = group_protocol
        self.interests = Interests(core, metadata, self.feed)
        # Why the last commit before a revocation or the end failed; told by close.
        self.uncommitted: KprotoError | None = None
        self._callbacks: deque[_Callback] = deque()
        self._running: _Callback | None = None
        self._failure: KprotoError | None = None  # why the membership ended last
        self._letting_go: _Callback | None = None
        self._in_poll = False
        # The member's next deadline, as long as nothing has happened to it since it was asked.
        self._due_at: int | None = None
        self._due_known = False
        self._in_vain: set[str] = set()  # requests that were refused last, and assignments that were none
        self._seeks = PendingSeeks(core.options.max_poll_interval_ms)
        self._unsubscribed = False  # from what was assigned by hand, before there was a member
        self._before = False  # a commit is under way, behind which the group is left

    @property
    def member(self) -> ClientMember | None:
        return self._standing.member

    # ---- the application

    def subscribe(self, topics: frozenset[str], pattern: str | None) -> None:
        if self.member is None:
            self._standing.member = self._made()
            if self._coordinator.node is not None:
                self.feed(protocol.CoordinatorFound(self._coordinator.node))
            if self._unsubscribed:
                self.feed(protocol.Unsubscribe())
        self._standing.place = Place.group
        self.interests.become(topics, pattern)
        self._committer.start_timer()
        if self._in_poll:
            self._alive()
        self.interests.tell()

    def _made(self) -> ClientMember:
        options = self._core.options
        assert options.group_id is not None
        return create_member(
            self._group_protocol,
            MemberConfig(
                group_id=options.group_id,
                group_instance_id=options.group_instance_id,
                client_id=options.client_id,
                session_timeout_ms=options.session_timeout_ms,
                rebalance_timeout_ms=options.max_poll_interval_ms,
                heartbeat_interval_ms=options.heartbeat_interval_ms,
                retry_backoff_ms=options.retry_backoff_ms,
                retry_backoff_max_ms=options.retry_backoff_max_ms,
                assignors=options.partition_assignment_strategy,
                rack_id=options.client_rack or None,
                as_java=options.as_java,
                spread=self._core.backoff.spread,
            ),
        )

    def unsubscribe_by_hand(self) -> None:
        """There was no group to leave, but a member says so when it joins."""
        self._unsubscribed = True

    def unsubscribe(self) -> None:
        """Starts letting go; `settled` says when it is over."""

        def go() -> None:
            self.feed(protocol.Unsubscribe())
            if self.interests.any:  # subscribed again meanwhile
                self.interests.tell()

        self._seeks.clear()
        self.interests.become(frozenset(), None)
        self._save_before(go, min(self._core.options.request_timeout_ms, FIRST_RESPONSE_TIMEOUT_MS))

    @property
    def settled(self) -> bool:
        """True when nothing is left to be told, committed or given back."""
        if self._callbacks or self._running is not None or self._letting_go is not None or self._before:
            return False
        if self.member is None or self._standing.over is not None:
            return True
        return not self.member.is_unsubscribing

    @property
    def wanted(self) -> bool:
        """True when topics are subscribed (again)."""
        return self.interests.any

    def close(self, leave: bool, timeout_ms: int) -> None:
        until = self._core.now + timeout_ms
        self._save_before(
            lambda: self.feed(protocol.Close(leave, max(1, until - self._core.now))),
            min(timeout_ms // 2, FIRST_RESPONSE_TIMEOUT_MS),
        )

    def _save_before(self, leave: Callable[[], None], timeout_ms: int) -> None:
        """Who leaves while it joins loses what it kept over that, as nobody knows whose it is in the next
        generation. Until that begins a coordinator takes the commits of the one before."""
        member, options = self.member, self._core.options
        may = options.enable_auto_commit and not options.as_java and member is not None
        who = None if member is None else member.joined_identity
        if not may or who is None or self._standing.identity is not None:
            leave()
            return
        states = self._committer.consumed(tuple(self._core.partitions))
        if not states:
            leave()
            return
        self._before, until = True, self._core.now + timeout_ms

        def overtaken(error: KprotoError | None) -> None:
            if getattr(error, "code", None) in NEXT_BEGINS and until > self._core.now:
                # The answer that makes this a member of the next one is under way.
                self._committer.commit(offsets_of(states), until - self._core.now, done)
            else:
                done(error)

        def done(error: KprotoError | None) -> None:
            self._before = False
            if error is not None and self._standing.identity is None:  # else it is committed with that
                self.not_committed(states, error)
            leave()

        self._committer.commit_as(who, offsets_of(states), timeout_ms, overtaken)

    def rejoin(self, reason: str) -> None:
        self.feed(protocol.RequestRejoin(reason))

    def poll_began(self) -> None:
        self._in_poll = True
        self._alive()

    def poll_ended(self) -> None:
        self._in_poll = False
        self._alive()

    def polled(self) -> None:
        """Restart max.poll.interval.ms after a poll that returned at once. Only while `steady`."""
        if self._in_poll:
            self.poll_ended()
        elif self._standing.member is not None:
            self._standing.member.on_poll(self._core.now)

    def _alive(self) -> None:
        """Tells the member whether the application waits in poll, and in no callback of its own.

        The poll that raises why the membership ended is none: what it raises may be a reason to stop.
        """
        failure = self._failure
        untold = failure is not None and (type(failure), str(failure)) in self._core.errors
        waits = self._in_poll and self._running is None and not untold and self._standing.over is None
        self.feed(protocol.PollBegan() if waits else protocol.PollEnded())

    @property
    def undecided(self) -> bool:
        """Whether the group may be about to assign something."""
        return self.member is None or not self.member.is_stable

    def later(self, partition: TopicPartition, seek: Apply) -> None:
        """A seek for a partition that is not assigned yet."""
        self._seeks.put(partition, seek)

    # ---- callbacks

    def next_callback(self) -> CallListener | None:
        """The callback to run now; None when there is none, or one is running."""
        if self._running is not None or not self._callbacks:
            return None
        self._running = self._callbacks.popleft()
        if self._in_poll:
            self._alive()
        if self._running.kind != "assigned":
            # A seek from before this was told meant what is over now, not the next assignment.
            self._seeks.forget(self._running.partitions)
        return CallListener(self._running.kind, self._running.partitions, self._running.reason)

    @property
    def busy(self) -> bool:
        """True while a callback runs, or waits to: nothing is handed out before it returned."""
        return self._running is not None or bool(self._callbacks)

    @property
    def steady(self) -> bool:
        """Nothing waits for the application, and a poll means no more to the member than that it is alive."""
        if self._running is not None or self._callbacks:
            return False
        member = self._standing.member
        return member is None or member.is_stable

    @property
    def losing(self) -> bool:
        """True until the application was told of a loss. Thread-safe."""
        return any(one is not None and one.kind == "lost" for one in (self._running, *self._callbacks))

    def callback_returned(self) -> None:
        callback, self._running = self._running, None
        if callback is None:
            return
        if self._in_poll:
            self._alive()
        if callback.kind == "assigned":
            for partition in callback.partitions:
                state = self._core.partitions.get(partition)
                if state is not None:
                    state.announce()
            self._core.wake_poll()
        elif callback.kind == "lost":
            self._committer.forget_lost()
        if callback.release and callback is self._letting_go:
            if callback.kind == "lost" or callback.committed:
                self._release(callback)
            else:
                self._commit_then(callback, self._release)

    # ---- letting go

    def _revoke(self, action: protocol.Revoke) -> None:
        for partition in action.partitions:
            if (state := self._core.partitions.get(partition)) is not None:
                state.revoke()
        callback = _Callback("revoked", action.partitions, action.reason, release=True)
        self._letting_go = callback
        if not self._core.options.as_java:
            self._call(callback)
            return
        callback.committed = True
        if action.precedes_join_or_close:
            self._commit_then(callback, self._call)
        else:
            self._call(callback)  # Java's unsubscribe, and its second step of a cooperative rebalance

    def _commit_then(self, callback: _Callback, then: Callable[[_Callback], None]) -> None:
        """Commits what was processed of these, waits for every commit that is under way, then goes on."""
        callback.saving = True
        options = self._core.options
        timeout = min(options.request_timeout_ms, options.max_poll_interval_ms)
        states: dict[TopicPartition, PartitionState] = {}
        if options.enable_auto_commit:
            states = self._committer.consumed(callback.partitions)

        def done(error: KprotoError | None) -> None:
            if error is not None and callback is self._letting_go:  # else "lost" has said it
                self.not_committed(states, error)
            then(callback)

        if states:
            self._committer.commit(offsets_of(states), timeout, done)
        else:
            self._committer.drain(timeout, lambda error: then(callback))

    @property
    def saving(self) -> bool:
        """Whether the commit of what is given back is under way."""
        return self._letting_go is not None and self._letting_go.saving

    def not_committed(self, partitions: Iterable[TopicPartition], error: KprotoError) -> None:
        self.uncommitted = error
        self._core.report("uncommitted", partitions, owned=self._core.partitions, reason=str(error))

    def _release(self, callback: _Callback) -> None:
        if callback is not self._letting_go:
            return  # a Lose took its place meanwhile
        self._letting_go = None
        if callback.kind == "revoked":
            for partition in callback.partitions:
                self._core.partitions.drop(partition)
            if callback.partitions:
                self._core.report(
                    "revoked", callback.partitions, owned=self._core.partitions, reason=callback.reason
                )
        self.feed(protocol.Released())

    def _lose(self, action: protocol.Lose) -> None:
        core = self._core
        for partition in action.partitions:
            if (state := core.partitions.drop(partition)) is not None:
                self._committer.lost(state)
        core.report("lost", action.partitions, owned=core.partitions, reason=action.reason)
        if self._letting_go is not None and self._letting_go in self._callbacks:
            self._callbacks.remove(self._letting_go)
        self._letting_go = _Callback("lost", action.partitions, action.reason, release=True)
        self._call(self._letting_go)

    def _call(self, callback: _Callback) -> None:
        if not callback.release or callback is self._letting_go:
            self._callbacks.append(callback)
            self._core.wake_poll()

    # ---- the member

    def feed(self, event: protocol.MemberEvent) -> None:
        if self.member is None:
            return
        self._due_known = False
        actions = self.member.step(event, self._core.now)
        for action in actions:
            self._do(action)
        if actions:
            self.interests.watch()

    def tick(self) -> None:
        at = self.due()
        if at is not None and at <= self._core.now:
            self.feed(protocol.Tick())

    def lost_at(self) -> int | None:
        """When the partitions are lost if neither the coordinator nor the application is heard of again."""
        return None if self.member is None else self.member.assignment_deadline()

    def due(self) -> int | None:
        """Asked several times in each step, and another one only after `feed`."""
        if not self._due_known and self.member is not None:
            self._due_at, self._due_known = self.member.next_deadline(), True
        return self._due_at

    def _do(self, action: protocol.MemberAction) -> None:
        core = self._core
        match action:
            case protocol.Send(purpose=Purpose.JOIN):
                self._join(action)
            case protocol.Send():
                self._send(action)
            case protocol.FindCoordinator():
                self._coordinator.again("the coordinator is looked up again")
            case protocol.Revoke():
                self._revoke(action)
            case protocol.Lose():
                self._lose(action)
            case protocol.Assign():
                self._assign(action)
            case protocol.WantMetadata():
                self.interests.watch()
                self._metadata.need()
            case protocol.Rejoining(reason=reason, after_unusable_assignment=unusable):
                if unusable:
                    core.report_failure("Assignment", reason, again="Assignment" in self._in_vain)
                    self._in_vain.add("Assignment")
                core.report("rejoining", owned=core.partitions, reason=reason)
            case protocol.Fatal(error=error, final=final):
                error = helpful(error)
                if final:
                    self._standing.over = error
                self._failure = error
                core.queue_error(error)
            case protocol.Left():
                core.report("left")
                self._left()

    def _assign(self, action: protocol.Assign) -> None:
        core = self._core
        assert self.member is not None
        if not self.member.is_rejoining_repeatedly:
            self._in_vain.discard("Assignment")
        self._finder.first = action.first
        self._finder.existed = action.initial_counts
        owned = set(action.owned)
        if over := self._seeks.over(owned, core.now, last=not self.member.cooperative):
            core.report("unsought", over, owned=action.owned, reason="the group gave them to another member")
        for partition in [partition for partition in core.partitions if partition not in owned]:
            core.partitions.drop(partition)
        for partition in action.owned:
            if partition not in core.partitions:
                state = core.partitions.add(
                    partition, core.topic_ids.get(partition.topic), new=partition in action.new
                )
                self._seeks.apply(state)
        self._committer.restart_timer()
        core.report("assigned", action.added, owned=action.owned)
        self._call(_Callback("assigned", action.added, ""))

    def _join(self, action: protocol.Send) -> None:
        """As Java: who keeps partitions over the join commits first, and joins when that is over."""
        core, member = self._core, self.member
        assert member is not None
        states, who = core.partitions.processed_at_all(), member.joined_identity
        options = core.options
        if not (options.as_java and options.enable_auto_commit and states and who is not None):
            self._send(action)
            return
        timeout = min(options.request_timeout_ms, options.max_poll_interval_ms)

        def done(error: KprotoError | None) -> None:
            if error is not None:
                self.not_committed(states, error)
            if member.is_pending(action.request):
                self._send(action)

        self._committer.commit_as(who, offsets_of(states), timeout, done)

    def _send(self, action: protocol.Send) -> None:
        core, request, member = self._core, action.request, self.member
        assert member is not None
        node = self._coordinator.node
        if node is None:
            self.feed(protocol.Failed(request, "the coordinator is not known"))
            return
        if action.purpose is Purpose.JOIN:
            core.network.connect(node, core.now)  # where the commits of what it gets are looked up
        core.send(
            Prepared(type(request), lambda version: member.in_version(request, version)),
            lambda call: self._answered(action, call),
            node=node,
            lane=MAIN if action.urgent else GROUP,
            timeout_ms=max(core.options.request_timeout_ms, action.timeout_ms or 0),
        )

    def _answered(self, action: protocol.Send, call: Call) -> None:
        self._note(action, call)
        if call.response is not None:
            self.feed(protocol.Received(action.request, call.response))
        elif call.outcome is Outcome.NO_RESPONSE or call.error is None:
            self.feed(protocol.Failed(action.request, str(call.error)))
        elif action.purpose is Purpose.HEARTBEAT:  # which ends no membership; the next one may be answered
            self._core.queue_error(call.error)
            self.feed(protocol.Failed(action.request, str(call.error)))
        else:
            self.feed(protocol.Refused(action.request, call.error))

    def _note(self, action: protocol.Send, call: Call) -> None:
        """Whether joining, or staying, is in vain."""
        assert self.member is not None
        why = ""
        if call.response is not None:
            code = self.member.retried_error(call.response)
            if code is None:
                return
            if code:
                why = ": ".join(filter(None, (describe(code), broker_error(code, call.name).detail)))
        elif action.purpose in (Purpose.JOIN, Purpose.SYNC) and call.outcome is Outcome.NO_RESPONSE:
            why = str(call.error)
        else:
            return
        if why:
            self._core.report_failure(call.name, why, again=call.name in self._in_vain)
            self._in_vain.add(call.name)
        else:
            self._in_vain.discard(call.name)

    def commit_answered(self, code: int, identity: Identity) -> None:
        self.feed(protocol.CommitAnswered(code, identity.generation, identity.member_id))

    def coordinator_found(self, node: int) -> None:
        # Also when nobody is subscribed just now: the member has asked, and waits for it.
        self.feed(protocol.CoordinatorFound(node))

    def coordinator_lost(self, why: str) -> None:
        self.feed(protocol.CoordinatorLost(why))

"""The consumer's side of its group: the member's actions done, its callbacks queued, its partitions kept.

Rules that hold here:

* Callbacks run one at a time, in the order the group's life demands, and only while the application polls (or
  closes, or unsubscribes). Until the callback has returned the member waits; heartbeats go on.
* Inside poll the application is alive, however long it waits; inside a callback only for
  max.poll.interval.ms (as Java's).
* Revoked: nothing more is handed out; the callback runs; what was processed is committed, if commits are
  automatic; only then the partitions are given back (so nobody else reads them before the commit arrived). A
  commit that fails doesn't stop the rebalance.
* Lost: the partitions are gone at once; nothing is committed; then the callback runs.
* Assigned: partitions are looked up and fetched at once, but handed out only after the callback returned,
  so a seek inside it comes first.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from kproto.errors import KprotoError
from kproto.group import member as machine
from kproto.group.member import Member, MemberConfig, MemberState
from kproto.group.subscription import TopicPartition
from kproto.messages.find_coordinator import FindCoordinatorResponse

from ..errors import broker_error, is_retriable
from ..options import ConsumerOptions
from .committing import Committer
from .connection import Call
from .core import Core, MetadataKeeper
from .events import CallListener
from .finding import Finder
from .metadata import BrokerAddress
from .network import GROUP, MAIN
from .positions import PartitionState
from .requests import coordinator_of, coordinator_request


@dataclass(slots=True, eq=False)
class _Callback:
    kind: str
    partitions: tuple[TopicPartition, ...]
    reason: str
    # Commit and tell the member when the callback has returned.
    release: bool = False


class Membership:
    """The member, its coordinator, and the callbacks that wait for the application."""

    def __init__(
        self, core: Core[ConsumerOptions], metadata: MetadataKeeper, finder: Finder, committer: Committer
    ) -> None:
        self._core = core
        self._metadata = metadata
        self._finder = finder
        self._committer = committer
        self.member: Member | None = None
        self.pattern: str | None = None
        self.topics: frozenset[str] = frozenset()
        self.active = False
        # Why the member will never join again; every poll says so, as silence would look like an empty topic.
        self.over: KprotoError | None = None
        self.left: Callable[[], None] = lambda: None
        self.coordinator: int | None = None
        self._lookup: Call | None = None
        self._lookup_at = 0
        self._wanted = False
        self._callbacks: deque[_Callback] = deque()
        self._running: _Callback | None = None
        self._letting_go: _Callback | None = None
        self._in_poll = False
        self._seeks: dict[TopicPartition, Callable[[PartitionState], None]] = {}
        core.identity = self._who

    # ---- the application

    def subscribe(self, topics: frozenset[str], pattern: str | None) -> None:
        options = self._core.options
        assert options.group_id is not None
        if self.member is None:
            self.member = Member(
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
                )
            )
        self.active = True
        self._finder.subscribed = True
        self.pattern = pattern
        self.topics = topics
        self._committer.restart_timer()
        if pattern is None:
            self.feed(machine.Subscribe(topics))
            self._watch()
        else:
            self._metadata.watch(frozenset(), everything=True)
            self._match()

    def unsubscribe(self) -> None:
        """Starts letting go; `settled` says when it is over."""
        self._seeks.clear()
        self.pattern = None
        self.topics = frozenset()
        self.feed(machine.Unsubscribe())

    @property
    def settled(self) -> bool:
        """True when nothing is left to be told, committed or given back."""
        if self._callbacks or self._running is not None or self._letting_go is not None:
            return False
        if self.member is None or self.over is not None:
            return True
        return self.member.state in (MemberState.idle, MemberState.closed)

    def close(self, leave: bool, timeout_ms: int) -> None:
        self.feed(machine.Close(leave, timeout_ms))

    def rejoin(self, reason: str) -> None:
        self.feed(machine.RequestRejoin(reason))

    def poll_began(self) -> None:
        self._in_poll = True
        self._alive()

    def poll_ended(self) -> None:
        self._in_poll = False
        self._alive()

    def _alive(self) -> None:
        """Tells the member whether the application waits in poll, and in no callback of its own."""
        waits = self._in_poll and self._running is None
        self.feed(machine.PollBegan() if waits else machine.PollEnded())

    def later(self, partition: TopicPartition, seek: Callable[[PartitionState], None]) -> None:
        """A seek for a partition that is not assigned yet; the last one counts."""
        self._seeks[partition] = seek

    # ---- callbacks

    def next_callback(self) -> CallListener | None:
        """The callback to run now; None when there is none, or one is running."""
        if self._running is not None or not self._callbacks:
            return None
        self._running = self._callbacks.popleft()
        if self._in_poll:
            self._alive()
        return CallListener(self._running.kind, self._running.partitions, self._running.reason)

    @property
    def busy(self) -> bool:
        """True while a callback is running or partitions are being let go: nothing is handed out then."""
        return self._running is not None or bool(self._callbacks) or self._letting_go is not None

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
                    state.announced = True
            self._core.wake()
        if callback.release and callback is self._letting_go:
            self._commit_and_release(callback)

    def _commit_and_release(self, callback: _Callback) -> None:
        options = self._core.options
        states = self._committer.consumed(callback.partitions) if callback.kind == "revoked" else {}
        if not states or not options.enable_auto_commit:
            self._release(callback)
            return
        timeout = min(options.request_timeout_ms, options.max_poll_interval_ms)
        offsets = self._committer.offsets_of(states)
        self._committer.commit(offsets, timeout, lambda error: self._release(callback))

    def _release(self, callback: _Callback) -> None:
        if callback is not self._letting_go:
            return  # a Lose took its place meanwhile
        self._letting_go = None
        if callback.kind == "revoked":
            for partition in callback.partitions:
                self._core.partitions.pop(partition, None)
            if callback.partitions:
                self._core.report(
                    "revoked", callback.partitions, owned=self._core.partitions, reason=callback.reason
                )
        self.feed(machine.Released())

    # ---- the member

    def feed(self, event: machine.Event) -> None:
        if self.member is None:
            return
        for action in machine.step(self.member, event, self._core.now):
            self._do(action)
        self._watch()

    def _do(self, action: machine.Action) -> None:
        core = self._core
        match action:
            case machine.Send():
                self._send(action)
            case machine.FindCoordinator():
                self._forget_coordinator("the coordinator is looked up again")
                self._wanted = True
                self.pump()
            case machine.Revoke(partitions=partitions, reason=reason):
                for partition in partitions:
                    if (state := core.partitions.get(partition)) is not None:
                        state.revoking = True
                self._let_go(_Callback("revoked", partitions, reason, release=True))
            case machine.Lose(partitions=partitions, reason=reason):
                for partition in partitions:
                    core.partitions.pop(partition, None)
                core.report("lost", partitions, owned=core.partitions, reason=reason)
                if self._letting_go is not None and self._letting_go in self._callbacks:
                    self._callbacks.remove(self._letting_go)
                self._let_go(_Callback("lost", partitions, reason, release=True))
            case machine.Assign():
                self._assign(action)
            case machine.WantMetadata():
                self._watch()
                self._metadata.need()
            case machine.Rejoining(reason=reason):
                core.report("rejoining", owned=core.partitions, reason=reason)
            case machine.Fatal(error=error, final=final):
                self.over = error if final else None
                core.fail(error)
            case machine.Left():
                core.report("left")
                self.left()

    def _let_go(self, callback: _Callback) -> None:
        self._letting_go = callback
        self._callbacks.append(callback)
        self._core.wake()

    def _assign(self, action: machine.Assign) -> None:
        core = self._core
        self._finder.first = action.first
        self._finder.existed = action.existed
        owned = set(action.owned)
        for partition in [partition for partition in core.partitions if partition not in owned]:
            del core.partitions[partition]
        for partition in action.owned:
            if partition not in core.partitions:
                state = PartitionState(partition, new=partition in action.new)
                core.partitions[partition] = state
                if (seek := self._seeks.pop(partition, None)) is not None:
                    seek(state)
        self._committer.restart_timer()
        core.report("assigned", action.added, owned=action.owned)
        self._callbacks.append(_Callback("assigned", action.added, ""))
        core.wake()

    def _send(self, action: machine.Send) -> None:
        core, request = self._core, action.request
        if self.coordinator is None:
            self.feed(machine.Failed(request, "the coordinator is not known"))
            return
        core.ask(
            request,
            self._answered,
            node=self.coordinator,
            lane=MAIN if action.urgent else GROUP,
            timeout_ms=max(core.options.request_timeout_ms, action.timeout_ms or 0),
        )

    def _answered(self, call: Call) -> None:
        assert call.request is not None
        if call.response is not None:
            self.feed(machine.Received(call.request, call.response))
        else:
            self.feed(machine.Failed(call.request, str(call.error)))

    def commit_answered(self, code: int, identity: machine.Identity) -> None:
        self.feed(machine.CommitAnswered(code, identity.generation, identity.member_id))

    def _who(self) -> tuple[str, int]:
        member = self.member
        if member is None:
            return "", -1
        return member.member_id, -1 if member.generation is None else member.generation

    # ---- the coordinator

    def coordinator_lost(self, why: str) -> None:
        """Somebody who talked to the coordinator says that it is gone."""
        self._forget_coordinator(why)
        self._wanted = True
        if self.active:
            self.feed(machine.CoordinatorLost(why))

    def want_coordinator(self) -> int | None:
        """The coordinator's node; looks for it when it isn't known."""
        if self.coordinator is None:
            self._wanted = True
            self.pump()
        return self.coordinator

    def _forget_coordinator(self, why: str) -> None:
        if self.coordinator is not None:
            node, self.coordinator = self.coordinator, None
            self._core.network.disconnect(node, GROUP, why, self._core.now)

    def due(self) -> int | None:
        times: list[int] = []
        if self.member is not None and (at := machine.next_deadline(self.member)) is not None:
            times.append(at)
        if self._wanted and self._lookup is None and self.coordinator is None:
            times.append(self._lookup_at)
        return min(times, default=None)

    def pump(self) -> None:
        core = self._core
        if not self._wanted or self._lookup is not None or self._lookup_at > core.now:
            return
        if self.coordinator is not None:
            self._wanted = False
            return
        group = core.options.group_id
        assert group is not None
        self._lookup = core.ask(coordinator_request(group), self._found)

    def tick(self) -> None:
        if self.member is not None:
            at = machine.next_deadline(self.member)
            if at is not None and at <= self._core.now:
                self.feed(machine.Tick())

    def _found(self, call: Call) -> None:
        core = self._core
        self._lookup = None
        self._lookup_at = core.now + core.options.retry_backoff_ms
        error: KprotoError | None = call.error
        if isinstance(call.response, FindCoordinatorResponse):
            found = coordinator_of(call.response, call.version)
            if isinstance(found, int):
                self._wanted = False
                self._know(found, call.response, call.version)
                self.coordinator = found
                core.report("coordinator", reason=f"node {found} coordinates the group")
                if self.active:
                    self.feed(machine.CoordinatorFound(found))
                return
            code, words = found
            error = broker_error(code, "FindCoordinator", words)
            if not is_retriable(code):
                self._lookup_at = core.now + core.options.retry_backoff_max_ms
                core.fail(error)
        if self.active:
            self._wanted = False
            self.feed(machine.CoordinatorLost(str(error)))

    def _know(self, node: int, response: FindCoordinatorResponse, version: int) -> None:
        """The answer tells the address; metadata may not list it yet."""
        first = response.coordinators[0] if version >= 4 else response
        if node not in self._core.view.brokers:
            self._core.view.brokers[node] = BrokerAddress(node, first.host, first.port)

    # ---- metadata

    def _watch(self) -> None:
        if self.member is not None and self.active and self.pattern is None:
            self._metadata.watch(self.member.topics_of_interest | self.topics)

    def metadata_changed(self, asked: frozenset[str] | None) -> None:
        core = self._core
        if self.member is None or not self.active:
            return
        known = core.view.topics
        names = frozenset(known) if asked is None else asked
        racks: dict[str, tuple[frozenset[str], ...]] = {}
        if core.options.client_rack:
            racks = {name: self._racks(name) for name in names if name in known}
        self._match()
        self.feed(
            machine.Metadata(
                core.view.counts(names),
                asked=asked,
                complete=asked is None,
                ids={name: known[name].id for name in names if name in known and known[name].id is not None},
                racks=racks,
            )
        )

    def _racks(self, topic: str) -> tuple[frozenset[str], ...]:
        view = self._core.view
        partitions = view.topics[topic].partitions
        return tuple(
            frozenset(
                broker.rack
                for replica in partitions[index].replicas
                if (broker := view.brokers.get(replica)) is not None and broker.rack
            )
            for index in sorted(partitions)
        )

    def _match(self) -> None:
        """Which topics the pattern means now: whole names, without Kafka's own."""
        view = self._core.view
        if self.pattern is None or view.updated_at is None or not self._metadata.everything:
            return
        wanted = re.compile(self.pattern)
        hide = self._core.options.exclude_internal_topics
        topics = frozenset(
            name
            for name, topic in view.topics.items()
            if topic.partitions and not (hide and topic.internal) and wanted.fullmatch(name)
        )
        assert self.member is not None
        if topics != self.topics or self.member.state is MemberState.idle:
            self.topics = topics
            self.feed(machine.Subscribe(topics, self.pattern))

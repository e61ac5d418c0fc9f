"""A consumer without I/O: `step(engine, event, now)` returns what to do, `next_deadline(engine)` when to
tick.

    actions = step(engine, Subscribe(frozenset({"flights"})), now)
    actions = step(engine, PollBegan(), now)
    actions = step(engine, Take(500), now)            # CallListener, Deliver, Raise, or nothing yet
    actions = step(engine, PollEnded(), now)
    actions = step(engine, Data(key, received), now)

The parts, each with its rules in its own file: `network` (connections), `core` (metadata), `membership` (the
group), `finding` (start positions), `fetching`, `committing`. They share `Core` and never read a clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kproto.errors import IllegalState, KprotoError
from kproto.group.subscription import TopicPartition

from ..options import ConsumerOptions
from . import events as ev
from .committing import Committer
from .core import Core, MetadataKeeper
from .events import Action, Deliver, Done, Event, Raise
from .fetching import Fetcher
from .finding import Finder
from .membership import Membership
from .network import Broken, Data, Network, Opened
from .positions import PartitionState, Reset
from .requests import timestamp_of
from .runner import Runner

NO_GROUP = "this consumer has no group_id: give one, or use assign()"


class Engine:
    """One consumer. Only `step` changes it."""

    def __init__(
        self, bootstrap: Sequence[tuple[str, int]], options: ConsumerOptions, *, wall_offset_ms: int = 0
    ) -> None:
        network = Network(
            bootstrap,
            client_id=options.client_id,
            request_timeout_ms=options.request_timeout_ms,
            reconnect_backoff_ms=options.reconnect_backoff_ms,
            reconnect_backoff_max_ms=options.reconnect_backoff_max_ms,
            connection_setup_timeout_ms=options.socket_connection_setup_timeout_ms,
        )
        self.options = options
        self.core: Core[ConsumerOptions] = Core(options, network, wall_offset_ms)
        self.metadata = MetadataKeeper(self.core)
        self.finder = Finder(self.core, self.metadata)
        self.committer = Committer(self.core)
        self.group = Membership(self.core, self.metadata, self.finder, self.committer)
        self.fetcher = Fetcher(self.core, self.metadata, self.finder)
        self.manual = False
        self.closed = False
        self.runner = Runner(network, self.core.clock, self._pause)
        self._unsubscribing: list[object] = []
        self._closing: ev.Close | None = None
        self._close_at: int | None = None
        self._topic_ids: dict[str, object] = {}
        self.metadata.changed = self._metadata_changed
        self.finder.coordinator = self.group.want_coordinator
        self.finder.coordinator_lost = self.group.coordinator_lost
        self.finder.save = self.committer.save
        self.committer.subscribed = lambda: self.group.active
        self.committer.identity = self._identity
        self.committer.coordinator = self.group.want_coordinator
        self.committer.coordinator_lost = self.group.coordinator_lost
        self.committer.answered = self.group.commit_answered
        self.group.left = self._left

    # ---- to look at

    @property
    def partitions(self) -> dict[TopicPartition, PartitionState]:
        return self.core.partitions

    @property
    def topics(self) -> frozenset[str]:
        return self.group.topics

    def _identity(self) -> Any:
        member = self.group.member
        return member.identity if member is not None and self.group.active else None

    # ---- the application

    def subscribe(self, event: ev.Subscribe) -> None:
        if self.manual:
            raise IllegalState("partitions were assigned by hand; unsubscribe() before subscribe()")
        if self.options.group_id is None:
            raise IllegalState(NO_GROUP)
        self.group.subscribe(event.topics, event.pattern)

    def assign(self, event: ev.Assign) -> None:
        if self.group.active:
            raise IllegalState("topics are subscribed; unsubscribe() before assign()")
        self.manual = bool(event.partitions)
        partitions = self.core.partitions
        for partition in [partition for partition in partitions if partition not in event.partitions]:
            del partitions[partition]
        for partition, offset in event.partitions.items():
            state = partitions.setdefault(partition, PartitionState(partition, announced=True))
            if offset is not None:
                state.start_at(offset)
        self.committer.restart_timer()
        self.metadata.watch(frozenset(partition.topic for partition in event.partitions))

    def unsubscribe(self, event: ev.Unsubscribe) -> None:
        self._unsubscribing.append(event.token)
        if self.group.active:
            self.group.unsubscribe()
        else:
            self.core.partitions.clear()
            self.manual = False

    def poll_began(self, event: ev.PollBegan) -> None:
        self._must_have_something_to_poll()
        self._mark_processed()
        self.group.poll_began()

    def poll_ended(self, event: ev.PollEnded) -> None:
        self.group.poll_ended()

    def _must_have_something_to_poll(self) -> None:
        if not self.group.active and not self.manual:
            raise IllegalState("nothing to poll: subscribe() or assign() first")

    def take(self, event: ev.Take) -> None:
        self._must_have_something_to_poll()
        core = self.core
        if self._serve() or self.group.busy:
            return
        rows = [] if event.columns else self.fetcher.rows(event.limit)
        columns = self.fetcher.columns() if event.columns else []
        if rows or columns:
            core.actions.append(Deliver(rows, columns))
        elif core.errors:
            core.actions.append(Raise(core.errors.popleft()))
        else:
            broken = self.group.over or next((s.error for s in core.partitions.values() if s.error), None)
            if broken is not None:
                core.actions.append(Raise(broken))

    def serve_listener(self, event: ev.ServeListener) -> None:
        self._serve()

    def _serve(self) -> bool:
        call = self.group.next_callback()
        if call is not None:
            self.core.actions.append(call)
        return call is not None

    def listener_returned(self, event: ev.ListenerReturned) -> None:
        self.group.callback_returned()

    def _mark_processed(self) -> None:
        for state in self.core.partitions.values():
            if state.known:
                state.processed = state.position

    def give_back(self, event: ev.GiveBack) -> None:
        for partition, offset in event.offsets.items():
            state = self.core.partitions.get(partition)
            if state is not None and state.known and offset < state.position:
                committed, processed, paused = state.committed, state.processed, state.paused
                state.start_at(offset, state.leader_epoch)
                state.committed, state.paused = committed, paused
                state.processed = processed if processed is None else min(processed, offset)

    def take_back(self, event: ev.TakeBack) -> None:
        states = self.core.partitions.values()
        self.give_back(ev.GiveBack({s.partition: s.processed for s in states if s.processed is not None}))

    def seek(self, event: ev.Seek) -> None:
        def apply(state: PartitionState) -> None:
            state.start_at(event.offset, event.leader_epoch)

        self._seek(event.partition, apply)

    def seek_to(self, event: ev.SeekTo) -> None:
        def apply(state: PartitionState) -> None:
            if event.where == "committed":
                state.find_committed()
            else:
                state.find_out(Reset(timestamp_of(event.where), ""))

        for partition in event.partitions or frozenset(self.core.partitions):
            self._seek(partition, apply)

    def _seek(self, partition: TopicPartition, apply: Callable[[PartitionState], None]) -> None:
        state = self.core.partitions.get(partition)
        if state is not None:
            apply(state)
        elif self.group.active:
            self.group.later(partition, apply)
        else:
            raise IllegalState(f"{partition} is not assigned to this consumer")

    def pause(self, event: ev.Pause) -> None:
        for state in self._assigned(event.partitions):
            state.paused = True

    def resume(self, event: ev.Resume) -> None:
        for state in self._assigned(event.partitions):
            state.paused = False
        self.core.wake()

    def _assigned(self, partitions: frozenset[TopicPartition]) -> list[PartitionState]:
        missing = [str(partition) for partition in partitions if partition not in self.core.partitions]
        if missing:
            raise IllegalState(f"{', '.join(sorted(missing))}: not assigned to this consumer")
        return [self.core.partitions[partition] for partition in partitions]

    def commit(self, event: ev.Commit) -> None:
        if self.options.group_id is None:
            raise IllegalState(NO_GROUP)
        offsets = event.offsets
        if offsets is None:
            self._mark_processed()
            offsets = self.committer.offsets_of(self.committer.consumed())

        def done(error: KprotoError | None) -> None:
            self.core.actions.append(Done(event.token, None, error))

        self.committer.commit(offsets, event.timeout_ms, done)

    def rejoin(self, event: ev.Rejoin) -> None:
        if not self.group.active:
            raise IllegalState("this consumer is in no group; subscribe() first")
        self.group.rejoin(event.reason)

    # ---- plans

    def run(self, event: ev.Run) -> None:
        self.runner.start(event.token, event.plan, event.timeout_ms)

    def drop(self, event: ev.Drop) -> None:
        self.runner.drop(event.token)

    def _pause(self, turn: int) -> int:
        options = self.options
        return min(options.retry_backoff_max_ms, options.retry_backoff_ms << min(turn, 10))

    # ---- the end

    def close(self, event: ev.Close) -> None:
        if self._closing is not None or self.closed:
            self.core.actions.append(Done(event.token, None, None))
            return
        self._closing = event
        self._close_at = self.core.now + event.timeout_ms
        if event.processed:
            self._mark_processed()
        self.fetcher.stopped = True
        if self.group.active:
            # The member's own deadline comes first, so that leaving is said even when a callback hangs.
            self.group.close(event.leave, max(1, event.timeout_ms - min(500, event.timeout_ms // 4)))
        elif self.manual and self.options.enable_auto_commit and (todo := self.committer.consumed()):
            self.committer.commit(
                self.committer.offsets_of(todo), event.timeout_ms, lambda error: self._left()
            )
        else:
            self._left()

    def _left(self) -> None:
        if self._closing is None or self.closed:
            return
        self.closed = True
        self._close_at = None
        core = self.core
        core.partitions.clear()
        self.fetcher.close()
        core.report("closed")
        token = self._closing.token
        self.runner.end(IllegalState("this consumer was closed meanwhile"))
        core.actions.extend(core.network.actions)
        core.network.actions.clear()
        core.network.close(core.now)
        core.actions.append(Done(token, None, None))

    # ---- inside

    def _metadata_changed(self, asked: frozenset[str] | None) -> None:
        view = self.core.view
        for state in self.core.partitions.values():
            name = state.partition.topic
            known, old = view.topic_id(name), self._topic_ids.get(name)
            if known is not None and old is not None and known != old:
                self.finder.created_anew(state)
        for name in {partition.topic for partition in self.core.partitions} | self.group.topics:
            if (topic_id := view.topic_id(name)) is not None:
                self._topic_ids[name] = topic_id
        self.group.metadata_changed(asked)

    def settle(self) -> None:
        """Lets every part do what it can now, until nothing changes any more."""
        core = self.core
        if self._close_at is not None and self._close_at <= core.now:
            self._left()
        while True:
            if not self.closed:
                self.group.tick()
                self.metadata.pump()
                if self.options.group_id is not None:
                    self.group.pump()
                    self.committer.pump()
                self.finder.pump()
                self.fetcher.pump()
            self.runner.pump()
            if not core.network.finished:
                break
            finished, core.network.finished = core.network.finished, []
            for call in finished:
                if call.purpose is not None and not self.closed:
                    call.purpose(call)
        if self._unsubscribing and self.group.settled:
            self.core.partitions.clear()
            self.group.active = False
            self.finder.subscribed = False
            if not self.manual:
                self.metadata.watch(frozenset())
            core.actions.extend(Done(token, None, None) for token in self._unsubscribing)
            self._unsubscribing.clear()

    def due(self) -> int | None:
        times: list[int | None] = [self.core.network.next_deadline(), self._close_at, self.runner.due()]
        if not self.closed:
            times += [
                part.due() for part in (self.metadata, self.group, self.committer, self.finder, self.fetcher)
            ]
        return min((at for at in times if at is not None), default=None)


def _network(engine: Engine, event: Opened | Data | Broken) -> None:
    engine.core.network.happened(event, engine.core.now)


def _tick(engine: Engine, event: ev.Tick) -> None:
    engine.core.network.tick(engine.core.now)


TABLE: dict[type[Any], Callable[[Engine, Any], None]] = {
    Opened: _network,
    Data: _network,
    Broken: _network,
    ev.Tick: _tick,
    ev.Subscribe: Engine.subscribe,
    ev.Assign: Engine.assign,
    ev.Unsubscribe: Engine.unsubscribe,
    ev.PollBegan: Engine.poll_began,
    ev.PollEnded: Engine.poll_ended,
    ev.Take: Engine.take,
    ev.ServeListener: Engine.serve_listener,
    ev.ListenerReturned: Engine.listener_returned,
    ev.GiveBack: Engine.give_back,
    ev.TakeBack: Engine.take_back,
    ev.Seek: Engine.seek,
    ev.SeekTo: Engine.seek_to,
    ev.Pause: Engine.pause,
    ev.Resume: Engine.resume,
    ev.Commit: Engine.commit,
    ev.Run: Engine.run,
    ev.Drop: Engine.drop,
    ev.Rejoin: Engine.rejoin,
    ev.Close: Engine.close,
}


AFTER_THE_END = (
    Opened,
    Data,
    Broken,
    ev.Tick,
    ev.Close,
    ev.PollEnded,
    ev.ServeListener,
    ev.ListenerReturned,
)


def step(engine: Engine, event: Event, now: int) -> list[Action]:
    """Lets `event` happen at `now` and returns what to do, in order.

    Raises IllegalState when the application may not do this now; nothing has changed then.
    """
    core = engine.core
    core.now = now
    if engine.closed and not isinstance(event, AFTER_THE_END):
        raise IllegalState("this consumer is closed; make a new one")
    TABLE[type(event)](engine, event)
    # Bytes that complete no answer change nothing that the parts could act on.
    if not isinstance(event, Data) or core.network.finished or not core.network.connected():
        engine.settle()
    core.actions.extend(core.network.actions)
    core.network.actions.clear()
    core.actions.extend(engine.runner.take())
    actions, core.actions = core.actions, []
    return actions


def next_deadline(engine: Engine) -> int | None:
    """When to send the next `Tick`, None when only an event can change anything."""
    return engine.due()

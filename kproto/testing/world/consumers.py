"""kproto's whole consumer in a world: its engine, and an application around it that polls, works and is
called.

The application is what the shells are: `Poll`, or else `PollBegan`, `Take` as often as the engine says
`Wake`, `PollEnded`. It never looks without being woken, so an engine that forgets to say so is found out.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from consumer.engine import events as ev
from consumer.engine.consumer import ConsumerEngine, next_deadline, step
from consumer.engine.network.transport import Broken, Data, Opened
from consumer.options import consumer_options
from consumer.records import GroupChange

from ...errors import IllegalState
from ...group.subscription import TopicPartition
from ...validation import checked
from .clients import EngineClient
from .journal import kept, knob
from .user_code import reject_awaitable

if TYPE_CHECKING:
    from .world import World

Listener = Callable[[str, tuple[TopicPartition, ...]], object]
Worker = Callable[[list[Any]], object]
WIRES = (Opened, Data, Broken)  # what comes in over wires is in the trace as requests and answers
BEGINS = {"assigned": "assigned", "revoked": "revoking", "lost": "losing"}


class Consumer(EngineClient):
    """A consumer of kproto. Its options are those of `consumer.Consumer`; what its application does is set
    here.

    `records`, `changes` (reports), `calls` (callbacks), `errors` (raised by poll) are what it saw so far.
    `done` has, by token, what became of `commit`, `close` and the like.
    """

    limit = knob(500)
    columns = knob(False)
    works_ms = knob(0)  # How long the application is away after records, before it polls again.
    poll_timeout_ms = knob(1_000)
    listener: Listener = knob(lambda kind, partitions: None)
    worker: Worker = knob(lambda records: None)  # What the application does with the records of each poll.

    def __init__(self, world: World, name: str, **options: Any) -> None:
        super().__init__(world, name)
        self.options = consumer_options({"client_id": name, **options})
        self.group = self.options.group_id
        self.engine = ConsumerEngine(world.addresses, self.options, random=self.random)
        self.records: list[Any] = []
        self.batches: list[Any] = []
        self.changes: list[GroupChange] = []
        self.calls: list[tuple[str, tuple[TopicPartition, ...]]] = []
        self.errors: list[Exception] = []
        self.done: dict[object, tuple[Any, BaseException | None]] = {}
        self.requested_commits: dict[object, dict[TopicPartition, int]] = {}
        """What each commit means, by token."""
        self.deadlines: dict[object, int] = {}
        """Until when each token must be done."""
        self.positions: dict[TopicPartition, int] = {}
        """Behind the last record that the application was given."""
        self.limit = self.options.max_poll_records
        self.in_callback: tuple[str, tuple[TopicPartition, ...]] | None = None
        self.polling = False
        self.is_closed = False
        """It was closed: whatever is called on it is answered as by any consumer that is."""
        self._wanted = False  # the application means to poll
        self._round = 0  # the poll that is open: a timeout of an older one means nothing
        self._again: int | None = None
        self._looking = False
        self._raised, self._pause_ms = "", 0
        self._returning = False  # the poll is over as soon as the callback is
        self._ending: set[object] = (
            set()
        )  # tokens of close and unsubscribe: callbacks only, until they are done

    @property
    def member_id(self) -> str:
        member = self.engine.group.member
        return "" if member is None or member.generation is None else member.member_id

    @property
    def generation(self) -> int:
        member = self.engine.group.member
        return -1 if member is None or member.generation is None else member.generation

    @property
    def is_joining(self) -> bool:
        member = self.engine.group.member
        return member is not None and member.is_joining

    @property
    def leaving(self) -> frozenset[TopicPartition]:
        kind, partitions = self.in_callback or ("", ())
        return frozenset(partitions) if kind == "lost" else frozenset()

    @property
    def is_polling(self) -> bool:
        return self._wanted and self.frozen_until is None

    @property
    def has_final_error(self) -> bool:
        """It will never join again, and every poll says why."""
        return self.engine.group_status.final_error is not None

    @property
    def is_closing(self) -> bool:
        return self._closing() or self.engine.closed

    # ---- the engine

    def due(self) -> int | None:
        return next_deadline(self.engine)

    def tick(self) -> None:
        self.do(ev.Tick())

    def on_transport_event(self, event: Opened | Data | Broken) -> None:
        self.do(event)

    def do(self, event: ev.Event) -> None:
        """Tell the engine, and do what it says."""
        if self.alive or self.is_closed:
            self._act(self._step(event))

    def _may(self, event: ev.Event) -> bool:
        """The same; False where the application may not, as it unsubscribed or closed meanwhile. What its own
        code raises comes out.
        """
        if self.alive:
            try:
                actions = self._step(event)
            except IllegalState:
                return False
            self._act(actions)
        return True

    def _step(self, event: ev.Event) -> list[ev.Action]:
        if not isinstance(event, WIRES):
            self.world.add_entry(self.name, "event", event)
        return step(self.engine, event, self.world.now)

    def _act(self, actions: list[ev.Action]) -> None:
        for action in actions:
            if self.perform_transport_action(action):
                continue
            match action:
                case ev.Wake():
                    self._look_soon()
                case ev.Deliver(rows=rows, columns=columns):
                    self._delivered(rows, columns)
                case ev.Raise(error=error):
                    self.errors.append(error)
                    self.observe("raised", detail=error)
                case ev.Report(change=change):
                    self._reported(change)
                case ev.Done(token=token, value=value, error=error):
                    self._done(token, value, error)
                case ev.CallListener(kind=kind, partitions=partitions, reason=reason):
                    self._call(kind, partitions, reason)
                case _:
                    raise AssertionError(f"no world does {action!r}")
        self.plan()

    # ---- what it sees

    def _delivered(self, rows: list[Any], columns: list[Any]) -> None:
        self.records += rows
        self.batches += columns
        found: dict[TopicPartition, list[int]] = {}
        for record in rows:
            found.setdefault(TopicPartition(record.topic, record.partition), []).append(record.offset)
        for batch in columns:
            offsets = [int(offset) for offset in batch.columns.offset]
            found.setdefault(TopicPartition(batch.topic, batch.partition), []).extend(offsets)
        for partition, offsets in found.items():
            self.positions[partition] = offsets[-1] + 1
            self.observe("delivered", (partition,), tuple(offsets))
        if rows:
            reject_awaitable("worker", self.worker, self.worker(rows))

    def _reported(self, change: GroupChange) -> None:
        self.changes.append(change)
        self.world.add_entry(self.name, "report", change)
        if change.kind in ("reset", "truncated"):
            for partition in change.partitions:
                self.positions.pop(partition, None)  # what was handed out of it is no matter for commits now
        if change.kind == "reset":
            self.observe("reset", change.partitions, (change.offset, change.reason))

    def _done(self, token: object, value: Any, error: BaseException | None) -> None:
        if token in self.done:
            raise AssertionError(f"{self.name}: {token!r} was done twice")
        self.done[token] = (value, error)
        self.world.add_entry(self.name, "done", (token, value, error))
        if token in self.requested_commits:
            self.observe("committed", detail=(token, self.requested_commits[token], error))
        self._look_soon()

    def _call(self, kind: str, partitions: tuple[TopicPartition, ...], reason: str) -> None:
        self.calls.append((kind, partitions))
        self.in_callback = (kind, partitions)
        self.slowest_ms = max(self.slowest_ms, self.callback_ms)
        self.observe(BEGINS[kind], partitions, reason if kind == "lost" else None)
        if kind == "assigned":
            self.owned.update(partitions)
            for partition in partitions:
                self.positions.pop(partition, None)
        reject_awaitable("listener", self.listener, self.listener(kind, partitions))
        if self.callback_ms:
            self.world.call_later(self.callback_ms, lambda: self.run_when_awake(self._returned))
        else:
            self._returned()

    def _returned(self) -> None:
        if self.in_callback is None:
            return
        kind, partitions = self.in_callback
        self.in_callback = None
        if kind != "assigned":
            self.owned.difference_update(partitions)
            for partition in partitions:
                self.positions.pop(partition, None)
            self.observe(kind, partitions)
        self.do(ev.ListenerReturned())
        if self._returning:
            self._over(self._round)
        self._look_soon()

    # ---- the application's loop

    @kept
    def poll(self) -> None:
        """One poll that doesn't wait: whatever is there."""
        if self.in_callback is None and not self.polling and not self.engine.closed and self.alive:
            self._begin(0)

    def _begin(self, timeout_ms: int) -> None:
        self._again = None
        self.polling = True
        self._round += 1
        if not self.columns and self._polled_at_once():
            return
        if not self._may(ev.PollBegan()):
            self.polling = False
            return
        self._look()
        if self.polling:
            if timeout_ms:
                self.world.push(self.world.now + timeout_ms, self.run_when_awake, self._over, self._round)
            else:
                self._over(self._round)

    def _polled_at_once(self) -> bool:
        """Whether there was nothing to do but to hand out what is made already, or the poll was refused."""
        before = len(self.records)
        if not self._may(ev.Poll(self.limit)):
            self.polling = False
            return True
        if len(self.records) == before:
            return False
        self._raised = ""
        self._over(self._round, self.works_ms, ended=True)
        return True

    def _look_soon(self) -> None:
        """Something may be there: look when this event is over."""
        if not self._looking and (self.polling or self._closing() or self.engine.closed):
            self._looking = True
            self.world.push(self.world.now, self.run_when_awake, self._look)

    def _look(self) -> None:
        self._looking = False
        if self.in_callback is not None or not self.alive:
            return
        if self._closing():
            called = len(self.calls)
            self.do(ev.ServeListener())
            if len(self.calls) != called:
                self._look_soon()
        if self.engine.closed and not self._closing():
            self._end()
        if self._closing() or not self.alive:
            return
        if not self.polling or self.engine.closed:
            return
        before = len(self.records), len(self.batches), len(self.errors), len(self.calls)
        if not self._may(ev.Take(self.limit, self.columns)):
            self._over(self._round)
            return
        after = len(self.records), len(self.batches), len(self.errors), len(self.calls)
        if after[:2] != before[:2]:
            self._raised = ""
            self._over(self._round, self.works_ms)
        elif after[2] != before[2]:
            self._over(self._round, max(self.pause_after(self.errors[-1]), self.works_ms))
        elif after[3] != before[3]:
            self._look_soon()

    def pause_after(self, error: Exception) -> int:
        """How long (ms) the application stays away after an error: for the same one again and again twice as
        long each time, up to a second.
        """
        said = repr(error)
        self._pause_ms = min(2 * self._pause_ms, 1_000) if said == self._raised else 1
        self._raised = said
        return self._pause_ms

    def _end(self) -> None:
        """The consumer is closed, and so is what its application did: the process ends."""
        self.alive, self.is_closed = False, True
        self.owned.clear()
        self.observe("closed")

    def _over(self, round_: int, away_ms: int = 0, *, ended: bool = False) -> None:
        """The poll returns, and the application comes back after its work."""
        if not self.polling or round_ != self._round:
            return
        if self.in_callback is not None:  # poll returns when the callback does
            self._returning = True
            return
        self._returning = False
        self.polling = False
        if not self.engine.closed and not ended:
            self.do(ev.PollEnded())
        if self._wanted:
            self._come_back(away_ms)

    def _come_back(self, ms: int) -> None:
        if self._again is None:
            self._again = self.world.now + ms
            self.world.push(self._again, self.run_when_awake, self._loop)

    def _loop(self) -> None:
        self._again = None
        if self._wanted and not self.polling and self.in_callback is None and not self.engine.closed:
            self._begin(self.poll_timeout_ms)

    def _closing(self) -> bool:
        return any(token not in self.done for token in self._ending)

    # ---- what an application says; each is written down, see `World.journal`

    @kept
    def subscribe(self, *topics: str, pattern: str | None = None) -> None:
        """Subscribe to topics, or to all that match a pattern, and begin to poll."""
        self.do(ev.Subscribe(frozenset(topics), pattern))
        self.observe("subscribed")
        self.resume_polling()

    @kept
    def assign(self, partitions: Mapping[TopicPartition, int | None]) -> None:
        """Take partitions by hand, from these offsets (None: where the group or the policy says)."""
        self.do(ev.Assign(partitions))
        self.owned = set(partitions)
        self.resume_polling()

    @kept
    def unsubscribe(self) -> object:
        self.pause_polling()
        limit = self.options.default_api_timeout_ms
        token = self._ask(ev.Unsubscribe, "unsubscribed", limit, ending=True)
        self._look_soon()
        return token

    @kept
    def pause_polling(self) -> None:
        """The application stays away: it is somewhere in its work."""
        self._wanted = False
        if self.polling:
            self._over(self._round)

    @kept
    def resume_polling(self) -> None:
        self._wanted = True
        if not self.polling:
            self._come_back(0)

    @kept
    def wait_in_poll(self, ms: int) -> None:
        """Be in one poll after the other for so long, as an iteration is; then stay away."""
        self.poll_timeout_ms = ms
        self.resume_polling()
        self.world.push(self.world.now + ms, self.run_when_awake, self.pause_polling)

    @kept
    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.do(ev.Seek(partition, offset))
        self.positions.pop(partition, None)
        self.observe("sought", (partition,), offset)
        if partition in self.world.partitions() and self.world.log(partition).end_offset < offset:
            self.observe("beyond", (partition,))

    @kept
    def seek_to(self, where: str | int, *partitions: TopicPartition) -> None:
        """To "earliest", "latest", "committed" or a time in ms."""
        self.do(ev.SeekTo(frozenset(partitions), where))
        for partition in partitions or tuple(self.positions):
            self.positions.pop(partition, None)
        self.observe("sought", partitions, where if isinstance(where, str) else f"{where} ms")

    @kept
    def pause(self, *partitions: TopicPartition) -> None:
        self.do(ev.Pause(frozenset(partitions)))
        self.observe("paused", partitions)

    @kept
    def resume(self, *partitions: TopicPartition) -> None:
        self.do(ev.Resume(frozenset(partitions)))
        self.observe("resumed", partitions)

    @kept
    def commit(
        self, offsets: Mapping[TopicPartition, int] | None = None, *, timeout_ms: int | None = None
    ) -> object:
        """Commit these offsets, or all that was handed out. Returns the token that `done` will have."""
        limit = self.options.default_api_timeout_ms if timeout_ms is None else timeout_ms
        token = self.world.next_token()
        held = self.engine.partitions
        read = {partition: at for partition, at in self.positions.items() if partition in held}
        meant = dict(read if offsets is None else offsets)
        triples = None if offsets is None else {tp: (at, None, "") for tp, at in offsets.items()}
        self.requested_commits[token] = meant
        self.deadlines[token] = self.world.now + limit
        self.observe("committing", tuple(meant), (token, meant))
        try:
            self.do(ev.Commit(token, triples, limit))
        except IllegalState:
            del self.requested_commits[token], self.deadlines[token]
            raise
        return token

    @kept
    def rejoin(self, reason: str = "the test says so") -> None:
        self.do(ev.Rejoin(reason))

    @kept
    def close(self, *, leave: bool = True, timeout_ms: int = 30_000) -> object:
        """Close as a shell does: callbacks are served until it is done."""
        self._wanted = False
        if self.polling and self.in_callback is None:
            self._over(self._round)
        self.close_timeout_ms = timeout_ms
        self.observe("closing")
        end = functools.partial(ev.Close, leave=leave, timeout_ms=timeout_ms)
        token = self._ask(end, None, timeout_ms, ending=True)
        self._look_soon()
        return token

    def _ask(
        self, event: Callable[[object], ev.Event], what: str | None, limit: int, *, ending: bool = False
    ) -> object:
        token = self.world.next_token()
        self.deadlines[token] = self.world.now + limit
        if ending:
            self._ending.add(token)
        try:
            self.do(event(token))
        except IllegalState:
            del self.deadlines[token]
            self._ending.discard(token)
            raise
        if what is not None:
            self.observe(what)
        return token

    @kept
    def run(self, plan: Any, *, timeout_ms: int = 60_000) -> object:
        """Run a plan of `consumer.engine.admin`. Returns the token that `done` will have."""
        return self._ask(functools.partial(ev.Run, plan=plan, timeout_ms=timeout_ms), None, timeout_ms)

    # ---- to look at

    def owns(self) -> set[TopicPartition]:
        """What the engine holds for this application."""
        return set(self.engine.partitions) if self.alive else set()

    def values(self, topic: str | None = None, partition: int | None = None) -> list[str]:
        return [
            bytes(record.value or b"").decode()
            for record in self.records
            if topic in (None, record.topic) and partition in (None, record.partition)
        ]

    def changes_of(self, kind: str) -> list[GroupChange]:
        return [change for change in self.changes if change.kind == kind]

    @checked
    def position(self, partition: TopicPartition) -> int | None:
        """Where the next record comes from; None while that is found out, or when it isn't owned."""
        state = self.engine.partitions.get(partition)
        return state.position if state is not None and state.has_position else None

    def is_stable(self) -> bool:
        member = self.engine.group.member
        return self.alive and member is not None and member.is_stable

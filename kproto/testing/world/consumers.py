"""kproto's consumer in a world: its engine (a state machine), and an application that polls.

The application passes the same events to the engine as the public consumer classes do: either `Poll`, or
`PollBegan`, one `Take` for each `Wake` action of the engine, and `PollEnded`.

The application sends no `Take` without a `Wake`. So a test fails if the engine omits a `Wake`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from consumer.engine import events as ev
from consumer.engine.consumer import ConsumerEngine, step
from consumer.engine.network.transport import Broken, Data, Opened
from consumer.options import consumer_options
from consumer.records import GroupChange

from ...errors import IllegalState
from ...group.subscription import TopicPartition
from ...validation import OFFSETS, PARTITION, TEXT, WHOLE_NUMBER, ZERO_OR_MORE, checked
from .clients import ClientWorld, EngineClient
from .journal import journaled, knob
from .user_code import reject_awaitable

Listener = Callable[[str, tuple[TopicPartition, ...]], object]
Worker = Callable[[list[Any]], object]
NETWORK_EVENTS = (
    Opened,
    Data,
    Broken,
)  # The network events, which the trace omits because it contains the requests and responses themselves.
CALLBACK_BEGIN_KINDS = {"assigned": "assigned", "revoked": "revoking", "lost": "losing"}


class Consumer(EngineClient):
    """A kproto consumer. It has the options of `consumer.Consumer`.

    Attributes configure the application: `listener(kind, partitions)` is called with "assigned", "revoked" or
    "lost", and `worker(records)` with the records of each poll.

    Results so far: `records`, `changes` (the reported group changes), `calls` (callbacks), `errors` (raised
    by poll).

    A key of `done` is the token of a `commit`, `close`, `unsubscribe` or `run`. A value is (value, error):
    the returned value, and the raised error or None.
    """

    limit = knob(500)
    columns = knob(False)
    # The time in ms for which the application processes the records of a poll.
    works_ms = knob(0)
    poll_timeout_ms = knob(1_000)
    listener: Listener = knob(lambda kind, partitions: None)
    # The application's function that is called with the records of each poll.
    worker: Worker = knob(lambda records: None)

    def __init__(self, world: ClientWorld, name: str, **options: Any) -> None:
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
        # Maps the token of a commit to its offsets.
        self.requested_commits: dict[object, dict[TopicPartition, int]] = {}
        # Maps a token to the virtual time in ms by which its operation must be done.
        self.deadlines: dict[object, int] = {}
        # Maps a partition to the offset after the last record that the application received.
        self.positions: dict[TopicPartition, int] = {}
        self.limit = self.options.max_poll_records
        self.in_callback: tuple[str, tuple[TopicPartition, ...]] | None = None
        self.polling = False
        # Whether the consumer is closed. Calls on a closed consumer raise an error.
        self.is_closed = False
        # Whether the application keeps polling.
        self._keeps_polling = False
        # The number of the current poll, by which the timeout of an earlier poll is recognized and ignored.
        self._poll_number = 0
        self._next_poll_at: int | None = None
        self._is_take_scheduled = False
        # The `repr` of the last error of a poll, or "" after a poll that returned records. The time for which
        # the application waits after an error.
        self._last_error_text, self._error_backoff_ms = "", 0
        # Whether the poll in progress ends as soon as the running callback returns.
        self._ends_poll_after_callback = False
        self._closing_tokens: set[object] = (
            set()
        )  # Tokens of calls to close and unsubscribe. Until these calls have completed, only callbacks run.

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
        return self._keeps_polling and self.frozen_until is None

    @property
    def has_final_error(self) -> bool:
        """Whether an error prevents the consumer from ever rejoining. Every poll then raises this error."""
        return self.engine.group_status.final_error is not None

    @property
    def is_closing(self) -> bool:
        """Whether the consumer is closing or closed."""
        return self._has_pending_close() or self.engine.closed

    # ---- the engine

    def due(self) -> int | None:
        return self.engine.due()

    def tick(self) -> None:
        self.do(ev.Tick())

    def on_transport_event(self, event: Opened | Data | Broken) -> None:
        self.do(event)

    def do(self, event: ev.Event) -> None:
        """Pass an event to the engine (the consumer's state machine) and perform its actions."""
        if self.alive or self.is_closed:
            self._perform_actions(self._step_engine(event))

    def _do_if_allowed(self, event: ev.Event) -> bool:
        """Pass an event to the engine as `do` does. Return False if the engine rejects it with IllegalState.

        On a killed or closed consumer, nothing happens and the result is True.

        The engine rejects the event if the application unsubscribed, or closed the consumer, after the event
        was scheduled. Exceptions of the application's own code are raised.
        """
        if self.alive:
            try:
                actions = self._step_engine(event)
            except IllegalState:
                return False
            self._perform_actions(actions)
        return True

    def _step_engine(self, event: ev.Event) -> list[ev.Action]:
        """Pass an event to the engine and to the trace; return the actions of the engine."""
        if not isinstance(event, NETWORK_EVENTS):
            self.world.add_entry(self.name, "event", event)
        return step(self.engine, event, self.world.now)

    def _perform_actions(self, actions: list[ev.Action]) -> None:
        for action in actions:
            if self.perform_transport_action(action):
                continue
            match action:
                case ev.Wake():
                    self._schedule_take()
                case ev.Deliver(rows=rows, columns=columns):
                    self._on_delivery(rows, columns)
                case ev.Raise(error=error):
                    self.errors.append(error)
                    self.observe("raised", detail=error)
                case ev.Report(change=change):
                    self._on_report(change)
                case ev.Done(token=token, value=value, error=error):
                    self._on_done(token, value, error)
                case ev.CallListener(kind=kind, partitions=partitions, reason=reason):
                    self._run_callback(kind, partitions, reason)
                case _:
                    raise AssertionError(f"the world cannot perform {action!r}")
        self.plan()

    # ---- actions of the engine

    def _on_delivery(self, rows: list[Any], columns: list[Any]) -> None:
        """Store delivered records and batches, advance the positions and call the worker with the records."""
        self.records += rows
        self.batches += columns
        offsets_by_partition: dict[TopicPartition, list[int]] = {}
        for record in rows:
            offsets_by_partition.setdefault(TopicPartition(record.topic, record.partition), []).append(
                record.offset
            )
        for batch in columns:
            offsets = [int(offset) for offset in batch.columns.offset]
            offsets_by_partition.setdefault(TopicPartition(batch.topic, batch.partition), []).extend(offsets)
        for partition, offsets in offsets_by_partition.items():
            self.positions[partition] = offsets[-1] + 1
            self.observe("delivered", (partition,), tuple(offsets))
        if rows:
            reject_awaitable("worker", self.worker, self.worker(rows))

    def _on_report(self, change: GroupChange) -> None:
        self.changes.append(change)
        self.world.add_entry(self.name, "report", change)
        if change.kind in ("reset", "truncated"):
            for partition in change.partitions:
                # Remove the positions of these partitions, so that the next commit does not contain them.
                self.positions.pop(partition, None)
        if change.kind == "reset":
            self.observe("reset", change.partitions, (change.offset, change.reason))

    def _on_done(self, token: object, value: Any, error: BaseException | None) -> None:
        if token in self.done:
            raise AssertionError(f"{self.name}: operation {token!r} completed twice")
        self.done[token] = (value, error)
        self.world.add_entry(self.name, "done", (token, value, error))
        if token in self.requested_commits:
            self.observe("committed", detail=(token, self.requested_commits[token], error))
        self._schedule_take()

    def _run_callback(self, kind: str, partitions: tuple[TopicPartition, ...], reason: str) -> None:
        """Call the listener. The callback ends `callback_ms` later, in `_on_callback_end`.

        If the listener raises an exception, the callback and its poll end immediately, as in
        `consumer.Consumer`. The running call of the world, for example `run`, raises the exception.
        """
        self.calls.append((kind, partitions))
        self.in_callback = (kind, partitions)
        self.slowest_ms = max(self.slowest_ms, self.callback_ms)
        self.observe(CALLBACK_BEGIN_KINDS[kind], partitions, reason if kind == "lost" else None)
        if kind == "assigned":
            self.owned.update(partitions)
            for partition in partitions:
                self.positions.pop(partition, None)
        try:
            reject_awaitable("listener", self.listener, self.listener(kind, partitions))
        except BaseException:
            self._ends_poll_after_callback = self.polling
            self._on_callback_end()
            raise
        if self.callback_ms:
            self.world.call_later(self.callback_ms, lambda: self.run_when_awake(self._on_callback_end))
        else:
            self._on_callback_end()

    def _on_callback_end(self) -> None:
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
        if self._ends_poll_after_callback:
            self._end_poll(self._poll_number)
        self._schedule_take()

    # ---- the application's loop

    @journaled
    def poll(self) -> None:
        """Poll once without waiting. The application gets only records that are buffered."""
        if self.in_callback is None and not self.polling and not self.engine.closed and self.alive:
            self._begin_poll(0)

    def _begin_poll(self, timeout_ms: int) -> None:
        """Begin a poll, which waits up to `timeout_ms` for records if none are buffered."""
        self._next_poll_at = None
        self.polling = True
        self._poll_number += 1
        if not self.columns and self._poll_in_one_step():
            return
        if not self._do_if_allowed(ev.PollBegan()):
            self.polling = False
            return
        self._run_next_step()
        if self.polling:
            if timeout_ms:
                self.world.push(
                    self.world.now + timeout_ms, self.run_when_awake, self._end_poll, self._poll_number
                )
            else:
                self._end_poll(self._poll_number)

    def _poll_in_one_step(self) -> bool:
        """Poll without waiting: pass the engine a single `Poll` event. Return whether the poll is complete.

        The poll is incomplete if the engine accepts the event, but returns no buffered records. The
        application then has to poll with a timeout.
        """
        record_count = len(self.records)
        if not self._do_if_allowed(ev.Poll(self.limit)):
            self.polling = False
            return True
        if len(self.records) == record_count:
            return False
        self._last_error_text = ""
        self._end_poll(self._poll_number, self.works_ms, engine_ended=True)
        return True

    def _schedule_take(self) -> None:
        """Schedule a `Take` event at the current time, because records or an error may be available.

        While the consumer is closing, the event serves a callback and takes no records.
        """
        if not self._is_take_scheduled and (self.polling or self._has_pending_close() or self.engine.closed):
            self._is_take_scheduled = True
            self.world.push(self.world.now, self.run_when_awake, self._run_next_step)

    def _run_next_step(self) -> None:
        """Serve a callback if the consumer is closing. Take records if a poll is in progress."""
        self._is_take_scheduled = False
        if self.in_callback is not None or not self.alive:
            return
        if self._has_pending_close():
            self._serve_callback()
        if self.engine.closed and not self._has_pending_close():
            self._on_closed()
        if self._has_pending_close() or not self.alive:
            return
        if not self.polling or self.engine.closed:
            return
        self._take()

    def _serve_callback(self) -> None:
        """Run the next callback of the closing engine, if any, and schedule the step after it."""
        callback_count = len(self.calls)
        self.do(ev.ServeListener())
        if len(self.calls) != callback_count:
            self._schedule_take()

    def _take(self) -> None:
        """Pass a `Take` event. End the poll if it returned records or raised an error."""
        delivered = len(self.records), len(self.batches)
        error_count, callback_count = len(self.errors), len(self.calls)
        if not self._do_if_allowed(ev.Take(self.limit, self.columns)):
            self._end_poll(self._poll_number)
            return
        if (len(self.records), len(self.batches)) != delivered:
            self._last_error_text = ""
            self._end_poll(self._poll_number, self.works_ms)
        elif len(self.errors) != error_count:
            self._end_poll(self._poll_number, max(self.error_backoff(self.errors[-1]), self.works_ms))
        elif len(self.calls) != callback_count:
            self._schedule_take()

    def error_backoff(self, error: Exception) -> int:
        """Record an error of a poll and return how long (ms) the application waits after it.

        The wait is 1 ms for a new error. It doubles with each repetition of the same error, up to 1 s.
        """
        text = repr(error)
        self._error_backoff_ms = (
            min(2 * self._error_backoff_ms, 1_000) if text == self._last_error_text else 1
        )
        self._last_error_text = text
        return self._error_backoff_ms

    def _on_closed(self) -> None:
        """End the process, because close is complete."""
        self.alive, self.is_closed = False, True
        self.owned.clear()
        self.observe("closed")

    def _end_poll(self, poll_number: int, pause_ms: int = 0, *, engine_ended: bool = False) -> None:
        """End poll number `poll_number` if this poll is still in progress.

        The application polls again after `pause_ms`. With `engine_ended`, the poll has already ended in the
        engine. If a callback is running, the poll ends after the callback, and the next poll follows without
        a pause.
        """
        if not self.polling or poll_number != self._poll_number:
            return
        if self.in_callback is not None:
            self._ends_poll_after_callback = True
            return
        self._ends_poll_after_callback = False
        self.polling = False
        if not self.engine.closed and not engine_ended:
            self.do(ev.PollEnded())
        if self._keeps_polling:
            self._schedule_poll(pause_ms)

    def _schedule_poll(self, wait_ms: int) -> None:
        """Schedule the application's next poll, unless one is already scheduled."""
        if self._next_poll_at is None:
            self._next_poll_at = self.world.now + wait_ms
            self.world.push(self._next_poll_at, self.run_when_awake, self._begin_scheduled_poll)

    def _begin_scheduled_poll(self) -> None:
        self._next_poll_at = None
        if self._keeps_polling and not self.polling and self.in_callback is None and not self.engine.closed:
            self._begin_poll(self.poll_timeout_ms)

    def _has_pending_close(self) -> bool:
        """Return whether the application waits for a call of close or unsubscribe to complete."""
        return any(token not in self.done for token in self._closing_tokens)

    # ---- calls of the application; each is journaled, see `journaled`

    @checked(topics=TEXT, pattern=TEXT)
    @journaled
    def subscribe(self, *topics: str, pattern: str | None = None) -> None:
        """Subscribe to topics, or to all topics that match `pattern`, and start polling."""
        self.do(ev.Subscribe(frozenset(topics), pattern))
        self.observe("subscribed")
        self.resume_polling()

    @checked(partitions=OFFSETS)
    @journaled
    def assign(self, partitions: Mapping[TopicPartition, int | None]) -> None:
        """Assign partitions manually and start polling.

        The offsets are start offsets. None means the committed offset or, if there is none, the offset
        of the reset policy.
        """
        self.do(ev.Assign(partitions))
        self.owned = set(partitions)
        self.resume_polling()

    @journaled
    def unsubscribe(self) -> object:
        """Unsubscribe and stop polling; return the token of the result in `done`."""
        self.pause_polling()
        timeout_ms = self.options.default_api_timeout_ms
        token = self._start_operation(ev.Unsubscribe, "unsubscribed", timeout_ms, is_close=True)
        self._schedule_take()
        return token

    @journaled
    def pause_polling(self) -> None:
        """Stop polling. A poll in progress ends immediately."""
        self._keeps_polling = False
        if self.polling:
            self._end_poll(self._poll_number)

    @journaled
    def resume_polling(self) -> None:
        """Start polling again."""
        self._keeps_polling = True
        if not self.polling:
            self._schedule_poll(0)

    @checked(ms=ZERO_OR_MORE)
    @journaled
    def wait_in_poll(self, ms: int) -> None:
        """Poll repeatedly for `ms` milliseconds, as a `for` loop over the consumer does, and then stop.

        Each poll has the timeout `ms`, so the first poll lasts the whole time if no records arrive.
        """
        self.poll_timeout_ms = ms
        self.resume_polling()
        self.world.push(self.world.now + ms, self.run_when_awake, self.pause_polling)

    @checked(partition=PARTITION, offset=WHOLE_NUMBER)
    @journaled
    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Seek to an offset of a partition."""
        self.do(ev.Seek(partition, offset))
        self.positions.pop(partition, None)
        self.observe("sought", (partition,), offset)
        if partition in self.world.partitions() and self.world.log(partition).end_offset < offset:
            self.observe("beyond", (partition,))

    @checked(partitions=PARTITION)
    @journaled
    def seek_to(self, where: str | int, *partitions: TopicPartition) -> None:
        """Seek to "earliest", "latest", "committed" or a timestamp in ms, by default in all partitions."""
        self.do(ev.SeekTo(frozenset(partitions), where))
        for partition in partitions or tuple(self.positions):
            self.positions.pop(partition, None)
        self.observe("sought", partitions, where if isinstance(where, str) else f"{where} ms")

    @checked(partitions=PARTITION)
    @journaled
    def pause(self, *partitions: TopicPartition) -> None:
        """Pause these assigned partitions: `poll` returns no records from them until `resume`."""
        self.do(ev.Pause(frozenset(partitions)))
        self.observe("paused", partitions)

    @checked(partitions=PARTITION)
    @journaled
    def resume(self, *partitions: TopicPartition) -> None:
        """Resume these assigned partitions, if they are paused."""
        self.do(ev.Resume(frozenset(partitions)))
        self.observe("resumed", partitions)

    @checked(offsets=OFFSETS, timeout_ms=ZERO_OR_MORE)
    @journaled
    def commit(
        self, offsets: Mapping[TopicPartition, int] | None = None, *, timeout_ms: int | None = None
    ) -> object:
        """Commit `offsets`, or the positions of all owned partitions if `offsets` is None.

        Returns a token, which is a key of `done` when the commit is done. A commit that takes longer than
        `timeout_ms` fails with RequestTimedOut.

        Raises IllegalState on a closed consumer.
        """
        if timeout_ms is None:
            timeout_ms = self.options.default_api_timeout_ms
        token = self.world.next_token()
        owned = self.engine.partitions
        positions = {
            partition: position for partition, position in self.positions.items() if partition in owned
        }
        requested = dict(positions if offsets is None else offsets)
        # The engine's form of an offset: (offset, leader epoch, metadata).
        triples = None if offsets is None else {tp: (offset, None, "") for tp, offset in offsets.items()}
        self.requested_commits[token] = requested
        self.deadlines[token] = self.world.now + timeout_ms
        self.observe("committing", tuple(requested), (token, requested))
        try:
            self.do(ev.Commit(token, triples, timeout_ms))
        except IllegalState:
            del self.requested_commits[token], self.deadlines[token]
            raise
        return token

    @checked(reason=TEXT)
    @journaled
    def rejoin(self, reason: str = "the test says so") -> None:
        """Start a rebalance. JoinGroup contains `reason` (KIP-800)."""
        self.do(ev.Rejoin(reason))

    @checked(timeout_ms=ZERO_OR_MORE)
    @journaled
    def close(self, *, leave: bool = True, timeout_ms: int = 30_000) -> object:
        """Close the consumer, which may run callbacks; return the token of the result in `done`."""
        self._keeps_polling = False
        if self.polling and self.in_callback is None:
            self._end_poll(self._poll_number)
        self.close_timeout_ms = timeout_ms
        self.observe("closing")
        create_event = functools.partial(ev.Close, leave=leave, timeout_ms=timeout_ms)
        token = self._start_operation(create_event, None, timeout_ms, is_close=True)
        self._schedule_take()
        return token

    def _start_operation(
        self,
        create_event: Callable[[object], ev.Event],
        observed_kind: str | None,
        timeout_ms: int,
        *,
        is_close: bool = False,
    ) -> object:
        """Pass the event `create_event(token)` to the engine, and return the token.

        The invariant `every_future_ends` checks that `done` contains the token at most `GRACE_MS` (a second)
        after the end of the timeout.

        `observed_kind` is the kind of the observation that is added, or None for no observation. `is_close`
        marks a close or unsubscribe.
        """
        token = self.world.next_token()
        self.deadlines[token] = self.world.now + timeout_ms
        if is_close:
            self._closing_tokens.add(token)
        try:
            self.do(create_event(token))
        except IllegalState:
            del self.deadlines[token]
            self._closing_tokens.discard(token)
            raise
        if observed_kind is not None:
            self.observe(observed_kind)
        return token

    @checked(timeout_ms=ZERO_OR_MORE)
    @journaled
    def run(self, plan: Any, *, timeout_ms: int = 60_000) -> object:
        """Run an admin plan of `consumer.engine.admin`; return the token of its result in `done`."""
        create_event = functools.partial(ev.Run, plan=plan, timeout_ms=timeout_ms)
        return self._start_operation(create_event, None, timeout_ms)

    # ---- queries

    def owns(self) -> set[TopicPartition]:
        """Return the partitions that the engine owns."""
        return set(self.engine.partitions) if self.alive else set()

    def values(self, topic: str | None = None, partition: int | None = None) -> list[str]:
        """Return the values of the received records as text, by default of all partitions."""
        return [
            bytes(record.value or b"").decode()
            for record in self.records
            if topic in (None, record.topic) and partition in (None, record.partition)
        ]

    def changes_of(self, kind: str) -> list[GroupChange]:
        """Return the reported group changes of this kind."""
        return [change for change in self.changes if change.kind == kind]

    @checked(partition=PARTITION)
    def position(self, partition: TopicPartition) -> int | None:
        """Return the position, or None while it is unknown or the partition is not owned."""
        state = self.engine.partitions.get(partition)
        return state.position if state is not None and state.has_position else None

    def is_stable(self) -> bool:
        """Return whether the member has its assignment and no rebalance is in progress."""
        member = self.engine.group.member
        return self.alive and member is not None and member.is_stable

"""The blocking consumer: the engine in a thread of its own, and the application's calls around it.

    with Consumer("localhost:9092", group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["flights"])
        for record in consumer:
            ...

The thread moves bytes, sends heartbeats and fetches ahead while the application computes. Callbacks never run
there: they run inside poll, commit, unsubscribe and close, on the thread that called.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Any, TypeVar, Unpack

from kproto.errors import IllegalState, RequestTimedOut
from kproto.group.subscription import TopicPartition

from .cluster import Cluster as Cluster
from .cluster import Offset
from .engine import events as ev
from .engine import plans
from .engine.consumer import next_deadline
from .engine.network import NetworkAction, Open, Shut, Write
from .engine.plans import OffsetAt, Plan
from .engine.requests import CommittedOffset, timestamp_of
from .listener import RebalanceListener
from .options import ConsumerConfig
from .records import ColumnBatch, ConsumerRecord
from .shell import Shell, assignment_event, log, many
from .sockets import Sockets

R = TypeVar("R")

# How long close waits for callbacks, the last commit and LeaveGroup; Java's default.
CLOSE_TIMEOUT = 30.0


class Consumer(Shell):
    """Reads records, alone (`assign`) or in a group (`subscribe`). Options: see `ConsumerConfig`.

    Raises ConfigError for wrong options, at once; connects in the background from the first subscribe on.
    One thread at a time may use it.
    """

    def __init__(self, bootstrap_servers: str | Iterable[str], **config: Unpack[ConsumerConfig]) -> None:
        super().__init__(bootstrap_servers, config)
        self._sockets = Sockets()
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._woken = False
        self._todo: deque[NetworkAction] = deque()
        self._stop = False
        self._crash: BaseException | None = None
        name = f"kproto-consumer-{self.options.client_id}"
        self._thread = threading.Thread(target=self._loop, name=name, daemon=True)
        self._thread.start()

    # ---- the thread

    def _loop(self) -> None:
        try:
            while not self._stop:
                self._perform()
                with self._lock:
                    due = next_deadline(self._engine)
                wait = None if due is None else max(0, due - Sockets.now()) / 1000
                events = self._sockets.wait(wait)
                done: list[ev.Done] = []
                with self._lock:
                    for event in events:
                        self._sort(self._step(event), done)
                    if due is not None and due <= Sockets.now():
                        self._sort(self._step(ev.Tick()), done)
                _resolve(done)
        except BaseException as error:  # a bug here must not become a silent standstill
            log.exception("the consumer's thread failed")
            with self._lock:
                self._crash = error
                self._woken = True
                self._changed.notify_all()
        finally:
            self._perform()
            self._sockets.close()

    def _perform(self) -> None:
        while self._todo:
            self._sockets.perform(self._todo.popleft())

    def _sort(self, actions: list[ev.Action], done: list[ev.Done]) -> list[ev.Action]:
        """Puts each action where it belongs; returns those for poll. The lock is held."""
        rest: list[ev.Action] = []
        for action in actions:
            match action:
                case Open() | Write() | Shut():
                    self._todo.append(action)
                case ev.Wake():
                    self._woken = True
                    self._changed.notify_all()
                case ev.Done():
                    done.append(action)
                    self._woken = True
                    self._changed.notify_all()
                case ev.Report(change=change):
                    self._note(change)
                case _:
                    rest.append(action)
        return rest

    def _do(self, event: ev.Event) -> list[ev.Action]:
        """Tells the engine something, from the application's thread."""
        done: list[ev.Done] = []
        with self._lock:
            if self._crash is not None:
                raise IllegalState("the consumer's thread failed; see the log") from self._crash
            if self._finished:
                raise IllegalState("this consumer is closed; make a new one")
            self._woken = False
            rest = self._sort(self._step(event), done)
            if self._todo or done:
                self._sockets.wake()
        _resolve(done)
        return rest

    def _wait(self, deadline: float) -> bool:
        """Waits until something happened; False when the time is over."""
        with self._lock:
            while not self._woken:
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(left)
            return True

    # ---- subscriptions

    def subscribe(
        self,
        topics: Iterable[str] | str = (),
        listener: RebalanceListener | None = None,
        *,
        pattern: str | None = None,
    ) -> None:
        """Joins the group for these topics, or for all whose whole name matches `pattern`."""
        event = self._subscription(topics, pattern)
        self._listener = listener
        self._do(event)

    def assign(self, partitions: Iterable[TopicPartition] | Mapping[TopicPartition, int | None]) -> None:
        """Takes these partitions without a group's help; a mapping says where to start."""
        self._do(assignment_event(partitions))

    def unsubscribe(self, timeout: float | None = None) -> None:
        """Gives everything back and leaves the group; revoked callbacks run in here."""
        self._give_back()
        future: Future[None] = Future()
        self._do(ev.Unsubscribe(future))
        self._serve_until(future, timeout)

    # ---- records

    def poll(self, timeout: float = 1.0, max_records: int | None = None) -> list[ConsumerRecord]:
        """The next records, at most max_poll_records; an empty list after `timeout` seconds.

        What earlier polls returned counts as processed from now on. Raises what went wrong: BrokerError and
        its kin, RecordError for a broken batch (again and again, until a seek passes it).
        """
        self._give_back()
        limit = self.options.max_poll_records if max_records is None else max_records
        delivered = self._poll(ev.Take(limit), timeout)
        return delivered.rows if delivered is not None else []

    def poll_columns(self, timeout: float = 1.0) -> list[ColumnBatch]:
        """The next records as columns, one batch for each fetched piece; see `kproto.records.columns`."""
        self._give_back()
        delivered = self._poll(ev.Take(0, columns=True), timeout)
        return delivered.columns if delivered is not None else []

    def _poll(self, event: ev.Take, timeout: float) -> ev.Deliver | None:
        self._do(ev.PollBegan())
        try:
            return self._take(event, time.monotonic() + timeout)
        finally:
            with contextlib.suppress(IllegalState):  # closed or failed meanwhile: nobody waits for it
                self._do(ev.PollEnded())

    def _take(self, event: ev.Take, deadline: float) -> ev.Deliver | None:
        while True:
            actions = self._do(event)
            self._tell()
            for action in actions:
                match action:
                    case ev.Deliver():
                        return action
                    case ev.Raise(error=error):
                        raise error
                    case ev.CallListener():
                        self._call(action)
                        break
                    case _:
                        pass
            else:
                if not self._wait(deadline):
                    self._tell()
                    return None

    def _call(self, action: ev.CallListener) -> None:
        try:
            if self._listener is not None:
                {
                    "assigned": self._listener.assigned,
                    "revoked": self._listener.revoked,
                    "lost": self._listener.lost,
                }[action.kind](action.partitions)
        finally:
            self._do(ev.ListenerReturned())

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return self

    def __next__(self) -> ConsumerRecord:
        """The next record, however long it takes. The one before counts as processed."""
        while self._row >= len(self._rows):
            self._rows, self._row = [], 0
            delivered = self._poll(ev.Take(self.options.max_poll_records), 3600.0)
            if delivered is not None:
                self._rows = delivered.rows
        record = self._rows[self._row]
        self._row += 1
        return record

    def _give_back(self, *, also_last: bool = False) -> bool:
        """Returns what an iteration didn't come to; True when there was something."""
        event = self._unread(also_last=also_last) if self._rows else None
        if event is not None:
            self._do(event)
        return event is not None

    # ---- positions

    def position(self, partition: TopicPartition, timeout: float | None = None) -> int:
        """The offset of the next record to be returned; waits until it is known."""
        self._give_back()
        deadline = time.monotonic() + self._milliseconds(timeout) / 1000
        while True:
            with self._lock:
                state = self._engine.partitions.get(partition)
                if state is None:
                    raise IllegalState(f"{partition} is not assigned to this consumer")
                if state.error is not None:
                    raise state.error
                if state.known:
                    return state.position
                self._woken = False
            if not self._wait(deadline):
                raise RequestTimedOut("position", self._milliseconds(timeout), str(partition))

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Goes on at `offset`. The last seek wins, over everything under way; may come before the
        assignment."""
        self._give_back()
        self._do(ev.Seek(partition, offset))

    def seek_to(self, where: str | int, partitions: TopicPartition | Iterable[TopicPartition] = ()) -> None:
        """Goes on at "earliest", "latest", "committed" or a time in ms; all partitions unless some are
        named."""
        if where != "committed":
            timestamp_of(where)
        self._give_back()
        self._do(ev.SeekTo(many(partitions), where))

    def pause(self, partitions: TopicPartition | Iterable[TopicPartition]) -> None:
        """Returns nothing of these until `resume`; what is buffered is kept. A rebalance keeps the pause of
        partitions that stay, and forgets it for those that go."""
        self._do(ev.Pause(many(partitions)))

    def resume(self, partitions: TopicPartition | Iterable[TopicPartition]) -> None:
        self._do(ev.Resume(many(partitions)))

    # ---- commits

    def commit(
        self, offsets: Mapping[TopicPartition, Offset] | None = None, timeout: float | None = None
    ) -> None:
        """Commits these offsets (of the *next* record to read), or what was returned so far.

        Safe at any time: during a rebalance it waits, and fails with CommitFailed only if a partition went
        to somebody else. Raises Fenced, NotAuthorized, RequestTimedOut.
        """
        self.commit_async(offsets, timeout).result()

    def commit_async(
        self, offsets: Mapping[TopicPartition, Offset] | None = None, timeout: float | None = None
    ) -> Future[None]:
        """Like `commit`, without waiting. Commits are sent in the order of the calls."""
        self._give_back()
        future: Future[None] = Future()
        self._do(ev.Commit(future, self._offsets(offsets), self._milliseconds(timeout)))
        self._tell()
        return future

    def committed(
        self, partitions: Iterable[TopicPartition] | None = None, timeout: float | None = None
    ) -> dict[TopicPartition, CommittedOffset | None]:
        """What the group committed for these partitions, or for those assigned; None for no commit."""
        if self.options.group_id is None:
            raise IllegalState("this consumer has no group_id")
        wanted = list(self.assignment() if partitions is None else partitions)
        core = self._engine.core
        return self.run(
            plans.committed_offsets(core.view, self.options.group_id, wanted, core.clock), timeout
        )

    # ---- the cluster

    def run(self, plan: Plan[R], timeout: float | None = None) -> R:
        """Runs a plan of `consumer.engine.plans` over this consumer's connections."""
        future: Future[R] = Future()
        self._do(ev.Run(future, plan, self._milliseconds(timeout)))
        return future.result()

    def list_offsets(
        self, wants: Mapping[TopicPartition, str | int], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAt]:
        """Where "earliest", "latest" or a time in ms is, in this consumer's isolation level."""
        core, level = self._engine.core, self.options.isolation_level
        timeout_ms = self._milliseconds(timeout)
        plan = plans.list_offsets(core.view, wants, core.clock, isolation=level, timeout_ms=timeout_ms)
        return self.run(plan, timeout)

    def partitions_for(self, topic: str, timeout: float | None = None) -> list[TopicPartition]:
        """The topic's partitions; raises UnknownTopic."""
        core = self._engine.core
        self.run(plans.know_topics(core.view, [topic], core.clock), timeout)
        return [TopicPartition(topic, index) for index in sorted(core.view.topics[topic].partitions)]

    def rejoin(self, reason: str = "the application asked for it") -> None:
        """Makes the group rebalance."""
        self._do(ev.Rejoin(reason))

    # ---- the end

    def close(self, leave: bool = True, timeout: float = CLOSE_TIMEOUT) -> None:
        """Runs the revoked callback, commits (if commits are automatic), leaves the group; within `timeout`.

        `leave=False` keeps the membership: the group waits for the session timeout before it rebalances.
        """
        self._close(leave, timeout, processed=True)

    def _close(self, leave: bool, timeout: float, *, processed: bool) -> None:
        if self._finished:
            return
        future: Future[None] = Future()
        try:
            if self._crash is None:
                gave_back = self._give_back(also_last=not processed)
                self._do(ev.Close(future, leave, int(timeout * 1000), processed or gave_back))
                self._serve_until(future, timeout + 1)
        finally:
            self._end()
            self._tell()

    def kill(self) -> None:
        """Drops everything as if the process had died: no commit, no goodbye. For tests and demos."""
        with self._lock:
            self._todo.clear()
        self._end()

    def _end(self) -> None:
        self._finished = True
        self._stop = True
        with contextlib.suppress(OSError):
            self._sockets.wake()
        if self._thread is not threading.current_thread():
            self._thread.join(5)

    def _serve_until(self, future: Future[None], timeout: float | None) -> None:
        deadline = time.monotonic() + self._milliseconds(timeout) / 1000
        failure: BaseException | None = None
        while not future.done():
            for action in self._do(ev.ServeListener()):
                if isinstance(action, ev.CallListener):
                    try:
                        self._call(action)
                    except Exception as error:
                        failure = failure or error
                    break
            else:
                if not future.done() and not self._wait(deadline):
                    break
            self._tell()
        if failure is not None:
            raise failure

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes. After an exception, what was being worked on is not committed."""
        self._close(True, CLOSE_TIMEOUT, processed=kind is None)


def _resolve(done: list[ev.Done]) -> None:
    """Ends futures, outside of the lock: their callbacks may call the consumer."""
    for action in done:
        future: Future[Any] = action.token  # type: ignore[assignment]
        if not future.set_running_or_notify_cancel():
            continue
        if action.error is not None:
            future.set_exception(action.error)
        else:
            future.set_result(action.value)

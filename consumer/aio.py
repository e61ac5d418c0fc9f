"""The consumer for asyncio: the same engine, driven by the event loop.

    async with AsyncConsumer("localhost:9092", group_id="g") as consumer:
        consumer.subscribe(["flights"])
        async for record in consumer:
            ...

Heartbeats and fetches go on whenever the loop runs: code that blocks the loop blocks them too. Callbacks
may be coroutines; they run inside poll, unsubscribe and close.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Iterable, Mapping
from types import TracebackType
from typing import Any, TypeVar, Unpack

from kproto.errors import IllegalState, RequestTimedOut
from kproto.group.subscription import TopicPartition

from .blocking import CLOSE_TIMEOUT
from .cluster import Offset
from .engine import events as ev
from .engine import plans
from .engine.consumer import next_deadline
from .engine.network import Open, Shut, Write
from .engine.plans import OffsetAt, Plan
from .engine.requests import CommittedOffset, timestamp_of
from .listener import RebalanceListener
from .options import ConsumerConfig
from .records import ColumnBatch, ConsumerRecord
from .shell import Shell, assignment_event, many
from .sockets import Sockets
from .streams import Streams

R = TypeVar("R")


class AsyncConsumer(Shell):
    """The asyncio twin of `Consumer`: same options, same methods, awaited where they wait.

    Make it where you like; everything else belongs to one running event loop.
    """

    def __init__(self, bootstrap_servers: str | Iterable[str], **config: Unpack[ConsumerConfig]) -> None:
        super().__init__(bootstrap_servers, config)
        self._streams = Streams(self._happened)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: int | None = None
        self._changed = asyncio.Event()

    # ---- the loop's side

    def _happened(self, event: ev.Event) -> list[ev.Action]:
        """Tells the engine, does what it says; returns what is for poll."""
        rest: list[ev.Action] = []
        for action in self._step(event):
            match action:
                case Open() | Write() | Shut():
                    self._streams.perform(action)
                case ev.Wake():
                    self._changed.set()
                case ev.Done(token=token, value=value, error=error):
                    future: asyncio.Future[Any] = token  # type: ignore[assignment]
                    if not future.done():
                        if error is None:
                            future.set_result(value)
                        else:
                            future.set_exception(error)
                    self._changed.set()
                case ev.Report(change=change):
                    self._note(change)
                case _:
                    rest.append(action)
        self._schedule()
        return rest

    def _schedule(self) -> None:
        due = None if self._finished else next_deadline(self._engine)
        if due == self._timer_at and self._timer is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_at = due
        if due is not None:
            wait = max(0, due - Sockets.now()) / 1000
            self._timer = asyncio.get_running_loop().call_later(wait, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._timer_at = None
        if not self._finished:
            self._happened(ev.Tick())

    def _do(self, event: ev.Event) -> list[ev.Action]:
        if self._finished:
            raise IllegalState("this consumer is closed; make a new one")
        return self._happened(event)

    async def _wait(self, deadline: float) -> bool:
        left = deadline - asyncio.get_running_loop().time()
        if left <= 0:
            return self._changed.is_set()
        try:
            async with asyncio.timeout(left):
                await self._changed.wait()
        except TimeoutError:
            return False
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

    async def unsubscribe(self, timeout: float | None = None) -> None:
        """Gives everything back and leaves the group; revoked callbacks run in here."""
        self._give_back()
        future = self._future()
        self._do(ev.Unsubscribe(future))
        await self._serve_until(future, timeout)

    # ---- records

    async def poll(self, timeout: float = 1.0, max_records: int | None = None) -> list[ConsumerRecord]:
        """The next records; see `Consumer.poll`."""
        self._give_back()
        limit = self.options.max_poll_records if max_records is None else max_records
        delivered = await self._poll(ev.Take(limit), timeout)
        return delivered.rows if delivered is not None else []

    async def poll_columns(self, timeout: float = 1.0) -> list[ColumnBatch]:
        """The next records as columns; see `Consumer.poll_columns`."""
        self._give_back()
        delivered = await self._poll(ev.Take(0, columns=True), timeout)
        return delivered.columns if delivered is not None else []

    async def _poll(self, event: ev.Take, timeout: float) -> ev.Deliver | None:
        self._do(ev.PollBegan())
        try:
            return await self._take(event, asyncio.get_running_loop().time() + timeout)
        finally:
            if not self._finished:
                self._do(ev.PollEnded())

    async def _take(self, event: ev.Take, deadline: float) -> ev.Deliver | None:
        while True:
            self._changed.clear()
            actions = self._do(event)
            self._tell()
            for action in actions:
                match action:
                    case ev.Deliver():
                        # The loop gets its turn even when there is always something to deliver.
                        await asyncio.sleep(0)
                        return action
                    case ev.Raise(error=error):
                        raise error
                    case ev.CallListener():
                        await self._call(action)
                        break
                    case _:
                        pass
            else:
                if not await self._wait(deadline):
                    self._tell()
                    return None

    async def _call(self, action: ev.CallListener) -> None:
        try:
            if self._listener is not None:
                method = {
                    "assigned": self._listener.assigned,
                    "revoked": self._listener.revoked,
                    "lost": self._listener.lost,
                }[action.kind]
                result = method(action.partitions)
                if inspect.isawaitable(result):
                    await result
        finally:
            if not self._finished:
                self._do(ev.ListenerReturned())

    def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        return self

    async def __anext__(self) -> ConsumerRecord:
        """The next record, however long it takes. The one before counts as processed."""
        while self._row >= len(self._rows):
            self._rows, self._row = [], 0
            delivered = await self._poll(ev.Take(self.options.max_poll_records), 3600.0)
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

    async def position(self, partition: TopicPartition, timeout: float | None = None) -> int:
        """The offset of the next record to be returned; waits until it is known."""
        self._give_back()
        deadline = asyncio.get_running_loop().time() + self._milliseconds(timeout) / 1000
        while True:
            self._changed.clear()
            state = self._engine.partitions.get(partition)
            if state is None:
                raise IllegalState(f"{partition} is not assigned to this consumer")
            if state.error is not None:
                raise state.error
            if state.known:
                return state.position
            if not await self._wait(deadline):
                raise RequestTimedOut("position", self._milliseconds(timeout), str(partition))

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Goes on at `offset`; see `Consumer.seek`."""
        self._give_back()
        self._do(ev.Seek(partition, offset))

    def seek_to(self, where: str | int, partitions: TopicPartition | Iterable[TopicPartition] = ()) -> None:
        """Goes on at "earliest", "latest", "committed" or a time in ms; see `Consumer.seek_to`."""
        if where != "committed":
            timestamp_of(where)
        self._give_back()
        self._do(ev.SeekTo(many(partitions), where))

    def pause(self, partitions: TopicPartition | Iterable[TopicPartition]) -> None:
        """Returns nothing of these until `resume`; see `Consumer.pause`."""
        self._do(ev.Pause(many(partitions)))

    def resume(self, partitions: TopicPartition | Iterable[TopicPartition]) -> None:
        self._do(ev.Resume(many(partitions)))

    # ---- commits

    async def commit(
        self, offsets: Mapping[TopicPartition, Offset] | None = None, timeout: float | None = None
    ) -> None:
        """Commits these offsets, or what was returned so far; see `Consumer.commit`."""
        await self.commit_async(offsets, timeout)

    def commit_async(
        self, offsets: Mapping[TopicPartition, Offset] | None = None, timeout: float | None = None
    ) -> asyncio.Future[None]:
        """Like `commit`, without waiting. Commits are sent in the order of the calls."""
        self._give_back()
        future = self._future()
        self._do(ev.Commit(future, self._offsets(offsets), self._milliseconds(timeout)))
        self._tell()
        return future

    async def committed(
        self, partitions: Iterable[TopicPartition] | None = None, timeout: float | None = None
    ) -> dict[TopicPartition, CommittedOffset | None]:
        """What the group committed for these partitions, or for those assigned; None for no commit."""
        if self.options.group_id is None:
            raise IllegalState("this consumer has no group_id")
        wanted = list(self.assignment() if partitions is None else partitions)
        core = self._engine.core
        plan = plans.committed_offsets(core.view, self.options.group_id, wanted, core.clock)
        return await self.run(plan, timeout)

    # ---- the cluster

    async def run(self, plan: Plan[R], timeout: float | None = None) -> R:
        """Runs a plan of `consumer.engine.plans` over this consumer's connections."""
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._do(ev.Run(future, plan, self._milliseconds(timeout)))
        return await future

    async def list_offsets(
        self, wants: Mapping[TopicPartition, str | int], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAt]:
        """Where "earliest", "latest" or a time in ms is, in this consumer's isolation level."""
        core, level = self._engine.core, self.options.isolation_level
        timeout_ms = self._milliseconds(timeout)
        plan = plans.list_offsets(core.view, wants, core.clock, isolation=level, timeout_ms=timeout_ms)
        return await self.run(plan, timeout)

    async def partitions_for(self, topic: str, timeout: float | None = None) -> list[TopicPartition]:
        """The topic's partitions; raises UnknownTopic."""
        core = self._engine.core
        await self.run(plans.know_topics(core.view, [topic], core.clock), timeout)
        return [TopicPartition(topic, index) for index in sorted(core.view.topics[topic].partitions)]

    def rejoin(self, reason: str = "the application asked for it") -> None:
        """Makes the group rebalance."""
        self._do(ev.Rejoin(reason))

    # ---- the end

    async def close(self, leave: bool = True, timeout: float = CLOSE_TIMEOUT) -> None:
        """Runs the revoked callback, commits (if commits are automatic), leaves; see `Consumer.close`."""
        await self._close(leave, timeout, processed=True)

    async def _close(self, leave: bool, timeout: float, *, processed: bool) -> None:
        if self._finished:
            return
        try:
            gave_back = self._give_back(also_last=not processed)
            future = self._future()
            self._do(ev.Close(future, leave, int(timeout * 1000), processed or gave_back))
            await self._serve_until(future, timeout + 1)
        finally:
            self._end()
            self._tell()

    def kill(self) -> None:
        """Drops everything as if the process had died: no commit, no goodbye. For tests and demos."""
        self._end(abort=True)

    def _end(self, *, abort: bool = False) -> None:
        self._finished = True
        self._streams.close(abort=abort)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _future(self) -> asyncio.Future[None]:
        return asyncio.get_running_loop().create_future()

    async def _serve_until(self, future: asyncio.Future[None], timeout: float | None) -> None:
        deadline = asyncio.get_running_loop().time() + self._milliseconds(timeout) / 1000
        failure: Exception | None = None
        while not future.done():
            self._changed.clear()
            for action in self._do(ev.ServeListener()):
                if isinstance(action, ev.CallListener):
                    try:
                        await self._call(action)
                    except Exception as error:
                        failure = failure or error
                    break
            else:
                if not future.done() and not await self._wait(deadline):
                    break
            self._tell()
        if failure is not None:
            raise failure

    async def __aenter__(self) -> AsyncConsumer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes. After an exception, what was being worked on is not committed."""
        await self._close(True, CLOSE_TIMEOUT, processed=kind is None)

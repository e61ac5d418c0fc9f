"""What one can ask of a consumer, written once for threads and for asyncio; `calls.py` says how.

Rules that hold here:

* `close` closes, whatever happens on the way, and then raises what went wrong: a commit, a callback.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, cast

from kproto.errors import ConfigError, IllegalState, KprotoError, RequestTimedOut
from kproto.group.subscription import TopicPartition

from ..calls import call, look, serves, waits
from ..clock import now
from ..context_managers import tell_also
from ..engine import admin
from ..engine import events as ev
from ..engine.admin import OffsetAt, Plan
from ..engine.requests import CommittedOffset, Offset, triples
from ..errors import again
from ..listener import RebalanceListener
from ..logs import log
from ..options import ConsumerConfig
from ..records import ColumnBatch, ConsumerRecord, EventCallback, GroupMetadata
from .polls import Polling

R = TypeVar("R")

# How long close waits for callbacks, the last commit and LeaveGroup; Java's default.
CLOSE_TIMEOUT = 30.0


class ConsumerCalls(Polling):
    """The methods of `Consumer` and `AsyncConsumer`."""

    def __init__(self, bootstrap_servers: str | Iterable[str], config: ConsumerConfig) -> None:
        self._closer: object = None
        super().__init__(bootstrap_servers, config)

    def _about(self) -> list[str]:
        group = [] if self.options.group_id is None else [f"group {self.options.group_id!r}"]
        return [*group, f"{len(self._engine.partitions)} partitions"]

    # ---- what is known without asking

    @look
    def assignment(self) -> set[TopicPartition]:
        """The partitions that this consumer has now."""
        return set(self._engine.partitions)

    @look
    def assignment_lost(self) -> bool:
        """Whether the assigned partitions may be another member's by now, and the listener wasn't told yet.

        So it is without an answer of the coordinator for `session_timeout_ms`, or without a poll for
        `max_poll_interval_ms`, also while the process was stopped; the next poll finds out. For whoever works
        on records somewhere else than where they are polled (librdkafka: rd_kafka_assignment_lost).
        """
        return self._engine.in_doubt(now())

    @look
    def subscription(self) -> set[str]:
        """The topics that are subscribed; with a pattern those that match now."""
        return set(self._engine.topics)

    @look
    def paused(self) -> set[TopicPartition]:
        """The partitions that `pause` stopped."""
        return {partition for partition, state in list(self._engine.partitions.items()) if state.paused}

    @look
    def lag(self, partition: TopicPartition) -> int | None:
        """Records between the position and the end, as the last fetch told it; None before the first.

        It stays as it was while no broker answers, which `events` tells ("unreachable", "reachable").
        """
        state = self._engine.partitions.get(partition)
        if state is None or state.lag is None:
            return None
        return state.lag + state.position - self._held().get(partition, state.position)

    @look
    def high_watermark(self, partition: TopicPartition) -> int | None:
        """The offset behind the partition's last record, as the last fetch told it; None before the first."""
        state = self._engine.partitions.get(partition)
        return None if state is None else state.high_watermark

    @look
    def group_metadata(self) -> GroupMetadata:
        """As whom it was last given partitions: where the group has put this member out since, it refuses a
        transaction's offsets. Generation -1 and an empty member id before, and with `assign`.
        """
        member_id, generation = self._engine.standing.reads_as
        return GroupMetadata(self._group_id(), generation, member_id, self.options.group_instance_id)

    @call
    def events(self, callback: EventCallback) -> None:
        """Calls back with a `GroupChange` for everything that happens to this consumer's group membership.

        The callback runs on the caller's thread, inside the next poll, commit, unsubscribe or close;
        `GroupChange.at` says when it happened. What it raises is logged, and stops nothing.
        """
        self._callbacks.append(callback)

    # ---- subscriptions

    @call
    def subscribe(
        self,
        topics: Iterable[str] | str = (),
        listener: RebalanceListener | None = None,
        *,
        pattern: str | None = None,
    ) -> None:
        """Joins the group for these topics, or for all whose whole name matches `pattern`."""
        names = list(topics)
        if pattern is not None and names:
            raise ConfigError("pattern", pattern, "either topics or a pattern, not both")
        if pattern is None and not names:
            raise ConfigError("topics", names, "at least one topic, or a pattern; unsubscribe() to stop")
        self._accept(listener)
        self._do(ev.Subscribe(frozenset(names), pattern))
        self._listener = listener

    def _accept(self, listener: RebalanceListener | None) -> None:
        """Raises ConfigError for a listener that this kind of shell can't call."""

    @call
    def assign(self, partitions: Iterable[TopicPartition] | Mapping[TopicPartition, int | None]) -> None:
        """Takes these partitions without a group's help; a mapping says where to start."""
        wanted: dict[TopicPartition, int | None] = {}
        if isinstance(partitions, Mapping):
            wanted.update(cast("Mapping[TopicPartition, int | None]", partitions))
        else:
            wanted.update(dict.fromkeys(partitions))
        self._give_back()
        self._do(ev.Assign(wanted))

    @serves
    async def unsubscribe(self, timeout: float | None = None) -> None:
        """Gives everything back and leaves the group; revoked callbacks run in here.

        What was processed is committed, if commits are automatic. What the last poll returned isn't, nor the
        last record of an iteration, as nobody said so: `commit` before, if it is.
        """
        limit = self._milliseconds(timeout)
        deadline = now() + limit
        self._usable()
        self._give_back()
        await self._breathe()
        failures: list[Exception] = []
        try:
            await self._called_back(deadline)
        except Exception as error:
            failures.append(error)
        future = self._begin(ev.Unsubscribe)
        failures += await self._serve_until(future, deadline)
        if not future.done():
            failures.insert(0, RequestTimedOut("unsubscribe", limit, "the group was not left yet"))
        _raise_first(failures)

    # ---- records

    @serves
    async def poll(self, timeout: float = 1.0, max_records: int | None = None) -> list[ConsumerRecord]:
        """The next records, at most max_poll_records; an empty list after `timeout` seconds.

        What earlier polls returned counts as processed from now on. Raises what went wrong: BrokerError and
        its kin, RecordError for a broken batch (again and again, until a seek passes it; the records of other
        partitions come in between), and what a rebalance listener raised.
        """
        limit = self.options.max_poll_records if max_records is None else max_records
        delivered = await self._poll(ev.Take(limit), timeout)
        return delivered.rows if delivered is not None else []

    @serves
    async def poll_columns(self, timeout: float = 1.0) -> list[ColumnBatch]:
        """The next records as columns, one batch for each fetched piece; see `kproto.records.columns`."""
        delivered = await self._poll(ev.Take(0, columns=True), timeout)
        return delivered.columns if delivered is not None else []

    # ---- positions

    @waits
    async def position(self, partition: TopicPartition, timeout: float | None = None) -> int:
        """The offset of the next record to be returned; waits until it is known. Raises what a poll would
        raise meanwhile, as the same may be why it isn't."""
        limit = self._milliseconds(timeout)
        deadline = now() + limit
        while True:
            seen = self._changes
            self._usable()
            with self._locked():
                state = self._engine.partitions.get(partition)
                if state is None:
                    raise IllegalState(f"{partition} is not assigned to this consumer")
                if state.error is not None:
                    raise again(state.error)
                if state.known:
                    return self._held().get(partition, state.position)
                if (error := self._engine.core.pop_error()) is not None:
                    raise again(error)
            if not await self._wait(seen, deadline):
                raise RequestTimedOut("position", limit, str(partition))

    @call
    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Goes on at `offset`. The last seek wins, over everything under way. It may come before the
        assignment, which then begins there; once the group has decided, IllegalState for a partition that
        isn't this consumer's."""
        self._give_back()
        self._do(ev.Seek(partition, offset))

    @call
    def seek_to(self, where: str | int, partitions: TopicPartition | Iterable[TopicPartition] = ()) -> None:
        """Goes on at "earliest", "latest", "committed", a time in ms or another place of `list_offsets`; all
        partitions unless some are named. Without a record that is so young: at the end."""
        self._give_back()
        self._do(ev.SeekTo(_set(partitions), where))

    @call
    def pause(self, partitions: TopicPartition | Iterable[TopicPartition]) -> None:
        """Returns nothing of these until `resume`; what is buffered is kept. A partition that is revoked or
        lost is not paused when it comes back: in an eager rebalance, which is that of groups of the default
        assignors, those are all; in a cooperative one the others keep their pause."""
        self._give_back()
        self._do(ev.Pause(_set(partitions)))

    @call
    def resume(self, partitions: TopicPartition | Iterable[TopicPartition]) -> None:
        """Returns records of these again."""
        self._do(ev.Resume(_set(partitions)))

    # ---- commits

    @waits
    async def commit(
        self, offsets: Mapping[TopicPartition, Offset] | None = None, timeout: float | None = None
    ) -> None:
        """Commits these offsets (of the *next* record to read), or what was returned so far.

        Safe at any time: during a rebalance it waits, and fails with CommitFailed only if a partition went
        to somebody else. Raises Fenced, NotAuthorized, RequestTimedOut.
        """
        await self._result(self._commit(offsets, timeout, waits=True))
        self._tell()

    def _commit(
        self, offsets: Mapping[TopicPartition, Offset] | None, timeout: float | None, *, waits: bool = False
    ) -> Any:
        if self._rows and offsets is None and not self._mine():
            raise IllegalState("an iteration is under way in another thread: say which offsets to commit")
        limit, once = self._milliseconds(timeout), self.options.as_java and not waits
        if offsets is None:
            held = self._held()
            return self._begin(lambda future: ev.Commit(future, None, limit, held, once))
        given = triples(offsets)
        return self._begin(lambda future: ev.Commit(future, given, limit, once=once))

    @waits
    async def committed(
        self, partitions: Iterable[TopicPartition] | None = None, timeout: float | None = None
    ) -> dict[TopicPartition, CommittedOffset | None]:
        """What the group committed for these partitions, or for those assigned; None for no commit."""
        wanted = list(self._engine.partitions if partitions is None else partitions)
        core = self._engine.core
        plan = admin.committed_offsets(
            core.view,
            self._group_id(),
            wanted,
            core.clock,
            coordinator=self._engine.coordinator.node,
            found=self._engine.coordinator.learn,
            by_name=self.options.as_java,
        )
        return await self._run(plan, timeout)

    def _group_id(self) -> str:
        if self.options.group_id is None:
            raise IllegalState("this consumer has no group_id")
        return self.options.group_id

    # ---- the cluster

    @waits
    async def run(self, plan: Plan[R], timeout: float | None = None) -> R:
        """Runs a plan of `consumer.engine.admin` over this consumer's connections."""
        return await self._run(plan, timeout)

    async def _run(self, plan: Plan[R], timeout: float | None) -> R:
        limit = self._milliseconds(timeout)
        result: R = await self._ask(lambda future: ev.Run(future, plan, limit))
        return result

    @waits
    async def list_offsets(
        self, wants: Mapping[TopicPartition, str | int], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAt]:
        """Where "earliest", "latest", a time in ms, "max_timestamp", "earliest_local" or "latest_tiered" is,
        in this consumer's isolation level; the offset is None where there is no such place."""
        core, level = self._engine.core, self.options.isolation_level
        timeout_ms = self._milliseconds(timeout)
        plan = admin.list_offsets(core.view, wants, core.clock, isolation=level, timeout_ms=timeout_ms)
        return await self._run(plan, timeout)

    @waits
    async def partitions_for(self, topic: str, timeout: float | None = None) -> list[TopicPartition]:
        """The topic's partitions, read freshly; raises UnknownTopic."""
        core = self._engine.core
        return await self._run(admin.partitions_of(core.view, topic, core.clock), timeout)

    @call
    def rejoin(self, reason: str = "the application asked for it") -> None:
        """Makes the group rebalance."""
        self._do(ev.Rejoin(reason))

    # ---- the end

    @serves
    async def close(self, leave: bool = True, timeout: float = CLOSE_TIMEOUT) -> None:
        """Runs the revoked callback, commits (if commits are automatic), leaves the group; within `timeout`.

        `leave=False` keeps the membership: the group waits for the session timeout before it rebalances.
        Closes in any case; then raises the first thing that went wrong: a commit that failed, a callback.
        A second call waits until the first has done that; RequestTimedOut when its own time is over before.
        From another thread (or task) than the one that polls it may be called, too: that poll then raises
        IllegalState, and what it returned last is not committed.
        """
        await self._close(leave, timeout, processed=self._mine())

    async def _close(self, leave: bool, timeout: float, *, processed: bool) -> None:
        limit = int(timeout * 1000)
        deadline = now() + limit
        mine = False  # and not somebody else's, who is at it
        failures: list[Exception] = []
        try:
            while not mine:
                seen = self._changes
                if self._finished or self._forked:  # a child takes no lock of its parent's
                    return
                with self._locked():
                    if self._closer is None:
                        mine, self._closer = True, self._me()
                        continue
                if self._closer == self._me():  # which a signal handler interrupted
                    return
                if not await self._wait(seen, deadline):
                    raise RequestTimedOut("close", limit, "another close() is under way, and goes on")
            if self._crash is None:
                await self._breathe()
                gave_back = self._give_back(also_last=not processed)
                future = self._begin(lambda one: ev.Close(one, leave, limit, processed or gave_back))
                failures += await self._serve_until(future, deadline + 100)
                try:
                    await self._called_back(deadline)
                except Exception as error:
                    failures.insert(0, error)
        finally:
            if mine:
                try:
                    self._end(deadline)
                    self._tell()
                finally:  # where Ctrl-C came again, the next one who closes goes on
                    self._closer = None
                    self._change()
        _raise_first(failures)

    @serves
    async def _leave_block(self, error: BaseException | None) -> None:
        """Leaves the `with` block. After an exception, what was being worked on is not committed."""
        try:
            await self._close(True, CLOSE_TIMEOUT, processed=error is None and self._mine())
        except KprotoError as also:
            if error is None:
                raise
            tell_also(self, error, also)
        except Exception:
            if error is None:
                raise
            log.exception("the consumer %r could not be closed well", self._client_id)

    def _milliseconds(self, timeout: float | None) -> int:
        return self.options.default_api_timeout_ms if timeout is None else int(timeout * 1000)

    def _lost(self) -> str:
        if self._finished or self.options.group_id is None or not self._engine.standing.in_group:
            return ""
        return (
            f": what it processed last is not committed, and the group {self.options.group_id!r} waits up to "
            f"{self.options.session_timeout_ms / 1000:g} s for it"
        )


def _set(partitions: TopicPartition | Iterable[TopicPartition]) -> frozenset[TopicPartition]:
    return frozenset(cast("list[TopicPartition]", partitions))  # the door made a list of it


def _raise_first(failures: list[Exception]) -> None:
    for error in failures[1:]:
        if str(error) == str(failures[0]):
            continue
        log.error("and: %s", error, exc_info=error)
    if failures:
        raise failures[0]

"""The operations of a consumer, shared by `Consumer` and `AsyncConsumer`.

Each method first checks its arguments, and whether it may be called now. Methods that wait are coroutines
that await only their runtime. The asyncio runtime suspends them, and the threaded runtime blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar
from uuid import UUID

from kproto.errors import (
    ConfigError,
    DeserializationError,
    IllegalState,
    KprotoError,
    RecordError,
    RequestTimedOut,
)
from kproto.group.subscription import TopicPartition

from .. import validation as check
from ..clock import now
from ..consumer_options import ConsumerConfig
from ..context_managers import log_close_error
from ..engine import events as ev
from ..engine.admin import cluster as cluster_plans
from ..engine.admin import offsets as offset_plans
from ..engine.admin import records as record_plans
from ..engine.admin.plan import Plan
from ..engine.admin.records import OffsetAt
from ..engine.metrics import NS_PER_MS, Metrics
from ..engine.requests import CommittedOffset, Offset, offset_triples
from ..engine.telemetry.application import ApplicationMetric
from ..engine.telemetry.reporter import read_client_instance_id, register_metric, unregister_metric
from ..errors import without_traceback
from ..listener import RebalanceListener
from ..logs import log
from ..records import ConsumerRecord, DeliveryStatus, EventCallback, GroupMetadata
from ..runtime import Driver, Runtime
from .polls import PollOperations, check_group

R = TypeVar("R")

# The errors of a record that cannot be read. The position of the partition stays at the record.
_RECORD_ERRORS = (RecordError, DeserializationError)

# Time (s) for which close waits for callbacks, the last commit and LeaveGroup. This is Java's default.
CLOSE_TIMEOUT = 30.0


class ConsumerOperations(PollOperations):
    """The operations of `Consumer` and `AsyncConsumer`."""

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str],
        config: ConsumerConfig[Any, Any],
        make_runtime: Callable[[Driver], Runtime],
    ) -> None:
        super().__init__(bootstrap_servers, config, make_runtime)
        self.closer: object = None  # The thread or task that runs `close()`; None if none runs it.

    def describe(self, kind: str) -> str:
        """Return the client's repr.

        No lock is taken, because a debugger may call this method at any moment.
        """
        group = [] if self.options.group_id is None else [f"group {self.options.group_id!r}"]
        facts = [
            *group,
            f"{len(self.engine.partitions)} partitions",
            *(["closed"] if self.runtime.closed else []),
        ]
        return f"<{kind} {self.options.client_id!r}: {', '.join(facts)}>"

    # ---- state that is known without a request

    def assignment(self) -> set[TopicPartition]:
        self.runtime.check_process()
        return set(self.engine.partitions)

    def assignment_lost(self) -> bool:
        self.runtime.check_process()
        return self.engine.may_have_lost_partitions(now())

    def subscription(self) -> set[str]:
        self.runtime.check_process()
        return set(self.engine.topics)

    def paused(self) -> set[TopicPartition]:
        self.runtime.check_process()
        return {partition for partition, state in list(self.engine.partitions.items()) if state.paused}

    def lag(self, partition: TopicPartition) -> int | None:
        partition = check.partition("partition", partition)
        self.runtime.check_process()
        state = self.engine.partitions.get(partition)
        if state is None or state.lag is None:
            return None
        # The engine's position is after all records that were taken from the engine. Some of these records
        # may not have been returned yet, for example by an iterator. The lag includes them.
        end_offset = state.lag + state.position
        return end_offset - self.held_offsets().get(partition, state.position)

    def why(self, partition: TopicPartition) -> DeliveryStatus:
        partition = check.partition("partition", partition)
        self.runtime.check_process()
        if self.runtime.failure is not None:
            return DeliveryStatus(partition, "error", f"the consumer failed: {self.runtime.failure!r}")
        if self.runtime.closed:
            return DeliveryStatus(partition, "closed", "the consumer is closed")
        with self.runtime.locked():
            return self.engine.delivery_watch.status(partition, now())

    def metrics(self) -> Metrics:
        self.runtime.check_process()
        with self.runtime.locked():
            return self.engine.metrics(now())

    def register_metric_for_subscription(self, metric: ApplicationMetric) -> None:
        register_metric(self.engine.telemetry, metric)

    def unregister_metric_from_subscription(self, metric: ApplicationMetric) -> None:
        unregister_metric(self.engine.telemetry, metric)

    def high_watermark(self, partition: TopicPartition) -> int | None:
        partition = check.partition("partition", partition)
        self.runtime.check_process()
        state = self.engine.partitions.get(partition)
        return None if state is None else state.high_watermark

    def group_metadata(self) -> GroupMetadata:
        self.runtime.check_process()
        member_id, generation = self.engine.group_status.member_for_transaction()
        return GroupMetadata(check_group(self.options), generation, member_id, self.options.group_instance_id)

    def events(self, callback: EventCallback) -> None:
        callback = check.event_callback("callback", callback)
        with self.runtime.call("events", waits=False):
            self.driver.callbacks.append(callback)

    # ---- subscriptions

    def subscribe(
        self, topics: Iterable[str] | str, listener: RebalanceListener | None, pattern: str | None
    ) -> None:
        names = check.subscribed_topics("topics", topics)
        pattern = check.optional(check.pattern, "pattern", pattern)
        if listener is not None:
            check.listener("listener", listener, coroutines=self.runtime.awaits_callbacks)
        if pattern is not None and names:
            raise ConfigError("pattern", pattern, "either topics or a pattern, not both")
        if pattern is None and not names:
            raise ConfigError(
                "topics", names, "at least one topic, or a pattern; unsubscribe() ends a subscription"
            )
        with self.runtime.call("subscribe", waits=False):
            self.runtime.apply(ev.Subscribe(frozenset(names), pattern))
            self.listener = listener

    def assign(self, partitions: Iterable[TopicPartition] | Mapping[TopicPartition, int | None]) -> None:
        starts = check.assignment("partitions", partitions)
        with self.runtime.call("assign", waits=False):
            self.give_back()
            self.runtime.apply(ev.Assign(starts))

    async def unsubscribe(self, timeout: float | None) -> None:
        limit = self._timeout_ms(timeout)
        runtime = self.runtime
        with runtime.call("unsubscribe", serves=True):
            deadline = now() + limit
            runtime.check_usable()
            self.give_back()
            await runtime.pause()
            failures: list[Exception] = []
            try:
                await runtime.callback_finished(deadline)
            except Exception as error:
                failures.append(error)
            future = runtime.start(ev.Unsubscribe)
            failures += await self.serve_until(future, deadline)
            if not future.done():
                failures.insert(0, RequestTimedOut("unsubscribe", limit, "the group was not left yet"))
            _raise_first(failures)

    # ---- positions

    async def position(self, partition: TopicPartition, timeout: float | None) -> int:
        partition = check.partition("partition", partition)
        limit = self._timeout_ms(timeout)
        runtime = self.runtime
        with runtime.call("position"):
            deadline = now() + limit
            while True:
                last_change = runtime.changes
                runtime.check_usable()
                with runtime.locked():
                    state = self.engine.partitions.get(partition)
                    if state is None:
                        raise IllegalState(f"{partition} is not assigned to this consumer")
                    if state.error is not None and not isinstance(state.error, _RECORD_ERRORS):
                        raise without_traceback(state.error)
                    if state.has_position:
                        return self.held_offsets().get(partition, state.position)
                    if (error := self.engine.core.pop_error()) is not None:
                        raise without_traceback(error)
                if not await runtime.wait(last_change, deadline):
                    raise RequestTimedOut("position", limit, str(partition))

    def seek(self, partition: TopicPartition, offset: int | CommittedOffset) -> None:
        partition = check.partition("partition", partition)
        number, leader_epoch = check.seek_offset("offset", offset)
        with self.runtime.call("seek", waits=False):
            self.give_back()
            self.runtime.apply(ev.Seek(partition, number, leader_epoch))

    def seek_to(self, where: str | int, partitions: TopicPartition | Iterable[TopicPartition]) -> None:
        where = check.seek_place("where", where)
        chosen = check.one_or_more_partitions("partitions", partitions)
        with self.runtime.call("seek_to", waits=False):
            self.give_back()
            self.runtime.apply(ev.SeekTo(frozenset(chosen), where))

    def pause(self, partitions: TopicPartition | Iterable[TopicPartition]) -> None:
        chosen = check.one_or_more_partitions("partitions", partitions)
        with self.runtime.call("pause", waits=False):
            self.give_back()
            self.runtime.apply(ev.Pause(frozenset(chosen)))

    def resume(self, partitions: TopicPartition | Iterable[TopicPartition]) -> None:
        chosen = check.one_or_more_partitions("partitions", partitions)
        with self.runtime.call("resume", waits=False):
            self.runtime.apply(ev.Resume(frozenset(chosen)))

    # ---- commits

    async def commit(self, offsets: Mapping[TopicPartition, Offset] | None, timeout: float | None) -> None:
        checked = check.optional(check.offsets, "offsets", offsets)
        limit = self._timeout_ms(timeout)
        with self.runtime.call("commit"):
            await self.runtime.result(self._start_commit(checked, limit, once=False))
            self.run_event_callbacks()

    def commit_async(self, offsets: Mapping[TopicPartition, Offset] | None, timeout: float | None) -> Any:
        checked = check.optional(check.offsets, "offsets", offsets)
        limit = self._timeout_ms(timeout)
        with self.runtime.call("commit_async", waits=False):
            return self._start_commit(checked, limit, once=self.options.as_java)

    def _start_commit(
        self, offsets: Mapping[TopicPartition, Offset] | None, limit: int, *, once: bool
    ) -> Any:
        """Start a commit, and return its future. With `once`, the commit is not retried (see `ev.Commit`)."""
        if self.iteration.records and offsets is None and not self.runtime.is_callers():
            raise IllegalState("another thread is iterating over the records; pass explicit offsets")
        if offsets is None:
            held = self.held_offsets()
            return self.runtime.start(lambda future: ev.Commit(future, None, limit, held, once))
        chosen = offset_triples(offsets)
        return self.runtime.start(lambda future: ev.Commit(future, chosen, limit, once=once))

    def store_offsets(self, offsets: Mapping[TopicPartition, Offset] | ConsumerRecord[Any, Any]) -> None:
        if isinstance(offsets, ConsumerRecord):
            next_offset = CommittedOffset(offsets.offset + 1, "", offsets.leader_epoch)
            offsets = {offsets.topic_partition: next_offset}
        checked = check.offsets("offsets", offsets)
        with self.runtime.call("store_offsets", waits=False):
            self.runtime.apply(ev.StoreOffsets(offset_triples(checked)))

    async def committed(
        self, partitions: Iterable[TopicPartition] | None, timeout: float | None
    ) -> dict[TopicPartition, CommittedOffset | None]:
        chosen = check.optional(check.partitions, "partitions", partitions)
        limit = self._timeout_ms(timeout)
        with self.runtime.call("committed"):
            core, began_at = self.engine.core, now()
            plan = offset_plans.committed_offsets(
                core.view,
                check_group(self.options),
                list(self.engine.partitions) if chosen is None else chosen,
                core.clock,
                coordinator=self.engine.coordinator.node,
                on_coordinator=self.engine.coordinator.learn,
                by_name=self.options.as_java,
            )
            try:
                return await self._run(plan, limit)
            finally:
                self.engine.calls.committed_time.record((now() - began_at) * NS_PER_MS, now())

    # ---- the cluster

    async def run(self, plan: Plan[R], timeout: float | None) -> R:
        plan = check.plan("plan", plan)
        limit = self._timeout_ms(timeout)
        with self.runtime.call("run"):
            return await self._run(plan, limit)

    async def _run(self, plan: Plan[R], limit: int) -> R:
        result: R = await self.runtime.run(lambda future: ev.Run(future, plan, limit))
        return result

    async def client_instance_id(self, timeout: float | None) -> UUID:
        limit = self._timeout_ms(timeout)
        core = self.engine.core
        with self.runtime.call("client_instance_id"):
            plan = read_client_instance_id(self.engine.telemetry, core.view, core.clock)
            return await self._run(plan, limit)

    async def list_offsets(
        self, wants: Mapping[TopicPartition, str | int], timeout: float | None
    ) -> dict[TopicPartition, OffsetAt]:
        offset_specs = check.places("wants", wants)
        limit = self._timeout_ms(timeout)
        with self.runtime.call("list_offsets"):
            core, level = self.engine.core, self.options.isolation_level
            plan = record_plans.list_offsets(
                core.view, offset_specs, core.clock, isolation=level, timeout_ms=limit
            )
            return await self._run(plan, limit)

    async def partitions_for(self, topic: str, timeout: float | None) -> list[TopicPartition]:
        topic = check.topic("topic", topic)
        limit = self._timeout_ms(timeout)
        with self.runtime.call("partitions_for"):
            core = self.engine.core
            return await self._run(cluster_plans.partitions_of(core.view, topic, core.clock), limit)

    def rejoin(self, reason: str) -> None:
        reason = check.any_text("reason", reason)
        with self.runtime.call("rejoin", waits=False):
            self.runtime.apply(ev.Rejoin(reason))

    # ---- the end

    async def close(self, leave: bool, timeout: float) -> None:
        """Close the consumer, even if a commit or a callback fails.

        When the consumer has been closed, the first error of a commit or a callback is raised.
        """
        leave = check.flag("leave", leave)
        timeout = check.seconds("timeout", timeout)
        with self.runtime.call("close", serves=True):
            await self._close(leave, timeout, processed=self.runtime.is_callers())

    async def leave_block(self, error: BaseException | None) -> None:
        """Close the consumer at the end of a `with` block.

        If the block has raised an error, the offsets of the records returned last are not committed.
        """
        try:
            with self.runtime.call("close", serves=True):
                processed = error is None and self.runtime.is_callers()
                await self._close(True, CLOSE_TIMEOUT, processed=processed)
        except KprotoError as close_error:
            if error is None:
                raise
            log_close_error(self.runtime, error, close_error)
        except Exception:
            if error is None:
                raise
            log.exception("the consumer %r was closed with an error", self.options.client_id)

    async def _close(self, leave: bool, timeout: float, *, processed: bool) -> None:
        """Close the consumer, or wait until an earlier call has closed it.

        `processed` says whether the records that the application received last count as processed.
        """
        runtime = self.runtime
        limit = int(timeout * 1000)
        deadline = now() + limit
        is_closer = False  # Whether this call closes the client; otherwise an earlier call is closing it.
        failures: list[Exception] = []
        try:
            while not is_closer:
                last_change = runtime.changes
                # The child of a fork must not wait for a lock that a thread of the parent held.
                if runtime.closed or runtime.forked:
                    return
                with runtime.locked():
                    if self.closer is None and not runtime.closed:
                        is_closer, self.closer = True, runtime.caller()
                        continue
                # A signal handler called `close()` while this thread was already running `close()`.
                if self.closer == runtime.caller():
                    return
                if not await runtime.wait(last_change, deadline):
                    raise RequestTimedOut(
                        "close",
                        limit,
                        "an earlier close() of this consumer is still in progress",
                    )
            if runtime.failure is None:
                await runtime.pause()
                # If `give_back` returned records to the engine, the event `GiveBack` has already stated which
                # records count as processed.
                gave_back = self.give_back(also_last=not processed)
                future = runtime.start(lambda token: ev.Close(token, leave, limit, processed or gave_back))
                failures += await self.serve_until(future, deadline + 100)
                try:
                    await runtime.callback_finished(deadline)
                except Exception as error:
                    failures.insert(0, error)
        except BaseException as error:
            if is_closer and not isinstance(error, Exception) and (loss := runtime.driver.loss()):
                log.warning("close() of %s was interrupted by %s%s", runtime, type(error).__name__, loss)
            raise
        finally:
            if is_closer:
                try:
                    runtime.end(deadline)
                    self.run_event_callbacks()
                # If Ctrl-C interrupts the end of the runtime, the next `close()` completes the shutdown.
                finally:
                    self.closer = None
                    runtime.notify()
        _raise_first(failures)

    def _timeout_ms(self, timeout: float | None) -> int:
        if timeout is None:
            return self.options.default_api_timeout_ms
        return int(check.seconds("timeout", timeout) * 1000)


def _raise_first(failures: list[Exception]) -> None:
    """Raise the first error of `failures`, if there is one.

    Later errors are logged, except those with the same message as the first.
    """
    for error in failures[1:]:
        if str(error) == str(failures[0]):
            continue
        log.error("and: %s", error, exc_info=error)
    if failures:
        raise failures[0]

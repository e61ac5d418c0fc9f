"""The operations of a producer except `send`, written once for threads and for asyncio.

`send` may be called 100,000 times per second, so each kind of producer has its own fast `send`.

    with Producer("localhost:9092", transactional_id="billing-1") as producer:
        with producer.transaction():
            producer.send("bills", b"...")
            producer.send_offsets(consumer.group_metadata(), {partition: offset})

At its end, the inner `with` block commits the transaction. An exception in the block aborts the
transaction. The state machine of transactions is `engine.producer.transactions`.

If a call stops waiting for a transaction's operation because of a timeout, Ctrl-C or a cancelled task, the
operation continues. A repeated call returns the operation's result.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from itertools import count
from typing import Any, TypeVar, cast
from uuid import UUID

from kproto.errors import ConfigError, IllegalState, KprotoError, RequestTimedOut
from kproto.group.subscription import TopicPartition

from .. import validation as check
from ..clock import now, wall
from ..delivery import PieceDelivery
from ..dialers import check_dialer
from ..engine.metrics import NS_PER_MS, Metrics, Sensor
from ..engine.producer.transaction_states import CALLS, PendingCall, ProducerTransactionState
from ..engine.producer.transactions import TransactionManager
from ..engine.requests import Offset, offset_triples
from ..engine.telemetry.application import ApplicationMetric
from ..engine.telemetry.reporter import CLOSE_MS, instance_id_of, register_metric, unregister_metric
from ..errors import without_traceback
from ..logs import log
from ..producer_runtime import ProducerRuntime, undecided
from ..records import EventCallback, GroupMetadata

T = TypeVar("T")

CLOSED = "this producer is closed; make a new one"
# The name of the line in which tasks wait for free buffer.memory (see `wait_in_line`).
_MEMORY = "memory"
# Time (ms) for which `kill` waits for delivery callbacks.
_KILL_MS = 5_000


class ProducerOperations:
    """The operations of `Producer` and `AsyncProducer`."""

    def __init__(self, runtime: ProducerRuntime) -> None:
        self.runtime = runtime
        self.options = runtime.options
        self._records = runtime.records
        # Numbers the sends in the order in which they begin to wait. The lowest number is woken first.
        self._places = count()
        check_dialer(self.options.dialer, awaits=runtime.awaits_callbacks)

    # ---- records

    async def send_columns(self, topic: str, batch: Any) -> list[PieceDelivery]:
        topic = check.topic("topic", topic)
        self.runtime.check_call(waits=True)
        from ..arrow_batches import check_table, encode_batches

        columns = check_table(batch, wall())
        if self.options.partitioner is not None and not columns.has_partitions:
            raise ConfigError(
                "column partition",
                None,
                "a partition for each row: send_columns does not call the partitioner of this producer",
            )
        records = self._records
        count = await self.retry_until_ready(lambda: records.partition_count(topic))
        deliveries: list[PieceDelivery] = []
        for piece in encode_batches(columns, count, self.options):
            append = partial(
                records.append_batch, topic, piece.partition, piece.batch, cast("Any", piece.timestamps)
            )
            deliveries.append(PieceDelivery(await self.retry_until_ready(append), 0, piece.rows))
            await self.runtime.pause()
        return deliveries

    async def retry_until_ready(self, attempt: Callable[[], T | None], waited_ms: int = 0) -> T:
        """Call `attempt` until its result is not None, for at most max_block_ms. Return the result.

        `attempt` returns None while the accumulator has no memory or no metadata for the call. `waited_ms` is
        the part of max_block_ms for which the same `send` has already waited. When max_block_ms has passed,
        the method raises RequestTimedOut.

        Tasks that wait for memory form a line. The tasks of each stalled partition form a separate line.
        After a response only the first task of each line calls `attempt`, and each success wakes the next two
        tasks of the line. If all tasks called `attempt`, n tasks would make about n * n calls. While tasks
        wait for memory, later sends get no memory. Otherwise tasks that send again after each response would
        take all of the memory.
        """
        runtime, records = self.runtime, self._records
        deadline = now() + max(0, self.options.max_block_ms - waited_ms)
        line: TopicPartition | str | None = None
        place = next(self._places)
        seen_topic_errors = records.topic_error_count
        try:
            while True:
                last_change = runtime.changes
                with runtime.locked():
                    records.has_turn, records.seen_topic_errors = line == _MEMORY, seen_topic_errors
                    try:
                        result = attempt()
                    finally:
                        records.has_turn, records.seen_topic_errors = False, math.inf
                    if records.has_notifications():
                        runtime.wake()
                    for_memory = result is None and records.waits_for_memory
                    next_line = (records.stalled_partition or _MEMORY) if for_memory else None
                if result is not None:
                    return result
                if line != next_line:
                    previous_line, line = line, next_line
                    self._change_line(previous_line, line)
                if line is None:
                    wait = runtime.wait(last_change, deadline)
                else:
                    wait = runtime.wait_in_line(line, last_change, deadline, place=place)
                if not await self._measure_wait(wait, for_memory=for_memory):
                    raise runtime.no_room()
        finally:
            self._change_line(line, None)

    def _change_line(self, previous: TopicPartition | str | None, line: TopicPartition | str | None) -> None:
        """Move a send from the waiting line `previous` to `line`; None stands for no line.

        Update the number of sends that wait for memory.
        """
        runtime = self.runtime
        if runtime.has_lines:
            self._records.sends_in_line += (line == _MEMORY) - (previous == _MEMORY)
        if previous is not None:
            runtime.leave_line(previous)

    async def _measure_wait(self, wait: Awaitable[bool], *, for_memory: bool) -> bool:
        """Return the result of `wait`, and measure how long a send waits for memory or metadata."""
        runtime, sensors = self.runtime, self.runtime.engine.sensors
        # `has_changed` remains True if `wait` raises an error, so that the error is not counted as a timeout.
        began_at, has_changed = now(), True
        with runtime.locked():
            sensors.waiting_threads += for_memory
        try:
            has_changed = await wait
        finally:
            with runtime.locked():
                sensors.waiting_threads -= for_memory
                duration = now() - began_at
                sensors.record_wait(duration, now(), for_memory=for_memory, timed_out=not has_changed)
        return has_changed

    async def flush(self, timeout: float | None) -> None:
        limit_ms = self._timeout_ms(timeout)
        self.runtime.check_call(waits=True)
        began_at = now()
        try:
            await self._flush(limit_ms, began_at + limit_ms)
        finally:
            self._record_duration(self.runtime.engine.sensors.flush_time, began_at)

    def _record_duration(self, sensor: Sensor, began_at: int) -> None:
        """Record the time since `began_at` (ms)."""
        with self.runtime.locked():
            sensor.record((now() - began_at) * NS_PER_MS, now())

    def events(self, callback: EventCallback) -> None:
        callback = check.event_callback("callback", callback)
        self.runtime.check_call(waits=False)
        with self.runtime.locked():
            self.runtime.event_callbacks.append(callback)

    def metrics(self) -> Metrics:
        with self.runtime.locked():
            return self.runtime.engine.metrics(now())

    def register_metric_for_subscription(self, metric: ApplicationMetric) -> None:
        register_metric(self.runtime.engine.telemetry, metric)

    def unregister_metric_from_subscription(self, metric: ApplicationMetric) -> None:
        unregister_metric(self.runtime.engine.telemetry, metric)

    async def _flush(self, limit_ms: int, deadline: int) -> None:
        """Send all buffered records now, and wait until their deliveries have ended.

        Raises RequestTimedOut if `deadline` (ms) passes first. Raises NotDelivered if deliveries have failed
        and the application has not received their errors.
        """
        runtime = self.runtime
        with runtime.locked():
            self._records.end_linger()
            unfinished = list(self._records.open_batches)
            runtime.wake()
        while True:
            last_change = runtime.changes
            with runtime.locked():
                unfinished = undecided(unfinished)
            if not unfinished:
                break
            # Wait for the batch that was created last. Its delivery probably ends last, so this task is woken
            # only a few times.
            if not await runtime.wait_for_batch(unfinished[-1], last_change, deadline):
                raise runtime.not_flushed(limit_ms, unfinished)
        with runtime.locked():
            runtime.raise_not_delivered()

    async def purge(self) -> int:
        """Drop all records that have not been sent yet, and return their number."""
        runtime = self.runtime
        runtime.check_call(waits=True)
        if runtime.engine.transactions is not None:
            raise IllegalState(
                "purge() would leave a transaction with only some of its records; call abort()"
            )
        deadline = now() + self.options.max_block_ms
        with runtime.locked():
            if self._records.why_closed:
                raise IllegalState(self._records.why_closed)
            purge = runtime.engine.start_purge()
            runtime.wake()
        while True:
            last_change = runtime.changes
            if purge.done:
                return purge.count
            if not await runtime.wait(last_change, deadline):
                raise RequestTimedOut(
                    "purge", self.options.max_block_ms, "the producer has not dropped its unsent records yet"
                )

    # ---- transactions

    async def transact(self, operation: str, timeout: float | None) -> None:
        """Begin, commit or abort a transaction, and wait until the operation has succeeded or failed."""
        limit_ms = self.options.max_block_ms
        if timeout is not None:
            limit_ms = int(check.seconds("timeout", timeout) * 1000)
        self.runtime.check_call(waits=True)
        await self._transact(operation, limit_ms)

    def send_offsets(self, group: str | GroupMetadata, offsets: Mapping[TopicPartition, Offset]) -> None:
        member = check.group_member("group", group)
        triples = offset_triples(check.offsets("offsets", offsets))
        self.runtime.check_call(waits=False)
        began_at = now()
        with self.runtime.locked():
            self._transaction_manager("send_offsets").send_offsets(member, triples)
            self.runtime.wake()
        self._record_duration(self.runtime.engine.sensors.send_offsets_time, began_at)

    async def begin_block(self) -> None:
        """Begin the transaction of a `with` block."""
        self.runtime.check_call(waits=True)
        await self._transact("begin", self.options.max_block_ms)

    async def end_block(self, error: BaseException | None) -> None:
        """Commit the transaction of a `with` block. Abort it if the block or the commit raised an error."""
        self.runtime.check_call(waits=True)
        if error is not None:
            await self._abort_after(error)
            return
        try:
            await self._transact("commit", self.options.max_block_ms)
        except BaseException as failure:
            await self._abort_after(failure)
            raise

    async def _abort_after(self, error: BaseException) -> None:
        """Abort the transaction after `error`.

        If the transaction failed because of `error`, and its abort shows that the producer has failed
        permanently, the abort's error is raised instead of `error`.
        """
        transactions = self._transaction_manager("abort")
        is_cause = error is transactions.error
        if "abort" not in CALLS[transactions.state]:
            # There is nothing to abort: no transaction is open, a commit is in progress, or the producer has
            # failed.
            return
        try:
            await self._transact("abort", self.options.max_block_ms)
        except KprotoError as abort_error:
            if is_cause and transactions.state is ProducerTransactionState.FATAL_ERROR:
                raise abort_error from error
            log.error(
                "the transaction of %r was not aborted after %r: %s", transactions.id, error, abort_error
            )

    def _transaction_manager(self, method: str) -> TransactionManager:
        """Return the transaction manager. Raises IllegalState for a producer without transactional_id."""
        transactions = self.runtime.engine.transactions
        if transactions is None:
            raise IllegalState(f"{method}() needs a producer with the option transactional_id")
        return transactions

    async def _transact(self, operation: str, limit_ms: int) -> None:
        """Begin, commit or abort a transaction, as `transact` does, and measure its duration."""
        transactions = self._transaction_manager(operation)
        began_at = now()
        with self.runtime.locked():
            initializes = transactions.state in (
                ProducerTransactionState.UNINITIALIZED,
                ProducerTransactionState.INITIALIZING,
            )
            pending_call = transactions.call(operation, self.runtime.caller())
            self.runtime.wake()
        try:
            await self._wait_for_end(pending_call, limit_ms, began_at + limit_ms)
        finally:
            sensors = self.runtime.engine.sensors.transaction_times
            self._record_duration(sensors["init" if initializes else operation], began_at)

    async def _wait_for_end(self, pending_call: PendingCall, limit_ms: int, deadline: int) -> None:
        """Wait until the operation on the transaction has ended. Raise its error."""
        runtime = self.runtime
        try:
            pending_call.waiting.add(runtime.caller())
            while True:
                last_change = runtime.changes
                if pending_call.done:
                    break
                if not await runtime.wait(last_change, deadline):
                    raise RequestTimedOut(
                        f"{pending_call.name}()",
                        limit_ms,
                        self._transaction_manager(pending_call.name).open_reason(),
                    )
        finally:
            pending_call.waiting.discard(runtime.caller())
        pending_call.reported = True
        if pending_call.error is not None:
            raise without_traceback(pending_call.error)

    # ---- the end

    async def close(self, timeout: float | None) -> None:
        """Abort an open transaction or await its commit, deliver all records, and shut down.

        Of several concurrent calls, one shuts the producer down. The others wait until that call ends.
        """
        limit_ms = self._timeout_ms(timeout)
        runtime = self.runtime
        runtime.check_call(waits=True)
        deadline = now() + limit_ms
        # Whether this call closes the producer; otherwise an earlier call is closing or has closed it.
        is_closer = False
        commit_error: KprotoError | None = None
        try:
            while not is_closer:
                last_change = runtime.changes
                with runtime.locked():
                    runtime.closing = True
                    if runtime.closer is None and not runtime.ended:
                        is_closer = True
                        runtime.closer = runtime.caller()
                        continue
                # A signal handler called `close()` while this thread was already running `close()`.
                if runtime.closer == runtime.caller():
                    return
                if runtime.ended:
                    runtime.wait_for_callbacks(deadline)
                    return
                if not await runtime.wait(last_change, deadline):
                    raise RequestTimedOut(
                        "close",
                        limit_ms,
                        "an earlier close() of this producer is still in progress",
                    )
            commit_error = await self._end_transaction(limit_ms, deadline)
            self._records.close(CLOSED)
            try:
                await self._flush(limit_ms, deadline)
            except KprotoError:
                await self._push_last_metrics(deadline)
                raise
            await self._push_last_metrics(deadline)
        except KprotoError as flush_error:
            # If the commit and the flush have both failed, close() raises only the commit's error.
            if commit_error is None:
                raise
            log.error("and: %s", flush_error)
        except BaseException as error:
            if is_closer and not isinstance(error, Exception) and (loss := runtime.loss()):
                name, kind = self.options.client_id, type(error).__name__
                log.warning("close() of the producer %r was interrupted by %s, and %s", name, kind, loss)
            raise
        finally:
            if is_closer:
                try:
                    runtime.shut_down(deadline)
                # If Ctrl-C interrupts `shut_down`, the next call of close completes the shutdown.
                finally:
                    runtime.closer = None
                    runtime.notify()
        if commit_error is not None:
            raise commit_error

    async def _end_transaction(self, limit_ms: int, deadline: int) -> KprotoError | None:
        """Abort the open transaction, or wait for the commit or abort in progress.

        Return the error of a failed commit for which no call waits, for example because commit() has timed
        out. Otherwise return None.

        If the abort fails, the transaction stays open until the broker aborts it after
        transaction_timeout_ms. Until then, read_committed consumers receive neither the transaction's
        records nor any later records of the same partitions.
        """
        transactions = self.runtime.engine.transactions
        if transactions is None:
            return None
        with self.runtime.locked():
            last_call = transactions.current_call
            unreported_error = None
            if last_call is not None and not last_call.waiting:
                unreported_error = last_call.unreported_error
            pending_call = transactions.close()
            self.runtime.wake()
        if pending_call is None:
            return unreported_error
        has_caller = bool(pending_call.waiting)
        if pending_call.name == "abort" and not has_caller:
            log.warning("the producer is closed, and aborts the transaction of %r", transactions.id)
        try:
            await self._wait_for_end(pending_call, limit_ms, deadline)
        except KprotoError as error:
            if pending_call.name == "commit" and not has_caller:
                return error
            log.error(
                "the %s of the transaction of %r did not end: %s", pending_call.name, transactions.id, error
            )
        return unreported_error

    async def _push_last_metrics(self, deadline: int) -> None:
        """Push the metrics one last time if a broker has requested them. Wait at most `CLOSE_MS`."""
        runtime, engine = self.runtime, self.runtime.engine
        if engine.telemetry is None or not engine.telemetry.has_subscription:
            return
        with runtime.locked():
            engine.begins_close = True
            runtime.wake()
        deadline = min(deadline, now() + CLOSE_MS)
        while True:
            last_change = runtime.changes
            if engine.has_pushed_last or not await runtime.wait(last_change, deadline):
                return

    async def client_instance_id(self, timeout: float | None) -> UUID:
        limit_ms = self.options.max_block_ms
        if timeout is not None:
            limit_ms = int(check.seconds("timeout", timeout) * 1000)
        runtime, engine = self.runtime, self.runtime.engine
        runtime.check_call(waits=True)
        deadline = now() + limit_ms
        with runtime.locked():
            engine.wants_connection = True
            runtime.wake()
        while True:
            last_change = runtime.changes
            if (instance_id := instance_id_of(engine.telemetry)) is not None:
                return instance_id
            if runtime.closing:
                raise IllegalState("this producer is closed; make a new one")
            if not await runtime.wait(last_change, deadline):
                why = engine.metadata.why_unreachable or "no broker has assigned a client instance id"
                raise RequestTimedOut("GetTelemetrySubscriptions", limit_ms, why)

    def kill(self) -> None:
        self.runtime.closing = True
        self._records.close(CLOSED)
        self.runtime.shut_down(now() + _KILL_MS)

    def _timeout_ms(self, timeout: float | None) -> int:
        if timeout is None:
            return self.options.delivery_timeout_ms + 1000
        return int(check.seconds("timeout", timeout) * 1000)

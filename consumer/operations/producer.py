"""The operations of a producer except `send`, written once for threads and for asyncio.

`send` may be called 100,000 times per second, so each kind of producer has its own fast `send`.

    with Producer("localhost:9092", transactional_id="billing-1") as producer:
        with producer.transaction():
            producer.send("bills", b"...")
            producer.send_offsets(consumer.group_metadata(), {partition: offset})

At its end, the inner `with` block commits the transaction. An exception in the block aborts it. The state
machine of transactions is `engine.producer.transactions`.

If a call stops waiting for a transaction's operation because of a timeout, Ctrl-C or a cancelled task, the
operation continues. A repeated call returns the operation's result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
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
# Time (ms) for which `kill` waits for delivery callbacks.
_KILL_MS = 5_000


class ProducerOperations:
    """The operations of `Producer` and `AsyncProducer`."""

    def __init__(self, runtime: ProducerRuntime) -> None:
        self.runtime = runtime
        self.options = runtime.options
        self._records = runtime.records
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
        count = await self.wait_for_room(lambda: records.partition_count(topic))
        deliveries: list[PieceDelivery] = []
        for piece in encode_batches(columns, count, self.options):
            put = partial(
                records.append_batch, topic, piece.partition, piece.batch, cast("Any", piece.timestamps)
            )
            deliveries.append(PieceDelivery(await self.wait_for_room(put), 0, piece.rows))
            await self.runtime.pause()
        return deliveries

    async def wait_for_room(self, put: Callable[[], T | None], waited_ms: int = 0) -> T:
        """Call `put` until its result is not None, for at most max_block_ms. Return the result.

        `waited_ms` is the part of max_block_ms for which the same `send` has already waited.
        """
        runtime = self.runtime
        deadline = now() + max(0, self.options.max_block_ms - waited_ms)
        while True:
            last_change = runtime.changes
            with runtime.locked():
                result = put()
                runtime.wake()
                for_memory = result is None and self._records.waits_for_memory
            if result is not None:
                return result
            if not await self._wait_for_change(last_change, deadline, for_memory=for_memory):
                raise runtime.no_room()

    async def _wait_for_change(self, last_change: int, deadline: int, *, for_memory: bool) -> bool:
        """Wait as `ProducerRuntime.wait` does, and measure how long a send waits for memory or metadata."""
        runtime, sensors = self.runtime, self.runtime.engine.sensors
        began_at, has_changed = now(), True
        with runtime.locked():
            sensors.waiting_threads += for_memory
        try:
            has_changed = await runtime.wait(last_change, deadline)
        finally:
            with runtime.locked():
                sensors.waiting_threads -= for_memory
                duration = now() - began_at
                sensors.record_wait(duration, now(), for_memory=for_memory, timed_out=not has_changed)
        return has_changed

    async def flush(self, timeout: float | None) -> None:
        limit = self._timeout_ms(timeout)
        self.runtime.check_call(waits=True)
        began_at = now()
        try:
            await self._flush(limit, began_at + limit)
        finally:
            self._record_time(self.runtime.engine.sensors.flush_time, began_at)

    def _record_time(self, sensor: Sensor, began_at: int) -> None:
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

    async def _flush(self, limit: int, deadline: int) -> None:
        runtime = self.runtime
        with runtime.locked():
            self._records.seal_all()
            pending = list(self._records.open_batches)
            runtime.wake()
        while True:
            last_change = runtime.changes
            with runtime.locked():
                pending = undecided(pending)
            if not pending:
                break
            if not await runtime.wait(last_change, deadline):
                raise runtime.not_flushed(limit, pending)
        with runtime.locked():
            runtime.raise_not_delivered()

    async def purge(self) -> int:
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

    async def transact(self, call: str, timeout: float | None) -> None:
        """Begin, commit or abort a transaction, and wait until the operation has succeeded or failed."""
        limit = self.options.max_block_ms
        if timeout is not None:
            limit = int(check.seconds("timeout", timeout) * 1000)
        self.runtime.check_call(waits=True)
        await self._transact(call, limit)

    def send_offsets(self, group: str | GroupMetadata, offsets: Mapping[TopicPartition, Offset]) -> None:
        member = check.group_member("group", group)
        chosen = offset_triples(check.offsets("offsets", offsets))
        self.runtime.check_call(waits=False)
        began_at = now()
        with self.runtime.locked():
            self._transactions("send_offsets").send_offsets(member, chosen)
            self.runtime.wake()
        self._record_time(self.runtime.engine.sensors.send_offsets_time, began_at)

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
        transactions = self._transactions("abort")
        is_cause = error is transactions.error
        if "abort" not in CALLS[transactions.state]:
            # No transaction is open: none has begun, the last one is committed, or the producer has failed.
            return
        try:
            await self._transact("abort", self.options.max_block_ms)
        except KprotoError as abort_error:
            if is_cause and transactions.state is ProducerTransactionState.FATAL_ERROR:
                raise abort_error from error
            log.error(
                "the transaction of %r was not aborted after %r: %s", transactions.id, error, abort_error
            )

    def _transactions(self, method: str) -> TransactionManager:
        transactions = self.runtime.engine.transactions
        if transactions is None:
            raise IllegalState(f"{method}() needs a producer with the option transactional_id")
        return transactions

    async def _transact(self, call: str, limit: int) -> None:
        transactions = self._transactions(call)
        began_at = now()
        with self.runtime.locked():
            is_first = transactions.state in (
                ProducerTransactionState.UNINITIALIZED,
                ProducerTransactionState.INITIALIZING,
            )
            wish = transactions.call(call, self.runtime.caller())
            self.runtime.wake()
        try:
            await self._wait_for(wish, limit, began_at + limit)
        finally:
            times = self.runtime.engine.sensors.transaction_times
            self._record_time(times["init" if is_first else call], began_at)

    async def _wait_for(self, wish: PendingCall, limit: int, deadline: int) -> None:
        """Wait until the operation on the transaction has ended. Raise its error."""
        runtime = self.runtime
        try:
            wish.waiting.add(runtime.caller())
            while True:
                last_change = runtime.changes
                if wish.done:
                    break
                if not await runtime.wait(last_change, deadline):
                    raise RequestTimedOut(
                        f"{wish.name}()", limit, self._transactions(wish.name).open_reason()
                    )
        finally:
            wish.waiting.discard(runtime.caller())
        wish.reported = True
        if wish.error is not None:
            raise without_traceback(wish.error)

    # ---- the end

    async def close(self, timeout: float | None) -> None:
        limit = self._timeout_ms(timeout)
        runtime = self.runtime
        runtime.check_call(waits=True)
        deadline = now() + limit
        closing = False  # Whether this call closes the client; otherwise an earlier call is closing it.
        failure: KprotoError | None = None
        try:
            while not closing:
                last_change = runtime.changes
                with runtime.locked():
                    runtime.closing = True
                    if runtime.closer is None and not runtime.ended:
                        closing = True
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
                        limit,
                        "an earlier close() of this producer is still in progress",
                    )
            failure = await self._leave_transaction(limit, deadline)
            self._records.close(CLOSED)
            try:
                await self._flush(limit, deadline)
            except KprotoError:
                await self._push_last_metrics(deadline)
                raise
            await self._push_last_metrics(deadline)
        except KprotoError as flush_error:
            if failure is None:
                raise
            log.error("and: %s", flush_error)
        except BaseException as error:
            if closing and not isinstance(error, Exception) and (loss := runtime.loss()):
                name, kind = self.options.client_id, type(error).__name__
                log.warning("close() of the producer %r was interrupted by %s, and %s", name, kind, loss)
            raise
        finally:
            if closing:
                try:
                    runtime.shut_down(deadline)
                # If Ctrl-C interrupts this block too, the next call of close completes the shutdown.
                finally:
                    runtime.closer = None
                    runtime.notify()
        if failure is not None:
            raise failure

    async def _leave_transaction(self, limit: int, deadline: int) -> KprotoError | None:
        """Wait for a commit or abort in progress, or abort the open transaction.

        Return the error of a failed commit for which no call waits, for example because commit() has timed
        out. Otherwise return None.

        If the abort fails, the transaction stays open until the broker aborts it after
        transaction_timeout_ms. Until then, read_committed consumers receive neither its records nor later
        records of its partitions.
        """
        transactions = self.runtime.engine.transactions
        if transactions is None:
            return None
        with self.runtime.locked():
            last = transactions.current_call
            failure = None if last is None or last.waiting else last.unreported_error
            wish = transactions.close()
            self.runtime.wake()
        if wish is None:
            return failure
        has_caller = bool(wish.waiting)
        if wish.name == "abort" and not has_caller:
            log.warning("the producer is closed, and aborts the transaction of %r", transactions.id)
        try:
            await self._wait_for(wish, limit, deadline)
        except KprotoError as error:
            if wish.name == "commit" and not has_caller:
                return error
            log.error("the %s of the transaction of %r did not end: %s", wish.name, transactions.id, error)
        return failure

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
        limit = self.options.max_block_ms
        if timeout is not None:
            limit = int(check.seconds("timeout", timeout) * 1000)
        runtime, engine = self.runtime, self.runtime.engine
        runtime.check_call(waits=True)
        deadline = now() + limit
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
                raise RequestTimedOut("GetTelemetrySubscriptions", limit, why)

    def kill(self) -> None:
        self.runtime.closing = True
        self._records.close(CLOSED)
        self.runtime.shut_down(now() + _KILL_MS)

    def _timeout_ms(self, timeout: float | None) -> int:
        if timeout is None:
            return self.options.delivery_timeout_ms + 1000
        return int(check.seconds("timeout", timeout) * 1000)

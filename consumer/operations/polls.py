"""The polls and iterations of consumers: they return the engine's records, and call the callbacks.

Rules:

* A poll that is interrupted or cancelled returns its records to the engine, and the next poll returns them to
  the application.

* An iteration returns the records of a poll only while their partitions certainly belong to this consumer
  (see `Iteration`).

* Listeners run between two steps of the engine. An exception of a listener does not change the assignment.
  The engine is notified that the listener has returned, and then the call that ran the listener raises the
  exception.

* An exception raised by an `events` callback is only logged.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from operator import itemgetter, length_hint
from time import time
from typing import Any

import msgspec

from kproto.errors import DeserializationError, IllegalState, WokenUp, brief, brief_list
from kproto.group.protocol import POLL_TIMEOUT
from kproto.group.subscription import TopicPartition

from .. import validation as check
from ..addresses import addresses
from ..clock import now, wall
from ..consumer_options import ConsumerConfig, ConsumerOptions
from ..dialers import check_dialer
from ..engine import events as ev
from ..engine.consumer import ConsumerEngine, next_deadline, step
from ..engine.requests import CommittedOffset
from ..errors import without_traceback
from ..interceptors import call_interceptor, nothing
from ..listener import RebalanceListener
from ..logs import log
from ..options import consumer_options
from ..records import ColumnBatch, ConsumerRecord, EventCallback, GroupChange
from ..runtime import Driver, Runtime
from .deserialization import record_deserializer

# Timeout (s) of each poll of an iteration. If there are no records, the iteration polls again.
_ITERATION_S = 3600.0

# The kinds of `GroupChange` that are logged as warnings: records may be lost, or an operator may have to act.
WARNED = frozenset(
    {
        "lost",
        "missing",
        "refused",
        "stalled",
        "throttled",
        "truncated",
        "uncommitted",
        "unreachable",
        "unsought",
    }
)

# Longest interval (s) between two checks of an iteration. A check reports the iteration's progress, and asks
# the engine whether the consumer still owns the held records. Between two checks, a jump of the wall clock
# shows that the process was suspended. If the clock was also set back, only the next check notices this.
_MAX_CHECK_INTERVAL_S = 1.0

# Pairs (row, partition): each row at which the partition changes, and the partition that begins there.
PartitionStarts = list[tuple[int, TopicPartition]]

_TAKE_BACK = (ev.TakeBack(),)
_LISTENER_RETURNED = (ev.ListenerReturned(),)


# The maximum number of changed positions that a log line about several partitions lists.
_LOGGED_MOVES = 3


def _position_texts(change: GroupChange) -> list[str]:
    """Return the positions before and after a change as "from N" and "to N", as far as they are known."""
    return [
        *([f"from {change.before}"] if change.before is not None else []),
        *([f"to {change.offset}"] if change.offset is not None else []),
    ]


def _may_lose_records(change: GroupChange) -> bool:
    """Return whether a change of the group may lose records, so that it is logged as a warning.

    A change whose `before` is set has moved the position without a seek, so the consumer may skip records.
    """
    return change.kind in WARNED or change.before is not None


def _is_logged_with(first: GroupChange, change: GroupChange) -> bool:
    """Return whether a change is logged in the same line as an earlier change of the same step."""
    return (
        change.offset is not None
        and first.offset is not None
        and (first.kind, first.reason, first.generation) == (change.kind, change.reason, change.generation)
    )


class Iteration:
    """The records of one poll, some of which an iteration has returned.

    The iteration returns the remaining records only while their partitions certainly belong to this consumer:
    from `owned_from` to `owned_until`, in seconds of `time.time()`.

    `time.time()` is the fastest clock to read, and continues while the computer sleeps. This clock may be set
    back, so the iteration ends not only after `owned_until`, but also if the time is before `owned_from`.

    If the process was suspended for longer than the consumer's session timeout, the iteration returns none of
    the remaining records.
    """

    __slots__ = (
        "_check_interval_s",
        "_engine",
        "_losses",
        "_polled",
        "_starts",
        "owned_from",
        "owned_until",
        "records",
        "remaining",
    )

    def __init__(self, engine: ConsumerEngine, options: ConsumerOptions) -> None:
        self._engine = engine
        # All records of the poll, and the records that the iteration has not returned yet.
        self.records: list[ConsumerRecord[Any, Any]] = []
        self.remaining: Iterator[ConsumerRecord[Any, Any]] = iter(())
        self.owned_from = self.owned_until = 0.0
        self._starts: PartitionStarts | None = None
        # `ev.Deliver.polled`: None, unless interceptors may have changed the records.
        self._polled: Mapping[TopicPartition, int] | None = None
        # How many partitions the consumer had released when the poll returned the records (`ev.Deliver`).
        self._losses = 0
        # A check restarts max.poll.interval.ms, so there are several checks within this interval.
        self._check_interval_s = min(_MAX_CHECK_INTERVAL_S, options.max_poll_interval_ms / 10_000)
        if options.enable_auto_commit:
            commit_interval_s = max(1, options.auto_commit_interval_ms) / 1000
            self._check_interval_s = min(self._check_interval_s, commit_interval_s)

    def hold(self, delivered: ev.Deliver) -> None:
        """Replace the held records with the records of a new poll."""
        remaining = iter(delivered.rows)
        self.records, self.remaining, self._losses = delivered.rows, remaining, delivered.losses
        self._starts, self._polled = None, delivered.polled

    def drop(self, remaining: Iterator[ConsumerRecord[Any, Any]]) -> None:
        """Release all held records.

        `remaining` must be an empty iterator. The caller creates it, so that this method calls no function:
        Ctrl-C interrupts a method only where it calls a function.
        """
        self.records, self.remaining, self._starts = [], remaining, None

    def check_ownership(self) -> bool:
        """Return whether the consumer still owns the partitions of the held records.

        If it does, set `owned_from` and `owned_until`. The engine must be locked.
        """
        if self._engine.core.partitions.losses != self._losses:
            return False
        deadline = self._engine.assignment_deadline()
        seconds = self._check_interval_s
        if deadline is not None:
            seconds = min(seconds, (deadline - now()) / 1000)
        self.owned_from = time()
        self.owned_until = self.owned_from + seconds
        return True

    def expire_if_lost(self) -> None:
        """Stop the iteration if the consumer has released a partition since the last poll."""
        if self.records and self._engine.core.partitions.losses != self._losses:
            self.owned_until = 0.0

    def returned_count(self) -> int:
        """Return how many of the held records the iteration has returned."""
        return len(self.records) - length_hint(self.remaining)

    def next_offsets(self) -> dict[TopicPartition, int]:
        """Map each partition to the offset of its first record that the iteration has not returned yet."""
        return self.offsets_from(self.returned_count()) if self.records else {}

    def offsets_from(self, row: int) -> dict[TopicPartition, int]:
        """Map each partition to the offset of its first record in row `row` or a later row.

        `_starts` contains each row at which the partition changes. It is computed once for each poll.

        If an interceptor has renamed or reordered records, it is unknown which of the fetched records the
        application has received. Until it has received all of them, the result is then `_polled`.
        """
        if self._starts is None:
            self._starts = partition_starts(self.records)
            if self._polled is not None and _are_in_order(self.records, self._polled):
                self._polled = None
        if self._polled is not None:
            return dict(self._polled) if row < len(self.records) else {}
        return first_offsets(self.records, self._starts, row)


class ConsumerDriver:
    """Connects a consumer's engine to its runtime, and keeps reports until they are logged and delivered.

    The driver does not refer to the runtime, so that an abandoned client is freed immediately.
    """

    kind = "consumer"

    def __init__(self, engine: ConsumerEngine, options: ConsumerOptions) -> None:
        self.engine = engine
        self.options = options
        self.client_id = options.client_id
        self.iteration = Iteration(engine, options)
        self.step = partial(step, engine)
        self.due = partial(next_deadline, engine)
        self.on_applied = self.iteration.expire_if_lost
        # Changes of one step that are logged together, because they differ only in partitions and offsets.
        self._unlogged: list[GroupChange] = []
        self.callbacks: list[EventCallback] = []
        self.pending_callbacks: deque[tuple[EventCallback, GroupChange]] = deque()

    def on_fork(self) -> None:
        self.iteration.owned_until = 0.0

    def on_report(self, change: GroupChange) -> None:
        logged = change
        # The value of max_poll_interval_ms is added to the logged reason, because Java's message lacks it.
        if change.kind == "lost" and change.reason == POLL_TIMEOUT:
            option = f"max_poll_interval_ms={self.options.max_poll_interval_ms}"
            logged = msgspec.structs.replace(change, reason=f"{change.reason} ({option})")
        if self._unlogged and not _is_logged_with(self._unlogged[0], change):
            self._log_changes()
        self._unlogged.append(logged)
        self.pending_callbacks.extend([(callback, change) for callback in self.callbacks])

    def on_reports_end(self) -> None:
        if self._unlogged:
            self._log_changes()

    def _log_changes(self) -> None:
        """Log the changes that have not been logged yet, in a single line.

        The line contains a limited number of partitions, because thousands of partitions may change in one
        step.
        """
        changes, self._unlogged = self._unlogged, []
        if len(changes) == 1:
            self._log_change(changes[0])
            return
        partitions = tuple(partition for change in changes for partition in change.partitions)
        moves = [
            " ".join([str(change.partitions[0]), *_position_texts(change)])
            for change in changes[:_LOGGED_MOVES]
        ]
        reason = f"{', '.join(moves)}{' ...' if len(changes) > _LOGGED_MOVES else ''}: {changes[0].reason}"
        self._log_change(
            msgspec.structs.replace(
                changes[0], partitions=partitions, reason=reason, offset=None, before=None
            ),
            may_lose_records=any(map(_may_lose_records, changes)),
        )

    def _log_change(self, change: GroupChange, *, may_lose_records: bool = False) -> None:
        facts = [*_position_texts(change), change.reason]
        if change.offset is not None:  # Put a colon before the reason, as in "from 5 to 9: the reason".
            facts[-2] += ":"
        member = f"member={change.member_id} " if change.member_id else ""
        group = f"group={self.options.group_id} {member}" if self.options.group_id is not None else ""
        log.log(
            logging.WARNING if may_lose_records or _may_lose_records(change) else logging.INFO,
            "%s %s %sgeneration=%d %s %s",
            self.client_id,
            change.kind,
            group,
            change.generation,
            brief_list([str(partition) for partition in change.partitions], separator=" "),
            " ".join(facts),
        )

    def loss(self) -> str:
        if self.options.group_id is None or not self.engine.group_status.in_group:
            return ""
        return (
            f": what it processed last is not committed, and the group {self.options.group_id!r} waits up to "
            f"{self.options.session_timeout_ms / 1000:g} s for it"
        )


class PollOperations:
    """The polls of a consumer, for the methods `poll` and `next_record`."""

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str],
        config: ConsumerConfig[Any, Any],
        make_runtime: Callable[[Driver], Runtime],
    ) -> None:
        self.options = consumer_options(config)
        self.engine = ConsumerEngine(
            addresses(bootstrap_servers, self.options.security), self.options, wall=wall
        )
        self.driver = ConsumerDriver(self.engine, self.options)
        self.iteration = self.driver.iteration
        self.listener: RebalanceListener | None = None
        self.runtime = make_runtime(self.driver)
        check_dialer(self.options.dialer, awaits=self.runtime.awaits_callbacks)
        self._deserializer = record_deserializer(self.options, awaits=self.runtime.awaits_callbacks)
        self._interceptors = self.options.interceptors
        # The offsets of each successful commit, for `on_commit` of the interceptors.
        self._commits: deque[dict[TopicPartition, CommittedOffset]] = deque()
        if self._interceptors:
            self.engine.committer.reported_commits = self._commits
        # Partition -> the first offset of its records that are being deserialized.
        self._deserializing: dict[TopicPartition, int] = {}

    # ---- polls and iterations

    async def poll(self, timeout: float, max_records: int | None) -> list[ConsumerRecord[Any, Any]]:
        # Most calls pass valid numbers, which need no further check.
        if type(timeout) is not float or not 0 <= timeout <= check.MAX_TIMEOUT_S:
            timeout = check.seconds("timeout", timeout)
        limit = self.options.max_poll_records
        if max_records is not None:
            limit = max_records
            if type(limit) is not int or not 1 <= limit < 2**31:
                limit = check.whole_number("max_records", limit, 1)
        with self.runtime.call("poll", serves=True):
            delivered = await self._poll(ev.Take(limit), timeout)
        return delivered.rows if delivered is not None else []

    async def poll_columns(self, timeout: float) -> list[ColumnBatch]:
        timeout = check.seconds("timeout", timeout)
        with self.runtime.call("poll_columns", serves=True):
            delivered = await self._poll(ev.Take(0, columns=True), timeout)
        return delivered.columns if delivered is not None else []

    async def next_record(self) -> ConsumerRecord[Any, Any]:
        """Return the next record of an iteration.

        An iterator calls this method when no held record remains, or when the partitions of the held records
        may belong to another member.
        """
        runtime, iteration = self.runtime, self.iteration
        with runtime.call("next", serves=True):
            if length_hint(iteration.remaining):
                runtime.apply(ev.Tick(), ev.Processed(iteration.next_offsets()))
                with runtime.locked():
                    owned = iteration.check_ownership()
                if owned:
                    runtime.delivering = runtime.caller(), iteration.remaining
                    for record in iteration.remaining:
                        return record
            while True:
                delivered = await self._poll(ev.Take(self.options.max_poll_records), _ITERATION_S)
                if delivered is not None:
                    iteration.hold(delivered)
                    with runtime.locked():
                        iteration.check_ownership()
                    for record in iteration.remaining:
                        return record

    async def _poll(self, take: ev.Take, timeout: float) -> ev.Deliver | None:
        """Return the records of a poll, or None if there are none within `timeout` seconds.

        Before the first wait, the records that an iteration holds are given back to the engine.
        """
        runtime = self.runtime
        deadline = now() + int(timeout * 1000)
        runtime.check_usable()
        # The engine must have the records before it applies a seek, and other tasks may seek during a wait.
        # So the records are returned to the engine before the first wait.
        if self.iteration.records:
            self.give_back()
        await runtime.pause()
        if not await runtime.callback_finished(deadline):
            return None
        polls_before = self.engine.polls
        try:
            if take.columns or (self._deserializer is None and not self._interceptors):
                delivered = await self._take(take, deadline)
            else:
                delivered = await self._take_converted(take, deadline)
            if delivered is None:
                runtime.apply_if_open(ev.PollEnded())
            runtime.delivering = None if delivered is None else (runtime.caller(), delivered)
            return delivered
        except Exception:
            runtime.apply_if_open(ev.PollEnded())
            raise
        # After an interrupt or a cancellation the engine takes back the records, because the caller does not
        # receive them. If the engine has not begun this poll, its last returned records come from the
        # previous poll. The caller has received these records, so they count as processed.
        except BaseException:
            if self.engine.polls > polls_before:
                runtime.owed += _TAKE_BACK
            runtime.apply_if_open(ev.PollEnded())
            raise

    async def _take(self, take: ev.Take, deadline: int) -> ev.Deliver | None:
        """Return the next records, or None if none arrive by `deadline`. Run the due callbacks while waiting.

        Raises WokenUp after `wakeup`. Also raises the errors of the engine and of the listener.
        """
        runtime = self.runtime
        # `ev.Poll` returns only records that are already buffered.
        if self.engine.collector.ready and not take.columns and not runtime.woken:
            for action in runtime.apply(ev.Poll(take.limit)):
                if isinstance(action, ev.Deliver):
                    if self.driver.pending_callbacks or self._commits:
                        self.run_event_callbacks()
                    return action
        first_events: tuple[ev.Event, ...] = (ev.PollBegan(),)
        while True:
            last_change = runtime.changes
            if runtime.woken:
                runtime.woken = False
                # The records that earlier polls returned count as processed, so that close() commits them.
                runtime.apply(*first_events)
                raise WokenUp
            actions = runtime.apply(*first_events, take, last=ev.PollEnded())
            first_events = ()
            self.run_event_callbacks()
            for action in actions:
                if isinstance(action, ev.Deliver):
                    return action
            if runtime.poll_error is not None:
                error, runtime.poll_error = runtime.poll_error, None
                raise without_traceback(error)
            if runtime.listener_call is not None:
                await self._call_listener(runtime.listener_call)
            elif not await runtime.wait(last_change, deadline):
                self.run_event_callbacks()
                return None

    async def _take_converted(self, take: ev.Take, deadline: int) -> ev.Deliver | None:
        """Return the next records, deserialized and intercepted, or None if none arrive by `deadline`."""
        runtime = self.runtime
        while (delivered := await self._take(take, deadline)) is not None:
            records = delivered.rows
            polled = first_offsets(records, partition_starts(records), 0)
            self._deserializing = polled
            errors: dict[TopicPartition, DeserializationError] = {}
            try:
                if self._deserializer is not None:
                    with self._running_function("a deserializer", calls=False):
                        records, errors = await self._deserializer.convert(records)
                    # An interceptor may rename a record, so that its partition is no longer known.
                    with runtime.locked():
                        records = self._owned_records(records, polled)
                if records and self._interceptors:
                    records = self._intercept_records(records)
            finally:
                self._deserializing = {}
            runtime.check_usable()  # The client may have been closed while the deserializers ran.
            if errors:
                runtime.apply(ev.DeserializationFailed(errors))
            with runtime.locked():
                records = self._owned_records(records, polled)
            if records:
                losses = self.engine.core.partitions.losses
                return ev.Deliver(
                    records, columns=[], losses=losses, polled=polled if self._interceptors else None
                )
        return None

    def _intercept_records(self, records: list[ConsumerRecord[Any, Any]]) -> list[ConsumerRecord[Any, Any]]:
        """Pass the records through the interceptors, and return the result."""
        for interceptor in self._interceptors:
            subject = f"{len(records)} records from {records[0]}" if records else "no records"
            with self._running_function(_method_name(interceptor, "on_consume"), calls=False):
                records = call_interceptor(
                    interceptor, "on_consume", subject, records, list(records), check=_checked_records
                )
        return records

    @contextmanager
    def _running_function(self, name: str, *, calls: bool = True) -> Generator[None, None, None]:
        """Mark the `with` block as running a function of the application: see `Runtime.callback`.

        `Consumer.why` shows its name.
        """
        watch = self.engine.delivery_watch
        outer, watch.running_function = watch.running_function, (name, now())
        try:
            with self.runtime.callback(name, calls=calls):
                yield
        finally:
            watch.running_function = outer

    def _owned_records(
        self, records: list[ConsumerRecord[Any, Any]], polled: Iterable[TopicPartition]
    ) -> list[ConsumerRecord[Any, Any]]:
        """Return the records, except those of partitions released or sought since the records were taken.

        `polled` contains the partitions of the records that were taken. A record of another partition is
        returned, because an interceptor has created or renamed it.

        The engine must be locked. It was not locked while the deserializers ran, so partitions may have been
        released, or `seek` called, in the meantime.
        """
        states = self.engine.partitions
        released = {
            partition
            for partition in polled
            if (state := states.get(partition)) is None or not state.has_returned
        }
        return (
            [record for record in records if record.topic_partition not in released] if released else records
        )

    def give_back(self, *, also_last: bool = False) -> bool:
        """Give the engine back the records that the iteration has not returned to its caller yet.

        With `also_last`, the record that the iteration returned last is given back, too. Earlier records
        count as processed. Returns whether any record was given back. While another thread or task is inside
        a method of the consumer, no record is given back, and nothing changes.
        """
        iteration = self.iteration
        if not iteration.records or not self.runtime.is_callers():
            return False
        count = iteration.returned_count()
        unprocessed = iteration.offsets_from(max(0, count - 1))
        offsets = unprocessed if also_last else iteration.offsets_from(count)
        event, no_records = ev.GiveBack(offsets, held=unprocessed), iter(())
        self.runtime.owed += (event,)
        iteration.drop(no_records)
        self.runtime.apply_if_open()
        return bool(offsets)

    def take_back(self) -> None:
        """Give the engine back the records that an interrupted method was about to return."""
        if self.iteration.records:
            self.give_back(also_last=True)
        else:
            self.runtime.apply_if_open(ev.TakeBack())

    # ---- callbacks

    async def _call_listener(self, action: ev.CallListener, deadline: int | None = None) -> None:
        """Call the listener's method. If it returns an awaitable, wait for it until `deadline`."""
        runtime, listener = self.runtime, self.listener
        if listener is None:
            runtime.listener_call = None
            runtime.owed += _LISTENER_RETURNED
            runtime.apply_if_open()
            return
        method = {"assigned": listener.assigned, "revoked": listener.revoked, "lost": listener.lost}[
            action.kind
        ]
        with runtime.callback(f"the listener's {action.kind}()"):
            has_ended = True  # Stays true if the method raises an exception.
            try:
                runtime.listener_call = None
                result = method(action.partitions)
                if isinstance(result, Awaitable):
                    has_ended = False
                    await runtime.finish_callback(result, self._on_listener_returned, deadline)
            finally:
                if has_ended:
                    runtime.owed += _LISTENER_RETURNED
                    runtime.apply_if_open()

    def _on_listener_returned(self) -> None:
        self.runtime.apply_if_open(*_LISTENER_RETURNED)

    def run_event_callbacks(self) -> None:
        """Call the callbacks of `events` for pending changes, and `on_commit` of interceptors for commits.

        The callbacks run in the calling thread.
        """
        pending = self.driver.pending_callbacks
        while pending:
            # If Ctrl-C ends a callback, it is not called again for this change, but the remaining callbacks
            # are called.
            callback, change = pending.popleft()
            with self._running_function("a callback of events()"):
                try:
                    callback(change)
                except Exception:
                    log.exception("a callback of events() failed on %r", change.kind)
        while self._commits:
            offsets = self._commits.popleft()
            subject = brief_list([f"{partition} at {offset.offset}" for partition, offset in offsets.items()])
            for interceptor in self._interceptors:
                with self._running_function(_method_name(interceptor, "on_commit")):
                    call_interceptor(interceptor, "on_commit", subject, None, dict(offsets), check=nothing)

    async def serve_until(self, future: Any, deadline: int) -> list[Exception]:
        """Run callbacks until `future` completes or `deadline` is reached.

        Returns the exceptions of the callbacks, and the exception of `future` if it failed.
        """
        runtime = self.runtime
        failures: list[Exception] = []
        try:
            while not future.done():
                last_change = runtime.changes
                runtime.apply(ev.ServeListener())
                if runtime.listener_call is not None:
                    try:
                        await self._call_listener(runtime.listener_call, deadline)
                    except Exception as error:
                        failures.append(error)
                elif not future.done() and not await runtime.wait(last_change, deadline):
                    break
                self.run_event_callbacks()
        finally:  # Once this method returns, no call waits for the future.
            runtime.forget(future)
        if future.done() and not future.cancelled() and (failure := future.exception()) is not None:
            failures.append(failure)
        return failures

    def held_offsets(self) -> dict[TopicPartition, int]:
        """Map each partition to the first offset that was taken from the engine and is not yet returned.

        An iteration holds the records from these offsets on, or they are being deserialized or intercepted.
        """
        return self._deserializing or self.iteration.next_offsets()


def _method_name(interceptor: object, method: str) -> str:
    return f"the interceptor {type(interceptor).__qualname__}.{method}()"


def _checked_records(result: Any) -> list[ConsumerRecord[Any, Any]]:
    """Return the result of `on_consume`. Raise TypeError if it is not a list of records."""
    if issubclass(type(result), list) and all(isinstance(record, ConsumerRecord) for record in result):
        records: list[ConsumerRecord[Any, Any]] = result
        return records
    raise TypeError(f"it returned {brief(result)}, which is not a list of ConsumerRecord")


def partition_starts(records: Iterable[ConsumerRecord[Any, Any]]) -> PartitionStarts:
    """Return each row at which the partition changes, and the partition that begins there.

    The result is short, because consecutive records usually belong to the same partition.
    """
    starts: PartitionStarts = []
    previous: tuple[str, int] | None = None
    for row, record in enumerate(records):
        if (key := (record.topic, record.partition)) != previous:
            starts.append((row, TopicPartition(*key)))
            previous = key
    return starts


def _are_in_order(records: list[ConsumerRecord[Any, Any]], polled: Mapping[TopicPartition, int]) -> bool:
    """Return whether records belong to partitions in `polled`, and their offsets never decrease.

    `polled` maps each partition to the smallest allowed offset.
    """
    next_offsets = dict(polled)
    for record in records:
        partition = record.topic_partition
        if record.offset < next_offsets.get(partition, check.MAX_OFFSET + 1):
            return False
        next_offsets[partition] = record.offset
    return True


def first_offsets(
    records: list[ConsumerRecord[Any, Any]], starts: PartitionStarts, row: int
) -> dict[TopicPartition, int]:
    """Map each partition to the offset of its first record in row `row` or a later row."""
    offsets: dict[TopicPartition, int] = {}
    # The last start at or before `row`: `row` belongs to the partition that begins there.
    first_index = max(0, bisect_right(starts, row, key=itemgetter(0)) - 1)
    for index in range(first_index, len(starts)):
        start, partition = starts[index]
        end = starts[index + 1][0] if index + 1 < len(starts) else len(records)
        first_row = max(start, row)
        if first_row < end:
            offsets.setdefault(partition, records[first_row].offset)
    return offsets


def check_group(options: ConsumerOptions) -> str:
    """Return the id of the consumer's group. Raise IllegalState if `group_id` is not set (M133)."""
    if options.group_id is None:
        raise IllegalState("this consumer has no group_id")
    return options.group_id

"""sarama's ConsumerGroup for asyncio: sessions, with a handler that processes one claim for each partition.

    class Print:
        def setup(self, session): ...
        async def consume_claim(self, session, claim):     # runs for all partitions at the same time
            async for record in claim:
                print(record.value)
                session.mark_message(record)
        def cleanup(self, session): ...

    async with AsyncConsumerGroup("localhost:9092", group_id="readers") as group:
        while True:
            await group.consume(["flights"], Print())

A *session* is the period in which handlers process an assignment.

A *claim* stands for one assigned partition in a session. It is an async iterator over the partition's
records. A *mark* is the offset after the last record that the handler has marked as processed.

`group_threads` contains `ConsumerGroup`, the class for threads, which follows the same rules.

Rules, as in sarama's consumer_group.go except where a rule says otherwise:

* `consume` runs one session. The session begins with the assignment. It ends when the member loses all its
  partitions (as in every eager rebalance), when `setup` raises an exception, when `consume_claim` returns or
  raises an exception before the end of its claim, or when `close` is called. Applications call `consume` in a
  loop.

* If "cooperative-sticky" is the only assignor, a session continues through rebalances. Claims of revoked
  partitions end, claims of added partitions begin, and claims of retained partitions are not interrupted.

* A claim that has ended returns no more records, whereas in sarama it still returns buffered records.

* After the end of a claim, the group waits at most `max_poll_interval_ms` for its `consume_claim` to return,
  and then cancels it. Then the marks are committed, and the partition is released. Marks of lost partitions
  are not committed.

* A session ends in this order: `consume_claim` returns for all claims; `cleanup` runs; all marks are
  committed, including the marks that `cleanup` has made; the partitions are released. Heartbeats continue
  meanwhile. (`docs/rules/member.md`: M103, M113)

* Only marked offsets are committed: every auto_commit_interval_ms, at the end of a claim, and by
  `session.commit()`. The next session begins at the mark, and so returns the records after the last marked
  record again.

* With enable_auto_commit=False, only `session.commit()` commits. Marks made after the last `session.commit()`
  are dropped.

* If `consume_claim` raises an exception, `errors()` reports the exception. The session then ends, unless the
  claim ended before the exception was raised.

* If `setup` raises an exception, `consume` raises it. If `cleanup` raises an exception, `errors()` reports
  it. `consume` also raises it, unless it is a `KprotoError`, such as a failed commit after the loss of
  partitions.

* Errors that do not end a session are reported by `errors()`. Errors that prevent the member from joining are
  raised by `consume`. A repeated error is reported at increasing intervals.

* A paused partition stays paused in the next sessions, until it is resumed.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Iterable, Sequence
from typing import Any, Unpack

from kproto.errors import ConfigError, IllegalState, KprotoError, RequestTimedOut
from kproto.group.assignors import is_cooperative, resolve_assignors
from kproto.group.subscription import TopicPartition

from .. import validation as check
from ..aio.consumer import AsyncConsumer
from ..consumer_options import ConsumerConfig
from ..context_managers import AsyncBlock
from ..listener import RebalanceListener
from ..logs import log
from ..other_clients import hide_secrets
from ..records import ConsumerRecord
from .channel import Channel, ErrorThrottle
from .marks import Marks
from .messages import require_bytes
from .session import Claim, Handler, Session, check_handler

POLL_S = 0.1  # Interval (s) at which `consume` checks whether the session has to end.
ERROR_PAUSE_S = 0.3
# `close` reserves up to this many seconds of its timeout for the last commit and LeaveGroup, in case handlers
# do not return. If `close` is cancelled, it ends within this time.
LEAVE_S = 2.0


class AsyncConsumerGroup(AsyncBlock):
    """A member of a group, for asyncio. It commits marked offsets instead of positions.

    Takes the options of `AsyncConsumer`.
    """

    @hide_secrets
    def __init__(self, bootstrap_servers: str | Iterable[str], **config: Unpack[ConsumerConfig]) -> None:
        if config.get("group_id") is None:
            raise ConfigError(
                "group_id", None, "set it to a string, because only a group assigns partitions to handlers"
            )
        require_bytes(config)
        self._auto_commit = config.get("enable_auto_commit", True)
        # The consumer's own auto commit is off: it would commit the offsets of all returned records. This
        # class commits the marked offsets instead.
        config["enable_auto_commit"] = False
        self.consumer = AsyncConsumer(bootstrap_servers, **config)
        options = self.consumer.options
        self._commit_interval_s = options.auto_commit_interval_ms / 1000
        self._handler_timeout_s = options.max_poll_interval_ms / 1000
        self._is_cooperative = is_cooperative(resolve_assignors(options.partition_assignment_strategy))
        self._listener = _Listener(self)
        self._handler: Handler[Session, Claim] | None = None
        self._topics: frozenset[str] = frozenset()
        self._session: Session | None = None
        self._next_session: Session | None = None
        self._marks = Marks()
        self._paused: set[TopicPartition] = set()
        # The assigned partitions, as of the listener's last callback. The consumer's own assignment may
        # differ, because it changes before a callback runs.
        self._assigned: set[TopicPartition] = set()
        self._auto_commit_time = 0.0  # When the last auto commit was due, in the loop's time (s).
        self._auto_commit_task: asyncio.Task[None] | None = None
        self._cleanup_error: Exception | None = None
        # The tasks in which methods of the handler are running.
        self._handler_tasks: set[asyncio.Task[Any] | None] = set()
        self._claim_tasks: set[asyncio.Task[None]] = set()
        self.error_channel: Channel[Exception] = Channel()
        self._throttle = ErrorThrottle()
        # Set when `consume_claim` has returned, or has raised an exception, before the end of its claim.
        self._session_must_end = False
        self._closing = False
        self._closed = False
        self._consume_ended = asyncio.Event()  # Set while `consume` is not running.
        self._consume_ended.set()

    # ---- public methods

    async def consume(self, topics: Iterable[str], handler: Handler[Session, Claim]) -> None:
        """Run one session with these topics, and return when it has ended.

        The docstring of the module `consumer.sarama.group` contains the rules of sessions.

        Raises the exceptions of `setup`, the exceptions of `cleanup` except a KprotoError, and errors that
        prevent this member from joining the group. Raises IllegalState if the group is closed.
        """
        names = frozenset(check.subscribed_topics("topics", topics))
        check_handler(handler)
        if self._closing:
            raise IllegalState("this group was closed; make a new one")
        if not self._consume_ended.is_set():
            raise IllegalState("consume() is already running; wait until it has returned")
        self._consume_ended.clear()
        self._handler, self._session_must_end, self._cleanup_error = handler, False, None
        # Whether the member keeps its partitions. With an eager assignor, a call of `subscribe` revokes them.
        keeps_partitions = True
        try:
            # `subscribe` raises an error if the set of topics is empty.
            if names != self._topics or not names:
                self.consumer.subscribe(names, self._listener)
                keeps_partitions, self._topics = self._is_cooperative, names
            if self._next_session is None and keeps_partitions:
                self._claim_retained_partitions()
            await self._run_session()
        finally:
            self._consume_ended.set()
        if self._cleanup_error is not None:
            raise self._cleanup_error

    def errors(self) -> AsyncIterator[Exception]:
        """Return an iterator over the errors of sessions. It ends when the group is closed.

        The iterator omits the errors of `setup` and of joining the group, because `consume` raises them. The
        group keeps the last 256 unread errors.
        """
        return aiter(self.error_channel)

    def pause(self, partitions: TopicPartition | Iterable[TopicPartition]) -> None:
        """Stop fetching from these partitions until `resume` is called.

        The session continues, and queued records are still returned. As in sarama, partitions that this
        member does not own are ignored.
        """
        self._pause_partitions(
            self._assigned.intersection(check.one_or_more_partitions("partitions", partitions))
        )

    def resume(self, partitions: TopicPartition | Iterable[TopicPartition]) -> None:
        """Fetch from these partitions again."""
        self._resume_partitions(
            self._paused.intersection(check.one_or_more_partitions("partitions", partitions))
        )

    def pause_all(self) -> None:
        """Pause all partitions that this member owns now."""
        self._pause_partitions(set(self._assigned))

    def resume_all(self) -> None:
        """Resume all partitions that were paused."""
        self._resume_partitions(set(self._paused))

    async def close(self, timeout: float = 30.0) -> None:
        """End the session, commit the marks, and leave the group.

        Handlers that do not return within `timeout` seconds are cancelled. If `close` itself is cancelled, it
        cancels all handlers, and leaves the group within 2 s.

        Raises the error of the last commit. Raises IllegalState if a handler calls `close`, because `close`
        waits for the handlers.
        """
        timeout = check.seconds("timeout", timeout)
        if asyncio.current_task() in self._handler_tasks:
            raise close_in_handler()
        if self._closed:
            return
        self._closing = True
        deadline = asyncio.get_running_loop().time() + timeout
        try:
            commit_error = await self._wait_for_session_end(timeout)
        except asyncio.CancelledError:
            deadline = min(deadline, asyncio.get_running_loop().time() + LEAVE_S)
            self._cancel_claim_tasks()
            raise
        finally:
            try:
                await self.consumer.close(timeout=max(0.0, deadline - asyncio.get_running_loop().time()))
            finally:
                self._closed = True
                self.error_channel.close()
                self._cancel_claim_tasks()
        if commit_error is not None:
            raise commit_error

    def _cancel_claim_tasks(self) -> None:
        for task in self._claim_tasks:  # `consume` waits until these tasks have ended.
            task.cancel()

    async def _wait_for_session_end(self, timeout: float) -> KprotoError | None:
        """Wait until `consume` has ended its session.

        The end of `timeout` (s) is reserved for a last commit and LeaveGroup (see `LEAVE_S`). If the session
        has not ended before, the marks are committed, provided that auto commit is on. Return the error of
        this commit; None if it succeeded or was not sent.
        """
        session_timeout = timeout - min(LEAVE_S, timeout / 4)
        try:
            async with asyncio.timeout(session_timeout):
                await self._consume_ended.wait()
        except TimeoutError:
            unfinished = "the handlers" if self._handler_tasks else "the last commit"
            log.error("%s of %s did not end within %g s", unfinished, sorted(self._topics), session_timeout)
            if self._auto_commit:
                try:
                    await self.commit(None, timeout=timeout - session_timeout)
                except KprotoError as error:
                    return error
        return None

    # ---- a session

    def _claim_retained_partitions(self) -> None:
        """Create the next session if this member still owns partitions of its topics."""
        retained = [partition for partition in self._assigned if partition.topic in self._topics]
        if retained:
            self._next_session = Session(self)
            for partition in retained:
                self._next_session.by_partition[partition] = self._new_claim(partition)

    async def _run_session(self) -> None:
        """Begin a session when partitions are assigned, poll records for its claims, and end the session."""
        try:
            while not self._closing and not self._session_must_end:
                if self._session is None and self._next_session is not None:
                    await self._begin_session(self._next_session)
                if self._session is not None and self._session.ended:
                    break
                try:
                    records = await self.consumer.poll(POLL_S)
                except KprotoError as error:
                    if self._session is None:
                        raise
                    if self._throttle.passes(error):
                        self._report_error(error)
                    await asyncio.sleep(ERROR_PAUSE_S)
                else:
                    self._queue_records(records)
                self._auto_commit_if_due()
        finally:
            await _finish_uncancelled(asyncio.ensure_future(self._end_session()))

    async def _begin_session(self, session: Session) -> None:
        """Call `setup`, and start the claims of the partitions that this member still owns."""
        self._session, self._next_session = session, None
        await self._call_handler("setup", session)
        await self._verify_marks()
        # Partitions may have been lost during `setup`. The next poll reports the loss.
        if self.consumer.assignment_lost():
            return
        assignment = self.consumer.assignment()
        for partition, claim in session.by_partition.items():
            if partition not in assignment:
                continue
            marked = self._marks.offset(partition)
            if marked is not None:  # The claim begins at the offset that `setup` has marked.
                claim.discard()
                claim.seek(marked)
            self._start_claim(session, claim)

    def _start_claim(self, session: Session, claim: Claim) -> None:
        claim.task = asyncio.ensure_future(self._run_claim(session, claim))
        self._claim_tasks.add(claim.task)
        claim.task.add_done_callback(self._claim_tasks.discard)

    async def _run_claim(self, session: Session, claim: Claim) -> None:
        """Call `consume_claim`, and report its exception."""
        try:
            if await self._set_start(claim):
                await self._call_handler("consume_claim", session, claim)
        except Exception as error:
            self._report_error(error, f"consume_claim of {claim.topic_partition}")
        finally:
            if not claim.ended:
                # If `consume_claim` returns before its claim has ended, the session ends, as in sarama.
                self._session_must_end = True

    async def _set_start(self, claim: Claim) -> bool:
        """Set the offset at which a claim begins. Return False if the position cannot be determined.

        If records were fetched before the claim started, the claim begins at its first queued record.
        """
        try:
            position = await self.consumer.position(claim.topic_partition)
        except KprotoError as error:
            if not claim.ended and not claim.may_be_lost():
                self._report_error(error)
            return False
        queued_offset = claim.first_offset()
        start = position if queued_offset is None else queued_offset
        claim.start = claim.initial_offset = claim.initial_high_water_mark = start
        return True

    async def _end_session(self) -> None:
        """End the session, while this member still owns the session's partitions.

        The next session reads the unmarked records again, and with enable_auto_commit=False also the marked
        records that were not committed.
        """
        session, self._session = self._session, None
        if session is None or session.ended:
            return
        await self._end_claims(session, list(session.by_partition), ends_session=True, commit=True)
        # An auto commit may still be in progress. The session ends when this commit has ended.
        if self._auto_commit_task is not None:
            await self._auto_commit_task
        if not self._closing:
            self._seek_to_next_offsets(session)
        if not self._auto_commit:
            self._marks.remove(session.by_partition)
        session.ended = True

    def _seek_to_next_offsets(self, session: Session) -> None:
        """Move the position of each claimed partition to the offset at which the next session begins."""
        for partition, claim in session.by_partition.items():
            find_offset = self._marks.offset if self._auto_commit else self._marks.committed_offset
            next_offset = find_offset(partition)
            start = claim.start if next_offset is None else next_offset
            # `start` is None if the claim has not begun and no record was fetched for it.
            if start is not None:
                claim.seek(start)
            claim.release()

    async def _end_claims(
        self, session: Session, partitions: Sequence[TopicPartition], *, ends_session: bool, commit: bool
    ) -> None:
        """End claims and wait for their handlers. If auto commit is enabled, commit their marks.

        With `ends_session`, the session ends first. If `setup` has been called for the session, `cleanup`
        runs after the handlers have returned and before the commit (rule M103).
        """
        claims = [
            session.by_partition[partition] for partition in partitions if partition in session.by_partition
        ]
        if ends_session:
            session.end()
        for claim in claims:
            claim.start = claim.first_offset() if claim.start is None else claim.start
            claim.end()
        await self._wait_for_handlers(claims)
        if ends_session and session is not self._next_session:
            await self._call_cleanup(session)
        if commit and self._auto_commit and not self._closed:
            try:
                await self.commit(set(partitions))
            except KprotoError as error:
                self._report_error(error)

    async def _wait_for_handlers(self, claims: list[Claim]) -> None:
        """Wait until `consume_claim` has returned for these claims. Cancel and report calls that time out."""
        tasks = [claim.task for claim in claims if claim.task is not None]
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=self._handler_timeout_s)
        for task in late:
            task.cancel()
        if late:
            names = ", ".join(str(claim.topic_partition) for claim in claims if claim.task in late)
            limit_ms = int(self._handler_timeout_s * 1000)
            detail = f"{names}: the handler did not return"
            self._report_error(RequestTimedOut("consume_claim", limit_ms, detail))

    async def _call_cleanup(self, session: Session) -> None:
        """Call `cleanup`, and report its error. `consume` raises this error unless it is a KprotoError."""
        try:
            await self._call_handler("cleanup", session)
        except Exception as error:
            # A KprotoError, such as the error of a commit after the loss of partitions, is reported and not
            # raised.
            if not isinstance(error, KprotoError):
                self._cleanup_error = error
            self._report_error(error, "cleanup")

    # ---- rebalances

    async def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """Add claims of these partitions to the current session, or to the next one if none is running."""
        session = self._session
        if session is None or session.ended:
            session = self._next_session = self._next_session or Session(self)
        self._assigned.update(partitions)
        self._marks.remove(partitions)
        for partition in partitions:
            session.by_partition[partition] = claim = self._new_claim(partition)
            if session is self._session:
                self._start_claim(session, claim)

    async def on_removed(self, partitions: Sequence[TopicPartition], *, commit: bool) -> None:
        """End the claims of revoked or lost partitions, and end the session if no claim remains."""
        self._assigned.difference_update(partitions)
        for session in (self._session, self._next_session):
            if session is None or session.ended:
                continue
            ends_session = session.by_partition.keys() <= set(partitions)
            await self._end_claims(session, partitions, ends_session=ends_session, commit=commit)
            for partition in partitions:
                session.by_partition.pop(partition, None)
            if ends_session and session is self._next_session:
                self._next_session = None
            elif ends_session:
                session.ended = True
        self._marks.remove(partitions)

    def _new_claim(self, partition: TopicPartition) -> Claim:
        """Return a claim that has not started. If the application has paused the partition, pause it."""
        claim = Claim(self.consumer, partition)
        if partition in self._paused:
            claim.pause()
        return claim

    def _queue_records(self, records: list[ConsumerRecord]) -> None:
        """Add each record to the queue of its partition's claim. Drop records of unclaimed partitions."""
        by_partition: dict[TopicPartition, list[ConsumerRecord]] = {}
        for record in records:
            by_partition.setdefault(TopicPartition(record.topic, record.partition), []).append(record)
        for partition, queued in by_partition.items():
            for session in (self._session, self._next_session):
                if session is not None and not session.ended and partition in session.by_partition:
                    session.by_partition[partition].put(queued)
                    break

    # ---- marks and commits

    def mark(
        self, session: Session, partition: TopicPartition, offset: int, metadata: str, *, reset: bool
    ) -> None:
        """Mark an offset for the next commit.

        The mark is ignored if the session has ended or does not claim the partition.
        Raises ConfigError for an offset or metadata that cannot be committed, because such a mark would make
        the commit of all marks fail.
        """
        check.offset("offset", offset)
        check.any_text("metadata", metadata)
        claim = session.by_partition.get(partition)
        if claim is None or session.ended:
            check.partition("partition", partition)
            return
        self._marks.mark(partition, claim.start, offset, metadata, reset=reset)

    async def commit(self, partitions: set[TopicPartition] | None, timeout: float | None = None) -> None:
        """Commit the marks of these partitions, or of all partitions if `partitions` is None."""
        await self._verify_marks()
        offsets = self._marks.uncommitted(partitions)
        if offsets:
            await self.consumer.commit(offsets, timeout)
            self._marks.on_committed(offsets)

    async def _verify_marks(self) -> None:
        """Drop the marks from `setup` that are not above their partitions' committed offsets."""
        unverified = self._marks.unverified()
        if unverified:
            self._marks.verify(await self.consumer.committed(unverified))

    def _auto_commit_if_due(self) -> None:
        """Start an auto commit if its interval has passed.

        An auto commit runs in its own task. So a slow or missing coordinator does not delay the claims.
        """
        now = asyncio.get_running_loop().time()
        is_committing = self._auto_commit_task is not None and not self._auto_commit_task.done()
        is_due = now - self._auto_commit_time >= self._commit_interval_s
        if self._auto_commit and is_due and not is_committing:
            self._auto_commit_time = now
            if self._marks.uncommitted(None):
                self._auto_commit_task = asyncio.ensure_future(self._commit_and_report())

    async def _commit_and_report(self) -> None:
        try:
            await self.commit(None)
        except KprotoError as error:
            if self._throttle.passes(error):
                self._report_error(error)

    # ---- inside

    async def _call_handler(self, method: str, *arguments: Any) -> None:
        """Call a method of the handler, and await its result if it is a coroutine function."""
        task = asyncio.current_task()
        self._handler_tasks.add(task)
        try:
            result = getattr(self._handler, method)(*arguments)
            if inspect.isawaitable(result):
                await result
        finally:
            self._handler_tasks.discard(task)

    def _pause_partitions(self, partitions: set[TopicPartition]) -> None:
        self._paused |= partitions
        for claim in self._claims_of(partitions):
            claim.pause()

    def _resume_partitions(self, partitions: set[TopicPartition]) -> None:
        self._paused -= partitions
        for claim in self._claims_of(partitions):
            claim.resume()

    def _claims_of(self, partitions: set[TopicPartition]) -> list[Claim]:
        """Return these partitions' claims in the current session and in one that is about to begin."""
        return [
            session.by_partition[partition]
            for session in (self._session, self._next_session)
            if session is not None and not session.ended
            for partition in partitions & session.by_partition.keys()
        ]

    def _report_error(self, error: Exception, source: str = "") -> None:
        """Report an error to `errors()` and the log, unless it repeats the last unread error of `errors()`.

        `source` names the handler's method that raised the error, or is "" if no such method raised it.
        """
        if source and source not in getattr(error, "__notes__", ()):
            error.add_note(source)
        last_error = self.error_channel.last()
        if last_error is not None and _error_texts(last_error) == _error_texts(error):
            return
        if source:
            log.error("%s: %s: %s", self.consumer.options.client_id, source, error, exc_info=error)
        else:
            log.warning("%s: %s", self.consumer.options.client_id, error)
        self.error_channel.put(error)


def close_in_handler() -> IllegalState:
    """Return the error that `close` raises when a handler calls it."""
    return IllegalState("close() waits for the handlers: call it outside a handler")


async def _finish_uncancelled(task: asyncio.Task[None]) -> None:
    """Wait for a task to end, even if the calling task is cancelled during the wait.

    If the calling task was cancelled, the function raises CancelledError after the end of `task`.
    """
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    task.result()
    if cancelled is not None:
        raise cancelled


def _error_texts(error: Exception) -> tuple[str, ...]:
    """Return the texts by which a repeated error is recognized: its message and its notes."""
    return (str(error), *getattr(error, "__notes__", ()))


class _Listener(RebalanceListener):
    """Passes the rebalances of the consumer to its group. Marks of lost partitions are not committed."""

    def __init__(self, group: AsyncConsumerGroup) -> None:
        self._group = group

    def assigned(self, partitions: Sequence[TopicPartition]) -> Awaitable[None]:
        return self._group.on_assigned(partitions)

    def revoked(self, partitions: Sequence[TopicPartition]) -> Awaitable[None]:
        return self._group.on_removed(partitions, commit=True)

    def lost(self, partitions: Sequence[TopicPartition]) -> Awaitable[None]:
        return self._group.on_removed(partitions, commit=False)

"""sarama's way of programming a group, on our engine: a handler, sessions, and a claim for each partition.

    class Print:
        def setup(self, session): ...
        def consume_claim(self, session, claim):           # one at a time for each partition, all at once
            for record in claim:
                print(record.value)
                session.mark_message(record)
        def cleanup(self, session): ...

    with ConsumerGroup("localhost:9092", group_id="readers") as group:
        while True:
            group.consume(["flights"], Print())

`AsyncConsumerGroup`, here, is the same for asyncio: `await group.consume(...)`, `async for record in claim`;
`ConsumerGroup`, for threads, is in `group_threads`.

Rules that hold here (sarama's consumer_group.go, where nothing else is said):

* `consume` is one session: from the assignment to the rebalance that takes everything (an eager one), the
  return of a claim's handler, an error, or `close`. Call it in a loop: the next call begins the next session.
* With "cooperative-sticky" alone, a session goes on through rebalances: only the claims that are taken away
  end, and new ones begin; what a rebalance leaves alone is not even interrupted.
* A claim that ends hands out nothing more, its handler is waited for (at most `max_poll_interval_ms`), and
  only then what was marked is committed and the partition given back. sarama goes on handing out what it has
  buffered. Partitions that were lost are not committed.
* Marked is what counts: `mark_message` says that everything up to a record is done, and only marks are
  committed, every auto_commit_interval_ms, at the end of a claim, and by `session.commit()`. What was read
  and not marked is read again by the next session. With enable_auto_commit=False only `session.commit()`
  commits, and what was marked behind its last call is read again, too.
* What a handler raises in `consume_claim` is told by `errors()`, also when its claim had ended, and ends the
  session. What `setup` raises is raised by `consume`; what `cleanup` raises is told and raised, but for
  kproto's own errors, as of a commit behind a loss: these are told only.
* Errors that don't end a session are told by `errors()`; those of a group that can't be joined are raised by
  `consume`. What fails again and again in the same way is told again after growing gaps only.
* A partition that is paused stays so, in the next sessions, too, until it is resumed.
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
from ..context_managers import AsyncBlock
from ..listener import RebalanceListener
from ..logs import log
from ..options import ConsumerConfig
from ..other_clients import hide_secrets
from ..records import ConsumerRecord
from .error_queue import News, Outlet
from .marks import Marks
from .session import Claim, Handler, Session, check_handler

POLL_S = 0.1  # how soon a session notices that it shall end
ERROR_PAUSE_S = 0.3
LAST_S = 2.0  # of close's time: for the last commit and for leaving, where handlers don't end by themselves


class AsyncConsumerGroup(AsyncBlock):
    """A member of a group for asyncio. Options are those of `AsyncConsumer`; marks stand for positions."""

    @hide_secrets
    def __init__(self, bootstrap_servers: str | Iterable[str], **config: Unpack[ConsumerConfig]) -> None:
        if config.get("group_id") is None:
            raise ConfigError("group_id", None, "a text: a handler's records are shared out in a group")
        self._auto = config.get("enable_auto_commit", True)
        config["enable_auto_commit"] = False  # not what was handed out, but what was marked
        self.consumer = AsyncConsumer(bootstrap_servers, **config)
        self._interval_s = self.consumer.options.auto_commit_interval_ms / 1000
        self._patience_s = self.consumer.options.max_poll_interval_ms / 1000
        self._cooperative = is_cooperative(
            resolve_assignors(self.consumer.options.partition_assignment_strategy)
        )
        self._listener = _Listener(self)
        self._handler: Handler[Session, Claim] | None = None
        self._topics: frozenset[str] = frozenset()
        self._session: Session | None = None
        self._next: Session | None = None
        self._marks = Marks()
        self._paused: set[TopicPartition] = set()
        # Assigned to us, as far as the callbacks told: the consumer's assignment is ahead of them.
        self._told_of: set[TopicPartition] = set()
        self._committed_at = 0.0
        self._committing: asyncio.Task[None] | None = None  # in time, beside the claims
        self._failure: Exception | None = None  # of a cleanup
        self._inside: set[asyncio.Task[Any] | None] = set()  # tasks in which a handler works now
        self._at_work: set[asyncio.Task[None]] = set()  # those of claims
        self.told: Outlet[Exception] = Outlet()
        self._news = News()
        self._exit = False
        self._closing = False
        self._closed = False
        self._idle = asyncio.Event()
        self._idle.set()

    # ---- what one calls

    async def consume(self, topics: Iterable[str], handler: Handler[Session, Claim]) -> None:
        """One session with these topics: see the rules of this module. Returns when it is over.

        Raises IllegalState when the group was closed, what setup or cleanup raised, and what keeps this
        member out of the group.
        """
        names = frozenset(check.subscribed_topics("topics", topics))
        check_handler(handler)
        if self._closing:
            raise IllegalState("this group was closed; make a new one")
        if not self._idle.is_set():
            raise IllegalState("consume() is running already; one at a time")
        self._idle.clear()
        self._handler, self._exit, self._failure = handler, False, None
        stays = True  # what this member has, over a change of its topics
        try:
            if names != self._topics or not names:  # which subscribe() refuses
                self.consumer.subscribe(names, self._listener)
                stays, self._topics = self._cooperative, names
            if (
                self._next is None
                and stays
                and (kept := [one for one in self._told_of if one.topic in names])
            ):
                self._next = Session(self)
                for place in kept:
                    self._next.by_partition[place] = self._claim(place)
            await self._run()
        finally:
            self._idle.set()
        if self._failure is not None:
            raise self._failure

    def errors(self) -> AsyncIterator[Exception]:
        """What went wrong beside; ends when the group is closed. The last 256 are kept for who comes late."""
        return aiter(self.told)

    def pause(self, partitions: TopicPartition | Iterable[TopicPartition]) -> None:
        """Fetches nothing more of these until `resume`; the session goes on, and what waits already is handed
        out. Those that this member doesn't have are left out, as in sarama.
        """
        self._pause(self._told_of.intersection(check.one_or_more_partitions("partitions", partitions)))

    def resume(self, partitions: TopicPartition | Iterable[TopicPartition]) -> None:
        """Goes on with these."""
        self._resume(self._paused.intersection(check.one_or_more_partitions("partitions", partitions)))

    def pause_all(self) -> None:
        """`pause` for all that this member has now."""
        self._pause(set(self._told_of))

    def resume_all(self) -> None:
        """Goes on with all that were paused."""
        self._resume(set(self._paused))

    async def close(self, timeout: float = 30.0) -> None:
        """Ends the session, commits what is marked, leaves the group. Raises a commit's failure, and
        IllegalState in a handler, which it would wait for. Handlers that don't end in time are cancelled; all
        are where close itself is cancelled, which leaves the group within 2 s then.
        """
        timeout = check.seconds("timeout", timeout)
        if asyncio.current_task() in self._inside:
            raise in_a_handler()
        if self._closed:
            return
        self._closing = True
        end = asyncio.get_running_loop().time() + timeout
        try:
            failure = await self._last_commit(timeout)
        except asyncio.CancelledError:
            end = min(end, asyncio.get_running_loop().time() + LAST_S)
            self._cancel_handlers()
            raise
        finally:
            try:
                await self.consumer.close(timeout=max(0.0, end - asyncio.get_running_loop().time()))
            finally:
                self._closed = True
                self.told.end()
                self._cancel_handlers()
        if failure is not None:
            raise failure

    def _cancel_handlers(self) -> None:
        for task in self._at_work:  # consume waits for these
            task.cancel()

    async def _last_commit(self, timeout: float) -> KprotoError | None:
        """The session's own, or where it doesn't end, and so can't, the one here; returns its failure."""
        patience = timeout - min(LAST_S, timeout / 4)
        try:
            async with asyncio.timeout(patience):
                await self._idle.wait()
        except TimeoutError:
            who = "the handlers" if self._inside else "the last commit"
            log.error("%s of %s did not end within %g s", who, sorted(self._topics), patience)
            if self._auto:
                try:
                    await self.commit(None, timeout - patience)
                except KprotoError as error:
                    return error
        return None

    # ---- a session's life

    async def _run(self) -> None:
        try:
            while not self._closing and not self._exit:
                if self._session is None and self._next is not None:
                    await self._begin(self._next)
                if self._session is not None and self._session.over:
                    break
                try:
                    records = await self.consumer.poll(POLL_S)
                except KprotoError as error:
                    if self._session is None:
                        raise
                    if self._news.told(error):
                        self._tell(error)
                    await asyncio.sleep(ERROR_PAUSE_S)
                else:
                    self._spread(records)
                self._commit_in_time()
        finally:
            await _whole(asyncio.ensure_future(self._end()))

    async def _begin(self, session: Session) -> None:
        self._session, self._next = session, None
        await self._call("setup", session)
        await self._settle()
        has = self.consumer.assignment()
        for place, claim in session.by_partition.items():
            if place not in has:  # lost in setup: the next poll tells
                continue
            marked = self._marks.offset(place)
            if marked is not None:  # by setup: the claim begins there
                claim.forget()
                self.consumer.seek(place, marked)
            self._start(session, claim)

    def _start(self, session: Session, claim: Claim) -> None:
        claim.task = asyncio.ensure_future(self._handle(session, claim))
        self._at_work.add(claim.task)
        claim.task.add_done_callback(self._at_work.discard)

    async def _handle(self, session: Session, claim: Claim) -> None:
        try:
            if await self._placed(claim):
                await self._call("consume_claim", session, claim)
        except Exception as error:
            self._tell(error, f"consume_claim of {claim.place}")
        finally:
            if not claim.ended:
                self._exit = True  # sarama's rule: a handler that returns ends the session

    async def _placed(self, claim: Claim) -> bool:
        """Whether it could be found out where the claim begins."""
        try:
            position = await self.consumer.position(claim.place)
        except KprotoError as error:
            if not claim.ended:
                self._tell(error)
            return False
        first = claim.first()
        claim.start = claim.initial_offset = claim.known_end = position if first is None else first
        return True

    async def _end(self) -> None:
        """The session is over, and this member still has its partitions: what isn't marked is read again."""
        session, self._session = self._session, None
        if session is None or session.over:
            return
        await self._release(session, list(session.by_partition), last=True, commit=True)
        if self._committing is not None:  # asked for before the last one, so it ends with it
            await self._committing
        for place, claim in session.by_partition.items():
            done = self._marks.offset(place) if self._auto else self._marks.kept(place)
            if not self._closing and place in self.consumer.assignment():
                start = claim.start if done is None else done
                if start is not None:  # else nothing was taken of it
                    self.consumer.seek(place, start)
                if place not in self._paused:
                    self.consumer.resume(place)
        if not self._auto:
            self._marks.forget(session.by_partition)
        session.over = True

    async def _release(
        self, session: Session, places: Sequence[TopicPartition], *, last: bool, commit: bool
    ) -> None:
        """Ends claims and waits for their handlers; then commits what they marked, with auto commit."""
        ending = [session.by_partition[place] for place in places if place in session.by_partition]
        if last:
            session.end()
        for claim in ending:
            claim.start = claim.first() if claim.start is None else claim.start
            claim.end()
        tasks = [claim.task for claim in ending if claim.task is not None]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=self._patience_s)
            for task in late:
                task.cancel()
            if late:
                names = ", ".join(str(claim.place) for claim in ending if claim.task in late)
                limit = int(self._patience_s * 1000)
                self._tell(RequestTimedOut("consume_claim", limit, f"{names}: the handler did not return"))
        if last and session is not self._next:
            try:
                await self._call("cleanup", session)
            except Exception as error:
                if not isinstance(error, KprotoError):  # as of a commit behind a loss
                    self._failure = error
                self._tell(error, "cleanup")
        if commit and self._auto and not self._closed:
            try:
                await self.commit(set(places))
            except KprotoError as error:
                self._tell(error)

    # ---- the rebalance's side

    async def assigned(self, places: Sequence[TopicPartition]) -> None:
        """New claims: of the session that goes on, or of the next one."""
        session = self._session
        if session is None or session.over:
            session = self._next = self._next or Session(self)
        self._told_of.update(places)
        self._marks.forget(places)
        for place in places:
            session.by_partition[place] = claim = self._claim(place)
            if session is self._session:
                self._start(session, claim)

    async def gone(self, places: Sequence[TopicPartition], *, commit: bool) -> None:
        """Claims that are taken away; with the last of them the session ends."""
        self._told_of.difference_update(places)
        for session in (self._session, self._next):
            if session is None or session.over:
                continue
            last = session.by_partition.keys() <= set(places)
            await self._release(session, places, last=last, commit=commit)
            for place in places:
                session.by_partition.pop(place, None)
            if last and session is self._next:
                self._next = None
            elif last:
                session.over = True
        self._marks.forget(places)

    def _claim(self, place: TopicPartition) -> Claim:
        claim = Claim(self.consumer, place)
        if place in self._paused:
            claim.hold()
        return claim

    def _spread(self, records: list[ConsumerRecord]) -> None:
        by_place: dict[TopicPartition, list[ConsumerRecord]] = {}
        for record in records:
            by_place.setdefault(TopicPartition(record.topic, record.partition), []).append(record)
        for place, found in by_place.items():
            for session in (self._session, self._next):
                if session is not None and not session.over and place in session.by_partition:
                    session.by_partition[place].put(found)
                    break

    # ---- marks and commits

    def mark(
        self, session: Session, place: TopicPartition, offset: int, metadata: str, *, back: bool
    ) -> None:
        """What a session's mark_offset and reset_offset do. A mark that can't be committed is refused, or
        left out: it would take the others' commits down.
        """
        check.offset("offset", offset)
        check.any_text("metadata", metadata)
        claim = session.by_partition.get(place)
        if claim is None or session.over:
            check.partition("partition", place)
            return
        self._marks.mark(place, claim.start, offset, metadata, back=back)

    async def commit(self, places: set[TopicPartition] | None, timeout: float | None = None) -> None:
        """Commits what is marked of these partitions, or of all."""
        await self._settle()
        dirty = self._marks.dirty(places)
        if dirty:
            await self.consumer.commit(dirty, timeout)
            self._marks.committed(dirty)

    async def _settle(self) -> None:
        """Of marks that setup made only those count that don't go back."""
        in_doubt = self._marks.in_doubt()
        if in_doubt:
            self._marks.settle(await self.consumer.committed(in_doubt))

    def _commit_in_time(self) -> None:
        """Beside the claims, which a coordinator that is slow, or isn't there, doesn't hold up."""
        now = asyncio.get_running_loop().time()
        open_still = self._committing is not None and not self._committing.done()
        if self._auto and not open_still and now - self._committed_at >= self._interval_s:
            self._committed_at = now
            if self._marks.dirty(None):
                self._committing = asyncio.ensure_future(self._commit_and_tell())

    async def _commit_and_tell(self) -> None:
        try:
            await self.commit(None)
        except KprotoError as error:
            if self._news.told(error):
                self._tell(error)

    # ---- inside

    async def _call(self, name: str, *arguments: Any) -> None:
        task = asyncio.current_task()
        self._inside.add(task)
        try:
            answer = getattr(self._handler, name)(*arguments)
            if inspect.isawaitable(answer):
                await answer
        finally:
            self._inside.discard(task)

    def _pause(self, places: set[TopicPartition]) -> None:
        self._paused |= places
        for claim in self._claims_of(places):
            claim.hold()

    def _resume(self, places: set[TopicPartition]) -> None:
        self._paused -= places
        for claim in self._claims_of(places):
            claim.go_on()

    def _claims_of(self, places: set[TopicPartition]) -> list[Claim]:
        sessions = [one for one in (self._session, self._next) if one is not None and not one.over]
        return [one.by_partition[place] for one in sessions for place in places & one.by_partition.keys()]

    def _tell(self, error: Exception, whose: str = "") -> None:
        """An error, and which of the handler's methods raised it, if one did."""
        if whose and whose not in getattr(error, "__notes__", ()):
            error.add_note(whose)
        last = self.told.last()
        if last is not None and _words(last) == _words(error):
            return
        if whose:
            log.error("%s: %s: %s", self.consumer.options.client_id, whose, error, exc_info=error)
        else:
            log.warning("%s: %s", self.consumer.options.client_id, error)
        self.told.put(error)


def in_a_handler() -> IllegalState:
    """What close says to a handler."""
    return IllegalState(
        "close() in a handler would wait for that handler: return from it, and close elsewhere"
    )


async def _whole(task: asyncio.Task[None]) -> None:
    """Waits for it to its end, however often who waits is cancelled meanwhile; he is, behind it."""
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    task.result()
    if cancelled is not None:
        raise cancelled


def _words(error: Exception) -> tuple[str, ...]:
    return (str(error), *getattr(error, "__notes__", ()))


class _Listener(RebalanceListener):
    def __init__(self, group: AsyncConsumerGroup) -> None:
        self._group = group

    def assigned(self, partitions: Sequence[TopicPartition]) -> Awaitable[None]:
        return self._group.assigned(partitions)

    def revoked(self, partitions: Sequence[TopicPartition]) -> Awaitable[None]:
        return self._group.gone(partitions, commit=True)

    def lost(self, partitions: Sequence[TopicPartition]) -> Awaitable[None]:
        return self._group.gone(partitions, commit=False)

"""sarama's ConsumerGroup for threads; the docstring of `group` contains the rules of sessions and claims.

The group runs in an event loop in its own thread, and the handler of each claim runs in a separate thread. So
heartbeats continue while handlers block.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import CancelledError, Future
from typing import Any, Unpack

from kproto.group.subscription import TopicPartition

from ..consumer_options import ConsumerConfig
from ..context_managers import Block
from ..other_clients import hide_secrets
from ..records import ConsumerRecord
from ..validation import seconds
from .group import AsyncConsumerGroup, close_in_handler
from .loop_thread import LoopThread
from .record_queue import RECHECK_S
from .session import Claim, Handler, Session, check_blocking_handler, check_handler


class ThreadClaim:
    """A claim for a handler that runs in a thread: `for record in claim` ends when the claim ends."""

    def __init__(self, claim: Claim, wait: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._claim = claim
        self._wait = wait
        self.topic = claim.topic
        self.partition = claim.partition

    def __repr__(self) -> str:
        return repr(self._claim)

    @property
    def initial_offset(self) -> int:
        """The offset at which the claim began."""
        return self._claim.initial_offset

    @property
    def high_water_mark(self) -> int:
        """The partition's high watermark, as of the last fetch.

        Before the first fetch, `high_water_mark` is `initial_offset`.
        """
        return self._claim.high_water_mark

    @property
    def ended(self) -> bool:
        """Whether the claim has ended."""
        return self._claim.ended

    def messages(self) -> Iterator[ConsumerRecord]:
        """Return an iterator over the claim's records. The method has sarama's name."""
        return iter(self)

    def __iter__(self) -> Iterator[ConsumerRecord]:
        while records := self._wait(self._claim.take_all()):
            for record in records:
                while self._claim.may_be_lost():
                    time.sleep(RECHECK_S)
                if self._claim.ended:
                    return
                yield record


class ThreadSession:
    """A session for handlers that run in threads. It has the methods of `Session`; `commit` blocks.

    `done` is set when the session ends, for handlers that wait for events other than records.
    """

    def __init__(self, session: Session, wait: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._session = session
        self._wait = wait
        self.done = session.thread_done

    @property
    def claims(self) -> dict[str, list[int]]:
        """The partitions that are claimed now: each topic is mapped to its partition numbers, in order."""
        return self._session.claims

    @property
    def member_id(self) -> str:
        """The id of this member; after the session's end, the id that the member had in the session."""
        return self._session.member_id

    @property
    def generation_id(self) -> int:
        """The group's generation. It increases during a session only with the cooperative assignor."""
        return self._session.generation_id

    def mark_message(self, record: ConsumerRecord, metadata: str = "") -> None:
        """Mark all records up to and including this one as processed; see `Session.mark_message`."""
        self._session.mark_message(record, metadata)

    def mark_offset(self, topic: str, partition: int, offset: int, metadata: str = "") -> None:
        """Mark `offset` as the offset of the next record to read; see `Session.mark_offset`."""
        self._session.mark_offset(topic, partition, offset, metadata)

    def reset_offset(self, topic: str, partition: int, offset: int, metadata: str = "") -> None:
        """Mark an offset that may be lower than the last mark; see `Session.reset_offset`."""
        self._session.reset_offset(topic, partition, offset, metadata)

    def commit(self) -> None:
        """Commit the marks made so far. Raises the errors of the commit."""
        self._wait(self._session.commit())


class _ThreadedHandler:
    """Runs the methods of a blocking handler in threads, one thread for each call."""

    def __init__(
        self,
        handler: Handler[ThreadSession, ThreadClaim],
        loop: LoopThread[AsyncConsumerGroup],
        handler_threads: set[int],
    ) -> None:
        self._handler = handler
        self._wait = loop.run
        self._handler_threads = handler_threads
        # The last session received from the group, and the ThreadSession that the handler received for it.
        self._last_sessions: tuple[Session, ThreadSession] | None = None

    async def setup(self, session: Session) -> None:
        await self._run_method("setup", self._thread_session(session))

    async def consume_claim(self, session: Session, claim: Claim) -> None:
        await self._run_method("consume_claim", self._thread_session(session), ThreadClaim(claim, self._wait))

    async def cleanup(self, session: Session) -> None:
        await self._run_method("cleanup", self._thread_session(session))

    def _thread_session(self, session: Session) -> ThreadSession:
        """Return the ThreadSession that the handler receives: the same object in all of its methods."""
        if self._last_sessions is None or self._last_sessions[0] is not session:
            self._last_sessions = session, ThreadSession(session, self._wait)
        return self._last_sessions[1]

    async def _run_method(self, method: str, *arguments: Any) -> None:
        """Call a method in a new thread, wait for its end, and raise the exception that the method raised.

        In a coroutine, some exceptions have another meaning, such as StopIteration and CancelledError. Such
        an exception becomes the cause of a RuntimeError.
        """
        future: Future[BaseException | None] = Future()
        # A running future cannot be cancelled. So the thread can set the future's result even if the waiting
        # task was cancelled.
        future.set_running_or_notify_cancel()

        def call_method() -> None:
            failure: BaseException | None = None
            self._handler_threads.add(threading.get_ident())
            try:
                getattr(self._handler, method)(*arguments)
            except BaseException as error:
                failure = error
            finally:
                self._handler_threads.discard(threading.get_ident())
                future.set_result(failure)

        threading.Thread(target=call_method, name=f"kproto-{method}", daemon=True).start()
        failure = await asyncio.wrap_future(future)
        if failure is None:
            return
        if isinstance(failure, _RESERVED_ERRORS) or not isinstance(failure, Exception):
            raise RuntimeError(f"{method} raised {failure!r}") from failure
        raise failure


# Exceptions that a coroutine must not raise, because an event loop or the interpreter gives them another
# meaning.
_RESERVED_ERRORS = (StopIteration, StopAsyncIteration, CancelledError)


class ConsumerGroup(Block):
    """A member of a group, for threads: handlers may block. Takes the options of `Consumer`."""

    @hide_secrets
    def __init__(self, bootstrap_servers: str | Iterable[str], **config: Unpack[ConsumerConfig]) -> None:
        self._loop = LoopThread("kproto-group", lambda: AsyncConsumerGroup(bootstrap_servers, **config))
        self._group = self._loop.client
        self._handler_threads: set[int] = set()

    def consume(self, topics: Iterable[str], handler: Handler[ThreadSession, ThreadClaim]) -> None:
        """Run one session with these topics, and return at the session's end. Call this method in a loop.

        Raises the exceptions of `setup`, the exceptions of `cleanup` except a KprotoError, and errors that
        prevent this member from joining the group. Raises IllegalState if the group is closed.
        """
        self._loop.check_usable("this group was closed; make a new one")
        check_handler(handler)
        check_blocking_handler(handler)
        threaded = _ThreadedHandler(handler, self._loop, self._handler_threads)
        self._loop.run(self._group.consume(topics, threaded))

    def errors(self) -> Iterator[Exception]:
        """Return an iterator over the errors of sessions. It ends when the group is closed.

        The iterator waits for errors, so use it in a separate thread. It omits the errors of `setup` and of
        joining the group, because `consume` raises them. The group keeps the last 256 unread errors.
        """
        return self._loop.iterate(self._group.error_channel)

    def pause(self, partitions: TopicPartition | Iterable[TopicPartition]) -> None:
        """Stop fetching from these partitions until `resume` is called.

        The session continues, and queued records are still returned. As in sarama, partitions that this
        member does not own are ignored.
        """
        self._loop.call(lambda: self._group.pause(partitions))

    def resume(self, partitions: TopicPartition | Iterable[TopicPartition]) -> None:
        """Fetch from these partitions again."""
        self._loop.call(lambda: self._group.resume(partitions))

    def pause_all(self) -> None:
        """Pause all partitions that this member owns now."""
        self._loop.call(self._group.pause_all)

    def resume_all(self) -> None:
        """Resume all partitions that were paused."""
        self._loop.call(self._group.resume_all)

    def close(self, timeout: float = 30.0) -> None:
        """End the session, commit the marks, and leave the group.

        A handler that does not return within `timeout` seconds continues in its thread.

        Raises the error of the last commit. Raises IllegalState if a handler calls `close`, because `close`
        waits for the handlers.
        """
        timeout = seconds("timeout", timeout)
        if threading.get_ident() in self._handler_threads:
            raise close_in_handler()
        self._loop.close(self._group.close(timeout))

"""A group's handler in threads: `ConsumerGroup`; `group` says how sessions and claims live.

The group lives in an event loop in a thread of its own, so that heartbeats go on whatever the handlers do;
each claim's handler has a thread of its own, too.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import CancelledError, Future
from typing import Any, Unpack

from kproto.group.subscription import TopicPartition

from ..context_managers import Block
from ..options import ConsumerConfig
from ..other_clients import hide_secrets
from ..records import ConsumerRecord
from ..validation import seconds
from .group import AsyncConsumerGroup, in_a_handler
from .loop_thread import LoopThread
from .record_queue import DOUBT_S
from .session import Claim, Handler, Session, check_handler, check_plain


class ThreadClaim:
    """A claim for a handler in a thread: `for record in claim` ends when the claim does."""

    def __init__(self, claim: Claim, wait: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._claim = claim
        self._wait = wait

    def __repr__(self) -> str:
        return repr(self._claim)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._claim, name)

    def messages(self) -> Iterator[ConsumerRecord]:
        """The claim's records, under sarama's name."""
        return iter(self)

    def __iter__(self) -> Iterator[ConsumerRecord]:
        while records := self._wait(self._claim.take()):
            for record in records:
                while self._claim.in_doubt():
                    time.sleep(DOUBT_S)
                if self._claim.ended:
                    return
                yield record


class ThreadSession:
    """A session for handlers in threads: the same calls, which block where they wait."""

    def __init__(self, session: Session, wait: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._session = session
        self._wait = wait
        self.done = session.thread_done
        """Set when the session ends: for handlers that wait for something else than records."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def commit(self) -> None:
        """Commits what is marked now. Raises what the commit raises."""
        self._wait(self._session.commit())


class _Threads:
    """Runs a blocking handler's methods in threads: each claim has one of its own."""

    def __init__(
        self,
        handler: Handler[ThreadSession, ThreadClaim],
        loop: LoopThread[AsyncConsumerGroup],
        inside: set[int],
    ) -> None:
        self._handler = handler
        self._wait = loop.do
        self._inside = inside
        self._shown: tuple[Session, ThreadSession] | None = None

    async def setup(self, session: Session) -> None:
        await self._run("setup", self._show(session))

    async def consume_claim(self, session: Session, claim: Claim) -> None:
        await self._run("consume_claim", self._show(session), ThreadClaim(claim, self._wait))

    async def cleanup(self, session: Session) -> None:
        await self._run("cleanup", self._show(session))

    def _show(self, session: Session) -> ThreadSession:
        """The same one for each method of a session."""
        if self._shown is None or self._shown[0] is not session:
            self._shown = session, ThreadSession(session, self._wait)
        return self._shown[1]

    async def _run(self, name: str, *arguments: Any) -> None:
        future: Future[BaseException | None] = Future()
        future.set_running_or_notify_cancel()  # a thread can't be stopped: it may end when nobody waits

        def work() -> None:
            raised: BaseException | None = None
            self._inside.add(threading.get_ident())
            try:
                getattr(self._handler, name)(*arguments)
            except BaseException as error:
                raised = error
            finally:
                self._inside.discard(threading.get_ident())
                future.set_result(raised)

        threading.Thread(target=work, name=f"kproto-{name}", daemon=True).start()
        raised = await asyncio.wrap_future(future)
        if raised is None:
            return
        if isinstance(raised, _OF_THE_LOOP) or not isinstance(raised, Exception):
            raise RuntimeError(f"{name} raised {raised!r}") from raised
        raise raised


_OF_THE_LOOP = (StopIteration, StopAsyncIteration, CancelledError)
"""These mean something else where an event loop or a coroutine raises them, as SystemExit does."""


class ConsumerGroup(Block):
    """A member of a group for threads: handlers may block. Options are those of `Consumer`."""

    @hide_secrets
    def __init__(self, bootstrap_servers: str | Iterable[str], **config: Unpack[ConsumerConfig]) -> None:
        self._loop = LoopThread("kproto-group", lambda: AsyncConsumerGroup(bootstrap_servers, **config))
        self._group = self._loop.made
        self._inside: set[int] = set()  # threads in which a handler works now

    def consume(self, topics: Iterable[str], handler: Handler[ThreadSession, ThreadClaim]) -> None:
        """One session with these topics, in this thread's time. Call it in a loop.

        Raises IllegalState when the group was closed, what setup or cleanup raised, and what keeps this
        member out of the group.
        """
        self._loop.usable("this group was closed; make a new one")
        check_handler(handler)
        check_plain(handler)
        self._loop.do(self._group.consume(topics, _Threads(handler, self._loop, self._inside)))

    def errors(self) -> Iterator[Exception]:
        """What went wrong beside; ends when the group is closed. For a thread of its own; the last 256 are
        kept for who comes late."""
        return self._loop.iterate(self._group.told)

    def pause(self, partitions: TopicPartition | Iterable[TopicPartition]) -> None:
        """Fetches nothing more of these until `resume`; the session goes on, and what waits already is handed
        out. Those that this member doesn't have are left out, as in sarama.
        """
        self._loop.there(lambda: self._group.pause(partitions))

    def resume(self, partitions: TopicPartition | Iterable[TopicPartition]) -> None:
        """Goes on with these."""
        self._loop.there(lambda: self._group.resume(partitions))

    def pause_all(self) -> None:
        """`pause` for all that this member has now."""
        self._loop.there(self._group.pause_all)

    def resume_all(self) -> None:
        """Goes on with all that were paused."""
        self._loop.there(self._group.resume_all)

    def close(self, timeout: float = 30.0) -> None:
        """Ends the session, commits what is marked, leaves the group. Raises a commit's failure, and
        IllegalState in a handler, which it would wait for.
        """
        timeout = seconds("timeout", timeout)
        if threading.get_ident() in self._inside:
            raise in_a_handler()
        self._loop.close(self._group.close(timeout))

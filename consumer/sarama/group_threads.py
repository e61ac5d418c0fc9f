"""A group's handler in threads: `ConsumerGroup`; `group` says how sessions and claims live.

The group lives in an event loop in a thread of its own, so that heartbeats go on whatever the handlers do;
each claim's handler has a thread of its own, too.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future
from typing import Any, Unpack

from kproto.errors import IllegalState

from ..block import Block
from ..elsewhere import one_address
from ..options import ConsumerConfig
from ..records import ConsumerRecord
from .group import AsyncConsumerGroup
from .inbox import DOUBT_S
from .loop_thread import LoopThread
from .session import Claim, Handler, Session, check_handler


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

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def commit(self) -> None:
        """Commits what is marked now. Raises what the commit raises."""
        self._wait(self._session.commit())


class _Threads:
    """Runs a blocking handler's methods in threads: each claim has one of its own."""

    def __init__(
        self, handler: Handler[ThreadSession, ThreadClaim], loop: LoopThread[AsyncConsumerGroup]
    ) -> None:
        self._handler = handler
        self._wait = loop.do

    async def setup(self, session: Session) -> None:
        await self._run("setup", ThreadSession(session, self._wait))

    async def consume_claim(self, session: Session, claim: Claim) -> None:
        await self._run("consume_claim", ThreadSession(session, self._wait), ThreadClaim(claim, self._wait))

    async def cleanup(self, session: Session) -> None:
        await self._run("cleanup", ThreadSession(session, self._wait))

    async def _run(self, name: str, *arguments: Any) -> None:
        future: Future[None] = Future()
        future.set_running_or_notify_cancel()  # a thread can't be stopped: it may end when nobody waits

        def work() -> None:
            try:
                getattr(self._handler, name)(*arguments)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(None)

        threading.Thread(target=work, name=f"kproto-{name}", daemon=True).start()
        await asyncio.wrap_future(future)


class ConsumerGroup(Block):
    """A member of a group for threads: handlers may block. Options are those of `Consumer`."""

    @one_address
    def __init__(self, bootstrap_servers: str | Iterable[str], **config: Unpack[ConsumerConfig]) -> None:
        self._loop = LoopThread("kproto-group", lambda: AsyncConsumerGroup(bootstrap_servers, **config))
        self._group = self._loop.made

    def consume(self, topics: Iterable[str], handler: Handler[ThreadSession, ThreadClaim]) -> None:
        """One session with these topics, in this thread's time. Call it in a loop."""
        if self._loop.ended:
            raise IllegalState("this group was closed; make a new one")
        check_handler(handler)
        self._loop.do(self._group.consume(topics, _Threads(handler, self._loop)))

    def errors(self) -> Iterator[Exception]:
        """What went wrong beside; ends when the group is closed. For a thread of its own; the last 256 are
        kept for who comes late."""
        yield from self._loop.iterate(self._group.errors())
        yield from self._group.told.rest()

    def close(self, timeout: float = 30.0) -> None:
        """Ends the session, commits what is marked, leaves the group. From any thread but a handler's."""
        self._loop.close(self._group.close(timeout))

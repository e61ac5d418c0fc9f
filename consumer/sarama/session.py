"""A session of a group's member, its claims, and the handler that works on them."""

from __future__ import annotations

import asyncio
import inspect
import threading
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from kproto.errors import ConfigError
from kproto.group.subscription import TopicPartition

from ..aio.consumer import AsyncConsumer
from ..records import ConsumerRecord, GroupMetadata
from .record_queue import Inbox

if TYPE_CHECKING:
    from .group import AsyncConsumerGroup


S = TypeVar("S", contravariant=True)
C = TypeVar("C", contravariant=True)


class Handler(Protocol[S, C]):
    """What `consume` calls. An AsyncConsumerGroup's may be coroutines, with a Session and Claims; a
    ConsumerGroup's run in threads, with a ThreadSession and ThreadClaims.
    """

    def setup(self, session: S) -> Any:
        """The session begins; its claims have not begun yet."""

    def consume_claim(self, session: S, claim: C) -> Any:
        """Handles one partition, until its records end. When it returns earlier, the session ends."""

    def cleanup(self, session: S) -> Any:
        """All claims have ended; what was marked is committed after this, with enable_auto_commit."""


HANDLER = ("setup", "consume_claim", "cleanup")


def check_handler(handler: object) -> None:
    """Raises ConfigError for an object that lacks one of a handler's methods, and for a class."""
    if isinstance(handler, type):
        raise ConfigError("handler", handler, f"an object, as {handler.__name__}(), and not its class")
    for name in HANDLER:
        if not callable(getattr(handler, name, None)):
            allowed = f"an object with setup, consume_claim and cleanup; it has no {name}"
            raise ConfigError("handler", handler, allowed)


def check_plain(handler: object) -> None:
    """Raises ConfigError for coroutines where threads run the methods: nobody would await them."""
    for name in HANDLER:
        if inspect.iscoroutinefunction(getattr(handler, name)):
            allowed = f"plain methods, and {name} is a coroutine: AsyncConsumerGroup runs those"
            raise ConfigError("handler", handler, allowed)


class Claim(Inbox):
    """One partition of a session. `async for record in claim` ends when the claim does."""

    def __init__(self, consumer: AsyncConsumer, place: TopicPartition) -> None:
        super().__init__(consumer, place)
        self.initial_offset = 0
        self.start: int | None = None
        """The first offset that its handler had, or would have had; None while it has come to nothing."""
        self.task: asyncio.Task[None] | None = None


class Session:
    """From one assignment to its end: which partitions, as whom, and what is done with them."""

    def __init__(self, group: AsyncConsumerGroup) -> None:
        self._group = group
        self._last = group.consumer.group_metadata()
        self.by_partition: dict[TopicPartition, Claim] = {}
        self.done = asyncio.Event()
        """Set when the session ends: for handlers that wait for something else than records."""
        self.thread_done = threading.Event()
        """The same for threads; a ThreadSession has it as `done`."""
        self.over = False

    def end(self) -> None:
        """Tells who waits for it."""
        self.done.set()
        self.thread_done.set()

    @property
    def claims(self) -> dict[str, list[int]]:
        """Topic -> the partitions that are claimed now, in order."""
        found: dict[str, list[int]] = {}
        for topic, partition in sorted(self.by_partition):
            found.setdefault(topic, []).append(partition)
        return found

    @property
    def member_id(self) -> str:
        """This member's id, as the broker gave it; behind the session's end the one that it had."""
        return self._as().member_id

    @property
    def generation_id(self) -> int:
        """The group's generation; a cooperative session lives through several."""
        return self._as().generation

    def _as(self) -> GroupMetadata:
        now = self._group.consumer.group_metadata()
        if now.generation >= 0 and not self.done.is_set():
            self._last = now
        return self._last

    def mark_message(self, record: ConsumerRecord, metadata: str = "") -> None:
        """Everything up to this record is done. Thread-safe; see `mark_offset`."""
        try:
            topic, partition, offset = record.topic, record.partition, record.offset
        except AttributeError:
            raise ConfigError("record", record, "a record that a claim handed out") from None
        self.mark_offset(topic, partition, offset + 1, metadata)

    def mark_offset(self, topic: str, partition: int, offset: int, metadata: str = "") -> None:
        """The next record to read is `offset`. Ignored where that is lower than what is marked already, than
        where the claim began, or, in `setup`, than what is committed; and for a partition that this session
        doesn't claim (any more), as in sarama: whoever has it now says how far it is.
        """
        self._group.mark(self, TopicPartition(topic, partition), offset, metadata, back=False)

    def reset_offset(self, topic: str, partition: int, offset: int, metadata: str = "") -> None:
        """Like `mark_offset`, and also back: what was marked is read again by whoever begins next; in `setup`
        that is this session. sarama's goes back only.
        """
        self._group.mark(self, TopicPartition(topic, partition), offset, metadata, back=True)

    async def commit(self) -> None:
        """Commits what is marked now. Raises what the commit raises."""
        await self._group.commit(None)

"""A session of a group's member, its claims, and the handler that processes them."""

from __future__ import annotations

import asyncio
import inspect
import threading
from typing import Any, Protocol, TypeVar

from kproto.errors import ConfigError
from kproto.group.subscription import TopicPartition

from ..aio.consumer import AsyncConsumer
from ..records import ConsumerRecord, GroupMetadata
from .record_queue import RecordQueue

S = TypeVar("S", contravariant=True)
C = TypeVar("C", contravariant=True)


class Handler(Protocol[S, C]):
    """What `consume` calls.

    In an AsyncConsumerGroup the methods may be coroutines, and get a Session and Claims. A ConsumerGroup runs
    them in threads, and passes a ThreadSession and ThreadClaims.
    """

    def setup(self, session: S) -> Any:
        """Prepare a session, before its claims begin."""

    def consume_claim(self, session: S, claim: C) -> Any:
        """Process one partition until its records end. The session ends when this returns earlier."""

    def cleanup(self, session: S) -> Any:
        """Finish a session, after all claims have ended. With auto commit, marks are committed after this."""


_METHODS = ("setup", "consume_claim", "cleanup")


def check_handler(handler: object) -> None:
    """Raise ConfigError for an object that lacks one of a handler's methods, and for a class."""
    if isinstance(handler, type):
        raise ConfigError("handler", handler, f"an object, as {handler.__name__}(), and not its class")
    for name in _METHODS:
        if not callable(getattr(handler, name, None)):
            allowed = f"an object with setup, consume_claim and cleanup; it has no {name}"
            raise ConfigError("handler", handler, allowed)


def check_blocking_handler(handler: object) -> None:
    """Raise ConfigError for coroutines, which threads don't await."""
    for name in _METHODS:
        if inspect.iscoroutinefunction(getattr(handler, name)):
            allowed = f"plain methods, and {name} is a coroutine: AsyncConsumerGroup runs those"
            raise ConfigError("handler", handler, allowed)


class Claim(RecordQueue):
    """One partition of a session. `async for record in claim` ends when the claim does."""

    def __init__(self, consumer: AsyncConsumer, topic_partition: TopicPartition) -> None:
        super().__init__(consumer, topic_partition)
        self.initial_offset = 0
        # The offset of the first record for the handler, even if the handler has not read it; None until a
        # record was fetched.
        self.start: int | None = None
        self.task: asyncio.Task[None] | None = None


class SessionGroup(Protocol):
    """The AsyncConsumerGroup that runs a session, as the session sees it."""

    consumer: AsyncConsumer

    def mark(
        self, session: Session, partition: TopicPartition, offset: int, metadata: str, *, reset: bool
    ) -> None:
        """Mark an offset for a session, to be committed."""

    async def commit(self, partitions: set[TopicPartition] | None, timeout: float | None = None) -> None:
        """Commit the marks of these partitions, or of all."""


class Session:
    """A member between two rebalances: its claims, its member id and its generation.

    `done` is set when the session ends. It is for handlers that do not wait for records.
    """

    def __init__(self, group: SessionGroup) -> None:
        self._group = group
        self._last_metadata = group.consumer.group_metadata()
        self.by_partition: dict[TopicPartition, Claim] = {}
        self.done = asyncio.Event()
        self.thread_done = threading.Event()  # The same event for threads: `done` of a ThreadSession.
        self.ended = False

    def end(self) -> None:
        """Wake the handlers that wait for the end."""
        self.done.set()
        self.thread_done.set()

    @property
    def claims(self) -> dict[str, list[int]]:
        """Topic -> the partitions that are claimed now, in order."""
        partitions: dict[str, list[int]] = {}
        for topic, partition in sorted(self.by_partition):
            partitions.setdefault(topic, []).append(partition)
        return partitions

    @property
    def member_id(self) -> str:
        """The member id; after the session, the id that the member had in it."""
        return self._metadata().member_id

    @property
    def generation_id(self) -> int:
        """The group's generation; a cooperative session spans several."""
        return self._metadata().generation

    def _metadata(self) -> GroupMetadata:
        metadata = self._group.consumer.group_metadata()
        if metadata.generation >= 0 and not self.done.is_set():
            self._last_metadata = metadata
        return self._last_metadata

    def mark_message(self, record: ConsumerRecord, metadata: str = "") -> None:
        """Mark everything up to this record as processed. Thread-safe; see `mark_offset`."""
        try:
            topic, partition, offset = record.topic, record.partition, record.offset
        except AttributeError:
            raise ConfigError("record", record, "a record that a claim handed out") from None
        self.mark_offset(topic, partition, offset + 1, metadata)

    def mark_offset(self, topic: str, partition: int, offset: int, metadata: str = "") -> None:
        """Mark `offset` as the next record to read.

        A mark is ignored if it is lower than the last mark, than the start of the claim, or, in `setup`, than
        the committed offset. As in sarama, a mark is also ignored for a partition that this session does not
        claim.
        """
        self._group.mark(self, TopicPartition(topic, partition), offset, metadata, reset=False)

    def reset_offset(self, topic: str, partition: int, offset: int, metadata: str = "") -> None:
        """Mark an offset that may be lower than the last mark.

        The next session reads from this offset; a reset in `setup` applies to the session that begins. sarama
        accepts only offsets that are lower than the mark.
        """
        self._group.mark(self, TopicPartition(topic, partition), offset, metadata, reset=True)

    async def commit(self) -> None:
        """Commit the current marks. Raises the errors of the commit."""
        await self._group.commit(None)

"""The session of a group member, its claims, and the handler that processes the claims.

These are sarama's words: in a session, a handler processes an assignment. A claim is one assigned partition.
"""

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
    """The interface of an application's handler, whose methods `consume` calls.

    An AsyncConsumerGroup passes a Session and Claims to the methods of its handler, which may be coroutine
    functions. A ConsumerGroup runs the methods in threads, and passes a ThreadSession and ThreadClaims.
    """

    def setup(self, session: S) -> Any:
        """Prepare for a session, before its claims begin."""

    def consume_claim(self, session: S, claim: C) -> Any:
        """Process one partition until the claim's records end. Returning earlier ends the session."""

    def cleanup(self, session: S) -> Any:
        """Clean up after all claims have ended. With auto commit, the marks are committed afterwards."""


_HANDLER_METHODS = ("setup", "consume_claim", "cleanup")


def check_handler(handler: object) -> None:
    """Raise ConfigError if the handler is a class, or an object that lacks a method of `Handler`."""
    if isinstance(handler, type):
        raise ConfigError(
            "handler", handler, f"pass an object such as {handler.__name__}() and not its class"
        )
    for name in _HANDLER_METHODS:
        if not callable(getattr(handler, name, None)):
            allowed = f"an object with setup, consume_claim and cleanup; it has no {name}"
            raise ConfigError("handler", handler, allowed)


def check_blocking_handler(handler: object) -> None:
    """Raise ConfigError if a method of the handler is a coroutine function: threads cannot await it."""
    for name in _HANDLER_METHODS:
        if inspect.iscoroutinefunction(getattr(handler, name)):
            allowed = f"plain methods, but {name} is a coroutine: use AsyncConsumerGroup"
            raise ConfigError("handler", handler, allowed)


class Claim(RecordQueue):
    """A partition that a session claims. `async for record in claim` ends when the claim ends."""

    def __init__(self, consumer: AsyncConsumer, topic_partition: TopicPartition) -> None:
        super().__init__(consumer, topic_partition)
        self.initial_offset = 0
        # The offset at which the claim begins. None until the position is known.
        self.start: int | None = None
        self.task: asyncio.Task[None] | None = None


class SessionGroup(Protocol):
    """The methods of AsyncConsumerGroup that a session calls."""

    consumer: AsyncConsumer

    def mark(
        self, session: Session, partition: TopicPartition, offset: int, metadata: str, *, reset: bool
    ) -> None:
        """Mark an offset of a claimed partition for the next commit."""

    async def commit(self, partitions: set[TopicPartition] | None, timeout: float | None = None) -> None:
        """Commit the marked offsets of these partitions, or of all partitions if `partitions` is None."""


class Session:
    """A session of a member: its claims, its member id and its generation.

    With an eager assignor a session lasts until the next rebalance. With the cooperative assignor it
    continues during rebalances, until it has no claim left.

    `done` is set when the session ends, for handlers that wait for events other than records.
    """

    def __init__(self, group: SessionGroup) -> None:
        self._group = group
        self._last_metadata = group.consumer.group_metadata()
        self.by_partition: dict[TopicPartition, Claim] = {}
        self.done = asyncio.Event()
        self.thread_done = threading.Event()  # Set together with `done`: the `done` of a ThreadSession.
        self.ended = False  # Whether all claims have ended; set after `done`.

    def end(self) -> None:
        """Set `done`, which wakes the handlers that wait for the session's end.

        The group sets `ended` later, when the claims of the session have ended.
        """
        self.done.set()
        self.thread_done.set()

    @property
    def claims(self) -> dict[str, list[int]]:
        """The claimed partitions: each topic is mapped to its partition numbers in ascending order."""
        partitions: dict[str, list[int]] = {}
        for topic, partition in sorted(self.by_partition):
            partitions.setdefault(topic, []).append(partition)
        return partitions

    @property
    def member_id(self) -> str:
        """The id of this member; after the session's end, the id that the member had in the session."""
        return self._group_metadata().member_id

    @property
    def generation_id(self) -> int:
        """The group's generation. It increases during a session only with the cooperative assignor."""
        return self._group_metadata().generation

    def _group_metadata(self) -> GroupMetadata:
        """Return the member's metadata; after the session's end, its last one in the session."""
        metadata = self._group.consumer.group_metadata()
        if metadata.generation >= 0 and not self.done.is_set():
            self._last_metadata = metadata
        return self._last_metadata

    def mark_message(self, record: ConsumerRecord, metadata: str = "") -> None:
        """Mark all records up to and including this one as processed. Thread-safe; see `mark_offset`."""
        try:
            topic, partition, offset = record.topic, record.partition, record.offset
        except AttributeError:
            raise ConfigError("record", record, "pass a record that a claim returned") from None
        self.mark_offset(topic, partition, offset + 1, metadata)

    def mark_offset(self, topic: str, partition: int, offset: int, metadata: str = "") -> None:
        """Mark `offset` as the offset of the next record to read.

        A mark has no effect unless it is higher than the last mark, or than the start of the claim if nothing
        is marked. In `setup`, a mark has no effect unless it is higher than the committed offset. As in
        sarama, marks of unclaimed partitions have no effect.
        """
        self._group.mark(self, TopicPartition(topic, partition), offset, metadata, reset=False)

    def reset_offset(self, topic: str, partition: int, offset: int, metadata: str = "") -> None:
        """Set the mark to `offset`, the next offset to read, even if `offset` is lower than the last mark.

        The next session begins reading at this offset. After a reset in `setup`, the current session already
        begins there. sarama's ResetOffset only moves the mark backward.
        """
        self._group.mark(self, TopicPartition(topic, partition), offset, metadata, reset=True)

    async def commit(self) -> None:
        """Commit the marks made so far. Raises the errors of the commit."""
        await self._group.commit(None)

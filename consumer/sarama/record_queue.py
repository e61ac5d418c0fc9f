"""Records of one partition that wait for who handles them."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator

from kproto.errors import KprotoError
from kproto.group.subscription import TopicPartition

from ..aio.consumer import AsyncConsumer
from ..records import ConsumerRecord

BUFFERED = 256  # records that wait for their handler, as sarama's ChannelBufferSize
DOUBT_S = 0.01  # between two looks at a partition that may be lost


class Inbox:
    """`async for record in inbox` ends when the inbox does. The partition pauses while too many wait."""

    def __init__(self, consumer: AsyncConsumer, place: TopicPartition) -> None:
        self.topic = place.topic
        self.partition = place.partition
        self.place = place
        self.ended = False
        self.known_end = 0
        self._consumer = consumer
        self.kept: deque[ConsumerRecord] = deque()
        self._more = asyncio.Event()
        self._full = False
        # The application paused it: room alone doesn't resume it.
        self._held = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.place}{' (ended)' if self.ended else ''}>"

    @property
    def high_water_mark(self) -> int:
        """The offset behind the partition's last record, as the last fetch told it; before the first one what
        was known at the beginning: where a claim began, the end of a partition without a group.
        """
        told = self._consumer.high_watermark(self.place)
        return self.known_end if told is None else told

    def messages(self) -> AsyncIterator[ConsumerRecord]:
        """The same, under sarama's name."""
        return self

    def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        return self

    async def __anext__(self) -> ConsumerRecord:
        if not await self.ready():
            raise StopAsyncIteration
        record = self.kept.popleft()
        self._taken()
        return record

    async def take(self) -> list[ConsumerRecord]:
        """All that is there, at least one record; nothing when it has ended."""
        if not await self.ready():
            return []
        found = list(self.kept)
        self.kept.clear()
        self._taken()
        return found

    def in_doubt(self) -> bool:
        """Whether what waits may be another member's; its consumer's next poll finds out. Thread-safe."""
        return not self.ended and self._consumer.assignment_lost()

    async def ready(self) -> bool:
        """Waits until a record is kept that may be handed out. False: it has ended."""
        self._taken()
        while True:
            if self.kept and not self.in_doubt():
                return True
            if self.kept:
                await asyncio.sleep(DOUBT_S)
            elif self.ended:
                return False
            else:
                self._more.clear()
                await self._more.wait()

    def _taken(self) -> None:
        if self._full and len(self.kept) <= BUFFERED // 2:
            self._full = False
            if not self._held:
                with contextlib.suppress(KprotoError):  # it went away just now
                    self._consumer.resume(self.place)

    def put(self, records: list[ConsumerRecord]) -> None:
        """Records for who reads."""
        if self.ended:
            return
        self.kept.extend(records)
        self._more.set()
        if not self._full and len(self.kept) >= BUFFERED:
            self._full = True
            with contextlib.suppress(KprotoError):
                self._consumer.pause(self.place)

    def hold(self) -> None:
        """Fetches nothing more, until `go_on`. What waits already is handed out."""
        self._held = True
        if not self.ended:
            self._consumer.pause(self.place)

    def go_on(self) -> None:
        """Fetches again."""
        self._held = False
        if not self.ended and not self._full:
            self._consumer.resume(self.place)

    def end(self, *, drop: bool = True) -> None:
        """Nothing more comes; with `drop`, nothing more is handed out."""
        self.ended = True
        if drop:
            self.kept.clear()
        self._more.set()

    def forget(self) -> None:
        """What waits is not handed out: the position was moved."""
        self.kept.clear()
        self._taken()

    def first(self) -> int | None:
        """The offset of the first record that waits."""
        return self.kept[0].offset if self.kept else None

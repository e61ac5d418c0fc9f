"""Partitions that one names, without a group: sarama's Consumer and PartitionConsumer, for asyncio.

    async with AsyncPartitionConsumers("localhost:9092") as consumers:
        flights = await consumers.consume_partition("flights", 0, OLDEST)
        async for record in flights:
            print(record.offset, flights.high_water_mark)

`PartitionConsumers`, for threads, is in `partitions_threads`.

Rules that hold here (sarama's consumer.go, where nothing else is said):

* An offset that is not in the log is refused when consuming would begin: OffsetOutOfRange. When the log
  leaves it behind later, that is told by `errors()`, and the partition's messages end: where to go on is for
  the application to decide, never a jump.
* `close` and `async_close` end the messages behind those that wait already; those are still handed out.
* A partition whose messages nobody takes pauses by itself, and holds nobody else up. sarama's consumer drops
  it from the fetches only after MaxProcessingTime.
* What fails again and again in the same way is told again, by `errors()` and the log, after growing gaps
  only.
* Nothing is committed: `ConsumerGroup` does that.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from typing import Final, Literal, Unpack

from kproto.error_codes import ErrorCode
from kproto.errors import (
    ConfigError,
    IllegalState,
    KprotoError,
    OffsetOutOfRange,
    RequestTimedOut,
    UnknownTopic,
)
from kproto.group.subscription import TopicPartition

from ..aio.consumer import AsyncConsumer
from ..context_managers import AsyncBlock
from ..logs import log
from ..options import ConsumerConfig
from ..other_clients import hide_secrets
from ..records import ConsumerRecord
from ..validation import seconds, topic_partition
from .error_queue import News, Outlet
from .record_queue import DOUBT_S, Inbox

OLDEST: Final = "oldest"
"""Where the log begins now."""
NEWEST: Final = "newest"
"""Behind the log's last record now."""
Start = int | Literal["oldest", "newest"]

POLL_S = 0.1
ERROR_PAUSE_S = 0.3


class AsyncPartitionConsumer(Inbox):
    """One partition. `async for record in it` ends when it is closed, or when its position is gone."""

    def __init__(self, owner: AsyncPartitionConsumers, place: TopicPartition, offset: int, end: int) -> None:
        super().__init__(owner.consumer, place)
        self.initial_offset = offset
        self.known_end = end
        self._owner = owner
        self.told: Outlet[Exception] = Outlet()

    @property
    def high_water_mark_offset(self) -> int:
        """`high_water_mark`, under sarama's name."""
        return self.high_water_mark

    def errors(self) -> AsyncIterator[Exception]:
        """What went wrong; ends with the messages. The last 256 are kept for who comes late."""
        return aiter(self.told)

    @property
    def is_paused(self) -> bool:
        """`pause` was called, and not `resume`."""
        return self._held

    def pause(self) -> None:
        """Fetches nothing more, until `resume`. What waits already is handed out."""
        self.hold()

    def resume(self) -> None:
        """Goes on."""
        self.go_on()

    def async_close(self) -> None:
        """Ends it; what waits is still handed out, then messages and errors end."""
        self._owner.let_go(self)

    async def close(self) -> None:
        """Ends it, and drops what waits."""
        self._owner.let_go(self)
        self.end()

    def stop(self, error: Exception | None = None) -> None:
        """Nothing more comes, because of `error` if there is one."""
        if error is not None:
            self.told.put(error)
        self.end(drop=False)
        self.told.end()


class AsyncPartitionConsumers(AsyncBlock):
    """Any number of partitions over one client, for asyncio. Options: those of `AsyncConsumer`; no group."""

    @hide_secrets
    def __init__(self, bootstrap_servers: str | Iterable[str], **config: Unpack[ConsumerConfig]) -> None:
        group, reset = config.get("group_id"), config.get("auto_offset_reset", "none")
        if group is not None:
            raise ConfigError("group_id", group, "None: nothing is committed here; ConsumerGroup does")
        if reset != "none":
            allowed = 'only "none": consume_partition() says where each one begins'
            raise ConfigError("auto_offset_reset", reset, allowed)
        config["auto_offset_reset"] = "none"
        self.consumer = AsyncConsumer(bootstrap_servers, **config)
        self._open: dict[TopicPartition, AsyncPartitionConsumer] = {}
        self._opening: set[TopicPartition] = set()
        self._pump: asyncio.Task[None] | None = None
        self._closed = False

    async def consume_partition(
        self, topic: str, partition: int, offset: Start = NEWEST
    ) -> AsyncPartitionConsumer:
        """Begins to read a partition at `offset`, `OLDEST` or `NEWEST`.

        Raises UnknownTopic, OffsetOutOfRange for an offset that the log doesn't have, and IllegalState for a
        partition that is consumed already.
        """
        place = topic_partition(topic, partition)
        named = isinstance(offset, str) and offset in (OLDEST, NEWEST)
        if not named and (type(offset) is not int or offset < 0):
            raise ConfigError("offset", offset, "an offset that is not negative, OLDEST or NEWEST")
        self._usable()
        if place in self._open or place in self._opening:
            raise IllegalState(f"{place} is consumed already; close() that one first")
        self._opening.add(place)
        try:
            start, end = await self._start(place, offset)
        finally:
            self._opening.discard(place)
        self._usable()
        self._open[place] = made = AsyncPartitionConsumer(self, place, start, end)
        self.consumer.assign({one: start if one == place else None for one in self._open})
        if self._pump is None or self._pump.done():
            self._pump = asyncio.create_task(self._run())
        return made

    async def _start(self, place: TopicPartition, offset: Start) -> tuple[int, int]:
        """Where to begin, and where the log ends."""
        if place not in await self.consumer.partitions_for(place.topic):
            raise UnknownTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "Metadata", str(place))
        found = [(await self.consumer.list_offsets({place: end}))[place] for end in ("earliest", "latest")]
        oldest, newest = (one.offset or 0 for one in found)
        wanted = oldest if offset == OLDEST else newest if offset == NEWEST else offset
        if not oldest <= wanted <= newest:
            detail = f"{place} has offsets from {oldest} to {newest}, not {wanted}"
            raise OffsetOutOfRange(ErrorCode.OFFSET_OUT_OF_RANGE, "ListOffsets", detail)
        return wanted, newest

    async def partitions(self, topic: str) -> list[int]:
        """The topic's partitions; raises UnknownTopic."""
        return sorted(one.partition for one in await self.consumer.partitions_for(topic))

    def high_water_marks(self) -> dict[TopicPartition, int]:
        """`high_water_mark` of each partition that is consumed."""
        return {place: one.high_water_mark for place, one in self._open.items()}

    def pause_all(self) -> None:
        for one in self._open.values():
            one.pause()

    def resume_all(self) -> None:
        for one in self._open.values():
            one.resume()

    def let_go(self, gone: AsyncPartitionConsumer, error: Exception | None = None) -> None:
        """Consumes this one no longer."""
        if self._open.get(gone.place) is gone:
            del self._open[gone.place]
            with contextlib.suppress(IllegalState):  # the client is closed
                self.consumer.assign(dict.fromkeys(self._open))
        gone.stop(error)

    async def close(self, timeout: float = 30.0) -> None:
        """Ends all of them and the client."""
        timeout = seconds("timeout", timeout)
        self._closed = True
        for one in list(self._open.values()):
            self.let_go(one)
        try:
            if self._pump is not None:
                self._pump.cancel()
                await asyncio.wait([self._pump])
        finally:
            await self.consumer.close(timeout=timeout)

    def _usable(self) -> None:
        if self._closed:
            raise IllegalState("these partition consumers are closed; make new ones")

    async def _run(self) -> None:
        news = News()
        while self._open:
            try:
                records = await self.consumer.poll(POLL_S)
            except OffsetOutOfRange as error:
                await self._leave_behind(error)
            except IllegalState:  # the last one was closed in this poll; there may be another by now
                await asyncio.sleep(DOUBT_S)
            except KprotoError as error:
                if news.told(error):
                    log.warning("%s: %s", self.consumer.options.client_id, error)
                    for one in self._open.values():
                        one.told.put(error)
                await asyncio.sleep(ERROR_PAUSE_S)
            except Exception as error:  # the client failed: nobody shall wait for it
                for one in list(self._open.values()):
                    self.let_go(one, error)
                raise
            else:
                self._spread(records)

    async def _leave_behind(self, error: OffsetOutOfRange) -> None:
        """Those whose position the log doesn't have any more end."""
        for one in list(self._open.values()):
            try:
                await self.consumer.position(one.place, timeout=0)
            except RequestTimedOut:
                pass
            except KprotoError as its:
                self.let_go(one, error if str(one.place) in str(error) else its)

    def _spread(self, records: list[ConsumerRecord]) -> None:
        found: dict[TopicPartition, list[ConsumerRecord]] = {}
        for record in records:
            found.setdefault(TopicPartition(record.topic, record.partition), []).append(record)
        for place, some in found.items():
            if place in self._open:
                self._open[place].put(some)

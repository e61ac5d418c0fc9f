"""The clients for asyncio: `AsyncConsumer` and `AsyncCluster`, the same engines, driven by the event loop.

    async with AsyncConsumer("localhost:9092", group_id="g") as consumer:
        consumer.subscribe(["flights"])
        async for record in consumer:
            ...

Heartbeats and fetches go on whenever the loop runs: code that blocks the loop blocks them too. Callbacks
may be coroutines; they run inside poll, unsubscribe and close, each to its end, even when that is cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from time import time
from types import TracebackType
from typing import Self, Unpack

from kproto.group.subscription import TopicPartition
from kproto.records.crc32c import at_hand

from ..calls import call
from ..context_managers import AsyncBlock
from ..engine.requests import Offset
from ..operations.cluster import ClusterCalls
from ..operations.consumer import ConsumerCalls
from ..option_docs import with_options
from ..options import ConsumerConfig, ConsumerOptions
from ..other_clients import one_address
from ..records import ConsumerRecord
from .runtime import Looped


@with_options(ConsumerConfig, ConsumerOptions)
class AsyncConsumer(ConsumerCalls, Looped):
    """The asyncio twin of `Consumer`: same options, same methods, awaited where they wait.

    Make it where you like; everything else belongs to one running event loop.
    """

    @one_address
    def __init__(self, bootstrap_servers: str | Iterable[str], **config: Unpack[ConsumerConfig]) -> None:
        super().__init__(bootstrap_servers, config)
        at_hand()

    def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        return self

    async def __anext__(self) -> ConsumerRecord:
        """The next record, however long it takes. The one before counts as processed; the commits in between
        (`auto_commit_interval_ms`) know it within a second."""
        if self._ours_from <= time() < self._ours_until:
            for record in self._rest:
                return record
        return await self._next()

    @call
    def commit_async(
        self, offsets: Mapping[TopicPartition, Offset] | None = None, timeout: float | None = None
    ) -> asyncio.Future[None]:
        """Like `commit`, without waiting. Commits are sent in the order of the calls."""
        future: asyncio.Future[None] = self._commit(offsets, timeout)
        return future

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes. After an exception, what was being worked on is not committed."""
        await self._leave_block(error)


@with_options()
class AsyncCluster(ClusterCalls, Looped, AsyncBlock):
    """The asyncio twin of `Cluster`, method by method. Belongs to one running event loop, whose tasks may all
    use it."""

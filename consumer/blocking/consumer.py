"""The blocking clients: `Consumer`, and `Cluster`, whose home is `cluster`.

    with Consumer("localhost:9092", group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["flights"])
        for record in consumer:
            ...

A thread moves bytes, sends heartbeats and fetches ahead while the application computes. Callbacks never run
there: they run inside poll, commit, unsubscribe and close, on the thread that called.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from time import time
from types import TracebackType
from typing import Self, Unpack

from kproto.errors import ConfigError
from kproto.group.subscription import TopicPartition

from ..calls import call
from ..engine.requests import Offset
from ..listener import RebalanceListener
from ..operations.consumer import ConsumerCalls
from ..option_docs import with_options
from ..options import ConsumerConfig, ConsumerOptions
from ..other_clients import one_address
from ..records import ConsumerRecord
from .cluster import Cluster as Cluster
from .runtime import Threaded


@with_options(ConsumerConfig, ConsumerOptions)
class Consumer(ConsumerCalls, Threaded):
    """Reads records, alone (`assign`) or in a group (`subscribe`). Its options are below.

    Raises ConfigError for wrong options, at once; connects in the background from the first subscribe on.
    One thread at a time may use it; any thread may `close` it.
    """

    @one_address
    def __init__(self, bootstrap_servers: str | Iterable[str], **config: Unpack[ConsumerConfig]) -> None:
        super().__init__(bootstrap_servers, config)

    def _accept(self, listener: RebalanceListener | None) -> None:
        from inspect import iscoroutinefunction

        for name in ("assigned", "revoked", "lost"):
            if iscoroutinefunction(getattr(listener, name, None)):
                allowed = f"{name}() is a coroutine, which only an AsyncConsumer can await"
                raise ConfigError("listener", listener, allowed)

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return self

    def __next__(self) -> ConsumerRecord:
        """The next record, however long it takes. The one before counts as processed; the commits in between
        (`auto_commit_interval_ms`) know it within a second."""
        if self._ours_from <= time() < self._ours_until:
            for record in self._rest:
                return record
        return self._next()

    @call
    def commit_async(
        self, offsets: Mapping[TopicPartition, Offset] | None = None, timeout: float | None = None
    ) -> Future[None]:
        """Like `commit`, without waiting. Commits are sent in the order of the calls.

        What hangs on the future (`add_done_callback`) runs on the consumer's own thread, and may not wait for
        anything there.
        """
        future: Future[None] = self._commit(offsets, timeout)
        return future

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes. After an exception, what was being worked on is not committed."""
        self._leave_block(error)

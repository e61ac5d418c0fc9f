"""Clients of every kind, and the time that each takes to close while a broker is frozen.

with AtWork(bootstrap, "t", 6) as clients:
    fleet.freeze(1)                         # The fixture `fleet` is a Kafka cluster. Broker 1 freezes.
    took = clients.close_all(4.0)           # name -> (seconds, the error that close raised, or None)
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import TracebackType
from typing import Any

from consumer import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncConsumerGroup,
    AsyncProducer,
    Consumer,
    ConsumerGroup,
    Producer,
)
from consumer.sarama.loop_thread import LoopThread
from kproto.errors import KprotoError

GROUP: dict[str, Any] = {"auto_offset_reset": "earliest", "session_timeout_ms": 20_000}
Closed = tuple[float, Exception | None]


class _Marks:
    """A handler that marks each record that it reads."""

    def __init__(self, loops: bool) -> None:
        self.began = threading.Event()
        if loops:
            self.consume_claim = self._following

    def setup(self, session: Any) -> None:
        self.began.set()

    def cleanup(self, session: Any) -> None:
        pass

    def consume_claim(self, session: Any, claim: Any) -> None:
        for record in claim:
            session.mark_message(record)

    async def _following(self, session: Any, claim: Any) -> None:
        async for record in claim:
            session.mark_message(record)


class AtWork:
    """Two clients of each kind: one blocking, one in an event loop that runs in a thread."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._bootstrap, self._topic, self._partitions = bootstrap, topic, partitions
        self._clients: dict[str, Any] = {}
        self._loops: dict[str, Any] = {}
        self._beside: list[threading.Thread] = []

    def __enter__(self) -> AtWork:
        self._thread: LoopThread[None] = LoopThread("fleet-closing", lambda: None)
        for name, begin in self._blocking().items():
            self._clients[name] = begin()
        self._thread.run(self._begin())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.close(asyncio.sleep(0))
        for thread in self._beside:
            thread.join(20)

    def close_all(self, timeout: float) -> dict[str, Closed]:
        """Close all clients at the same time, each with this timeout.

        Records and the end of a transaction are queued before the close. The frozen broker cannot accept
        them.
        """
        for partition in range(self._partitions):
            self._clients["Producer"].send(self._topic, b"late", partition=partition)
        with suppress(KprotoError):
            self._clients["Producer in a commit"].commit(0.1)
        looping = threading.Thread(target=lambda: took.update(self._thread.run(self._close_all(timeout))))
        took: dict[str, Closed] = {}
        looping.start()
        with ThreadPoolExecutor(len(self._clients)) as threads:
            ended = {
                name: threads.submit(_timed, lambda client=client: _close(client, timeout))
                for name, client in self._clients.items()
            }
        looping.join()
        return took | {name: future.result() for name, future in ended.items()}

    # ---- blocking

    def _blocking(self) -> dict[str, Callable[[], Any]]:
        return {
            # The producer is created first, because the other clients read its records.
            "Producer": self._producer,
            "Consumer": self._consumer,
            "ConsumerGroup": self._handled,
            "Producer in a transaction": self._in_transaction,
            "Producer in a commit": self._in_commit,
            "Admin": self._cluster,
        }

    def _consumer(self) -> Consumer:
        consumer = Consumer(self._bootstrap, group_id=f"{self._topic}-a", **GROUP)
        consumer.subscribe([self._topic])
        while not consumer.poll(0.5):
            pass
        return consumer

    def _handled(self) -> ConsumerGroup:
        group, handler = ConsumerGroup(self._bootstrap, group_id=f"{self._topic}-b", **GROUP), _Marks(False)

        def consume() -> None:
            with suppress(KprotoError):  # consume() may raise because close_all closes the group.
                group.consume([self._topic], handler)

        self._beside.append(threading.Thread(target=consume))
        self._beside[-1].start()
        assert handler.began.wait(60)
        return group

    def _producer(self) -> Producer:
        producer = Producer(self._bootstrap)
        for partition in range(self._partitions):
            producer.send(self._topic, b"x", partition=partition).result(60)
        return producer

    def _in_transaction(self) -> Producer:
        producer = Producer(self._bootstrap, transactional_id=f"{self._topic}-a")
        producer.begin()
        for partition in range(self._partitions):
            producer.send(self._topic, b"x", partition=partition).result(60)
        return producer

    def _in_commit(self) -> Producer:
        producer = Producer(self._bootstrap, transactional_id=f"{self._topic}-b")
        producer.begin()
        for partition in range(self._partitions):
            producer.send(self._topic, b"x", partition=partition)
        return producer

    def _cluster(self) -> Admin:
        cluster = Admin(self._bootstrap)
        cluster.partitions(self._topic)
        return cluster

    # ---- asyncio

    async def _begin(self) -> None:
        consumer = AsyncConsumer(self._bootstrap, group_id=f"{self._topic}-c", **GROUP)
        consumer.subscribe([self._topic])
        while not await consumer.poll(0.5):
            pass
        handler = _Marks(True)
        group = AsyncConsumerGroup(self._bootstrap, group_id=f"{self._topic}-d", **GROUP)
        self._consuming = asyncio.ensure_future(group.consume([self._topic], handler))
        while not handler.began.is_set():
            await asyncio.sleep(0.05)
        plain = AsyncProducer(self._bootstrap)
        careful = AsyncProducer(self._bootstrap, transactional_id=f"{self._topic}-c")
        committing = AsyncProducer(self._bootstrap, transactional_id=f"{self._topic}-d")
        await careful.begin()
        await committing.begin()
        for partition in range(self._partitions):
            for producer in (plain, careful, committing):
                await (await producer.send(self._topic, b"x", partition=partition))
        cluster = AsyncAdmin(self._bootstrap)
        await cluster.partitions(self._topic)
        self._loops = {
            "AsyncConsumer": consumer,
            "AsyncConsumerGroup": group,
            "AsyncProducer": plain,
            "AsyncProducer in a transaction": careful,
            "AsyncProducer in a commit": committing,
            "AsyncAdmin": cluster,
        }

    async def _close_all(self, timeout: float) -> dict[str, Closed]:
        async def timed(client: Any) -> Closed:
            began, raised = time.monotonic(), None
            try:
                if isinstance(client, AsyncAdmin):
                    await client.close()
                else:
                    await client.close(timeout=timeout)
            except KprotoError as error:
                raised = error
            return time.monotonic() - began, raised

        for partition in range(self._partitions):
            await self._loops["AsyncProducer"].send(self._topic, b"late", partition=partition)
        commit = asyncio.ensure_future(self._loops["AsyncProducer in a commit"].commit(0.1))
        await asyncio.wait([commit])
        commit.exception()
        closed = await asyncio.gather(*(timed(client) for client in self._loops.values()))
        await asyncio.gather(self._consuming, return_exceptions=True)
        await asyncio.sleep(0)
        remaining = asyncio.all_tasks() - {asyncio.current_task()}
        assert not remaining, remaining
        return dict(zip(self._loops, closed, strict=True))


def _close(client: Any, timeout: float) -> None:
    client.close() if isinstance(client, Admin) else client.close(timeout=timeout)


def _timed(close: Callable[[], None]) -> Closed:
    began = time.monotonic()
    try:
        close()
    except KprotoError as error:
        return time.monotonic() - began, error
    return time.monotonic() - began, None

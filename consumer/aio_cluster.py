"""A cluster, asked in asyncio: the twin of `Cluster`, method by method, running the same plans.

    async with AsyncCluster("localhost:9092") as cluster:
        await cluster.create_topics({"flights": 3})

Several tasks may ask at the same time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TypeVar

from kproto.errors import IllegalState, RequestTimedOut
from kproto.group.subscription import TopicPartition
from kproto.wire.message import Message

from .addresses import addresses
from .cluster import Offset, triples
from .engine import plans
from .engine.connection import Call, Prepared
from .engine.metadata import ClusterView
from .engine.network import Network, NetworkEvent
from .engine.plans import FetchedBytes, OffsetAt, Plan, Rest, Route
from .engine.requests import CommittedOffset
from .sockets import Sockets
from .streams import Streams

R = TypeVar("R")


class AsyncCluster:
    """The asyncio twin of `Cluster`, which says what each method does. Belongs to one running event loop."""

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str],
        *,
        client_id: str = "kproto",
        request_timeout_ms: int = 30_000,
        timeout: float = 30.0,
    ) -> None:
        self._network = Network(
            addresses(bootstrap_servers), client_id=client_id, request_timeout_ms=request_timeout_ms
        )
        self._streams = Streams(self._happened)
        self._timeout = timeout
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    # ---- asking anything

    async def request(
        self, request: Message | Prepared, node: Route = None, timeout: float | None = None
    ) -> Message:
        """Sends any request in the highest version both sides know, and returns its answer."""
        return (await self.run(plans.request(self.view, request, node, Sockets.now), timeout))[0]

    async def request_versioned(
        self, request: Message | Prepared, node: Route = None, timeout: float | None = None
    ) -> tuple[Message, int]:
        """Like `request`, with the version that was spoken."""
        return await self.run(plans.request(self.view, request, node, Sockets.now), timeout)

    @property
    def view(self) -> ClusterView:
        """What is known of the cluster now, without asking anybody."""
        return self._network.view

    # ---- metadata

    async def metadata(
        self, topics: Iterable[str] | None = None, timeout: float | None = None
    ) -> ClusterView:
        """Reads the metadata of these topics, or of all, and returns the view."""
        return await self.run(plans.read_metadata(self.view, topics, Sockets.now), timeout)

    async def topics(self, timeout: float | None = None) -> dict[str, int]:
        """Topic -> number of partitions, of all topics that are not Kafka's own."""
        view = await self.metadata(None, timeout)
        return {name: len(topic.partitions) for name, topic in view.topics.items() if not topic.internal}

    async def partitions(self, topic: str, timeout: float | None = None) -> list[TopicPartition]:
        """The topic's partitions, read freshly; raises UnknownTopic."""
        await self.metadata([topic], timeout)
        await self.run(plans.know_topics(self.view, [topic], Sockets.now), timeout)
        return [TopicPartition(topic, index) for index in sorted(self.view.topics[topic].partitions)]

    async def leader(self, partition: TopicPartition, timeout: float | None = None) -> int:
        """The node id of the partition's leader; raises UnknownTopic."""
        await self.run(plans.know_partitions(self.view, [partition], Sockets.now), timeout)
        leader = self.view.leader(partition)
        assert leader is not None
        return leader

    async def coordinator(self, group: str, timeout: float | None = None) -> int:
        """The node id of the group's coordinator."""
        return await self.run(plans.find_coordinator(self.view, group, Sockets.now), timeout)

    # ---- topics

    async def create_topics(
        self,
        topics: Mapping[str, int],
        *,
        replication_factor: int = 1,
        configs: Mapping[str, str] | None = None,
        exist_ok: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Creates topics (name -> partitions) and returns when every partition has a leader."""
        plan = plans.create_topics(
            self.view,
            topics,
            Sockets.now,
            replication_factor=replication_factor,
            configs=configs or {},
            timeout_ms=int((timeout or self._timeout) * 1000),
            exist_ok=exist_ok,
        )
        await self.run(plan, timeout)

    async def create_partitions(self, totals: Mapping[str, int], *, timeout: float | None = None) -> None:
        """Grows topics to these totals and returns when every partition has a leader."""
        timeout_ms = int((timeout or self._timeout) * 1000)
        await self.run(
            plans.create_partitions(self.view, totals, Sockets.now, timeout_ms=timeout_ms), timeout
        )

    async def delete_topics(self, topics: Sequence[str], *, timeout: float | None = None) -> None:
        """Deletes topics with all of their records."""
        timeout_ms = int((timeout or self._timeout) * 1000)
        await self.run(plans.delete_topics(self.view, topics, Sockets.now, timeout_ms=timeout_ms), timeout)

    # ---- offsets and records

    async def list_offsets(
        self,
        wants: Mapping[TopicPartition, str | int],
        *,
        isolation: str = "read_uncommitted",
        timeout: float | None = None,
    ) -> dict[TopicPartition, OffsetAt]:
        """Partition -> where "earliest", "latest" or a time (milliseconds) is."""
        timeout_ms = int((timeout or self._timeout) * 1000)
        plan = plans.list_offsets(self.view, wants, Sockets.now, isolation=isolation, timeout_ms=timeout_ms)
        return await self.run(plan, timeout)

    async def fetch(
        self,
        wants: Mapping[TopicPartition, int],
        *,
        isolation: str = "read_uncommitted",
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int = 50 * 1024 * 1024,
        partition_max_bytes: int = 1024 * 1024,
        timeout: float | None = None,
    ) -> dict[TopicPartition, FetchedBytes]:
        """One round of fetches at these offsets: raw record batches, for `kproto.records`."""
        plan = plans.fetch(
            self.view,
            wants,
            Sockets.now,
            isolation=isolation,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            partition_max_bytes=partition_max_bytes,
        )
        return await self.run(plan, timeout)

    async def produce(
        self, partition: TopicPartition, records: bytes, *, acks: int = -1, timeout: float | None = None
    ) -> int:
        """Appends encoded batches; returns the first record's offset."""
        timeout_ms = int((timeout or self._timeout) * 1000)
        plan = plans.produce(self.view, partition, records, Sockets.now, acks=acks, timeout_ms=timeout_ms)
        return await self.run(plan, timeout)

    async def commit_offsets(
        self, group: str, offsets: Mapping[TopicPartition, Offset], *, timeout: float | None = None
    ) -> None:
        """Commits for a group without being a member: the offset of the *next* record to read."""
        await self.run(plans.commit_offsets(self.view, group, triples(offsets), Sockets.now), timeout)

    async def committed_offsets(
        self,
        group: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        timeout: float | None = None,
    ) -> dict[TopicPartition, CommittedOffset | None]:
        """What the group committed; None where it committed nothing."""
        return await self.run(plans.committed_offsets(self.view, group, partitions, Sockets.now), timeout)

    # ---- running plans

    async def run(self, plan: Plan[R], timeout: float | None = None) -> R:
        """Runs a plan to its end; raises RequestTimedOut with what it was waiting for."""
        if self._closed:
            raise IllegalState("this AsyncCluster is closed; make a new one")
        limit = self._timeout if timeout is None else timeout
        why, what = "", "the cluster"
        answers: list[Call] | None = None
        try:
            async with asyncio.timeout(limit):
                while True:
                    step = plan.send(answers) if answers is not None else next(plan)
                    if isinstance(step, Rest):
                        why = step.why
                        await asyncio.sleep(step.ms / 1000)
                        answers = []
                    else:
                        answers = await self._ask(step)
                        what = answers[0].name if answers else what
                        why = next((str(call.error) for call in answers if call.error is not None), why)
        except StopIteration as end:
            result: R = end.value
            return result
        except TimeoutError as error:
            if isinstance(error, RequestTimedOut):
                raise
            raise RequestTimedOut(what, int(limit * 1000), why) from None

    async def _ask(self, asks: list[plans.Ask]) -> list[Call]:
        loop = asyncio.get_running_loop()
        waiting = [loop.create_future() for _ in asks]
        calls = [
            self._network.ask(
                ask.request,
                Sockets.now(),
                node=ask.node,
                lane=ask.lane,
                timeout_ms=ask.timeout_ms,
                max_version=ask.max_version,
                purpose=future,
            )
            for ask, future in zip(asks, waiting, strict=True)
        ]
        self._turn()
        for future in waiting:
            await future
        return calls

    def _happened(self, event: NetworkEvent) -> None:
        self._network.happened(event, Sockets.now())
        self._turn()

    def _turn(self) -> None:
        """Does what the network wants, wakes whose answers came, and sets the timer anew."""
        while self._network.actions or self._network.finished:
            actions, self._network.actions = self._network.actions, []
            for action in actions:
                self._streams.perform(action)
            finished, self._network.finished = self._network.finished, []
            for call in finished:
                if not call.purpose.done():
                    call.purpose.set_result(None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self._network.next_deadline()
        if due is not None and not self._closed:
            wait = max(0, due - Sockets.now()) / 1000
            self._timer = asyncio.get_running_loop().call_later(wait, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._network.tick(Sockets.now())
        self._turn()

    # ---- the end

    async def close(self) -> None:
        """Closes all connections. May be called twice."""
        if not self._closed:
            self._closed = True
            self._network.close(Sockets.now())
            self._turn()
            self._streams.close()

    async def __aenter__(self) -> AsyncCluster:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

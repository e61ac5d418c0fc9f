"""What one can ask of a cluster, written once for threads and for asyncio: what admin tools, Spark and tests
need below a consumer.

    with Cluster("localhost:9092") as cluster:
        cluster.create_topics({"flights": 3})
        ends = cluster.list_offsets({TopicPartition("flights", 0): "latest"})
        answer = cluster.request(DescribeClusterRequest(...), node="controller")

Every method waits, until `timeout` seconds at most (30 unless said). Several threads, or tasks, may ask at
the same time. What to ask, and what to do when it fails, is in `engine/admin/`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from kproto.group.subscription import TopicPartition
from kproto.wire.message import Message

from ..addresses import addresses
from ..calls import waits
from ..clock import now, wall
from ..engine import admin
from ..engine import events as ev
from ..engine.admin import FetchedBytes, Group, ListedGroup, OffsetAt, Plan, Route
from ..engine.admin.engine import AdminEngine, step
from ..engine.metadata.cluster import ClusterView
from ..engine.network.connection import Prepared
from ..engine.requests import CommittedOffset, Offset, triples
from ..logs import log
from ..other_clients import one_address
from ..records import GroupChange
from ..runtime import Shell
from ..security.option_names import SecurityConfig
from ..validation import rule_of

if TYPE_CHECKING:
    from ..security.options import Security

R = TypeVar("R")


class ClusterCalls(Shell):
    """The methods of `Cluster` and `AsyncCluster`."""

    _what = "cluster"

    @one_address
    def __init__(
        self,
        bootstrap_servers: str | Iterable[str],
        *,
        client_id: str = "kproto",
        request_timeout_ms: int = 30_000,
        timeout: float = 30.0,
        **security: Unpack[SecurityConfig],
    ) -> None:
        rule_of("client_id", "str")("client_id", client_id)
        secured = _secured(security)
        self._engine = AdminEngine(
            addresses(bootstrap_servers, secured),
            Random(),
            client_id=client_id,
            request_timeout_ms=rule_of("request_timeout_ms", "int")("request_timeout_ms", request_timeout_ms),
            security=secured,
            wall=wall,
        )
        self._timeout: float = rule_of("timeout", "float")("timeout", timeout)
        super().__init__(partial(step, self._engine), self._engine.due, client_id)

    # ---- asking anything

    @waits
    async def request(
        self, request: Message | Prepared, node: Route = None, timeout: float | None = None
    ) -> Any:
        """Sends any request in the highest version both sides know, and returns its answer.

        A ListGroupsRequest is answered by a ListGroupsResponse, and so on. Type checkers see Any: annotate
        what you assign it to.

        `node`: None for any broker, a node id, "controller", ("group", group_id) for its coordinator, or
        ("leader", topic, partition). Error codes inside the answer are the caller's to read. Raises
        ConnectionFailed, RequestTimedOut, UnsupportedVersion, and BrokerError when the coordinator or
        leader can't be found.
        """
        return (await self._run(admin.request(self.view, request, node, self._clock), timeout))[0]

    @waits
    async def request_versioned(
        self, request: Message | Prepared, node: Route = None, timeout: float | None = None
    ) -> tuple[Any, int]:
        """Like `request`, with the version that was spoken."""
        return await self._run(admin.request(self.view, request, node, self._clock), timeout)

    @property
    def view(self) -> ClusterView:
        """What is known of the cluster now, without asking anybody."""
        return self._engine.view

    # ---- metadata

    @waits
    async def metadata(
        self, topics: Iterable[str] | None = None, timeout: float | None = None
    ) -> ClusterView:
        """Reads the metadata of these topics, or of all, and returns the view."""
        return await self._run(admin.read_metadata(self.view, topics, self._clock), timeout)

    @waits
    async def topics(self, timeout: float | None = None) -> dict[str, int]:
        """Topic -> number of partitions, of all topics that are not Kafka's own."""
        view = await self._run(admin.read_metadata(self.view, None, self._clock), timeout)
        return {name: len(topic.partitions) for name, topic in view.topics.items() if not topic.internal}

    @waits
    async def partitions(self, topic: str, timeout: float | None = None) -> list[TopicPartition]:
        """The topic's partitions, read freshly; raises UnknownTopic."""
        return await self._run(admin.partitions_of(self.view, topic, self._clock), timeout)

    @waits
    async def leader(self, partition: TopicPartition, timeout: float | None = None) -> int:
        """The node id of the partition's leader; raises UnknownTopic."""
        return await self._run(admin.leader_of(self.view, partition, self._clock), timeout)

    @waits
    async def coordinator(self, group: str, timeout: float | None = None) -> int:
        """The node id of the group's coordinator."""
        return await self._run(admin.find_coordinator(self.view, group, self._clock), timeout)

    # ---- topics

    @waits
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
        plan = admin.create_topics(
            self.view,
            topics,
            self._clock,
            replication_factor=replication_factor,
            configs=configs or {},
            timeout_ms=self._milliseconds(timeout),
            exist_ok=exist_ok,
        )
        await self._run(plan, timeout)

    @waits
    async def create_partitions(self, totals: Mapping[str, int], *, timeout: float | None = None) -> None:
        """Grows topics to these totals and returns when every partition has a leader."""
        timeout_ms = self._milliseconds(timeout)
        await self._run(
            admin.create_partitions(self.view, totals, self._clock, timeout_ms=timeout_ms), timeout
        )

    @waits
    async def delete_topics(self, topics: Sequence[str], *, timeout: float | None = None) -> None:
        """Deletes topics with all of their records."""
        timeout_ms = self._milliseconds(timeout)
        await self._run(admin.delete_topics(self.view, topics, self._clock, timeout_ms=timeout_ms), timeout)

    # ---- offsets and records

    @waits
    async def list_offsets(
        self,
        wants: Mapping[TopicPartition, str | int],
        *,
        isolation: str = "read_uncommitted",
        timeout: float | None = None,
    ) -> dict[TopicPartition, OffsetAt]:
        """Partition -> where "earliest", "latest" or a time (milliseconds) is. An `OffsetAt` whose offset is
        None says that no record is that young."""
        timeout_ms = self._milliseconds(timeout)
        plan = admin.list_offsets(self.view, wants, self._clock, isolation=isolation, timeout_ms=timeout_ms)
        return await self._run(plan, timeout)

    @waits
    async def fetch(
        self,
        wants: Mapping[TopicPartition, int],
        *,
        isolation: str = "read_uncommitted",
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int = 50 * 1024 * 1024,
        partition_max_bytes: int = 1024 * 1024,
        lent: bool = False,
        timeout: float | None = None,
    ) -> dict[TopicPartition, FetchedBytes]:
        """One round of fetches at these offsets: raw record batches, for `kproto.records`. `lent` ones may be
        views of the whole answer, whose memory waits for them to be let go: that spares a copy.

        The first batch may begin before the offset, the last may be cut. A partition's `error_code` is data
        here: OFFSET_OUT_OF_RANGE (1) needs another offset, a retriable one needs the same call again.
        """
        plan = admin.fetch(
            self.view,
            wants,
            self._clock,
            isolation=isolation,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            partition_max_bytes=partition_max_bytes,
            lent=lent,
        )
        return await self._run(plan, timeout)

    @waits
    async def produce(
        self, partition: TopicPartition, records: bytes, *, acks: int = -1, timeout: float | None = None
    ) -> int:
        """Appends one encoded batch, which is what brokers take at a time; returns its first record's offset.
        Not repeated when the connection breaks."""
        timeout_ms = self._milliseconds(timeout)
        plan = admin.produce(self.view, partition, records, self._clock, acks=acks, timeout_ms=timeout_ms)
        return await self._run(plan, timeout)

    @waits
    async def commit_offsets(
        self, group: str, offsets: Mapping[TopicPartition, Offset], *, timeout: float | None = None
    ) -> None:
        """Commits for a group without being a member: the offset of the *next* record to read.

        Values: an offset, (offset, metadata), or a `CommittedOffset`. Raises CommitFailed while the group
        has members.
        """
        await self._run(admin.commit_offsets(self.view, group, triples(offsets), self._clock), timeout)

    @waits
    async def committed_offsets(
        self,
        group: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        timeout: float | None = None,
    ) -> dict[TopicPartition, CommittedOffset | None]:
        """What the group committed; None where it committed nothing. Without `partitions`: all it has."""
        return await self._run(admin.committed_offsets(self.view, group, partitions, self._clock), timeout)

    # ---- groups

    @waits
    async def groups(self, timeout: float | None = None) -> dict[str, ListedGroup]:
        """Name -> state and protocol type, of every group of the cluster: each broker is asked for those
        that it coordinates."""
        return await self._run(admin.groups(self.view, self._clock), timeout)

    @waits
    async def group(self, group: str, timeout: float | None = None) -> Group:
        """The group now: its state, its members with their partitions, what it committed and how far behind
        it is. One that doesn't exist has the state "Dead"."""
        return await self._run(admin.group(self.view, group, self._clock), timeout)

    @waits
    async def delete_groups(self, names: Sequence[str], *, timeout: float | None = None) -> None:
        """Forgets groups, and what they committed. Raises BrokerError for one that has members or doesn't
        exist; those named before it are deleted then."""
        await self._run(admin.delete_groups(self.view, names, self._clock), timeout)

    # ---- running plans

    @waits
    async def run(self, plan: Plan[R], timeout: float | None = None) -> R:
        """Runs a plan to its end; raises RequestTimedOut with what it was waiting for."""
        return await self._run(plan, timeout)

    async def _run(self, plan: Plan[R], timeout: float | None) -> R:
        limit = self._milliseconds(timeout)
        result: R = await self._ask(lambda future: ev.Run(future, plan, limit))
        return result

    def _milliseconds(self, timeout: float | None) -> int:
        return int((self._timeout if timeout is None else timeout) * 1000)

    @property
    def _clock(self) -> Any:
        return self._engine.clock

    def _note(self, change: GroupChange) -> None:
        log.warning("%s %s %s", self._client_id, change.kind, change.reason)

    # ---- the end

    @waits
    async def close(self) -> None:
        """Closes all connections; who still waits for an answer gets IllegalState. May be called twice."""
        if self._finished or self._forked:
            return
        try:
            if self._crash is None:
                await self._ask(lambda future: ev.Close(future, False, 0))
        finally:
            self._end(now() + 1000)


def _secured(given: SecurityConfig) -> Security | None:
    """What the options say; without any, nothing of TLS and SASL is imported."""
    if not given:
        return None
    from ..security.options import known_security

    return known_security(given, "a cluster")

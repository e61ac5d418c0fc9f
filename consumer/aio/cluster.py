"""The cluster client for asyncio; see `consumer.blocking.cluster`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, Unpack

from kproto.group.subscription import TopicPartition
from kproto.wire.message import Message

from ..context_managers import AsyncBlock
from ..engine.admin.cluster import Route
from ..engine.admin.groups import Group, ListedGroup
from ..engine.admin.plan import Plan
from ..engine.admin.records import FetchedBytes, OffsetAt
from ..engine.metadata.cluster import ClusterView
from ..engine.network.call import Prepared
from ..engine.requests import CommittedOffset, Offset
from ..lifecycle import BoundToProcess
from ..operations.cluster import ClusterOperations
from ..option_docs import with_options
from ..other_clients import hide_secrets, unknown_method
from ..security.option_names import SecurityConfig
from .runtime import AsyncRuntime

R = TypeVar("R")


@with_options()
class AsyncCluster(BoundToProcess, AsyncBlock):
    """The asyncio twin of `Cluster`, method by method.

    The client belongs to one running event loop. All tasks of the loop may use it.
    """

    @hide_secrets
    def __init__(
        self,
        bootstrap_servers: str | Iterable[str],
        *,
        client_id: str = "kproto",
        request_timeout_ms: int = 30_000,
        timeout: float = 30.0,
        **security: Unpack[SecurityConfig],
    ) -> None:
        self._operations = ClusterOperations(
            bootstrap_servers, client_id, request_timeout_ms, timeout, security, AsyncRuntime
        )
        self._runtime = self._operations.runtime

    # ---- any request

    async def request(
        self, request: Message | Prepared, node: Route = None, timeout: float | None = None
    ) -> Any:
        """Send a request in the highest version that both sides know, and return its response.

        The response has the class that belongs to the request: a ListGroupsRequest returns a
        ListGroupsResponse. Type checkers see Any: annotate the variable that you assign it to.

        `node`: None for any broker, a node id, "controller", ("group", group_id) for its coordinator, or
        ("leader", topic, partition). Error codes in the response are for the caller. Raises ConnectionFailed,
        RequestTimedOut, UnsupportedVersion, and BrokerError if the coordinator or leader can't be found.
        """
        return await self._operations.request(request, node, timeout)

    async def request_versioned(
        self, request: Message | Prepared, node: Route = None, timeout: float | None = None
    ) -> tuple[Any, int]:
        """Send a request like `request`; return its response and the version that was used."""
        return await self._operations.request_versioned(request, node, timeout)

    @property
    def view(self) -> ClusterView:
        """The cluster's metadata as last received. No request is sent."""
        return self._operations.view

    # ---- metadata

    async def metadata(
        self, topics: Iterable[str] | None = None, timeout: float | None = None
    ) -> ClusterView:
        """Read the metadata of these topics, or of all, and return the view."""
        return await self._operations.metadata(topics, timeout)

    async def topics(self, timeout: float | None = None) -> dict[str, int]:
        """Return topic -> number of partitions, for all topics except internal ones."""
        return await self._operations.topics(timeout)

    async def partitions(self, topic: str, timeout: float | None = None) -> list[TopicPartition]:
        """Return the topic's partitions, as of now; raises UnknownTopic."""
        return await self._operations.partitions(topic, timeout)

    async def leader(self, partition: TopicPartition, timeout: float | None = None) -> int:
        """Return the node id of the partition's leader; raises UnknownTopic."""
        return await self._operations.leader(partition, timeout)

    async def coordinator(self, group: str, timeout: float | None = None) -> int:
        """Return the node id of the group's coordinator."""
        return await self._operations.coordinator(group, timeout)

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
        """Create topics (name -> partitions), and wait until every partition has a leader."""
        await self._operations.create_topics(topics, replication_factor, configs, exist_ok, timeout)

    async def create_partitions(self, totals: Mapping[str, int], *, timeout: float | None = None) -> None:
        """Grow topics to these numbers of partitions, and wait until each has a leader."""
        await self._operations.create_partitions(totals, timeout)

    async def delete_topics(self, topics: Sequence[str], *, timeout: float | None = None) -> None:
        """Delete topics with all of their records."""
        await self._operations.delete_topics(topics, timeout)

    # ---- offsets and records

    async def list_offsets(
        self,
        wants: Mapping[TopicPartition, str | int],
        *,
        isolation: str = "read_uncommitted",
        timeout: float | None = None,
    ) -> dict[TopicPartition, OffsetAt]:
        """Return partition -> the offset of "earliest", "latest" or a time (milliseconds).

        The offset of an `OffsetAt` is None if no record is that young.
        """
        return await self._operations.list_offsets(wants, isolation, timeout)

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
        """Fetch once at these offsets: raw record batches, for `kproto.records`.

        With `lent`, batches may be views of the whole response, which saves a copy. The response stays in
        memory until the last view is dropped. The first batch may begin before the requested offset, and the
        last may be truncated.

        Error codes of partitions are returned, not raised. After OFFSET_OUT_OF_RANGE (1) fetch at another
        offset; after a retriable code call again.
        """
        return await self._operations.fetch(
            wants, isolation, max_wait_ms, min_bytes, max_bytes, partition_max_bytes, lent, timeout
        )

    async def produce(
        self, partition: TopicPartition, records: bytes, *, acks: int = -1, timeout: float | None = None
    ) -> int:
        """Append one encoded batch, which is what brokers accept at a time; return its first record's offset.

        The request is not repeated when the connection breaks.
        """
        return await self._operations.produce(partition, records, acks, timeout)

    async def commit_offsets(
        self, group: str, offsets: Mapping[TopicPartition, Offset], *, timeout: float | None = None
    ) -> None:
        """Commit for a group without being a member: the offset of the *next* record to read.

        Values: an offset, (offset, metadata), or a `CommittedOffset`. Raises CommitFailed while the group has
        members.
        """
        await self._operations.commit_offsets(group, offsets, timeout)

    async def committed_offsets(
        self,
        group: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        timeout: float | None = None,
    ) -> dict[TopicPartition, CommittedOffset | None]:
        """Return the group's committed offsets, None for a partition without one.

        Without `partitions`, all committed offsets of the group are returned.
        """
        return await self._operations.committed_offsets(group, partitions, timeout)

    # ---- groups

    async def groups(self, timeout: float | None = None) -> dict[str, ListedGroup]:
        """Return name -> state and protocol type, of every group of the cluster.

        One request is sent to each broker, which lists the groups that it coordinates.
        """
        return await self._operations.groups(timeout)

    async def group(self, group: str, timeout: float | None = None) -> Group:
        """Return the group now: its state, members with their partitions, committed offsets and lag.

        A group that doesn't exist has the state "Dead".
        """
        return await self._operations.group(group, timeout)

    async def delete_groups(self, names: Sequence[str], *, timeout: float | None = None) -> None:
        """Delete groups with their committed offsets.

        Raises BrokerError for a group that has members or does not exist. The groups before it in the list
        are deleted nevertheless.
        """
        await self._operations.delete_groups(names, timeout)

    # ---- plans

    async def run(self, plan: Plan[R], timeout: float | None = None) -> R:
        """Run a plan to its end; raises RequestTimedOut with what it was waiting for."""
        return await self._operations.run(plan, timeout)

    # ---- the end

    async def close(self) -> None:
        """Close all connections; calls that still wait raise IllegalState. May be called twice."""
        await self._operations.close()

    def kill(self) -> None:
        """Close all connections as if the process had died. For tests and demos."""
        self._runtime.kill()

    # ---- inside

    def __str__(self) -> str:
        return str(self._runtime)

    def __repr__(self) -> str:
        return self._operations.describe(type(self).__name__)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            """Raise AttributeError, which translates the method names of other libraries."""
            raise unknown_method(self, "cluster", name)

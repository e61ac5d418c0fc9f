"""The operations of a cluster client, written once for threads and for asyncio.

Several threads or tasks may call these operations at the same time. `engine.admin` decides which requests to
send, and what to do when they fail.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from kproto.group.subscription import TopicPartition
from kproto.wire.message import Message

from .. import validation as check
from ..addresses import addresses
from ..clock import now, wall
from ..engine import events as ev
from ..engine.admin import cluster as cluster_plans
from ..engine.admin import groups as group_plans
from ..engine.admin import offsets as offset_plans
from ..engine.admin import records as record_plans
from ..engine.admin import topics as topic_plans
from ..engine.admin.cluster import Route
from ..engine.admin.engine import AdminEngine, step
from ..engine.admin.groups import Group, ListedGroup
from ..engine.admin.plan import Plan
from ..engine.admin.records import FetchedBytes, OffsetAt
from ..engine.metadata.cluster import ClusterView
from ..engine.network.call import Prepared
from ..engine.requests import CommittedOffset, Offset, triples
from ..logs import log
from ..records import GroupChange
from ..runtime import Driver, Runtime
from ..security.option_names import SecurityConfig

if TYPE_CHECKING:
    from ..security.options import Security

R = TypeVar("R")


class ClusterDriver:
    """Connects a cluster client's engine to its runtime."""

    kind = "cluster"

    def __init__(self, engine: AdminEngine, client_id: str) -> None:
        self.client_id = client_id
        self.step = partial(step, engine)
        self.due = engine.due

    def on_applied(self) -> None:
        pass

    def on_fork(self) -> None:
        pass

    def on_report(self, change: GroupChange) -> None:
        log.warning("%s %s %s", self.client_id, change.kind, change.reason)

    def loss(self) -> str:
        return ""


class ClusterOperations:
    """The operations of `Cluster` and `AsyncCluster`."""

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str],
        client_id: str,
        request_timeout_ms: int,
        timeout: float,
        security: SecurityConfig,
        make_runtime: Callable[[Driver], Runtime],
    ) -> None:
        client_id = check.any_text("client_id", client_id)
        resolved = _resolved(security)
        self.engine = AdminEngine(
            addresses(bootstrap_servers, resolved),
            Random(),
            client_id=client_id,
            request_timeout_ms=check.whole_number("request_timeout_ms", request_timeout_ms, 1),
            security=resolved,
            wall=wall,
        )
        self._timeout = check.seconds("timeout", timeout)
        self._client_id = client_id
        self.runtime = make_runtime(ClusterDriver(self.engine, client_id))

    def describe(self, kind: str) -> str:
        """Return the client's repr. No lock is taken, because a debugger may call this at any moment."""
        return f"<{kind} {self._client_id!r}{': closed' if self.runtime.closed else ''}>"

    @property
    def view(self) -> ClusterView:
        return self.engine.view

    # ---- any request

    async def request(self, request: Message | Prepared, node: Route, timeout: float | None) -> Any:
        response, _ = await self._request("request", request, node, timeout)
        return response

    async def request_versioned(
        self, request: Message | Prepared, node: Route, timeout: float | None
    ) -> tuple[Any, int]:
        return await self._request("request_versioned", request, node, timeout)

    async def _request(
        self, method: str, request: Message | Prepared, node: Route, timeout: float | None
    ) -> tuple[Any, int]:
        request = check.request("request", request)
        node = check.route("node", node)
        plan = cluster_plans.request(self.view, request, node, self.engine.clock)
        return await self._run(method, plan, self._timeout_ms(timeout))

    # ---- metadata

    async def metadata(self, topics: Iterable[str] | None, timeout: float | None) -> ClusterView:
        names = check.optional(check.topics, "topics", topics)
        plan = cluster_plans.read_metadata(self.view, names, self.engine.clock)
        return await self._run("metadata", plan, self._timeout_ms(timeout))

    async def topics(self, timeout: float | None) -> dict[str, int]:
        plan = cluster_plans.read_metadata(self.view, None, self.engine.clock)
        view = await self._run("topics", plan, self._timeout_ms(timeout))
        return {name: len(topic.partitions) for name, topic in view.topics.items() if not topic.internal}

    async def partitions(self, topic: str, timeout: float | None) -> list[TopicPartition]:
        topic = check.topic("topic", topic)
        plan = cluster_plans.partitions_of(self.view, topic, self.engine.clock)
        return await self._run("partitions", plan, self._timeout_ms(timeout))

    async def leader(self, partition: TopicPartition, timeout: float | None) -> int:
        partition = check.partition("partition", partition)
        plan = cluster_plans.leader_of(self.view, partition, self.engine.clock)
        return await self._run("leader", plan, self._timeout_ms(timeout))

    async def coordinator(self, group: str, timeout: float | None) -> int:
        group = check.group("group", group)
        plan = cluster_plans.find_coordinator(self.view, group, self.engine.clock)
        return await self._run("coordinator", plan, self._timeout_ms(timeout))

    # ---- topics

    async def create_topics(
        self,
        topics: Mapping[str, int],
        replication_factor: int,
        configs: Mapping[str, str] | None,
        exist_ok: bool,
        timeout: float | None,
    ) -> None:
        counts = check.partition_counts("topics", topics)
        limit = self._timeout_ms(timeout)
        plan = topic_plans.create_topics(
            self.view,
            counts,
            self.engine.clock,
            replication_factor=check.replication_factor("replication_factor", replication_factor),
            configs=check.optional(check.topic_configs, "configs", configs) or {},
            timeout_ms=limit,
            exist_ok=check.flag("exist_ok", exist_ok),
        )
        await self._run("create_topics", plan, limit)

    async def create_partitions(self, totals: Mapping[str, int], timeout: float | None) -> None:
        counts = check.partition_counts("totals", totals)
        limit = self._timeout_ms(timeout)
        plan = topic_plans.create_partitions(self.view, counts, self.engine.clock, timeout_ms=limit)
        await self._run("create_partitions", plan, limit)

    async def delete_topics(self, topics: Sequence[str], timeout: float | None) -> None:
        names = check.topics("topics", topics)
        limit = self._timeout_ms(timeout)
        plan = topic_plans.delete_topics(self.view, names, self.engine.clock, timeout_ms=limit)
        await self._run("delete_topics", plan, limit)

    # ---- offsets and records

    async def list_offsets(
        self, wants: Mapping[TopicPartition, str | int], isolation: str, timeout: float | None
    ) -> dict[TopicPartition, OffsetAt]:
        places = check.places("wants", wants)
        isolation = check.isolation("isolation", isolation)
        limit = self._timeout_ms(timeout)
        plan = record_plans.list_offsets(
            self.view, places, self.engine.clock, isolation=isolation, timeout_ms=limit
        )
        return await self._run("list_offsets", plan, limit)

    async def fetch(
        self,
        wants: Mapping[TopicPartition, int],
        isolation: str,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        partition_max_bytes: int,
        lent: bool,
        timeout: float | None,
    ) -> dict[TopicPartition, FetchedBytes]:
        offsets = check.fetch_offsets("wants", wants)
        plan = record_plans.fetch(
            self.view,
            offsets,
            self.engine.clock,
            isolation=check.isolation("isolation", isolation),
            max_wait_ms=check.whole_number("max_wait_ms", max_wait_ms, 0),
            min_bytes=check.whole_number("min_bytes", min_bytes, 0),
            max_bytes=check.whole_number("max_bytes", max_bytes, 0),
            partition_max_bytes=check.whole_number("partition_max_bytes", partition_max_bytes, 0),
            lent=check.flag("lent", lent),
        )
        return await self._run("fetch", plan, self._timeout_ms(timeout))

    async def produce(
        self, partition: TopicPartition, records: bytes, acks: int, timeout: float | None
    ) -> int:
        partition = check.partition("partition", partition)
        batch = check.record_batch("records", records)
        acks = check.acks("acks", acks)
        limit = self._timeout_ms(timeout)
        plan = record_plans.produce(
            self.view, partition, batch, self.engine.clock, acks=acks, timeout_ms=limit
        )
        return await self._run("produce", plan, limit)

    async def commit_offsets(
        self, group: str, offsets: Mapping[TopicPartition, Offset], timeout: float | None
    ) -> None:
        group = check.group("group", group)
        chosen = triples(check.offsets("offsets", offsets))
        plan = offset_plans.commit_offsets(self.view, group, chosen, self.engine.clock)
        await self._run("commit_offsets", plan, self._timeout_ms(timeout))

    async def committed_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None, timeout: float | None
    ) -> dict[TopicPartition, CommittedOffset | None]:
        group = check.group("group", group)
        chosen = check.optional(check.partitions, "partitions", partitions)
        plan = offset_plans.committed_offsets(self.view, group, chosen, self.engine.clock)
        return await self._run("committed_offsets", plan, self._timeout_ms(timeout))

    # ---- groups

    async def groups(self, timeout: float | None) -> dict[str, ListedGroup]:
        plan = group_plans.groups(self.view, self.engine.clock)
        return await self._run("groups", plan, self._timeout_ms(timeout))

    async def group(self, group: str, timeout: float | None) -> Group:
        group = check.group("group", group)
        plan = group_plans.group(self.view, group, self.engine.clock)
        return await self._run("group", plan, self._timeout_ms(timeout))

    async def delete_groups(self, names: Sequence[str], timeout: float | None) -> None:
        groups = check.groups("names", names)
        plan = group_plans.delete_groups(self.view, groups, self.engine.clock)
        await self._run("delete_groups", plan, self._timeout_ms(timeout))

    # ---- plans

    async def run(self, plan: Plan[R], timeout: float | None) -> R:
        plan = check.plan("plan", plan)
        return await self._run("run", plan, self._timeout_ms(timeout))

    async def _run(self, method: str, plan: Generator[Any, Any, R], limit: int) -> R:
        with self.runtime.call(method):
            result: R = await self.runtime.run(lambda future: ev.Run(future, plan, limit))
            return result

    def _timeout_ms(self, timeout: float | None) -> int:
        checked = self._timeout if timeout is None else check.seconds("timeout", timeout)
        return int(checked * 1000)

    # ---- the end

    async def close(self) -> None:
        runtime = self.runtime
        with runtime.call("close"):
            if runtime.closed or runtime.forked:
                return
            try:
                if runtime.failure is None:
                    await runtime.run(lambda future: ev.Close(future, False, 0))
            finally:
                runtime.end(now() + 1000)


def _resolved(config: SecurityConfig) -> Security | None:
    """Return the security settings of these options.

    If there are no options, the modules of TLS and SASL are not imported.
    """
    if not config:
        return None
    from ..security.options import known_security

    return known_security(config, "a cluster")

"""A cluster, asked one thing at a time: what admin tools, Spark and tests need below a consumer.

    with Cluster("localhost:9092") as cluster:
        cluster.create_topics({"flights": 3})
        ends = cluster.list_offsets({TopicPartition("flights", 0): "latest"})
        answer = cluster.request(DescribeClusterRequest(...), node="controller")

Everything blocks, until `timeout` seconds at most (30 unless said), and may be called from several
threads: they take turns. What to ask, and what to do when it fails, is in `engine/plans.py`; here are only
the sockets.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TypeVar

from kproto.errors import IllegalState, RequestTimedOut
from kproto.group.subscription import TopicPartition
from kproto.wire.message import Message

from .addresses import addresses
from .engine import plans
from .engine.connection import Call, Prepared
from .engine.metadata import ClusterView
from .engine.network import Network
from .engine.plans import FetchedBytes, OffsetAt, Plan, Rest, Route
from .engine.requests import CommittedOffset
from .sockets import Sockets

R = TypeVar("R")
Offset = int | tuple[int, str] | CommittedOffset


class Cluster:
    """A blocking connection to a whole cluster. Raises `ConfigError` at once for a wrong address; connects
    when the first question is asked."""

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
        self._sockets = Sockets()
        self._timeout = timeout
        self._lock = threading.RLock()
        self._closed = False

    # ---- asking anything

    def request(
        self, request: Message | Prepared, node: Route = None, timeout: float | None = None
    ) -> Message:
        """Sends any request in the highest version both sides know, and returns its answer.

        `node`: None for any broker, a node id, "controller", ("group", group_id) for its coordinator, or
        ("leader", topic, partition). Error codes inside the answer are the caller's to read. Raises
        ConnectionFailed, RequestTimedOut, UnsupportedVersion, and BrokerError when the coordinator or
        leader can't be found.
        """
        return self.run(plans.request(self.view, request, node, self._sockets.now), timeout)[0]

    def request_versioned(
        self, request: Message | Prepared, node: Route = None, timeout: float | None = None
    ) -> tuple[Message, int]:
        """Like `request`, with the version that was spoken."""
        return self.run(plans.request(self.view, request, node, self._sockets.now), timeout)

    @property
    def view(self) -> ClusterView:
        """What is known of the cluster now, without asking anybody."""
        return self._network.view

    # ---- metadata

    def metadata(self, topics: Iterable[str] | None = None, timeout: float | None = None) -> ClusterView:
        """Reads the metadata of these topics, or of all, and returns the view."""
        return self.run(plans.read_metadata(self.view, topics, self._sockets.now), timeout)

    def topics(self, timeout: float | None = None) -> dict[str, int]:
        """Topic -> number of partitions, of all topics that are not Kafka's own."""
        view = self.metadata(None, timeout)
        return {name: len(topic.partitions) for name, topic in view.topics.items() if not topic.internal}

    def partitions(self, topic: str, timeout: float | None = None) -> list[TopicPartition]:
        """The topic's partitions, read freshly; raises UnknownTopic."""
        self.metadata([topic], timeout)
        self.run(plans.know_topics(self.view, [topic], self._sockets.now), timeout)
        return [TopicPartition(topic, index) for index in sorted(self.view.topics[topic].partitions)]

    def leader(self, partition: TopicPartition, timeout: float | None = None) -> int:
        """The node id of the partition's leader; raises UnknownTopic."""
        self.run(plans.know_partitions(self.view, [partition], self._sockets.now), timeout)
        leader = self.view.leader(partition)
        assert leader is not None
        return leader

    def coordinator(self, group: str, timeout: float | None = None) -> int:
        """The node id of the group's coordinator."""
        return self.run(plans.find_coordinator(self.view, group, self._sockets.now), timeout)

    # ---- topics

    def create_topics(
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
            self._sockets.now,
            replication_factor=replication_factor,
            configs=configs or {},
            timeout_ms=int((timeout or self._timeout) * 1000),
            exist_ok=exist_ok,
        )
        self.run(plan, timeout)

    def create_partitions(self, totals: Mapping[str, int], *, timeout: float | None = None) -> None:
        """Grows topics to these totals and returns when every partition has a leader."""
        timeout_ms = int((timeout or self._timeout) * 1000)
        self.run(
            plans.create_partitions(self.view, totals, self._sockets.now, timeout_ms=timeout_ms), timeout
        )

    def delete_topics(self, topics: Sequence[str], *, timeout: float | None = None) -> None:
        """Deletes topics with all of their records."""
        timeout_ms = int((timeout or self._timeout) * 1000)
        self.run(plans.delete_topics(self.view, topics, self._sockets.now, timeout_ms=timeout_ms), timeout)

    # ---- offsets and records

    def list_offsets(
        self,
        wants: Mapping[TopicPartition, str | int],
        *,
        isolation: str = "read_uncommitted",
        timeout: float | None = None,
    ) -> dict[TopicPartition, OffsetAt]:
        """Partition -> where "earliest", "latest" or a time (milliseconds) is. An `OffsetAt` whose offset is
        None says that no record is that young."""
        timeout_ms = int((timeout or self._timeout) * 1000)
        plan = plans.list_offsets(
            self.view, wants, self._sockets.now, isolation=isolation, timeout_ms=timeout_ms
        )
        return self.run(plan, timeout)

    def fetch(
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
        """One round of fetches at these offsets: raw record batches, for `kproto.records`.

        The first batch may begin before the offset, the last may be cut. A partition's `error_code` is data
        here: OFFSET_OUT_OF_RANGE (1) needs another offset, a retriable one needs the same call again.
        """
        plan = plans.fetch(
            self.view,
            wants,
            self._sockets.now,
            isolation=isolation,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            partition_max_bytes=partition_max_bytes,
        )
        return self.run(plan, timeout)

    def produce(
        self, partition: TopicPartition, records: bytes, *, acks: int = -1, timeout: float | None = None
    ) -> int:
        """Appends encoded batches; returns the first record's offset. Not repeated when the connection
        breaks."""
        timeout_ms = int((timeout or self._timeout) * 1000)
        plan = plans.produce(
            self.view, partition, records, self._sockets.now, acks=acks, timeout_ms=timeout_ms
        )
        return self.run(plan, timeout)

    def commit_offsets(
        self, group: str, offsets: Mapping[TopicPartition, Offset], *, timeout: float | None = None
    ) -> None:
        """Commits for a group without being a member: the offset of the *next* record to read.

        Values: an offset, (offset, metadata), or a `CommittedOffset`. Raises CommitFailed while the group
        has members.
        """
        self.run(plans.commit_offsets(self.view, group, triples(offsets), self._sockets.now), timeout)

    def committed_offsets(
        self,
        group: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        timeout: float | None = None,
    ) -> dict[TopicPartition, CommittedOffset | None]:
        """What the group committed; None where it committed nothing. Without `partitions`: all it has."""
        return self.run(plans.committed_offsets(self.view, group, partitions, self._sockets.now), timeout)

    # ---- running plans

    def run(self, plan: Plan[R], timeout: float | None = None) -> R:
        """Runs a plan to its end; raises RequestTimedOut with what it was waiting for."""
        limit = self._timeout if timeout is None else timeout
        with self._lock:
            if self._closed:
                raise IllegalState("this Cluster is closed; make a new one")
            deadline = self._sockets.now() + int(limit * 1000)
            answers: list[Call] | None = None
            why = ""
            what = "the cluster"
            try:
                while True:
                    step = plan.send(answers) if answers is not None else next(plan)
                    if isinstance(step, Rest):
                        why = step.why
                        self._until(min(deadline, self._sockets.now() + step.ms))
                        answers = []
                    else:
                        answers = self._ask(step, deadline)
                        what = answers[0].name if answers else what
                        why = next((str(call.error) for call in answers if call.error is not None), why)
                    if self._sockets.now() >= deadline and not all(call.done for call in answers):
                        raise self._late(answers, limit, why)
                    if isinstance(step, Rest) and self._sockets.now() >= deadline:
                        raise RequestTimedOut(what, int(limit * 1000), why)
            except StopIteration as end:
                result: R = end.value
                return result

    def _ask(self, asks: list[plans.Ask], deadline: int) -> list[Call]:
        now = self._sockets.now()
        calls = [
            self._network.ask(
                ask.request,
                now,
                node=ask.node,
                lane=ask.lane,
                timeout_ms=max(1, min(ask.timeout_ms or self._network.request_timeout_ms, deadline - now)),
                max_version=ask.max_version,
            )
            for ask in asks
        ]
        while not all(call.done for call in calls):
            self._turn(deadline + 50)
            if self._sockets.now() > deadline + 50:
                break
        return calls

    def _late(self, calls: list[Call], limit: float, why: str) -> RequestTimedOut:
        name = next((call.name for call in calls if not call.done), "request")
        return RequestTimedOut(name, int(limit * 1000), why)

    def _until(self, when: int) -> None:
        while self._sockets.now() < when:
            self._turn(when)

    def _turn(self, deadline: int) -> None:
        self._perform()
        due = self._network.next_deadline()
        until = deadline if due is None else min(deadline, due)
        for event in self._sockets.wait(max(0, until - self._sockets.now()) / 1000):
            self._network.happened(event, self._sockets.now())
        self._network.tick(self._sockets.now())
        self._network.finished.clear()
        self._perform()

    def _perform(self) -> None:
        while self._network.actions:
            actions, self._network.actions = self._network.actions, []
            for action in actions:
                self._sockets.perform(action)

    # ---- the end

    def close(self) -> None:
        """Closes all connections. May be called twice."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._network.close(self._sockets.now())
                self._sockets.close()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def triples(offsets: Mapping[TopicPartition, Offset]) -> dict[TopicPartition, tuple[int, int | None, str]]:
    """Partition -> (offset, leader epoch, metadata), from any of the forms that people write."""
    found: dict[TopicPartition, tuple[int, int | None, str]] = {}
    for partition, value in offsets.items():
        if isinstance(value, CommittedOffset):
            found[partition] = (value.offset, value.leader_epoch, value.metadata)
        elif isinstance(value, tuple):
            found[partition] = (value[0], None, value[1])
        else:
            found[partition] = (value, None, "")
    return found

"""Consumers report that an unclean election on a real Kafka has truncated a log that they had read.

The cluster has two brokers and a controller. While a topic's follower is down, the leader appends ten more
records and stops. The follower restarts alone and becomes the leader, so these records are lost.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from consumer import Admin, Consumer, Producer, TopicPartition
from consumer.engine.admin import cluster as cluster_plans
from consumer.engine.metadata.cluster import ClusterView
from kproto.errors import KprotoError, LogTruncated
from kproto.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kproto.messages.metadata import MetadataRequest, MetadataRequestTopic
from kproto.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kproto.testing import brokers
from kproto.testing.world import World
from tests.conformance import judges

pytestmark = pytest.mark.kafka

T0 = TopicPartition("t", 0)
CONTROLLER = 3
PATIENCE = 240.0


def until(holds: Callable[[], bool], message: str) -> None:
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, message
        time.sleep(0.1)


class Nodes:
    """Brokers 1 and 2 and the controller. Each can be killed with SIGKILL and restarted."""

    def __init__(self, scratch: Path) -> None:
        self.ports = {node: judges.free_port() for node in (1, 2, CONTROLLER)}
        self._scratch = scratch
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        java = [judges.java(), "-Xmx400m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        self._run = [*java, "-cp", judges.kafka_jars()]
        for node, port in self.ports.items():
            role = "controller" if node == CONTROLLER else "broker"
            name = "CONTROLLER" if node == CONTROLLER else "PLAINTEXT"
            settings = {
                **brokers._KRAFT_PROPERTIES,
                "process.roles": role,
                "node.id": str(node),
                "controller.quorum.voters": f"{CONTROLLER}@127.0.0.1:{self.ports[CONTROLLER]}",
                "listeners": f"{name}://127.0.0.1:{port}",
                "log.dirs": str(scratch / f"logs-{node}"),
                "broker.session.timeout.ms": "2000",
                "broker.heartbeat.interval.ms": "300",
                "unclean.leader.election.enable": "true",
                "unclean.leader.election.interval.ms": "1000",
            }
            if node == CONTROLLER:
                del settings["inter.broker.listener.name"]
            self._config(node).write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
            order = ["kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ"]
            completed = subprocess.run(
                [*self._run, *order, "-c", str(self._config(node))], capture_output=True, text=True
            )
            if completed.returncode:
                judges.missing(f"three Kafkas: {completed.stdout[-300:]}{completed.stderr[-300:]}")

    def _config(self, node: int) -> Path:
        return self._scratch / f"{node}.properties"

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.ports[1]},127.0.0.1:{self.ports[2]}"

    def start(self, *nodes: int) -> None:
        for node in nodes:
            with open(self._scratch / f"{node}.log", "a") as log:
                order = [*self._run, "kafka.Kafka", str(self._config(node))]
                self._running[node] = subprocess.Popen(order, stdout=log, stderr=log)

    def kill(self, *nodes: int) -> None:
        for node in nodes:
            process = self._running.pop(node, None)
            if process is not None:
                process.kill()
                process.wait()


class TruncatedCluster:
    """A cluster whose log was truncated at offset 10, and the events of two consumers.

    Before the truncation, both consumers had read up to offset 20.
    """

    def __init__(self, nodes: Nodes, stack: ExitStack) -> None:
        self.nodes = nodes
        nodes.start(CONTROLLER, 1, 2)
        stack.callback(nodes.kill, 1, 2, CONTROLLER)
        self.cluster: Admin = stack.enter_context(Admin(nodes.bootstrap, request_timeout_ms=5_000))
        until(lambda: self._brokers() == {1, 2}, "both brokers are up")
        self.cluster.create_topics({"t": 1}, replication_factor=2)
        self.old = self.leader()
        new = 3 - self.old
        until(lambda: len(self._in_sync()) == 2, "both are in sync")
        with Producer(nodes.bootstrap, acks="all") as careful:
            self._write(careful, *range(10))
        producer = stack.enter_context(Producer(nodes.bootstrap, acks=1, enable_idempotence=False))
        nodes.kill(new)
        until(lambda: self._in_sync() == [self.old], "the follower is out of sync")
        self._write(producer, *range(10, 20))
        reads = {"auto_offset_reset": "none", "metadata_max_age_ms": 1_000, "client_id": "none"}
        self.strict: Consumer = stack.enter_context(Consumer(nodes.bootstrap, **reads))
        self.lenient: Consumer = stack.enter_context(
            Consumer(nodes.bootstrap, **{**reads, "auto_offset_reset": "earliest", "client_id": "earliest"})
        )
        self.changes: list[Any] = []
        self.lenient.events(self.changes.append)
        for consumer in (self.strict, self.lenient):
            consumer.assign({T0: 0})
            offsets: list[int] = []
            until(
                lambda consumer=consumer, offsets=offsets: self._read(consumer, offsets) == 20,
                "twenty records are read",
            )  # type: ignore[misc]
        nodes.kill(self.old)
        nodes.start(new)
        until(lambda: self.leader() == new, "the follower becomes the leader")
        self._write(producer, "a", "b", "c")

    def _brokers(self) -> set[int]:
        with suppress(KprotoError):
            answer: Any = self.cluster.request(MetadataRequest(topics=[]))
            return {broker.node_id for broker in answer.brokers}
        return set()

    def _entry(self) -> Any:
        answer: Any = self.cluster.request(MetadataRequest(topics=[MetadataRequestTopic(name="t")]))
        return answer.topics[0].partitions[0]

    def _in_sync(self) -> list[int]:
        with suppress(KprotoError, IndexError):
            return list(self._entry().isr_nodes)
        return []

    def leader(self) -> int:
        with suppress(KprotoError, IndexError):
            return int(self._entry().leader_id)
        return -1

    def _write(self, producer: Producer, *values: object) -> None:
        for delivery in [producer.send("t", str(value).encode(), partition=0) for value in values]:
            delivery.result()

    def _read(self, consumer: Consumer, offsets: list[int]) -> int:
        offsets += [record.offset for record in consumer.poll(0.2)]
        return len(offsets)


@pytest.fixture(scope="module")
def cut(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TruncatedCluster]:
    with ExitStack() as stack:
        yield TruncatedCluster(Nodes(tmp_path_factory.mktemp("nodes")), stack)


def test_without_a_reset_policy_truncation_is_raised_with_the_diverging_offset(cut: TruncatedCluster) -> None:
    errors: list[LogTruncated] = []

    def polled() -> bool:
        try:
            assert [record.offset for record in cut.strict.poll(0.2)] == []
        except LogTruncated as error:
            errors.append(error)
        return bool(errors)

    until(polled, "LogTruncated")
    assert (errors[0].partition, errors[0].position, errors[0].diverging_offset) == (str(T0), 20, 10)
    cut.strict.seek(T0, 10)
    records: list[Any] = []
    until(lambda: bool(records.extend(cut.strict.poll(0.2)) or len(records) >= 3), "the new records are read")
    assert [(record.offset, record.value) for record in records] == [(10, b"a"), (11, b"b"), (12, b"c")]


def test_with_a_reset_policy_truncation_is_reported_and_the_new_records_are_read(
    cut: TruncatedCluster,
) -> None:
    records: list[Any] = []
    until(
        lambda: bool(records.extend(cut.lenient.poll(0.2)) or len(records) >= 3), "the new records are read"
    )
    assert [(record.offset, record.value) for record in records] == [(10, b"a"), (11, b"b"), (12, b"c")]
    assert [change.kind for change in cut.changes if change.kind in ("truncated", "reset")] == ["truncated"]


def asking(current: int, epoch: int) -> OffsetForLeaderEpochRequest:
    partition = OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=epoch)
    topic = OffsetForLeaderTopic(topic="t", partitions=[partition])
    return OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic])


def fetching(topic_id: UUID | None, current: int, last: int, offset: int) -> FetchRequest:
    assert topic_id is not None
    partition = FetchPartition(
        partition=0,
        current_leader_epoch=current,
        fetch_offset=offset,
        last_fetched_epoch=last,
        partition_max_bytes=1 << 20,
    )
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        session_epoch=-1,
        topics=[FetchTopic(topic_id=topic_id, partitions=[partition])],
    )


def test_both_brokers_answer_epoch_requests_alike(cut: TruncatedCluster) -> None:
    """The real broker and a simulated one respond alike to OffsetForLeaderEpoch, and to Fetch with epochs.

    Each broker's log has ten records of one epoch and three of a later one. The epoch numbers of the two
    brokers differ, so the ranks of the epochs are compared.
    """
    world = World({"t": 1})
    world.write("t", 0, *map(str, range(10)))
    world.write("t", 0, *map(str, range(10)))
    world.truncate("t", 0, 10)
    world.write("t", 0, "a", "b", "c")
    consumer = world.consumer(client_id="asks", auto_offset_reset="earliest")
    consumer.assign({T0: 0})
    assert world.run(until=lambda: len(consumer.records) == 13)

    def embedded(request: Any) -> Any:
        core = consumer.engine.core
        token = consumer.run(cluster_plans.request(core.view, request, ("leader", "t", 0), core.clock))
        assert world.run(until=lambda: token in consumer.done)
        value, error = consumer.done[token]
        assert error is None
        return value[0]

    with Admin(cut.nodes.bootstrap) as cluster:
        theirs = answers(lambda request: cluster.request(request, ("leader", "t", 0)), cluster.view)
    assert answers(embedded, consumer.engine.core.view) == theirs


def answers(ask: Callable[[Any], Any], view: ClusterView) -> list[Any]:
    first, last = (ask(asking(-1, epoch)).topics[0].partitions[0].leader_epoch for epoch in (0, 1 << 20))
    # For an epoch that is too high, a broker may answer -1 instead of the last epoch. In this case, the last
    # epoch is the one that ends at offset 13, the end of the log.
    if last == -1:
        last = next(
            epoch
            for epoch in range(first + 1, first + 50)
            if ask(asking(-1, epoch)).topics[0].partitions[0].end_offset == 13
        )
    names = {first: "first", last: "last", -1: "none"}
    results: list[Any] = []
    for current in (-1, first, last, last + 7):
        for epoch in (first, last, last + 7):
            fetched_partition = ask(asking(current, epoch)).topics[0].partitions[0]
            results.append(
                (
                    fetched_partition.error_code,
                    names[fetched_partition.leader_epoch],
                    fetched_partition.end_offset,
                )
            )
        for fetched, offset in ((-1, 5), (first, 5), (first, 12), (last, 12), (-1, 40)):
            answer = ask(fetching(view.topic_id("t"), current, fetched, offset))
            fetched_partition = answer.responses[0].partitions[0]
            parts = fetched_partition.diverging_epoch
            results.append(
                (
                    fetched_partition.error_code,
                    names[parts.epoch],
                    parts.end_offset,
                    bool(fetched_partition.records),
                )
            )
    return results

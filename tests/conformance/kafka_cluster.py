"""A real Kafka cluster of several brokers and a controller, with the actions of an operator.

    with Fleet(scratch) as fleet:
        fleet.stop(1)                 # clean: the broker moves its leaderships first
        fleet.kill(2)                 # kill -9
        fleet.freeze(3)               # SIGSTOP: its connections stay open, and it does not respond
        fleet.start(1, port=judges.free_port())
        fleet.add(5)

Topics have three replicas. A write needs two of them in sync. The brokers' racks are a, b, c, and so on. A
consumer with `client_rack` reads from the replica in its rack.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from consumer import Admin
from kproto.errors import KprotoError
from kproto.messages.metadata import MetadataRequest, MetadataRequestTopic
from kproto.testing import brokers
from tests.conformance import judges

CONTROLLER = 100
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
PATIENCE = 240.0

SETTINGS = {
    **brokers._KRAFT_PROPERTIES,
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "6",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.num.partitions": "6",
    "transaction.state.log.min.isr": "2",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "4000",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "log.retention.check.interval.ms": "500",
    "log.initial.task.delay.ms": "500",
    "file.delete.delay.ms": "500",
}


def until(holds: Callable[[], object], condition: str, seconds: float = PATIENCE) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"it took more than {seconds} s until {condition}"
        time.sleep(0.05)


class Fleet:
    """Brokers 1, 2, 3 and a controller, each in its own JVM. `settings` apply to all brokers."""

    def __init__(self, scratch: Path, count: int = 3, settings: Mapping[str, str] | None = None) -> None:
        self._scratch = scratch
        self._settings = dict(settings or {})
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._stack = ExitStack()
        self.ports = {node: judges.free_port() for node in (CONTROLLER, *range(1, count + 1))}
        java = [judges.java(), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        self._run = [*java, "-cp", judges.kafka_jars()]

    def __enter__(self) -> Fleet:
        with self._stack as stack:
            self._format_controller()
            stack.callback(self._end_all)
            self._launch(CONTROLLER)
            nodes = [node for node in self.ports if node != CONTROLLER]
            for node in nodes:
                self._format(node)
                self._launch(node)
            self.cluster = self._client()
            stack.callback(lambda: self.cluster.close())
            until(lambda: self.listed_brokers() == set(nodes), "all brokers are there")
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    # ---- state

    @property
    def nodes(self) -> list[int]:
        return [node for node in self.ports if node != CONTROLLER]

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{self.ports[node]}" for node in self.nodes)

    def listed_brokers(self) -> set[int]:
        """Return the ids of the brokers that Metadata lists, or no ids if the request fails."""
        with suppress(KprotoError):
            answer: Any = self.cluster.request(MetadataRequest(topics=[]), timeout=3)
            return {broker.node_id for broker in answer.brokers}
        return set()

    def partitions(self, topic: str) -> dict[int, Any]:
        """Return the Metadata entries of a topic's partitions by index."""
        with suppress(KprotoError):
            request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
            answer: Any = self.cluster.request(request, timeout=3)
            return {entry.partition_index: entry for entry in answer.topics[0].partitions}
        return {}

    def leader(self, topic: str, partition: int = 0) -> int:
        entry = self.partitions(topic).get(partition)
        return -1 if entry is None else int(entry.leader_id)

    def is_in_sync(self, *topics: str) -> bool:
        """Return whether every partition has a leader and all replicas are in sync."""
        entries = [entry for topic in topics for entry in (self.partitions(topic) or {0: None}).values()]
        return all(e and e.leader_id > 0 and len(e.isr_nodes) == len(e.replica_nodes) for e in entries)

    def log(self, node: int) -> str:
        return (self._scratch / f"{node}.log").read_text()

    # ---- actions of the operator

    def stop(self, node: int) -> None:
        """Stop a broker with SIGTERM, as a rolling restart does, and wait until its process ends."""
        process = self._running.pop(node)
        process.terminate()
        process.wait(60)

    def kill(self, node: int) -> None:
        process = self._running.pop(node)
        process.kill()
        process.wait()

    def freeze(self, node: int) -> None:
        os.kill(self._running[node].pid, signal.SIGSTOP)

    def thaw(self, node: int) -> None:
        os.kill(self._running[node].pid, signal.SIGCONT)

    def start(self, node: int, *, port: int | None = None) -> None:
        """Start a broker with its old logs, at its old port or at another port.

        The function waits until the broker responds and the other brokers list it. A killed broker stays
        listed until its session expires, so the list alone does not show that the broker runs.
        """
        self._begin(node, port)
        self._there(node)

    def start_all(self, ports: Mapping[int, int]) -> None:
        """Restart all brokers together on other ports.

        Afterwards, no address that clients know belongs to a broker.
        """
        with self.without_client():
            for node, port in ports.items():
                self._begin(node, port)
        for node in ports:
            self._there(node)

    def _begin(self, node: int, port: int | None) -> None:
        if port is not None:
            self.ports[node] = port
        self._configure(node)
        self._launch(node)

    def _there(self, node: int) -> None:
        place = ("127.0.0.1", self.ports[node])
        why = brokers.why_silent(f"127.0.0.1:{self.ports[node]}", self._running[node])
        assert not why, why
        until(lambda: place in self.places(), f"broker {node} is back")

    def add(self, node: int) -> None:
        self.ports[node] = judges.free_port()
        self._format(node)
        self.start(node)

    def remove(self, node: int) -> None:
        """Stop a broker permanently."""
        self.stop(node)
        del self.ports[node]

    def places(self) -> set[tuple[str, int]]:
        with suppress(KprotoError):
            answer: Any = self.cluster.request(MetadataRequest(topics=[]), timeout=3)
            return {(broker.host, broker.port) for broker in answer.brokers}
        return set()

    @contextmanager
    def without_client(self) -> Generator[None]:
        """Close the client of this `Fleet` before the `with` block runs; open a new one after the block."""
        self.cluster.close()
        try:
            yield
        finally:
            self.cluster = self._client()

    # ---- helpers

    def _client(self) -> Admin:
        return Admin(self.bootstrap, request_timeout_ms=5_000)

    def _configure(self, node: int) -> Path:
        port, quorum = self.ports[node], self.ports[CONTROLLER]
        controls = node == CONTROLLER
        settings = {
            **SETTINGS,
            **self._settings,
            "process.roles": "controller" if controls else "broker",
            "node.id": str(node),
            "controller.quorum.voters": f"{CONTROLLER}@127.0.0.1:{quorum}",
            "listeners": f"{'CONTROLLER' if controls else 'PLAINTEXT'}://127.0.0.1:{port}",
            "log.dirs": str(self._scratch / f"logs-{node}"),
            "broker.rack": chr(ord("a") + (node - 1) % 26),
        }
        if controls:
            del settings["inter.broker.listener.name"], settings["broker.rack"]
        config = self._scratch / f"{node}.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return config

    def _format_controller(self) -> None:
        config = self._configure(CONTROLLER)
        order = ["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(config)]
        completed = subprocess.run([*self._run, *order], capture_output=True, text=True)
        if completed.returncode:
            judges.missing(f"a Kafka of several brokers: {completed.stdout[-300:]}{completed.stderr[-300:]}")

    def _format(self, node: int) -> None:
        """Write the files that `kafka-storage format` would write, without a JVM.

        To run the tool would take a second for each broker.
        """
        self._configure(node)
        folder = self._scratch / f"logs-{node}"
        folder.mkdir()
        directory = urlsafe_b64encode(b"\1" + uuid.uuid4().bytes[1:]).decode().rstrip("=")
        known = {"version": 1, "cluster.id": CLUSTER_ID, "node.id": node, "directory.id": directory}
        text = "".join(f"{key}={value}\n" for key, value in known.items())
        (folder / "meta.properties").write_text(text)

    def _launch(self, node: int) -> None:
        with open(self._scratch / f"{node}.log", "a") as log:
            order = [*self._run, "kafka.Kafka", str(self._scratch / f"{node}.properties")]
            process = subprocess.Popen(order, stdout=log, stderr=log)
        self._running[node] = process
        self._stack.enter_context(brokers.killed_with_this_process(process, str(self._scratch)))

    def _end_all(self) -> None:
        for process in self._running.values():
            process.kill()
        for process in self._running.values():
            process.wait()

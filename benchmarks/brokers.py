"""The brokers that clients are measured with, each a process of its own."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tests.conformance.judges import free_port, real_kafka

TOPIC = "flights"
PARTITIONS = 3

# As kafka-server-start.sh starts it. That of the tests has neither G1 nor the JVM's better compiler: it is
# there sooner, and then takes more CPU for everything.
IN_PRODUCTION = (
    "-Xms1g",
    "-Xmx1g",
    "-XX:TieredStopAtLevel=4",
    "-XX:-UseSerialGC",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)


@contextmanager
def kafka(properties: Mapping[str, str] | None = None) -> Iterator[str]:
    """A real Kafka."""
    with real_kafka(dict(properties or {}), IN_PRODUCTION) as found:
        yield found.bootstrap


@contextmanager
def embedded(partitions: int = PARTITIONS) -> Iterator[str]:
    """The embedded broker, with an empty topic."""
    address = f"127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "kproto", "broker", "--listen", address]
    command += ["--topic", f"{TOPIC}:{partitions}", "--set", "group.initial.rebalance.delay.ms=0"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_for(address)
        yield address
    finally:
        process.terminate()
        process.wait(10)


def _wait_for(address: str) -> None:
    from consumer import Cluster
    from kproto.errors import ConnectionFailed

    for _ in range(100):
        try:
            with Cluster(address) as cluster:
                cluster.partitions(TOPIC)
            return
        except ConnectionFailed:
            time.sleep(0.1)
    raise SystemExit("the broker doesn't start")

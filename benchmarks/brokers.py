"""Start the brokers for benchmarks, each in a separate process."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tests.conformance.judges import free_port, real_kafka

TOPIC = "flights"
PARTITIONS = 3

# The settings of all producers.
LINGER_MS = 5
BATCH_BYTES = 512 * 1024
PRODUCER_SETTINGS = (
    f"All producers: idempotent, acks=all, linger {LINGER_MS} ms, batches of up to {BATCH_BYTES >> 10} KiB."
)

# The JVM options of kafka-server-start.sh. The tests start Kafka without G1 and without the C2 compiler: it
# starts sooner, but then needs more CPU per request.
PRODUCTION_JAVA_OPTIONS = (
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
    """Run a real Kafka, and yield its bootstrap address."""
    with real_kafka(dict(properties or {}), PRODUCTION_JAVA_OPTIONS) as broker:
        yield broker.bootstrap


@contextmanager
def embedded(partitions: int = PARTITIONS) -> Iterator[str]:
    """Run the embedded broker with an empty topic, and yield its address."""
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
    from consumer import Admin
    from kproto.errors import ConnectionFailed

    for _ in range(100):
        try:
            with Admin(address) as cluster:
                cluster.partitions(TOPIC)
            return
        except ConnectionFailed:
            time.sleep(0.1)
    raise SystemExit(f"the embedded broker did not start on {address} within 10 s")

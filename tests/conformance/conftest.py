"""Fixtures for the judges, programs that check kproto: Kafka's jars, a real broker, Java. `judges.py` finds
or starts them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from consumer import Admin, Producer
from kproto.group.subscription import TopicPartition
from tests.broker.stage import Socket
from tests.conformance import java_bridge, judges
from tests.conformance.recording_proxy import RecordingProxy
from tests.conformance.socket_pair import Pair


@pytest.fixture(scope="session")
def kafka_jars() -> str:
    """Kafka's jars as a Java class path."""
    judges.java()
    return judges.kafka_jars()


@pytest.fixture(scope="session")
def bridge() -> Iterator[java_bridge.Bridge]:
    """Kafka's message classes, in one JVM for the whole session."""
    with java_bridge.running() as running:
        yield running


@pytest.fixture(scope="session")
def real_kafka() -> Iterator[judges.RealKafka]:
    """One real Kafka for the whole session. Each test uses its own topic and group names."""
    with judges.real_kafka() as broker:
        yield broker


@pytest.fixture(scope="module")
def pair(real_kafka: judges.RealKafka) -> Iterator[Pair]:
    """A connection to the real Kafka, and one to an embedded broker, for the tests of a module."""
    from kproto.broker.server import running

    with running(highest=judges.HIGHEST_OF_KAFKA) as ours:
        sockets = Socket(real_kafka.bootstrap), Socket(ours.bootstrap)
        yield sockets
        for each in sockets:
            each.socket.close()


@pytest.fixture
def embedded() -> Iterator[Any]:
    """A new embedded broker in a thread for each test, with `.bootstrap` and `.create_topic(...)`."""
    from kproto.broker.server import running

    with running(
        topics={}, settings={"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "300"}
    ) as server:
        yield server


@pytest.fixture(scope="module")
def proxied_kafka() -> Iterator[RecordingProxy]:
    """A real Kafka whose clients all connect through a recording proxy."""
    port = judges.free_port()
    advertised = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    with (
        judges.real_kafka(advertised) as kafka,
        RecordingProxy(port, int(kafka.bootstrap.rpartition(":")[2])) as proxy,
    ):
        yield proxy


@pytest.fixture(scope="module")
def operators(proxied_kafka: RecordingProxy) -> Iterator[tuple[Admin, Producer]]:
    """An admin client and a producer that connect to `proxied_kafka` through its proxy."""
    bootstrap = f"127.0.0.1:{proxied_kafka.port}"
    with Admin(bootstrap) as cluster, Producer(bootstrap) as producer:
        cluster.create_topics({"warm": 1})
        # The first commit makes the broker create __consumer_offsets.
        cluster.commit_offsets("warm", {TopicPartition("warm", 0): 0})
        yield cluster, producer

"""The outside judges as fixtures. `judges.py` says how each is had."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance import java_bridge, judges


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
    """One real Kafka for the whole session: use topic and group names of your own."""
    with judges.real_kafka() as broker:
        yield broker


@pytest.fixture
def embedded() -> Iterator[Any]:
    """Our own broker in a thread, a new one for each test: `.bootstrap`, `.create_topic(...)`."""
    from kproto.broker.server import running

    with running(
        topics={}, settings={"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "300"}
    ) as server:
        yield server

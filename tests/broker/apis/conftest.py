"""Fixtures that the tests of several APIs use."""

from __future__ import annotations

import pytest

from kproto.broker.machine import ElectLeader
from kproto.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from tests.broker.stage import TwoBrokers


@pytest.fixture
def led_by_second_broker() -> TwoBrokers:
    """Return two brokers. The partition r-0 has a replica on each, and the second broker leads it."""
    two = TwoBrokers()
    chosen = [CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2])]
    topic = CreatableTopic(name="r", num_partitions=-1, replication_factor=-1, assignments=chosen, configs=[])
    two.ask(1, CreateTopicsRequest(topics=[topic]), 7)
    two.step(1, ElectLeader("r", 0, 2))
    return two

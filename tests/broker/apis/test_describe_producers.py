"""DescribeProducers returns a partition's producers, each with its ongoing transaction."""

from __future__ import annotations

import pytest

from kproto.error_codes import ErrorCode as E
from kproto.messages.describe_producers import DescribeProducersRequest, TopicRequest
from tests.broker.behaviour.stage import TransactionalProducer
from tests.broker.stage import Client, Stage, batch_of


@pytest.fixture
def stage() -> Stage:
    return Stage({"t": 2})


@pytest.fixture
def producer(stage: Stage) -> TransactionalProducer:
    return TransactionalProducer(stage)


def test_producers_are_described_with_their_ongoing_transactions(
    client: Client, producer: TransactionalProducer
) -> None:
    request = TopicRequest(name="t", partition_indexes=[0, 9])

    def states() -> list[tuple[int, ...]]:
        known, missing = client.ask(DescribeProducersRequest(topics=[request])).topics[0].partitions
        assert missing.error_code == E.UNKNOWN_TOPIC_OR_PARTITION
        return [
            (
                producer.producer_epoch,
                producer.last_sequence,
                producer.coordinator_epoch,
                producer.current_txn_start_offset,
            )
            for producer in known.active_producers
        ]

    assert states() == []
    client.produce(batch_of(b"plain"))
    producer.write(b"a", b"b")
    assert states() == [(0, 1, -1, 1)]
    producer.end()
    assert states() == [(1, -1, 0, -1)]

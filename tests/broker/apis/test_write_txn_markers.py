"""Admin clients end hanging transactions with WriteTxnMarkers. The broker's checks follow Kafka's
ProducerAppendInfo.
"""

from __future__ import annotations

from typing import Any

import pytest

from kproto.broker.transaction_index import COORDINATOR_EPOCH
from kproto.error_codes import ErrorCode as E
from kproto.messages.describe_producers import DescribeProducersRequest, TopicRequest
from kproto.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from kproto.transactions.state import OFFSETS_TOPIC
from tests.broker.behaviour.stage import TransactionalProducer, committed_offset
from tests.broker.stage import Client, Stage, TwoBrokers, batch_of


@pytest.fixture
def stage() -> Stage:
    return Stage({"t": 2})


@pytest.fixture
def producer(stage: Stage) -> TransactionalProducer:
    return TransactionalProducer(stage)


def marker(*partitions: int, topic: str = "t", **fields: Any) -> WritableTxnMarker:
    named: dict[str, Any] = {"producer_id": 0, "producer_epoch": 0, "coordinator_epoch": COORDINATOR_EPOCH}
    named["transaction_result"] = False
    return WritableTxnMarker(
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=list(partitions))],
        **{**named, **fields},
    )


def errors(response: Any) -> list[int]:
    return [
        partition.error_code
        for each in response.markers
        for topic in each.topics
        for partition in topic.partitions
    ]


def write(client: Client, *markers: WritableTxnMarker) -> list[int]:
    return errors(client.ask(WriteTxnMarkersRequest(markers=list(markers))))


def state(client: Client) -> Any:
    request = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0])])
    [producer] = client.ask(request).topics[0].partitions[0].active_producers
    return producer


def test_a_marker_ends_a_transaction_that_hangs(
    stage: Stage, client: Client, producer: TransactionalProducer
) -> None:
    producer.write(b"a")
    partition = stage.broker.topics.named("t")
    assert partition is not None
    assert partition.partitions[0].stable_offset == 0
    assert write(client, marker(0, coordinator_epoch=7)) == [0]
    assert state(client).current_txn_start_offset == -1
    assert state(client).coordinator_epoch == 7
    assert partition.partitions[0].stable_offset == 2
    aborted = partition.partitions[0].transactions.aborted(0, 9)
    assert [(entry.first_offset, entry.last_offset) for entry in aborted] == [(0, 1)]


def test_each_partition_has_its_own_error(client: Client) -> None:
    request = [marker(0, 9, 0), marker(1, topic="missing"), marker(1, producer_id=4)]
    response = client.ask(WriteTxnMarkersRequest(markers=request))
    assert errors(response) == [0, E.UNKNOWN_TOPIC_OR_PARTITION, E.UNKNOWN_TOPIC_OR_PARTITION, 0]
    assert [each.producer_id for each in response.markers] == [0, 4]


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"producer_epoch": 2}, E.INVALID_PRODUCER_EPOCH),
        ({"coordinator_epoch": 4}, E.TRANSACTION_COORDINATOR_FENCED),
        ({"transaction_version": 2}, E.NONE),  # No transaction is ongoing.
        ({}, E.NONE),
    ],
)
def test_old_epochs_are_fenced(client: Client, fields: dict[str, int], error: E) -> None:
    newest = {"producer_epoch": 3, "coordinator_epoch": 5}
    assert write(client, marker(0, **newest)) == [0]
    assert write(client, marker(0, **{**newest, **fields})) == [error]


def test_an_old_coordinator_is_fenced_after_a_batch_in_a_new_producer_epoch(client: Client) -> None:
    assert write(client, marker(0, coordinator_epoch=5)) == [0]
    client.produce(batch_of(b"a", producer_id=0, producer_epoch=1, base_sequence=0))
    old_coordinator = marker(0, producer_epoch=1, coordinator_epoch=4)
    assert write(client, old_coordinator) == [E.TRANSACTION_COORDINATOR_FENCED]
    assert state(client).coordinator_epoch == 5


def test_from_transaction_version_2_the_epoch_is_newer_than_that_of_the_records(
    client: Client, producer: TransactionalProducer
) -> None:
    producer.write(b"a")
    assert write(client, marker(0, transaction_version=2)) == [E.INVALID_PRODUCER_EPOCH]
    assert write(client, marker(0, producer_epoch=1, transaction_version=2)) == [0]


@pytest.mark.parametrize("fields", [{"producer_id": -1}, {"producer_epoch": -1}])
def test_negative_ids_and_epochs_are_an_error_of_all_markers(client: Client, fields: dict[str, int]) -> None:
    assert write(client, marker(0), marker(1, **fields)) == [E.UNKNOWN_SERVER_ERROR] * 2
    assert write(client, marker(0), marker(1)) == [0, 0]


def test_pending_offsets_are_ended_in_their_partition_only(
    stage: Stage, client: Client, producer: TransactionalProducer
) -> None:
    producer.add_offsets()
    assert producer.commit(5) == [0]
    _, index = stage.broker.cluster.offsets_partition_of("g")
    other = (index + 1) % 50

    def is_pending() -> bool:
        return stage.broker.cluster.has_pending_offsets("g", producer.id, producer.epoch)

    assert write(client, marker(other, 50, topic=OFFSETS_TOPIC)) == [0, E.UNKNOWN_TOPIC_OR_PARTITION]
    assert is_pending()
    assert write(client, marker(index, topic=OFFSETS_TOPIC, transaction_result=True)) == [0]
    assert not is_pending()
    assert committed_offset(client) == (0, 5)


def test_only_the_leader_writes_markers(led_by_second_broker: TwoBrokers) -> None:
    request = WriteTxnMarkersRequest(markers=[marker(0, 1)])
    outcomes = [errors(led_by_second_broker.ask(node, request, 2)) for node in (1, 2)]
    assert outcomes == [[0, E.UNKNOWN_TOPIC_OR_PARTITION], [E.UNKNOWN_TOPIC_OR_PARTITION, 0]]

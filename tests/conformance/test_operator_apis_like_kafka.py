"""APIs for operators: a real Kafka and the embedded broker respond alike.

The APIs are WriteTxnMarkers, AlterReplicaLogDirs, UnregisterBroker, AddRaftVoter and RemoveRaftVoter.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from consumer import Admin, Producer, TopicPartition
from kproto.messages.add_raft_voter import AddRaftVoterRequest, Listener
from kproto.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from kproto.messages.create_topics import CreateTopicsRequest
from kproto.messages.describe_log_dirs import DescribeLogDirsRequest
from kproto.messages.describe_producers import DescribeProducersRequest, TopicRequest
from kproto.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kproto.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kproto.messages.remove_raft_voter import RemoveRaftVoterRequest
from kproto.messages.unregister_broker import UnregisterBrokerRequest
from kproto.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from kproto.records import Record, encode_batch
from tests.broker.apis.stage import topic_to_create
from tests.conformance.socket_pair import Pair, ask

pytestmark = pytest.mark.kafka

DIRECTORY = UUID(int=7)
NO_DIRECTORY = UUID(int=0)
CONTROLLER = Listener(name="CONTROLLER", host="127.0.0.1", port=1)


def codes(response: Any) -> dict[tuple[int, str, int], int]:
    return {
        (marker.producer_id, topic.name, partition.partition_index): partition.error_code
        for marker in response.markers
        for topic in marker.topics
        for partition in topic.partitions
    }


def produce(pair: Pair, topic: str, producer_id: int, epoch: int, *, transactional: bool) -> None:
    batch = encode_batch(
        [Record(0, 0, None, b"x")],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=0,
        is_transactional=transactional,
    )
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
    request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=20_000, topic_data=[data])
    for response in ask(pair, request, 9):
        assert response.responses[0].partition_responses[0].error_code == 0


def marker(
    *topics: tuple[str, list[int]],
    producer: int = 5_000,
    epoch: int = 3,
    coordinator: int = 0,
    commit: bool = False,
    version: int = 0,
) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=producer,
        producer_epoch=epoch,
        transaction_result=commit,
        topics=[WritableTxnMarkerTopic(name=name, partition_indexes=indexes) for name, indexes in topics],
        coordinator_epoch=coordinator,
        transaction_version=version,
    )


@pytest.mark.parametrize("version", [1, 2])
def test_markers_are_checked_and_written_alike(pair: Pair, version: int) -> None:
    topic = f"markers-{version}"
    for side in pair:
        side.ask(_created(topic), 5)
    produce(pair, topic, 5_000, 3, transactional=False)
    scripts: list[list[WritableTxnMarker]] = [
        [],
        [marker()],
        [marker((topic, []))],
        [marker((topic, [0]), epoch=2)],
        [marker((topic, [0]), epoch=2, version=2)],
        [marker((topic, [0]), version=2)],
        [marker((topic, [0, 9]), ("missing", [0]))],
        [marker((topic, [0]), coordinator=4)],
        [marker((topic, [0]), coordinator=3)],
        [marker((topic, [0]), coordinator=4), marker((topic, [0]), coordinator=3)],
        [marker((topic, [0]), epoch=4, coordinator=4)],
        [marker((topic, [0]), epoch=4, coordinator=5, version=2)],
        [marker((topic, [0]), epoch=5, coordinator=5, version=2)],
        [marker((topic, [0]), producer=6_000, epoch=0, commit=True), marker((topic, [1]), producer=6_000)],
        [marker((topic, [0]), producer=7_000, epoch=-1)],
        [marker((topic, [0]), producer=-1, epoch=0)],
        [marker(("bad name!", [0]))],
        [marker((topic, [-1]))],
    ]
    different: list[Any] = []
    for markers in scripts:
        kafka, ours = map(codes, ask(pair, WriteTxnMarkersRequest(markers=markers), version))
        different += [] if ours == kafka else [(markers, kafka, ours)]
    assert different == []
    described = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[0])])
    kafka, ours = (
        [
            (each.producer_id, each.producer_epoch, each.last_sequence, each.coordinator_epoch)
            for each in sorted(
                response.topics[0].partitions[0].active_producers, key=lambda each: each.producer_id
            )
        ]
        for response in ask(pair, described, 0)
    )
    assert ours == kafka
    ends = ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
    kafka, ours = ask(pair, ListOffsetsRequest(replica_id=-1, topics=[ends], isolation_level=0), 7)
    assert ours.topics[0].partitions[0].offset == kafka.topics[0].partitions[0].offset


def test_a_marker_of_transaction_version_2_needs_a_newer_epoch_than_the_records(
    pair: Pair,
) -> None:
    outcomes: list[list[int]] = []
    for side, bootstrap in zip(pair, (each.bootstrap for each in pair), strict=True):
        side.ask(_created("strict"), 5)
        producer = Producer(bootstrap, transactional_id="strict")
        producer.begin()
        producer.send("strict", b"x", partition=0).result(20)
        with Admin(bootstrap) as admin:
            [partition] = admin.describe_producers([TopicPartition("strict", 0)]).values()
        [state] = partition
        outcomes.append([])
        for epoch in (0, 0, 1, 1):
            request = marker(
                ("strict", [0]),
                producer=state.producer_id,
                epoch=state.producer_epoch + epoch,
                version=2,
            )
            response = side.ask(WriteTxnMarkersRequest(markers=[request]), 2)
            outcomes[-1] += codes(response).values()
        producer.kill()
    kafka, ours = outcomes
    assert ours == kafka
    assert len(set(kafka)) == 2


def _created(topic: str) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=[topic_to_create(topic, 2)])


@pytest.mark.parametrize("version", [1, 2])
def test_directories_are_checked_alike(pair: Pair, version: int) -> None:
    topic = f"directories-{version}"
    for side in pair:
        side.ask(_created(topic), 5)
    own = [side.ask(DescribeLogDirsRequest(topics=None), 4).results[0].log_dir for side in pair]
    answers: list[dict[tuple[str, int], int]] = []
    for side, path in zip(pair, own, strict=True):
        entries = [
            (path, topic, [0, 9]),
            (path, "missing", [0]),
            ("/missing", topic, [1]),
            ("/missing", "x" * 212, [0, 10, 100]),
            (path, "x" * 249, [0]),
            ("", topic, [5]),
            (path, "bad name!", [0]),
            (path, topic, [-1]),
            (path, "twice", [0]),
            ("/missing", "twice", [0]),
        ]
        dirs = [
            AlterReplicaLogDir(path=at, topics=[AlterReplicaLogDirTopic(name=name, partitions=indexes)])
            for at, name, indexes in entries
        ]
        answers.append(
            {
                (result.topic_name, partition.partition_index): partition.error_code
                for result in side.ask(AlterReplicaLogDirsRequest(dirs=dirs), version).results
                for partition in result.partitions
            }
        )
    kafka, ours = answers
    assert ours == kafka


@pytest.mark.parametrize("broker", [77, -1, 2**31 - 1])
def test_the_registration_of_an_unknown_broker_is_missing_alike(pair: Pair, broker: int) -> None:
    kafka, ours = ask(pair, UnregisterBrokerRequest(broker_id=broker), 0)
    assert ours.error_code == kafka.error_code
    assert ours.error_message == kafka.error_message


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(
    "fields",
    [
        {"cluster_id": "another"},
        {"voter_id": -1},
        {"voter_directory_id": NO_DIRECTORY},
        {"listeners": []},
        {"listeners": [Listener(name="OTHER", host="h", port=1)]},
        {"voter_id": 1},
        {},
    ],
    ids=str,
)
def test_new_voters_are_rejected_alike(pair: Pair, version: int, fields: dict[str, Any]) -> None:
    """Error messages contain ids of the cluster and of directories, so only the first words are compared."""
    named: dict[str, Any] = {
        "cluster_id": None,
        "voter_id": 77,
        "voter_directory_id": DIRECTORY,
        "listeners": [CONTROLLER],
    }
    kafka, ours = ask(pair, AddRaftVoterRequest(**{**named, "timeout_ms": 1_000, **fields}), version)
    assert ours.error_code == kafka.error_code
    if fields:
        assert ours.error_message.split()[:3] == kafka.error_message.split()[:3]


@pytest.mark.parametrize(
    "fields",
    [
        {"cluster_id": "another"},
        {"voter_id": -1},
        {"voter_directory_id": NO_DIRECTORY},
        {"voter_id": 1},
        {},
    ],
    ids=str,
)
def test_voters_are_not_removed_alike(pair: Pair, fields: dict[str, Any]) -> None:
    named: dict[str, Any] = {"cluster_id": None, "voter_id": 77, "voter_directory_id": DIRECTORY}
    kafka, ours = ask(pair, RemoveRaftVoterRequest(**{**named, **fields}), 0)
    assert ours.error_code == kafka.error_code
    assert ours.error_message.split()[:3] == kafka.error_message.split()[:3]

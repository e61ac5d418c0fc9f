"""A real Kafka and the embedded broker respond alike to the same requests.

Error messages and ids may differ.

This module covers records, topics and configs; test_raw_requests compares group requests.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from kproto.broker.server import Server, running
from kproto.messages.api_versions import ApiVersionsRequest
from kproto.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from kproto.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kproto.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kproto.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kproto.messages.describe_cluster import DescribeClusterRequest
from kproto.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kproto.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from kproto.messages.fetch import ForgottenTopic
from kproto.messages.find_coordinator import FindCoordinatorRequest
from kproto.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kproto.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kproto.messages.metadata import MetadataRequest, MetadataRequestTopic
from kproto.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kproto.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kproto.records import Record, encode_batch
from kproto.records.batch import crc32c
from kproto.wire.message import Message
from tests.broker.stage import Socket, batch_of, fetch_request, fetch_topic
from tests.conformance import judges
from tests.records.raw_batches import SMALLEST, raw, smallest_records

pytestmark = pytest.mark.kafka

NO_ID, SOME_ID = uuid.UUID(int=0), uuid.UUID(int=9)
NOW = int(time.time() * 1000)
_NUMBERS = count(1)

# Fields that are not compared: error messages, addresses, and the list of records for which a batch was
# rejected.
_FREE = {"error_message", "cluster_id", "port", "record_errors", "documentation", "synonyms"}


class BrokerPair:
    """A real Kafka and the embedded broker, which get the same requests."""

    def __init__(self, real: str, embedded: str) -> None:
        self.brokers = (Socket(real), Socket(embedded))
        self.topic = f"compared-{NOW}-{next(_NUMBERS)}"
        self.sessions: list[int] = [0, 0]
        self.listed_by_kafka = self.brokers[0].listed_versions()

    def answers(self, request: Message, version: int | None = None) -> tuple[Any, Any]:
        """Send a request to both brokers, by default in the highest version that the real Kafka serves."""
        assert request.__api_key__ is not None
        if version is None:
            version = min(request.__versions__.max, self.listed_by_kafka[request.__api_key__][1])
        kafka, ours = (broker.ask(request, version) for broker in self.brokers)
        return kafka, ours

    def agree(self, request: Message, version: int | None = None) -> None:
        kafka, ours = self.answers(request, version)
        assert comparable(ours) == comparable(kafka), f"{request}"

    def come_to_agree(self, request: Message) -> None:
        """Repeat a request until the responses of both brokers are equal. Fail after 20 s.

        A real broker may apply a change only some time after its controller has responded.
        """
        end = time.monotonic() + 20
        kafka, ours = map(comparable, self.answers(request))
        while kafka != ours and time.monotonic() < end:
            time.sleep(0.02)
            kafka, ours = map(comparable, self.answers(request))
        assert ours == kafka, f"{request}"

    def agree_in_session(self, epoch: int, *topics: Any, forget: tuple[ForgottenTopic, ...] = ()) -> None:
        """Send a Fetch in each broker's own session, and check that the responses are equal."""
        got = []
        for index, broker in enumerate(self.brokers):
            request = fetch_request(*topics, wait=0, session=(self.sessions[index], epoch), forget=forget)
            got.append(broker.ask(request, 12))
            self.sessions[index] = got[-1].session_id or self.sessions[index]
        assert comparable(got[1]) == comparable(got[0])

    def create(self, partitions: int = 1, *configs: tuple[str, str | None]) -> None:
        self.agree(CreateTopicsRequest(topics=[creating(self.topic, partitions, 1, *configs)]))
        until = time.monotonic() + 20
        # CreateTopics may succeed before Kafka's broker receives the new partitions from its controller.
        for partition in range(partitions):
            request = listing(self.topic, -1, partition=partition)
            while self.answers(request)[0].topics[0].partitions[0].error_code:
                assert time.monotonic() < until
                time.sleep(0.02)


def comparable(value: Any, name: str = "") -> Any:
    """Return the comparable part of a response: ids are replaced by a constant, and topics are sorted."""
    if name in _FREE:
        return None
    if name == "session_id":
        return value > 0
    if isinstance(value, uuid.UUID):
        return value if value in (NO_ID, SOME_ID) else "an id"
    if isinstance(value, list):
        items = [comparable(item) for item in value]
        return sorted(items, key=repr) if name in ("topics", "responses", "configs") else items
    if hasattr(type(value), "__fields__"):
        inside = {
            field.name: comparable(getattr(value, field.name), field.name) for field in type(value).__fields__
        }
        # Not compared: with eligible leader replicas (KIP-966), Kafka sets this config as a cluster default,
        # so its config_source differs.
        if inside.get("name") == "min.insync.replicas":
            inside["config_source"] = None
        return inside
    return value


@pytest.fixture(scope="module")
def ours() -> Iterator[Server]:
    with running(settings={"auto.create.topics.enable": "false"}) as server:
        yield server


@pytest.fixture
def pair(real_kafka: judges.RealKafka, ours: Server) -> Iterator[BrokerPair]:
    pair = BrokerPair(real_kafka.bootstrap, ours.bootstrap)
    yield pair
    for broker in pair.brokers:
        broker.socket.close()


def creating(
    name: str,
    partitions: int = 1,
    factor: int = 1,
    *configs: tuple[str, str | None],
    assigned: tuple[tuple[int, list[int]], ...] = (),
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[CreatableReplicaAssignment(partition_index=i, broker_ids=ids) for i, ids in assigned],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs],
    )


INVALID_TOPICS = [
    creating("a b"),
    creating("."),
    creating(""),
    creating("t", 0),
    creating("t", -2),
    creating("t", 1, 2),
    creating("t", 1, 0),
    creating("t", 1, 1, ("no.such", "1")),
    creating("t", 1, 1, ("retention.ms", "soon")),
    creating("t", 1, 1, ("retention.ms", "-2")),
    creating("t", 1, 1, ("retention.ms", None)),
    creating("t", 1, 1, ("message.timestamp.type", "Never")),
    creating("t", 1, 1, ("preallocate", "maybe")),
    creating("t", 1, 1, ("min.cleanable.dirty.ratio", "x")),
    creating("t", 1, 1, ("min.cleanable.dirty.ratio", "1.5")),
    creating("t", 1, 1, ("max.message.bytes", "-5")),
    creating("t", 1, 1, ("cleanup.policy", "shred")),
    creating("t", 1, 1, ("compression.type", "best")),
    creating("t", 1, 1, ("flush.messages", "0")),
    creating("t", 1, 1, ("min.insync.replicas", "0")),
    creating("t", 1, 1, ("segment.bytes", "1000")),
    creating("t", 1, 1, ("segment.index.bytes", "1")),
    creating("t", 1, 1, ("segment.ms", "0")),
    creating("t", -1, -1, assigned=((0, [1]), (1, [2]))),
    creating("t", 2, -1, assigned=((0, [1]),)),
    creating("t", -1, -1, assigned=((1, [1]),)),
]


@pytest.mark.parametrize("topic", INVALID_TOPICS, ids=repr)
def test_both_brokers_reject_the_same_topics(pair: BrokerPair, topic: CreatableTopic) -> None:
    topic.name = pair.topic if topic.name == "t" else topic.name
    pair.agree(CreateTopicsRequest(topics=[topic], validate_only=True))


def test_topics_are_created_alike(pair: BrokerPair) -> None:
    pair.create(2)
    pair.agree(CreateTopicsRequest(topics=[creating(pair.topic)]))
    pair.agree(CreateTopicsRequest(topics=[creating("twice"), creating("twice")]))
    pair.agree(CreateTopicsRequest(topics=[creating(f"{pair.topic}.a")]))
    pair.agree(CreateTopicsRequest(topics=[creating(f"{pair.topic}_a")]))
    alike = [creating(f"{pair.topic}.b"), creating(f"{pair.topic}_b")]
    pair.agree(CreateTopicsRequest(topics=alike, validate_only=True))
    pair.agree(CreateTopicsRequest(topics=[creating(f"{pair.topic}-v", -1, -1)], validate_only=True))
    for version in range(2, 8):
        pair.agree(CreateTopicsRequest(topics=[creating(f"{pair.topic}-{version}")]), version)


def test_metadata_is_alike(pair: BrokerPair) -> None:
    pair.create(2)
    names = [MetadataRequestTopic(name=name) for name in (pair.topic, "none-such", "a b")]
    for version in range(4, 14):
        pair.agree(MetadataRequest(topics=names, allow_auto_topic_creation=False), version)
    by_id = MetadataRequestTopic(name=None, topic_id=SOME_ID)
    for version in (10, 11, 12, 13):
        pair.agree(MetadataRequest(topics=[by_id]), version)
    request = MetadataRequest(
        topics=names[:1],
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    pair.agree(request, 8)


def test_the_cluster_and_its_topics_are_described_alike(pair: BrokerPair) -> None:
    pair.create(3)
    for endpoint in (1, 2):
        pair.agree(DescribeClusterRequest(include_cluster_authorized_operations=True, endpoint_type=endpoint))
    names = [TopicRequest(name=pair.topic), TopicRequest(name="none-such")]
    for limit in (1, 2, 2000):
        pair.agree(DescribeTopicPartitionsRequest(topics=names, response_partition_limit=limit))


def producing(topic: str, batch: bytes | None, partition: int = 0, acks: int = -1) -> ProduceRequest:
    part = PartitionProduceData(index=partition, records=batch)
    return ProduceRequest(
        acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=[part])]
    )


def fresh(*values: bytes, **fields: Any) -> bytes:
    """Return a batch whose timestamps are the current time."""
    return batch_of(*values, **{"timestamps": [NOW + i for i in range(len(values))], **fields})


def test_both_brokers_accept_and_reject_the_same_batches(pair: BrokerPair) -> None:
    pair.create(2)
    flipped = bytearray(fresh(b"a"))
    flipped[-3] ^= 1
    producer = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0}
    for batch in (
        fresh(b"a", b"b"),
        fresh(b"a", compression="gzip"),
        fresh(b"a", compression="zstd"),
        b"",
        fresh(b"a") + fresh(b"b"),
        bytes(flipped),
        fresh(b"a")[:-1],
        fresh(b"a", last_offset=4),
        fresh(b"a", is_control=True, **producer),
        fresh(b"x" * 2_000_000),
        batch_of(b"a", timestamps=[NOW + 10**8]),
    ):
        pair.agree(producing(pair.topic, batch), 12)
    pair.agree(producing(pair.topic, fresh(b"a", compression="zstd")), 6)
    pair.agree(producing(pair.topic, fresh(b"a"), 9), 12)
    pair.agree(producing("none-such", fresh(b"a")), 12)
    pair.agree(producing(pair.topic, fresh(b"a"), acks=2), 12)
    for version in range(3, 13):
        pair.agree(producing(pair.topic, fresh(b"a"), 1), version)


def test_both_brokers_reject_records_without_keys_in_compacted_topics(pair: BrokerPair) -> None:
    pair.create(2)
    change = AlterableConfig(name="cleanup.policy", config_operation=0, value="compact")
    resource = AlterConfigsResource(resource_type=2, resource_name=pair.topic, configs=[change])
    pair.agree(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False))
    # Kafka may respond before its broker receives the changed config from the controller.
    end = time.monotonic() + 20
    while not all(
        answer.responses[0].partition_responses[0].error_code
        for answer in pair.answers(producing(pair.topic, fresh(b"no key"), 1), 12)
    ):
        assert time.monotonic() < end
        time.sleep(0.02)
    late = NOW + 86_400_000
    for times, keys in [
        ((NOW, NOW, NOW), (b"k", None, None)),
        ((NOW, NOW), (b"k", b"")),
        ((late, NOW), (None, b"k")),
        ((NOW, late), (None, b"k")),
    ]:
        records = [Record(n, at, key, b"x") for n, (at, key) in enumerate(zip(times, keys, strict=True))]
        batch = encode_batch(records, compression="gzip")
        for version in (7, 9, 12):
            pair.agree(producing(pair.topic, batch), version)
        kafka, ours = pair.answers(producing(pair.topic, batch), 12)
        blamed = [
            [error.batch_index for error in answer.responses[0].partition_responses[0].record_errors]
            for answer in (kafka, ours)
        ]
        assert blamed[0] == blamed[1] or late in times
    pair.agree(producing(pair.topic, batch[:-1] + bytes([batch[-1] ^ 1])), 9)
    keyless = smallest_records(2)
    for content in (keyless + SMALLEST, SMALLEST * 2 + keyless):
        pair.agree(producing(pair.topic, raw(content, content.count(b"\x01\x01\0"), "gzip", NOW)), 9)


@pytest.mark.parametrize("codec", ["none", "gzip", "zstd", "lz4", "snappy"])
def test_both_brokers_refuse_the_same_offsets_of_records(pair: BrokerPair, codec: str) -> None:
    """Both brokers reject a compressed batch whose records have unexpected offsets.

    In a compressed batch the records' offsets must be consecutive, and end at the header's last offset.

    Uncompressed batches that have bytes after their last record are left out: only the embedded broker
    accepts them.
    """
    pair.create(1)
    contents = [(smallest_records(3), 3), (smallest_records(2) + SMALLEST, 3), (SMALLEST * 100_000, 100_000)]
    if codec != "none":
        contents += [(smallest_records(3), 4), (smallest_records(4), 3), (smallest_records(3)[:-1], 3)]
    for content, claimed in contents:
        pair.agree(producing(pair.topic, raw(content, claimed, codec, NOW)), 9)
    for last in (1, 3, 1_000_000):
        batch = bytearray(raw(smallest_records(3), 3, codec, NOW))
        batch[23:27] = last.to_bytes(4, "big")
        batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
        pair.agree(producing(pair.topic, bytes(batch)), 9)


def test_both_brokers_check_producer_sequences_alike(pair: BrokerPair) -> None:
    pair.create(1)
    steps = [(0, 2, 0), (0, 2, 0), (5, 1, 0), (1, 1, 0), (2, 1, 0), (3, 1, 1), (0, 1, 1), (4, 1, 0)]
    for sequence, size, epoch in steps:
        batch = fresh(*[b"x"] * size, producer_id=4000, producer_epoch=epoch, base_sequence=sequence)
        pair.agree(producing(pair.topic, batch), 12)
    pair.agree(producing(pair.topic, fresh(b"x", producer_id=4001, producer_epoch=0, base_sequence=41)), 12)
    # Brokers remember a producer's last five batches, so they detect only five of the seven repeated batches
    # as duplicates.
    for sequence in [*range(1, 8), *range(1, 8)]:
        batch = fresh(b"x", producer_id=4000, producer_epoch=1, base_sequence=sequence)
        pair.agree(producing(pair.topic, batch), 12)


def listing(topic: str, *timestamps: int, partition: int = 0, epoch: int = -1) -> ListOffsetsRequest:
    partitions = [
        ListOffsetsPartition(partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch)
        for timestamp in timestamps
    ]
    return ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=partitions)], timeout_ms=1000
    )


def test_offsets_are_listed_alike(pair: BrokerPair) -> None:
    pair.create(1)
    for timestamp in (-1, -2, -3, -4, -5, -6, -7, 5):
        pair.agree(listing(pair.topic, timestamp))
    pair.answers(producing(pair.topic, fresh(b"a", b"b")), 12)
    pair.answers(
        producing(pair.topic, fresh(b"c", b"d", timestamps=[NOW - 5, NOW + 5], compression="lz4")), 12
    )
    for version in range(1, 12):
        for timestamp in (-1, -2, -3, -4, -5, -6, -7, NOW - 9, NOW, NOW + 1, NOW + 2, NOW + 9):
            pair.agree(listing(pair.topic, timestamp), version)
    pair.agree(listing(pair.topic, -1, -2))
    pair.agree(listing(pair.topic, -1, partition=9))
    pair.agree(listing(pair.topic, -1, epoch=7))
    pair.agree(listing("none-such", -1))


def test_fetch_responses_are_alike(pair: BrokerPair) -> None:
    pair.create(2)
    pair.answers(producing(pair.topic, fresh(b"a", b"b")), 12)
    name = pair.topic
    for topic in (
        fetch_topic(topic=name),
        fetch_topic(1, topic=name),
        fetch_topic(2, topic=name),
        fetch_topic(3, topic=name),
        fetch_topic(-5, topic=name),
        fetch_topic(topic=name, partition=1),
        fetch_topic(topic=name, partition=9),
        fetch_topic(topic="none-such"),
        fetch_topic(topic=name, epoch=9),
        fetch_topic(topic=name, fetched_epoch=0),
        fetch_topic(topic=name, fetched_epoch=5),
        fetch_topic(topic=name, max_bytes=1),
    ):
        for isolation in (0, 1):
            pair.agree(fetch_request(topic, wait=0, isolation=isolation), 12)
    pair.agree(fetch_request(wait=0), 12)
    pair.agree(fetch_request(fetch_topic(topic_id=SOME_ID), wait=0), 13)
    for version in range(4, 13):
        pair.agree(fetch_request(fetch_topic(topic=name), wait=0), version)


def test_fetch_sessions_behave_alike(pair: BrokerPair) -> None:
    pair.create(3)
    name = pair.topic
    pair.agree(fetch_request(session=(123456, 1)), 12)
    pair.agree_in_session(0, fetch_topic(topic=name), fetch_topic(topic=name, partition=1))
    pair.agree_in_session(1)
    pair.answers(producing(name, fresh(b"a")), 12)
    pair.agree_in_session(2)
    pair.agree_in_session(3)
    pair.agree_in_session(4, fetch_topic(1, topic=name), fetch_topic(topic=name, partition=2))
    pair.agree_in_session(5, fetch_topic(topic=name, partition=9))
    pair.agree_in_session(6)
    pair.agree_in_session(9)
    pair.agree_in_session(7, forget=(ForgottenTopic(topic=name, partitions=[9, 2]),))
    pair.agree_in_session(8, forget=(ForgottenTopic(topic=name, partitions=[0, 1]),))
    pair.agree_in_session(9)


def test_epoch_end_offsets_are_alike(pair: BrokerPair) -> None:
    pair.create(1)
    pair.answers(producing(pair.topic, fresh(b"a")), 12)
    for epoch, current, partition in [(0, -1, 0), (1, -1, 0), (0, 3, 0), (0, -1, 9), (-1, -1, 0)]:
        partition_epoch = OffsetForLeaderPartition(
            partition=partition, leader_epoch=epoch, current_leader_epoch=current
        )
        topic = OffsetForLeaderTopic(topic=pair.topic, partitions=[partition_epoch])
        pair.agree(OffsetForLeaderEpochRequest(topics=[topic]))


def test_records_are_deleted_alike(pair: BrokerPair) -> None:
    pair.create(1)
    pair.answers(producing(pair.topic, fresh(b"a", b"b", b"c")), 12)
    for offset, partition in [(1, 0), (99, 0), (-2, 0), (0, 9), (0, 0), (-1, 0)]:
        partition_offset = DeleteRecordsPartition(partition_index=partition, offset=offset)
        topic = DeleteRecordsTopic(name=pair.topic, partitions=[partition_offset])
        pair.agree(DeleteRecordsRequest(topics=[topic], timeout_ms=2000))
        for timestamp in (-2, -3, NOW, NOW + 1, NOW + 2, NOW + 9):
            pair.agree(listing(pair.topic, timestamp))


def test_both_brokers_reject_delete_records_on_compacted_topics(pair: BrokerPair) -> None:
    name = pair.topic
    for policy in ("compact", "compact,delete", ""):
        pair.topic = f"{name}-{len(policy)}"
        pair.create(1, ("cleanup.policy", policy))
        for offset in (0, 99, -1):
            partition_offset = DeleteRecordsPartition(partition_index=0, offset=offset)
            topic = DeleteRecordsTopic(name=pair.topic, partitions=[partition_offset])
            pair.agree(DeleteRecordsRequest(topics=[topic], timeout_ms=2000))


def test_partitions_are_added_alike(pair: BrokerPair) -> None:
    pair.create(2)
    for name, total, added, validate in [
        (pair.topic, 2, None, False),
        (pair.topic, 1, None, False),
        (pair.topic, 0, None, False),
        ("none-such", 3, None, False),
        (pair.topic, 3, [[2]], False),
        (pair.topic, 3, [[1], [1]], False),
        (pair.topic, 3, None, True),
        (pair.topic, 3, None, False),
        (pair.topic, 4, [[1]], False),
    ]:
        assignments = None if added is None else [CreatePartitionsAssignment(broker_ids=ids) for ids in added]
        topic = CreatePartitionsTopic(name=name, count=total, assignments=assignments)
        pair.agree(CreatePartitionsRequest(topics=[topic], timeout_ms=2000, validate_only=validate))


def describing(kind: int, name: str, *keys: str) -> DescribeConfigsRequest:
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
    )
    return DescribeConfigsRequest(resources=[resource])


def test_configs_are_described_and_altered_alike(pair: BrokerPair) -> None:
    pair.create(1)
    name = pair.topic
    pair.agree(describing(2, name))
    none = DescribeConfigsResource(resource_type=2, resource_name=name, configuration_keys=[])
    pair.agree(DescribeConfigsRequest(resources=[none]))
    for request in (
        describing(2, "none-such"),
        describing(2, "a b"),
        describing(4, "9"),
        describing(99, "x"),
    ):
        pair.agree(request)
    for topic, operation, config, value in [
        (name, 0, "retention.ms", "7"),
        (name, 0, "retention.ms", "soon"),
        (name, 0, "no.such", "1"),
        (name, 2, "retention.ms", "1"),
        (name, 2, "cleanup.policy", "compact"),
        (name, 3, "cleanup.policy", "delete"),
        ("none-such", 0, "retention.ms", "1"),
        ("a b", 0, "retention.ms", "1"),
        (name, 0, "retention.ms", None),
        (name, 1, "retention.ms", None),
    ]:
        change = AlterableConfig(name=config, config_operation=operation, value=value)
        resource = AlterConfigsResource(resource_type=2, resource_name=topic, configs=[change])
        pair.agree(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False))
        pair.come_to_agree(describing(2, name, "retention.ms", "cleanup.policy", "none.such"))
    twice = [AlterableConfig(name="retention.ms", config_operation=0, value=value) for value in "12"]
    resource = AlterConfigsResource(resource_type=2, resource_name=name, configs=twice)
    pair.agree(IncrementalAlterConfigsRequest(resources=[resource], validate_only=True))
    resource.configs = twice[:1]
    odd = AlterableConfig(name="retention.ms", config_operation=9, value="1")
    strange = AlterConfigsResource(resource_type=2, resource_name="none-such", configs=[odd])
    pair.agree(IncrementalAlterConfigsRequest(resources=[resource, strange], validate_only=False))
    pair.agree(IncrementalAlterConfigsRequest(resources=[resource, resource], validate_only=True))


def test_topics_are_deleted_alike(pair: BrokerPair) -> None:
    pair.create(1)
    by_name = DeleteTopicState(name=pair.topic, topic_id=NO_ID)
    for states in (
        [DeleteTopicState(name="none-such", topic_id=NO_ID), DeleteTopicState(name=None, topic_id=SOME_ID)],
        [DeleteTopicState(name=pair.topic, topic_id=SOME_ID)],
        [DeleteTopicState(name=None, topic_id=NO_ID)],
        [by_name, by_name],
        [by_name],
        [by_name],
    ):
        pair.agree(DeleteTopicsRequest(topics=states, timeout_ms=2000))
    pair.agree(DeleteTopicsRequest(topic_names=[pair.topic], timeout_ms=2000), 5)


def test_both_brokers_reject_unknown_coordinator_types(pair: BrokerPair) -> None:
    pair.agree(FindCoordinatorRequest(key_type=7, coordinator_keys=["g", "g"]))
    pair.agree(FindCoordinatorRequest(key_type=7, key="g"), 3)
    pair.agree(FindCoordinatorRequest(coordinator_keys=[]))


def test_advertised_versions_are_within_kafkas(pair: BrokerPair) -> None:
    kafka, ours = pair.answers(ApiVersionsRequest(client_software_name="a", client_software_version="1"))
    ranges = {api.api_key: (api.min_version, api.max_version) for api in kafka.api_keys}
    # The embedded broker also serves versions of newer Kafka releases; these versions are not compared.
    highest = {key: version for key, (_, version) in ranges.items()}
    assert {
        api.api_key: (api.min_version, min(api.max_version, highest[api.api_key])) for api in ours.api_keys
    }.items() <= ranges.items()
    pair.agree(ApiVersionsRequest(client_software_name="", client_software_version="1"))

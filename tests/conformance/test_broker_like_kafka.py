"""The same requests to a real Kafka and to the embedded broker: the same answers, but for words and ids.

Group requests have their own comparison (test_raw_requests.py); this is about records, topics and configs.
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
from kproto.wire.message import Message
from tests.broker.stage import Socket, batch_of, fetch_request, fetch_topic
from tests.conformance import judges

pytestmark = pytest.mark.kafka

NO_ID, SOME_ID = uuid.UUID(int=0), uuid.UUID(int=9)
NOW = int(time.time() * 1000)
_NUMBERS = count(1)

# What is not compared: words, addresses, and whom the records of a refused batch are blamed on.
_FREE = {"error_message", "cluster_id", "port", "record_errors", "documentation", "synonyms"}


class Both:
    """A real Kafka and the embedded broker, asked the same."""

    def __init__(self, real: str, embedded: str) -> None:
        self.brokers = (Socket(real), Socket(embedded))
        self.topic = f"compared-{NOW}-{next(_NUMBERS)}"
        self.sessions: list[int] = [0, 0]

    def answers(self, request: Message, version: int | None = None) -> tuple[Any, Any]:
        version = request.__versions__.max if version is None else version
        kafka, ours = (broker.ask(request, version) for broker in self.brokers)
        return kafka, ours

    def agree(self, request: Message, version: int | None = None) -> None:
        kafka, ours = self.answers(request, version)
        assert seen(ours) == seen(kafka), f"{request}"

    def come_to_agree(self, request: Message) -> None:
        """A real broker hears a little later from its controller what was changed."""
        end = time.monotonic() + 20
        kafka, ours = map(seen, self.answers(request))
        while kafka != ours and time.monotonic() < end:
            time.sleep(0.02)
            kafka, ours = map(seen, self.answers(request))
        assert ours == kafka, f"{request}"

    def agree_in_session(self, epoch: int, *topics: Any, forget: tuple[ForgottenTopic, ...] = ()) -> None:
        """A fetch in the session that each broker gave to its own client."""
        got = []
        for index, broker in enumerate(self.brokers):
            request = fetch_request(*topics, wait=0, session=(self.sessions[index], epoch), forget=forget)
            got.append(broker.ask(request, 12))
            self.sessions[index] = got[-1].session_id or self.sessions[index]
        assert seen(got[1]) == seen(got[0])

    def create(self, partitions: int = 1, *configs: tuple[str, str | None]) -> None:
        self.agree(CreateTopicsRequest(topics=[creating(self.topic, partitions, 1, *configs)]))
        until = time.monotonic() + 20
        for partition in range(partitions):  # Kafka's broker takes them over a little later
            asked = listing(self.topic, -1, partition=partition)
            while self.answers(asked)[0].topics[0].partitions[0].error_code:
                assert time.monotonic() < until
                time.sleep(0.02)


def seen(value: Any, name: str = "") -> Any:
    """What of an answer is compared: ids only as being there, lists of topics in any order."""
    if name in _FREE:
        return None
    if name == "session_id":
        return value > 0
    if isinstance(value, uuid.UUID):
        return value if value in (NO_ID, SOME_ID) else "an id"
    if isinstance(value, list):
        items = [seen(item) for item in value]
        return sorted(items, key=repr) if name in ("topics", "responses", "configs") else items
    if hasattr(type(value), "__fields__"):
        inside = {
            field.name: seen(getattr(value, field.name), field.name) for field in type(value).__fields__
        }
        if inside.get("name") == "min.insync.replicas":  # Kafka's elections make it a setting of the cluster
            inside["config_source"] = None
        return inside
    return value


@pytest.fixture(scope="module")
def ours() -> Iterator[Server]:
    with running(settings={"auto.create.topics.enable": "false"}) as server:
        yield server


@pytest.fixture
def both(real_kafka: judges.RealKafka, ours: Server) -> Iterator[Both]:
    pair = Both(real_kafka.bootstrap, ours.bootstrap)
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


REFUSED_TOPICS = [
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


@pytest.mark.parametrize("topic", REFUSED_TOPICS, ids=repr)
def test_topics_are_refused_alike(both: Both, topic: CreatableTopic) -> None:
    topic.name = both.topic if topic.name == "t" else topic.name
    both.agree(CreateTopicsRequest(topics=[topic], validate_only=True))


def test_topics_are_created_alike(both: Both) -> None:
    both.create(2)
    both.agree(CreateTopicsRequest(topics=[creating(both.topic)]))
    both.agree(CreateTopicsRequest(topics=[creating("twice"), creating("twice")]))
    both.agree(CreateTopicsRequest(topics=[creating(f"{both.topic}.a")]))
    both.agree(CreateTopicsRequest(topics=[creating(f"{both.topic}_a")]))
    alike = [creating(f"{both.topic}.b"), creating(f"{both.topic}_b")]
    both.agree(CreateTopicsRequest(topics=alike, validate_only=True))
    both.agree(CreateTopicsRequest(topics=[creating(f"{both.topic}-v", -1, -1)], validate_only=True))
    for version in range(2, 8):
        both.agree(CreateTopicsRequest(topics=[creating(f"{both.topic}-{version}")]), version)


def test_metadata_is_alike(both: Both) -> None:
    both.create(2)
    names = [MetadataRequestTopic(name=name) for name in (both.topic, "none-such", "a b")]
    for version in range(4, 14):
        both.agree(MetadataRequest(topics=names, allow_auto_topic_creation=False), version)
    by_id = MetadataRequestTopic(name=None, topic_id=SOME_ID)
    for version in (10, 11, 12, 13):
        both.agree(MetadataRequest(topics=[by_id]), version)
    asked = MetadataRequest(
        topics=names[:1],
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    both.agree(asked, 8)


def test_the_cluster_and_its_topics_are_described_alike(both: Both) -> None:
    both.create(3)
    for endpoint in (1, 2):
        both.agree(DescribeClusterRequest(include_cluster_authorized_operations=True, endpoint_type=endpoint))
    names = [TopicRequest(name=both.topic), TopicRequest(name="none-such")]
    for limit in (1, 2, 2000):
        both.agree(DescribeTopicPartitionsRequest(topics=names, response_partition_limit=limit))


def producing(topic: str, batch: bytes | None, partition: int = 0, acks: int = -1) -> ProduceRequest:
    part = PartitionProduceData(index=partition, records=batch)
    return ProduceRequest(
        acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=[part])]
    )


def fresh(*values: bytes, **fields: Any) -> bytes:
    """A batch with timestamps of today."""
    return batch_of(*values, **{"timestamps": [NOW + i for i in range(len(values))], **fields})


def test_records_are_produced_and_refused_alike(both: Both) -> None:
    both.create(2)
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
        both.agree(producing(both.topic, batch), 12)
    both.agree(producing(both.topic, fresh(b"a", compression="zstd")), 6)
    both.agree(producing(both.topic, fresh(b"a"), 9), 12)
    both.agree(producing("none-such", fresh(b"a")), 12)
    both.agree(producing(both.topic, fresh(b"a"), acks=2), 12)
    for version in range(3, 13):
        both.agree(producing(both.topic, fresh(b"a"), 1), version)


def test_records_without_keys_are_refused_alike_by_compacted_topics(both: Both) -> None:
    both.create(2)
    change = AlterableConfig(name="cleanup.policy", config_operation=0, value="compact")
    resource = AlterConfigsResource(resource_type=2, resource_name=both.topic, configs=[change])
    both.agree(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False))
    end = time.monotonic() + 20  # Kafka's broker hears of it from its controller
    while not all(
        answer.responses[0].partition_responses[0].error_code
        for answer in both.answers(producing(both.topic, fresh(b"no key"), 1), 12)
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
            both.agree(producing(both.topic, batch), version)
        kafka, ours = both.answers(producing(both.topic, batch), 12)
        blamed = [
            [error.batch_index for error in answer.responses[0].partition_responses[0].record_errors]
            for answer in (kafka, ours)
        ]
        assert blamed[0] == blamed[1] or late in times
    both.agree(producing(both.topic, batch[:-1] + bytes([batch[-1] ^ 1])), 9)


def test_idempotent_producers_are_judged_alike(both: Both) -> None:
    both.create(1)
    steps = [(0, 2, 0), (0, 2, 0), (5, 1, 0), (1, 1, 0), (2, 1, 0), (3, 1, 1), (0, 1, 1), (4, 1, 0)]
    for sequence, size, epoch in steps:
        batch = fresh(*[b"x"] * size, producer_id=4000, producer_epoch=epoch, base_sequence=sequence)
        both.agree(producing(both.topic, batch), 12)
    both.agree(producing(both.topic, fresh(b"x", producer_id=4001, producer_epoch=0, base_sequence=41)), 12)
    for sequence in [*range(1, 8), *range(1, 8)]:  # the last five of a producer are remembered
        batch = fresh(b"x", producer_id=4000, producer_epoch=1, base_sequence=sequence)
        both.agree(producing(both.topic, batch), 12)


def listing(topic: str, *timestamps: int, partition: int = 0, epoch: int = -1) -> ListOffsetsRequest:
    asked = [
        ListOffsetsPartition(partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch)
        for timestamp in timestamps
    ]
    return ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=asked)], timeout_ms=1000
    )


def test_offsets_are_listed_alike(both: Both) -> None:
    both.create(1)
    for timestamp in (-1, -2, -3, -4, -5, -6, -7, 5):
        both.agree(listing(both.topic, timestamp))
    both.answers(producing(both.topic, fresh(b"a", b"b")), 12)
    both.answers(
        producing(both.topic, fresh(b"c", b"d", timestamps=[NOW - 5, NOW + 5], compression="lz4")), 12
    )
    for version in range(1, 12):
        for timestamp in (-1, -2, -3, -4, -5, -6, -7, NOW - 9, NOW, NOW + 1, NOW + 2, NOW + 9):
            both.agree(listing(both.topic, timestamp), version)
    both.agree(listing(both.topic, -1, -2))
    both.agree(listing(both.topic, -1, partition=9))
    both.agree(listing(both.topic, -1, epoch=7))
    both.agree(listing("none-such", -1))


def test_fetches_are_answered_alike(both: Both) -> None:
    both.create(2)
    both.answers(producing(both.topic, fresh(b"a", b"b")), 12)
    name = both.topic
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
            both.agree(fetch_request(topic, wait=0, isolation=isolation), 12)
    both.agree(fetch_request(wait=0), 12)
    both.agree(fetch_request(fetch_topic(topic_id=SOME_ID), wait=0), 13)
    for version in range(4, 13):
        both.agree(fetch_request(fetch_topic(topic=name), wait=0), version)


def test_fetch_sessions_are_kept_alike(both: Both) -> None:
    both.create(3)
    name = both.topic
    both.agree(fetch_request(session=(123456, 1)), 12)
    both.agree_in_session(0, fetch_topic(topic=name), fetch_topic(topic=name, partition=1))
    both.agree_in_session(1)
    both.answers(producing(name, fresh(b"a")), 12)
    both.agree_in_session(2)
    both.agree_in_session(3)
    both.agree_in_session(4, fetch_topic(1, topic=name), fetch_topic(topic=name, partition=2))
    both.agree_in_session(5, fetch_topic(topic=name, partition=9))
    both.agree_in_session(6)
    both.agree_in_session(9)
    both.agree_in_session(7, forget=(ForgottenTopic(topic=name, partitions=[9, 2]),))
    both.agree_in_session(8, forget=(ForgottenTopic(topic=name, partitions=[0, 1]),))
    both.agree_in_session(9)


def test_the_ends_of_epochs_are_told_alike(both: Both) -> None:
    both.create(1)
    both.answers(producing(both.topic, fresh(b"a")), 12)
    for epoch, current, partition in [(0, -1, 0), (1, -1, 0), (0, 3, 0), (0, -1, 9), (-1, -1, 0)]:
        asked = OffsetForLeaderPartition(
            partition=partition, leader_epoch=epoch, current_leader_epoch=current
        )
        topic = OffsetForLeaderTopic(topic=both.topic, partitions=[asked])
        both.agree(OffsetForLeaderEpochRequest(topics=[topic]))


def test_records_are_deleted_alike(both: Both) -> None:
    both.create(1)
    both.answers(producing(both.topic, fresh(b"a", b"b", b"c")), 12)
    for offset, partition in [(1, 0), (99, 0), (-2, 0), (0, 9), (0, 0), (-1, 0)]:
        asked = DeleteRecordsPartition(partition_index=partition, offset=offset)
        topic = DeleteRecordsTopic(name=both.topic, partitions=[asked])
        both.agree(DeleteRecordsRequest(topics=[topic], timeout_ms=2000))
        for timestamp in (-2, -3, NOW, NOW + 1, NOW + 2, NOW + 9):
            both.agree(listing(both.topic, timestamp))


def test_compacted_topics_keep_their_records_alike(both: Both) -> None:
    name = both.topic
    for policy in ("compact", "compact,delete", ""):
        both.topic = f"{name}-{len(policy)}"
        both.create(1, ("cleanup.policy", policy))
        for offset in (0, 99, -1):
            asked = DeleteRecordsPartition(partition_index=0, offset=offset)
            topic = DeleteRecordsTopic(name=both.topic, partitions=[asked])
            both.agree(DeleteRecordsRequest(topics=[topic], timeout_ms=2000))


def test_topics_grow_alike(both: Both) -> None:
    both.create(2)
    for name, total, added, validate in [
        (both.topic, 2, None, False),
        (both.topic, 1, None, False),
        (both.topic, 0, None, False),
        ("none-such", 3, None, False),
        (both.topic, 3, [[2]], False),
        (both.topic, 3, [[1], [1]], False),
        (both.topic, 3, None, True),
        (both.topic, 3, None, False),
        (both.topic, 4, [[1]], False),
    ]:
        assignments = None if added is None else [CreatePartitionsAssignment(broker_ids=ids) for ids in added]
        topic = CreatePartitionsTopic(name=name, count=total, assignments=assignments)
        both.agree(CreatePartitionsRequest(topics=[topic], timeout_ms=2000, validate_only=validate))


def describing(kind: int, name: str, *keys: str) -> DescribeConfigsRequest:
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
    )
    return DescribeConfigsRequest(resources=[resource])


def test_configs_are_described_and_altered_alike(both: Both) -> None:
    both.create(1)
    name = both.topic
    both.agree(describing(2, name))
    none = DescribeConfigsResource(resource_type=2, resource_name=name, configuration_keys=[])
    both.agree(DescribeConfigsRequest(resources=[none]))
    for asked in (describing(2, "none-such"), describing(2, "a b"), describing(4, "9"), describing(99, "x")):
        both.agree(asked)
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
        both.agree(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False))
        both.come_to_agree(describing(2, name, "retention.ms", "cleanup.policy", "none.such"))
    twice = [AlterableConfig(name="retention.ms", config_operation=0, value=value) for value in "12"]
    resource = AlterConfigsResource(resource_type=2, resource_name=name, configs=twice)
    both.agree(IncrementalAlterConfigsRequest(resources=[resource], validate_only=True))
    resource.configs = twice[:1]
    odd = AlterableConfig(name="retention.ms", config_operation=9, value="1")
    strange = AlterConfigsResource(resource_type=2, resource_name="none-such", configs=[odd])
    both.agree(IncrementalAlterConfigsRequest(resources=[resource, strange], validate_only=False))
    both.agree(IncrementalAlterConfigsRequest(resources=[resource, resource], validate_only=True))


def test_topics_are_deleted_alike(both: Both) -> None:
    both.create(1)
    by_name = DeleteTopicState(name=both.topic, topic_id=NO_ID)
    for states in (
        [DeleteTopicState(name="none-such", topic_id=NO_ID), DeleteTopicState(name=None, topic_id=SOME_ID)],
        [DeleteTopicState(name=both.topic, topic_id=SOME_ID)],
        [DeleteTopicState(name=None, topic_id=NO_ID)],
        [by_name, by_name],
        [by_name],
        [by_name],
    ):
        both.agree(DeleteTopicsRequest(topics=states, timeout_ms=2000))
    both.agree(DeleteTopicsRequest(topic_names=[both.topic], timeout_ms=2000), 5)


def test_coordinators_of_unknown_kinds_are_refused_alike(both: Both) -> None:
    both.agree(FindCoordinatorRequest(key_type=7, coordinator_keys=["g", "g"]))
    both.agree(FindCoordinatorRequest(key_type=7, key="g"), 3)
    both.agree(FindCoordinatorRequest(coordinator_keys=[]))


def test_what_is_advertised_is_advertised_alike(both: Both) -> None:
    kafka, ours = both.answers(ApiVersionsRequest(client_software_name="a", client_software_version="1"))
    ranges = {api.api_key: (api.min_version, api.max_version) for api in kafka.api_keys}
    assert {
        api.api_key: (api.min_version, api.max_version) for api in ours.api_keys
    }.items() <= ranges.items()
    both.agree(ApiVersionsRequest(client_software_name="", client_software_version="1"))

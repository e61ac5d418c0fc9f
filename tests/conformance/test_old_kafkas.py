"""kproto's clients and the Spark source work on Kafka 2.1 to 4.4, and on an imitation of each release.

An embedded broker imitates each release: its option `highest` limits it to the versions that the release
lists in ApiVersions. Each program asserts the same outcome on the release and on its imitation.

Only one release's broker runs at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from consumer import Admin, AsyncConsumer, AsyncProducer, Consumer, Producer, TopicPartition
from kproto.broker.apis.table import APIS, NOT_SERVED
from kproto.broker.server import running
from kproto.error_codes import ErrorCode
from kproto.errors import (
    BrokerError,
    Fenced,
    KprotoError,
    OffsetOutOfRange,
    PartialFailure,
    UnknownTopic,
    UnsupportedVersion,
)
from kproto.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kproto.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tests.broker.stage import Socket
from tests.conformance import judges
from tests.conformance.spark_session import spark

__all__ = ["spark"]

ROOT = Path(__file__).resolve().parents[2]
RECORDED: dict[str, dict[str, list[int]]] = json.loads((ROOT / "docs" / "kafka-versions.json").read_text())
SETTINGS = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "300",
}
GROUP: dict[str, Any] = {
    "auto_offset_reset": "earliest",
    "enable_auto_commit": False,
    "session_timeout_ms": 30_000,
    "heartbeat_interval_ms": 300,
    "metadata_max_age_ms": 300,
}
TOPIC = 2  # The resource type "topic" of DescribeConfigs.

_numbers = count(int(time.time() * 1000))

pytestmark = pytest.mark.kafka


@dataclass(frozen=True)
class Release:
    """A running broker of a release, and an embedded broker that imitates this release.

    `listed` maps each API key to the lowest and highest version that the real broker lists.
    """

    version: str
    real: str
    embedded: str
    listed: Mapping[int, list[int]]


@dataclass(frozen=True)
class Place:
    """A release's broker, either real or imitated, and the API versions that the release lists."""

    bootstrap: str
    release: Release

    def knows(self, api: str, version: int) -> bool:
        """Return whether the release lists this version of an API."""
        key = next(key for key, entry in APIS.items() if entry.name == api)
        return self.release.listed.get(key, [0, -1])[1] >= version

    def topic(self, partitions: int = 1, values: int = 0) -> str:
        """Create a topic and write values to its first partition."""
        name = f"t{next(_numbers)}"
        with Admin(self.bootstrap) as cluster:
            cluster.create_topics({name: partitions})
        if values:
            self.write(name, [b"%d" % number for number in range(values)])
        return name

    def write(self, topic: str, values: list[bytes]) -> None:
        with Producer(self.bootstrap) as producer:
            for value in values:
                producer.send(topic, value, partition=0)

    def member(self, group: str, *topics: str, **options: Any) -> Consumer:
        consumer = Consumer(self.bootstrap, group_id=group, **{**GROUP, **options})
        consumer.subscribe(topics)
        return consumer

    def committed_values(self, topic: str, number: int) -> list[bytes]:
        """Read `number` committed values, and then all that the next poll returns within 0.5 s."""
        with Consumer(
            self.bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
        ) as reader:
            reader.assign([TopicPartition(topic, 0)])
            values = read(reader, number)
            return values + [record.value or b"" for record in reader.poll(0.5)]


def listed_versions(bootstrap: str) -> dict[int, list[int]]:
    """Return the lowest and highest version of each API in the broker's response to ApiVersions v0."""
    socket = Socket(bootstrap)
    socket.send(ApiVersionsRequest(), 0)
    response = socket.answer(ApiVersionsResponse, 0)
    socket.socket.close()
    return {entry.api_key: [entry.min_version, entry.max_version] for entry in response.api_keys}


def highest_of(listed: Mapping[int, list[int]]) -> dict[str, int]:
    """Return the argument `highest` that limits an embedded broker to these APIs and versions.

    The embedded broker does not serve an API if Kafka 4 has removed all versions of it that the release
    lists. An example is WriteTxnMarkers of Kafka 2.1.
    """
    highest = {key: listed.get(key, [0, NOT_SERVED])[1] for key in APIS}
    return {
        api.name: highest[key] if highest[key] >= api.versions().min_version else NOT_SERVED
        for key, api in APIS.items()
        if highest[key] < api.versions().max_version
    }


@pytest.fixture(scope="module", params=["2.1.1", "2.8.2", "3.5.2", "4.0.0", "4.4.0"])
def release(request: pytest.FixtureRequest) -> Iterator[Release]:
    with judges.real_kafka(version=request.param) as kafka:
        listed = listed_versions(kafka.bootstrap)
        with running(highest=highest_of(listed), settings=SETTINGS) as server:
            yield Release(request.param, kafka.bootstrap, server.bootstrap, listed)


@pytest.fixture(params=["real", "embedded"])
def place(request: pytest.FixtureRequest, release: Release) -> Place:
    """A release's broker. Each test runs on the real broker, and on the embedded broker that imitates it."""
    return Place(release.real if request.param == "real" else release.embedded, release)


def read(consumer: Consumer, number: int, *others: Consumer, seconds: float = 60) -> list[bytes]:
    """Poll until the consumer has returned this number of values.

    The `others` are polled only so that they stay in the group. Their values are ignored.
    """
    values: list[bytes] = []
    end = time.monotonic() + seconds
    while len(values) < number:
        assert time.monotonic() < end, f"{len(values)} of {number} values"
        for other in others:
            other.poll(0.05)
        values += [record.value or b"" for record in consumer.poll(0.2)]
    return values


def poll_until(holds: Any, *consumers: Consumer, seconds: float = 60) -> list[tuple[int, int]]:
    """Poll consumers until a condition holds. Return the partition and offset of each record."""
    places: list[tuple[int, int]] = []
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it took too long"
        for consumer in consumers:
            places += [(record.partition, record.offset) for record in consumer.poll(0.05)]
    return places


def poll_for(seconds: float, consumer: Consumer) -> None:
    """Poll a member whose topic is deleted. UnknownTopic is ignored: the commit before the rebalance may
    raise it.
    """
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(UnknownTopic):
            consumer.poll(0.05)


def committed_offset(consumer: Consumer, partition: TopicPartition) -> int | None:
    stored = consumer.committed([partition])[partition]
    return None if stored is None else stored.offset


def numbers(first: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, end)]


# ---- versions


def test_the_recorded_versions_are_those_of_the_release(release: Release) -> None:
    assert RECORDED[release.version] == {str(key): list(pair) for key, pair in release.listed.items()}


def test_the_imitation_lists_the_highest_versions_of_the_release(release: Release) -> None:
    imitated = {key: highest for key, (_, highest) in listed_versions(release.embedded).items()}
    assert imitated == {
        key: min(highest, APIS[key].versions().max_version)
        for key, (_, highest) in release.listed.items()
        if key in APIS and highest >= APIS[key].versions().min_version
    }


# ---- producers and consumers


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_an_idempotent_producer_writes_each_compression(place: Place, compression: str) -> None:
    topic = place.topic()
    with Producer(place.bootstrap, compression_type=compression) as producer:
        sent = [
            producer.send(topic, b"v" * number, key=b"k", headers=[("h", b"1"), ("n", None)])
            for number in range(300)
        ]
    assert [delivery.result().offset for delivery in sent] == list(range(300))
    with Consumer(place.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert read(consumer, 300) == [b"v" * number for number in range(300)]


def test_a_group_resumes_after_its_commits(place: Place) -> None:
    topic = place.topic(3, values=20)
    for first in (0, 20):
        with place.member(topic, topic) as member:
            assert read(member, 20) == numbers(first, first + 20)
            member.commit()
            with Admin(place.bootstrap) as cluster:
                group = cluster.group(topic)
            assert (group.state, len(group.members), sum(n or 0 for n in group.lag.values())) == (
                "Stable",
                1,
                0,
            )
        place.write(topic, numbers(first + 20, first + 40))


def test_async_clients_write_read_and_commit(place: Place) -> None:
    topic = place.topic()

    async def run() -> tuple[list[bytes], int | None]:
        async with AsyncProducer(place.bootstrap) as producer:
            for number in range(20):
                await producer.send(topic, b"%d" % number)
        async with AsyncConsumer(place.bootstrap, group_id=topic, **GROUP) as consumer:
            consumer.subscribe([topic])
            values: list[bytes] = []
            while len(values) < 20:
                values += [record.value or b"" for record in await consumer.poll(1.0)]
            await consumer.commit()
            [stored] = (await consumer.committed([TopicPartition(topic, 0)])).values()
            return values, None if stored is None else stored.offset

    assert asyncio.run(asyncio.wait_for(run(), 60)) == (numbers(0, 20), 20)


def test_positions_offsets_and_times(place: Place) -> None:
    topic = place.topic(values=10)
    partition, now = TopicPartition(topic, 0), int(time.time() * 1000)
    with Consumer(place.bootstrap, group_id=topic, **{**GROUP, "auto_offset_reset": "none"}) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 5)
        assert read(consumer, 5) == numbers(5, 10)
        assert consumer.position(partition) == 10
        consumer.commit({partition: (7, "note")})
        stored = consumer.committed([partition])[partition]
        assert stored is not None
        assert (stored.offset, stored.metadata) == (7, "note")
        offsets = [
            consumer.list_offsets({partition: where})[partition].offset
            for where in ("earliest", "latest", now - 600_000, now + 600_000)
        ]
        assert offsets == [0, 10, 0, None]
        consumer.seek_to(now - 600_000, partition)
        assert read(consumer, 10) == numbers(0, 10)
        consumer.seek(partition, 1_000_000)
        with pytest.raises(OffsetOutOfRange):
            read(consumer, 1)


@pytest.mark.parametrize(
    ("where", "since", "offset"),
    [("max_timestamp", 7, 1), ("earliest_local", 8, 0), ("latest_tiered", 9, None)],
)
def test_a_special_timestamp_is_answered_or_rejected(
    place: Place, where: str, since: int, offset: int | None
) -> None:
    topic = place.topic()
    partition = TopicPartition(topic, 0)
    with Producer(place.bootstrap) as producer:
        for timestamp in (1_000, 9_000, 5_000):
            producer.send(topic, b"", partition=0, timestamp=1_700_000_000_000 + timestamp).result(30)
    with Admin(place.bootstrap) as cluster, Consumer(place.bootstrap) as consumer:
        for client in (cluster, consumer):
            if place.knows("ListOffsets", since):
                assert client.list_offsets({partition: where})[partition].offset == offset
            else:
                with pytest.raises(UnsupportedVersion, match=f"look up '{where}'"):
                    client.list_offsets({partition: where})


# ---- groups


@pytest.mark.parametrize("assignor", ["cooperative-sticky", "range"])
def test_each_record_is_read_once_while_a_member_joins_and_leaves(place: Place, assignor: str) -> None:
    topic = place.topic(4)
    with Producer(place.bootstrap) as producer:
        for number in range(400):
            producer.send(topic, b"", partition=number % 4)
    options: dict[str, Any] = {"enable_auto_commit": True, "partition_assignment_strategy": [assignor]}
    with place.member(topic, topic, **options) as first:
        places = poll_until(lambda: len(first.assignment()) == 4, first)
        with place.member(topic, topic, **options) as second:
            places += poll_until(
                lambda: len(first.assignment()) == 2 and len(second.assignment()) == 2, first, second
            )
            assert not first.assignment() & second.assignment()
            with Admin(place.bootstrap) as cluster:
                group = cluster.group(topic)
            assert (group.state, len(group.members), len(group.owners)) == ("Stable", 2, 4)
        places += poll_until(lambda: len(first.assignment()) == 4, first)
        places += poll_until(lambda: all(first.position(p) == 100 for p in first.assignment()), first)
    assert sorted(places) == [(partition, offset) for partition in range(4) for offset in range(100)]


def test_a_static_member_needs_kafka_2_3(place: Place) -> None:
    topic = place.topic(2)
    if not place.knows("JoinGroup", 5):
        member = place.member(topic, topic, group_instance_id="pod-1")
        with member, pytest.raises(UnsupportedVersion, match="group_instance_id 'pod-1'"):
            poll_until(lambda: False, member)
        return
    generations = []
    for _ in range(2):
        with place.member(topic, topic, group_instance_id="pod-1") as member:
            poll_until(lambda member=member: len(member.assignment()) == 2, member)
            generations.append(member.group_metadata().generation)
    assert generations[0] == generations[1]


def test_new_partitions_and_new_topics_are_noticed(place: Place) -> None:
    name = f"p{next(_numbers)}"
    with Admin(place.bootstrap) as cluster:
        cluster.create_topics({f"{name}-1": 1})
        with Consumer(place.bootstrap, group_id=name, **GROUP) as member:
            member.subscribe(pattern=f"{name}-.*")
            poll_until(lambda: len(member.assignment()) == 1, member)
            cluster.create_partitions({f"{name}-1": 3})
            cluster.create_topics({f"{name}-2": 1})
            poll_until(lambda: len(member.assignment()) == 4, member)


@pytest.mark.parametrize("form", ["automatic", "commit()", "close()"])
def test_a_commit_is_not_stored_in_a_re_created_topic(place: Place, form: str) -> None:
    """Offsets of a deleted topic are not committed to a re-created topic of the same name.

    Before Kafka 2.8, topics have no ids. A member then notices a re-created topic only if a metadata response
    lacks the topic between its deletion and its re-creation. The test polls between the two, so that
    the member receives this response.
    """
    topic, other_topic = place.topic(values=10), place.topic()
    partition, has_ids = TopicPartition(topic, 0), place.knows("Metadata", 10)
    options = {
        "enable_auto_commit": form != "commit()",
        "auto_commit_interval_ms": 500 if form == "automatic" else 600_000,
        "metadata_max_age_ms": 300_000 if has_ids else 300,
    }
    with place.member(topic, topic, other_topic, **options) as member, Admin(place.bootstrap) as cluster:
        assert read(member, 10) == numbers(0, 10)
        if has_ids:
            # The partition is paused, so that the commit and not a fetch is the first request that reveals
            # the re-created topic.
            member.pause(partition)
        cluster.delete_topics([topic])
        if not has_ids:
            poll_for(2.0, member)
        create_again(cluster, topic)
        place.write(topic, numbers(100, 115))
        if form == "automatic":
            poll_for(1.5, member)
        # UnknownTopic is raised, unless an earlier response to a fetch has shown that the topic was
        # re-created.
        with contextlib.suppress(UnknownTopic):
            if form == "commit()":
                member.commit()
            member.close()
        [stored] = cluster.committed_offsets(topic, [partition]).values()
    offset = 0 if stored is None else stored.offset
    assert offset in (0, 15)  # 15 if the member has read the new topic's 15 records, else 0.
    with place.member(topic, topic) as member:
        assert read(member, 15 - offset) == numbers(100 + offset, 115)


def create_again(cluster: Admin, topic: str) -> None:
    """Create a topic as soon as the broker has deleted the old topic of the same name."""
    end = time.monotonic() + 30
    while True:
        try:
            cluster.create_topics({topic: 1})
            return
        except KprotoError:
            assert time.monotonic() < end
            time.sleep(0.1)


# ---- transactions


def test_a_transaction_commits_records_and_offsets(place: Place) -> None:
    source, target = place.topic(values=30), place.topic()
    partition = TopicPartition(source, 0)
    with (
        place.member(source, source, max_poll_records=10) as member,
        Producer(place.bootstrap, transactional_id=source) as producer,
    ):
        values = read(member, 30)
        if not place.knows("TxnOffsetCommit", 3):
            producer.begin()
            producer.send(target, b"rejected")
            producer.send_offsets(member.group_metadata(), {partition: 30})
            with pytest.raises(UnsupportedVersion, match=r"Kafka 2\.5 and later"):
                producer.commit()
            producer.abort()
        producer.begin()
        producer.send(target, b"aborted")
        producer.abort()
        with producer.transaction():
            for value in values:
                producer.send(target, value)
            is_checked = place.knows("TxnOffsetCommit", 3)
            producer.send_offsets(member.group_metadata() if is_checked else source, {partition: 30})
        # The test polls for the committed offset: before Kafka 2.5, OffsetFetch returns the earlier offset
        # until the commit marker is written.
        poll_until(lambda: committed_offset(member, partition) == 30, member)
    assert place.committed_values(target, 30) == numbers(0, 30)


def test_a_replaced_member_cannot_commit_its_transaction(place: Place) -> None:
    source, target = place.topic(values=10), place.topic()
    with (
        place.member(source, source) as old_member,
        Producer(place.bootstrap, transactional_id=source) as producer,
    ):
        values = read(old_member, 10)
        old = old_member.group_metadata()
        old_member.close()
        with place.member(source, source) as member:
            assert read(member, 10) == values
            producer.begin()
            for value in values:
                producer.send(target, value)
            producer.send_offsets(old, {TopicPartition(source, 0): 10})
            if place.knows("TxnOffsetCommit", 3):
                with pytest.raises(BrokerError) as caught:
                    producer.commit()
                assert caught.value.code == ErrorCode.UNKNOWN_MEMBER_ID
            else:
                with pytest.raises(UnsupportedVersion):
                    producer.commit()
            producer.abort()
            # The committed offset is still 0, the position after the reset to the earliest offset.
            assert committed_offset(member, TopicPartition(source, 0)) == 0
        with producer.transaction():
            producer.send(target, b"next")
    assert place.committed_values(target, 1) == [b"next"]


def test_a_producer_continues_after_an_abort_with_records_in_flight(place: Place) -> None:
    topic = place.topic()
    for attempt in range(3):
        with Producer(place.bootstrap, transactional_id=f"{topic}-{attempt}", linger_ms=0) as producer:
            with producer.transaction():
                producer.send(topic, b"first")
            producer.begin()
            for _ in range(60):
                producer.send(topic, b"aborted" * 300)
            time.sleep(0.02)  # By now some batches have been sent and have no response yet.
            producer.abort()
            with producer.transaction():
                producer.send(topic, b"last")
    assert place.committed_values(topic, 6) == [b"first", b"last"] * 3


def test_a_second_producer_fences_the_first(place: Place) -> None:
    topic = place.topic()
    with (
        Producer(place.bootstrap, transactional_id=topic) as first,
        Producer(place.bootstrap, transactional_id=topic) as second,
    ):
        first.begin()
        first.send(topic, b"first").result(30)
        second.begin()
        second.send(topic, b"second")
        second.commit()
        with pytest.raises(Fenced):
            first.commit()
    assert place.committed_values(topic, 1) == [b"second"]


# ---- administration


def test_topics_configs_offsets_and_groups_are_administered(place: Place) -> None:
    topic = f"t{next(_numbers)}"
    partition = TopicPartition(topic, 0)
    with Admin(place.bootstrap) as cluster:
        cluster.create_topics({topic: 2}, configs={"retention.ms": "86400000"})
        cluster.create_topics({topic: 2}, exist_ok=True)
        cluster.create_partitions({topic: 3})
        assert cluster.topics()[topic] == 3
        resource = DescribeConfigsResource(
            resource_type=TOPIC, resource_name=topic, configuration_keys=["retention.ms", "cleanup.policy"]
        )
        [result] = cluster.request(DescribeConfigsRequest(resources=[resource])).results
        configs = {config.name: config.value for config in result.configs}
        assert configs == {"retention.ms": "86400000", "cleanup.policy": "delete"}
        cluster.commit_offsets(topic, {partition: (3, "note")})
        stored = cluster.committed_offsets(topic)[partition]
        assert stored is not None
        assert (stored.offset, stored.metadata) == (3, "note")
        assert cluster.list_groups()[topic].protocol_type == ""
        assert cluster.group(topic).state == "Empty"
        cluster.delete_groups([topic])
        assert topic not in cluster.list_groups()
        with pytest.raises(PartialFailure):
            cluster.delete_groups([topic])
        cluster.delete_topics([topic])
        end = time.monotonic() + 30
        # The broker still lists the topic for a short time after the controller has deleted it.
        while topic in cluster.topics():
            assert time.monotonic() < end
            time.sleep(0.05)


# ---- Spark


@pytest.mark.spark
def test_spark_reads_each_record(place: Place, spark: Any) -> None:
    topic = place.topic(2, values=50)
    options = {"kafka.bootstrap.servers": place.bootstrap, "subscribe": topic}
    rows = spark.read.format("kproto").options(**options).load().select("offset", "value").collect()
    assert sorted((row["offset"], bytes(row["value"])) for row in rows) == list(enumerate(numbers(0, 50)))

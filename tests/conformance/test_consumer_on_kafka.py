"""kproto's clients work on a real Kafka and the embedded broker, alone or in a group with other clients."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import count
from typing import Any

import pytest
from msgspec.structs import replace

from consumer import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    GroupChange,
    Producer,
    RebalanceListener,
    TopicPartition,
)
from consumer.engine.network.client import LAST_SHARED_LANE, MAIN
from consumer.producer_options import ProducerConfig
from kproto.error_codes import ErrorCode
from kproto.errors import CommitFailed, ConfigError, ConnectionFailed, IllegalState, UnknownTopic
from kproto.group.assignors import ASSIGNORS
from kproto.group.subscription import Subscription
from kproto.inspect.timeline import GroupEvent, overlapping_ownerships, ownerships
from kproto.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kproto.messages.sync_group import SyncGroupRequest

_names = count(int(time.time() * 1000))

OPTIONS: dict[str, Any] = {
    "auto_offset_reset": "earliest",
    "session_timeout_ms": 6000,
    "heartbeat_interval_ms": 300,
    "metadata_max_age_ms": 500,
    "auto_commit_interval_ms": 500,
}


@pytest.fixture(params=["real_kafka", "embedded"])
def bootstrap(request: pytest.FixtureRequest) -> str:
    """The bootstrap address of a real Kafka or of the embedded broker. Each test runs with both addresses."""
    address: str = request.getfixturevalue(request.param).bootstrap
    return address


@pytest.fixture
def cluster(bootstrap: str) -> Iterator[Admin]:
    with Admin(bootstrap) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster: Admin) -> str:
    """A new topic with three partitions."""
    name = f"t{next(_names)}"
    cluster.create_topics({name: 3})
    return name


pytestmark = pytest.mark.kafka


def wait_until(holds: Callable[[], bool], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.02)


class MemberThread(threading.Thread):
    """A group member in a thread, as an application would run it."""

    def __init__(
        self, bootstrap: str, topic: str, group: str, caps: dict[int, int] | None = None, **options: Any
    ) -> None:
        super().__init__(daemon=True)
        self.consumer = Consumer(bootstrap, group_id=group, **{**OPTIONS, **options})
        self.consumer._operations.engine.core.network.caps.update(caps or {})
        self.topic = topic
        self.values: list[tuple[int, int, bytes]] = []
        self.changes: list[GroupChange] = []
        self.consumer.events(self.changes.append)
        self.running = True
        self.failure: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.consumer.subscribe([self.topic])
            while self.running:
                for record in self.consumer.poll(0.1):
                    self.values.append((record.partition, record.offset, record.value or b""))
            self.consumer.close()
        except BaseException as error:
            self.failure = error

    def stop(self) -> None:
        self.running = False
        self.join(30)
        assert self.failure is None


class Source(threading.Thread):
    """A producer that sends one number every 3 ms until `stop` is called."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.bootstrap, self.topic = bootstrap, topic
        self.sent: list[bytes] = []
        self.running = True
        self.start()

    def run(self) -> None:
        with Producer(self.bootstrap, linger_ms=2, metadata_max_age_ms=300) as producer:
            for number in count():
                if not self.running:
                    break
                value = b"%d" % number
                producer.send(self.topic, value, key=b"k%d" % (number % 50))
                self.sent.append(value)
                time.sleep(0.003)

    def stop(self) -> None:
        self.running = False
        self.join(30)


# ---- one client


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_produced_records_are_consumed(bootstrap: str, topic: str, compression: str) -> None:
    with Producer(bootstrap, compression_type=compression) as producer:
        for number in range(2000):
            producer.send(
                topic, b"v%d" % number, key=b"k%d" % number, headers=[("h", b"%d" % number), ("n", None)]
            )
    with Consumer(bootstrap, group_id=topic, **OPTIONS) as consumer:
        consumer.subscribe([topic])
        records_by_partition: dict[int, list[Any]] = defaultdict(list)
        while sum(map(len, records_by_partition.values())) < 2000:
            for record in consumer.poll(5):
                number = int((record.value or b"")[1:])
                assert record.key == b"k%d" % number
                assert record.headers == (("h", b"%d" % number), ("n", None))
                records_by_partition[record.partition].append(record)
        assert sorted(int(r.value[1:]) for records in records_by_partition.values() for r in records) == list(
            range(2000)
        )
        for records in records_by_partition.values():
            assert [record.offset for record in records] == list(range(len(records)))


def test_the_producer_gets_the_offsets(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap) as producer:
        deliveries = [producer.send(topic, b"x", partition=2, timestamp=5000 + at) for at in range(300)]
        assert [delivery.result(10).offset for delivery in deliveries] == list(range(300))
        assert deliveries[7].result().timestamp == 5007


def test_an_idempotent_producer_keeps_order_through_small_batches(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap, batch_size=200, linger_ms=0) as producer:
        for number in range(2000):
            producer.send(topic, b"%d" % number, partition=0)
    with Consumer(bootstrap) as consumer:
        consumer.assign({TopicPartition(topic, 0): 0})
        values: list[int] = []
        while len(values) < 2000:
            values += [int(record.value or b"") for record in consumer.poll(5)]
    assert values == list(range(2000))


@pytest.mark.parametrize("in_transactions", [False, True])
def test_each_partition_keeps_its_order_over_three_connections(
    bootstrap: str, topic: str, in_transactions: bool
) -> None:
    options: ProducerConfig = {"transactional_id": topic} if in_transactions else {}
    sent = 0
    with Producer(bootstrap, batch_size=1_000, linger_ms=0, **options) as producer:
        network = producer._runtime.engine.core.network

        def connections() -> int:
            return sum(lane == MAIN or lane > LAST_SHARED_LANE for *_, lane in network._lanes)

        # On a busy machine the producer may send too slowly at first to need three connections.
        while sent < 9_000 or (connections() < 3 and sent < 90_000):
            with producer.transaction() if in_transactions else nullcontext():
                for number in range(sent, sent + 3_000):
                    producer.send(topic, b"%d" % number, partition=number % 3)
            sent += 3_000
        producer.flush()
        assert connections() >= 3
    with Consumer(bootstrap, isolation_level="read_committed") as consumer:
        consumer.assign({TopicPartition(topic, index): 0 for index in range(3)})
        values: dict[int, list[int]] = {0: [], 1: [], 2: []}
        while sum(map(len, values.values())) < sent:
            for record in consumer.poll(10):
                values[record.partition].append(int(record.value or b""))
    assert values == {index: list(range(index, sent, 3)) for index in range(3)}


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_acks(bootstrap: str, topic: str, acks: Any) -> None:
    with Producer(bootstrap) as first:
        # A new partition may briefly reject records, which acks=0 would not show.
        first.send(topic, b"first", partition=1).result(10)
    with Producer(bootstrap, acks=acks) as producer:
        place = producer.send(topic, b"x", partition=1).result(10)
    assert place.offset == (None if acks == 0 else 1)
    with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 1)])
        values: list[bytes | None] = []
        while len(values) < 2 and (polled := consumer.poll(10)):
            values += [record.value for record in polled]
        assert values == [b"first", b"x"]


def test_columns(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap) as producer:
        for number in range(1000):
            producer.send(topic, b"%d" % number, partition=number % 3)
    with Consumer(bootstrap, group_id=topic, **OPTIONS) as consumer:
        consumer.subscribe([topic])
        values: list[int] = []
        while len(values) < 1000:
            for batch in consumer.poll_columns(5):
                values += map(int, batch.columns.value.to_pylist())
        assert sorted(values) == list(range(1000))
        consumer.commit()
        assert {p: c.offset for p, c in consumer.committed().items() if c} == {
            TopicPartition(topic, 0): 334,
            TopicPartition(topic, 1): 333,
            TopicPartition(topic, 2): 333,
        }


def test_a_group_resumes_at_its_committed_offsets(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap) as producer:
        for number in range(900):
            producer.send(topic, b"%d" % number, partition=number % 3)
    numbers: list[int] = []
    for _ in range(3):
        with Consumer(bootstrap, group_id=topic, max_poll_records=100, **OPTIONS) as consumer:
            consumer.subscribe([topic])
            for record in consumer:
                numbers.append(int(record.value or b""))
                if len(numbers) % 300 == 0:
                    break
    assert sorted(numbers) == list(range(900))


def test_an_exception_in_the_loop_commits_only_earlier_records(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap) as producer:
        for number in range(100):
            producer.send(topic, b"%d" % number, partition=0)

    def fail_at(number: int) -> None:
        with Consumer(bootstrap, group_id=topic, **OPTIONS) as consumer:
            consumer.subscribe([topic])
            for record in consumer:
                if int(record.value or b"") == number:
                    raise RuntimeError("the application failed")

    with pytest.raises(RuntimeError):
        fail_at(37)
    with Admin(bootstrap) as cluster:
        committed = cluster.committed_offsets(topic)[TopicPartition(topic, 0)]
    assert committed is not None
    assert committed.offset == 37


def test_seek_pause_position_lag_and_offsets_by_time(bootstrap: str, topic: str) -> None:
    p0 = TopicPartition(topic, 0)
    with Producer(bootstrap) as producer:
        for number in range(100):
            producer.send(topic, b"%d" % number, partition=0, timestamp=1000 * number + 1000)
    with Consumer(
        bootstrap, **{k: v for k, v in OPTIONS.items() if k != "auto_commit_interval_ms"}
    ) as consumer:
        consumer.assign({p0: 10})
        assert consumer.poll(5, 1)[0].offset == 10
        assert consumer.position(p0) == 11
        assert consumer.lag(p0) == 89
        consumer.seek(p0, 95)
        assert [record.offset for record in consumer.poll(5)] == [95, 96, 97, 98, 99]
        consumer.pause(p0)
        consumer.seek(p0, 0)
        assert consumer.poll(0.3) == []
        consumer.resume(p0)
        assert consumer.poll(5)[0].offset == 0
        consumer.seek_to("latest")
        assert consumer.position(p0) == 100
        consumer.seek_to(50_000, p0)
        assert consumer.position(p0) == 49
        offsets = consumer.list_offsets({p0: 99_500})
        assert (offsets[p0].offset, offsets[p0].timestamp) == (99, 100_000)
        assert consumer.list_offsets({p0: 200_000})[p0].offset is None


def test_errors_name_the_cause(bootstrap: str) -> None:
    with Producer(bootstrap) as producer, pytest.raises(UnknownTopic, match="no-such-topic"):
        producer.send("no-such-topic", b"x")
    with Consumer(bootstrap) as consumer:
        with pytest.raises(UnknownTopic, match="no-such-topic"):
            consumer.partitions_for("no-such-topic")
        with pytest.raises(IllegalState, match="group_id"):
            consumer.subscribe(["x"])
        with pytest.raises(ConfigError, match="use group_id"):
            Consumer(bootstrap, **{"group.id": "x"})  # type: ignore[arg-type]
    with Admin("127.0.0.1:1") as nowhere, pytest.raises(ConnectionFailed) as caught:
        nowhere.topics()
    assert str(caught.value) == "no broker at 127.0.0.1:1: connection refused"


# ---- groups of kproto members


@pytest.mark.parametrize("strategy", ["cooperative-sticky", "range"])
def test_a_group_of_three_grows_and_shrinks_without_losing_records(
    bootstrap: str, cluster: Admin, topic: str, strategy: str
) -> None:
    """While records arrive, a third member joins, partitions are added, one member dies, and one leaves."""
    options = {"partition_assignment_strategy": strategy}
    source = Source(bootstrap, topic)
    members = [MemberThread(bootstrap, topic, topic, **options) for _ in range(2)]
    wait_until(lambda: all(member.values for member in members))
    members.append(MemberThread(bootstrap, topic, topic, **options))
    wait_until(lambda: all(len(member.consumer.assignment()) == 1 for member in members))
    cluster.create_partitions({topic: 6})
    wait_until(lambda: all(len(member.consumer.assignment()) == 2 for member in members))
    dead = members.pop()
    dead.consumer.kill()
    wait_until(lambda: sorted(len(member.consumer.assignment()) for member in members) == [3, 3])
    members[0].stop()
    wait_until(lambda: len(members[1].consumer.assignment()) == 6)
    time.sleep(0.3)
    source.stop()

    def seen() -> set[bytes]:
        return {value for member in [*members, dead] for _, _, value in member.values}

    wait_until(lambda: len(seen()) == len(source.sent))
    members[1].stop()
    assert seen() == set(source.sent)
    clean = [(p, o) for member in members for p, o, _ in member.values]
    assert len(clean) == len(set(clean)), "two living members read the same record"


@pytest.mark.parametrize("strategy", ["cooperative-sticky", "range"])
def test_two_members_never_own_a_partition_at_once(bootstrap: str, topic: str, strategy: str) -> None:
    """Members join and leave one by one. No partition is owned by two members at the same time."""
    everyone: list[MemberThread] = []

    def join() -> MemberThread:
        member = MemberThread(bootstrap, topic, topic, partition_assignment_strategy=strategy)
        everyone.append(member)
        wait_until(lambda: member.consumer.assignment() != set())
        return member

    present = [join()]
    for _ in range(3):
        present.append(join())
        present.pop(0).stop()
    wait_until(lambda: len(present[0].consumer.assignment()) == 3)
    present[0].stop()
    kinds: dict[str, Any] = {"assigned": "assigned", "revoked": "revoked", "lost": "lost"}
    events = [
        GroupEvent(change.at, kinds[change.kind], str(who), change.generation, change.partitions)
        for who, member in enumerate(everyone)
        for change in member.changes
        if change.kind in kinds
    ]
    owned = ownerships(events)
    assert len({ownership.member for ownership in owned}) == 4
    assert overlapping_ownerships(owned) == []


def test_retained_partitions_are_read_during_a_rebalance_longer_than_the_session(
    bootstrap: str, cluster: Admin, topic: str
) -> None:
    """A member reads its retained partitions during a rebalance that lasts longer than its session timeout.

    The coordinator answers heartbeats during a JoinGroup, so the session does not expire.
    """
    source = Source(bootstrap, topic)
    member = MemberThread(
        bootstrap, topic, topic, partition_assignment_strategy="cooperative-sticky", max_poll_interval_ms=9000
    )
    wait_until(lambda: len(member.consumer.assignment()) == 3)
    group, wants = ("group", topic), Subscription(topics=(topic,)).encode()
    join = JoinGroupRequest(
        group_id=topic,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=9000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="cooperative-sticky", metadata=wants)],
    )
    slow = cluster.request(join, group).member_id
    generation = cluster.request(replace(join, member_id=slow), group, timeout=20).generation_id
    sync = SyncGroupRequest(
        group_id=topic,
        generation_id=generation,
        member_id=slow,
        protocol_type="consumer",
        protocol_name="cooperative-sticky",
        assignments=[],
    )
    # If the member rejoins before this request arrives, the response is REBALANCE_IN_PROGRESS.
    response = cluster.request(sync, group, timeout=20)
    assert response.error_code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)
    # The member revokes its third partition and rejoins. Its JoinGroup waits for the other member, which does
    # not rejoin.
    wait_until(lambda: len(member.consumer.assignment()) == 2)
    wait_until(lambda: [change.kind for change in member.changes][-1] == "rejoining")
    began, retained = time.monotonic(), member.consumer.assignment()
    while time.monotonic() < began + 7.5:
        many = len(member.values)
        time.sleep(0.5)
        assert len(member.values) > many
        assert member.consumer.assignment() == retained
    wait_until(lambda: len(member.consumer.assignment()) == 3)
    source.stop()
    member.stop()
    assert "lost" not in {change.kind for change in member.changes}


def test_a_rebalance_listener_may_seek_and_commit(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap) as producer:
        for number in range(30):
            producer.send(topic, b"%d" % number, partition=number % 3)
    calls: list[tuple[str, int]] = []

    class Listener(RebalanceListener):
        def assigned(self, partitions: Any) -> None:
            calls.append(("assigned", len(partitions)))
            for partition in partitions:
                consumer.seek(partition, 5)

        def revoked(self, partitions: Any) -> None:
            calls.append(("revoked", len(partitions)))
            consumer.commit(dict.fromkeys(partitions, 7))

    options = {**OPTIONS, "enable_auto_commit": False}
    with Consumer(bootstrap, group_id=topic, **options) as consumer:
        consumer.subscribe([topic], Listener())
        offsets: list[int] = []
        while len(offsets) < 15:
            offsets += [record.offset for record in consumer.poll(5)]
    assert sorted(set(offsets)) == [5, 6, 7, 8, 9]
    assert calls[-2:] == [("assigned", 3), ("revoked", 3)]
    with Admin(bootstrap) as cluster:
        assert {c.offset for c in cluster.committed_offsets(topic).values() if c} == {7}


def test_a_static_member_gets_its_partitions_back_after_a_restart(bootstrap: str, topic: str) -> None:
    options = {**OPTIONS, "group_instance_id": "one"}
    first = Consumer(bootstrap, group_id=topic, **options)
    first.subscribe([topic])
    while len(first.assignment()) < 3:
        first.poll(0.1)
    generation = first.group_metadata().generation
    first.close()
    with Consumer(bootstrap, group_id=topic, **options) as restarted:
        restarted.subscribe([topic])
        while len(restarted.assignment()) < 3:
            restarted.poll(0.1)
        assert restarted.group_metadata().generation == generation


@pytest.mark.parametrize("newest", [9, 8])
@pytest.mark.parametrize("grows", [True, False])
def test_a_static_leader_that_rejoins_assigns_added_partitions(
    bootstrap: str, cluster: Admin, topic: str, newest: int, grows: bool
) -> None:
    """A static leader that rejoins detects added partitions. Without added partitions it starts no rebalance.

    From JoinGroup v9 on, the response names the returning member as the leader (KIP-814). In v8 it does not.
    """

    def member(instance_id: str) -> MemberThread:
        options = {"partition_assignment_strategy": "sticky", "group_instance_id": instance_id}
        return MemberThread(bootstrap, topic, topic, {11: newest}, **options)

    first = member("one")
    wait_until(lambda: len(first.consumer.assignment()) == 3)
    second = member("two")
    wait_until(lambda: len(second.consumer.assignment()) == 1 and len(first.consumer.assignment()) == 2)
    generation = second.consumer.group_metadata().generation
    first.stop()
    if grows:
        cluster.create_partitions({topic: 7})
    restarted = member("one")
    if grows:
        wait_until(lambda: len(restarted.consumer.assignment() | second.consumer.assignment()) == 7)
    else:
        wait_until(lambda: len(restarted.consumer.assignment()) == 2)
        time.sleep(2)
        assert second.consumer.group_metadata().generation == generation
    restarted.stop()
    second.stop()


def test_commit_offsets_fails_for_a_group_with_members(bootstrap: str, cluster: Admin, topic: str) -> None:
    with Consumer(bootstrap, group_id=topic, **OPTIONS) as consumer:
        consumer.subscribe([topic])
        while not consumer.assignment():
            consumer.poll(0.1)
        with pytest.raises(CommitFailed):
            cluster.commit_offsets(topic, {TopicPartition(topic, 0): 1})


# ---- asyncio


def test_asyncio_clients(bootstrap: str) -> None:
    name = f"t{next(_names)}"

    async def story() -> list[int]:
        async with AsyncAdmin(bootstrap) as cluster:
            await cluster.create_topics({name: 3})
            assert len(await cluster.partitions(name)) == 3
            async with AsyncProducer(bootstrap) as producer:
                sent = [await producer.send(name, b"%d" % number) for number in range(1000)]
                places = await asyncio.gather(*(_metadata(request) for request in sent))
            assert {place.topic for place in places} == {name}
            numbers: list[int] = []
            async with AsyncConsumer(bootstrap, group_id=name, **OPTIONS) as consumer:
                consumer.subscribe([name])
                async for record in consumer:
                    numbers.append(int(record.value or b""))
                    if len(numbers) == 1000:
                        break
            committed = await cluster.committed_offsets(name)
            assert sum(offset.offset for offset in committed.values() if offset) == 1000
            return numbers

    assert sorted(asyncio.run(story())) == list(range(1000))


async def _metadata(delivery: Any) -> Any:
    return await delivery


def test_asyncio_members_share_a_group(bootstrap: str, cluster: Admin, topic: str) -> None:
    revoked: list[int] = []

    class Listener(RebalanceListener):
        async def revoked(self, partitions: Any) -> None:
            await asyncio.sleep(0.2)
            revoked.append(len(partitions))

    async def story() -> None:
        options = {**OPTIONS, "partition_assignment_strategy": "cooperative-sticky"}
        a = AsyncConsumer(bootstrap, group_id=topic, **options)
        b = AsyncConsumer(bootstrap, group_id=topic, **options)
        async with a, b:
            a.subscribe([topic], Listener())
            while len(a.assignment()) < 3:
                await a.poll(0.1)
            b.subscribe([topic])
            async with asyncio.timeout(20):
                while len(a.assignment()) + len(b.assignment()) != 3 or not b.assignment():
                    await asyncio.gather(a.poll(0.1), b.poll(0.1))

    asyncio.run(story())
    assert len(revoked) >= 2
    assert revoked[0] == 1


# ---- one group with other clients


def _kafka_python(bootstrap: str, topic: str, group: str, strategy: str) -> Any:
    kafka = pytest.importorskip("kafka")
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

    assignor = RangePartitionAssignor if strategy == "range" else RoundRobinPartitionAssignor
    return kafka.KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        partition_assignment_strategy=[assignor],
        session_timeout_ms=6000,
        heartbeat_interval_ms=300,
        metadata_max_age_ms=500,
    )


def _confluent(bootstrap: str, topic: str, group: str, strategy: str) -> Any:
    confluent_kafka = pytest.importorskip("confluent_kafka")
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": strategy,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 300,
        }
    )
    consumer.subscribe([topic])
    return consumer


@pytest.mark.clients
@pytest.mark.parametrize("strategy", ["range", "roundrobin"])
def test_kproto_kafka_python_and_librdkafka_share_a_group(
    bootstrap: str, cluster: Admin, strategy: str
) -> None:
    topic = f"t{next(_names)}"
    cluster.create_topics({topic: 6})
    numbers_by_client: dict[str, list[int]] = {"ours": [], "kafka-python": [], "librdkafka": []}
    stopped = threading.Event()

    def kafka_python() -> None:
        consumer = _kafka_python(bootstrap, topic, topic, strategy)
        while not stopped.is_set():
            for records in consumer.poll(timeout_ms=100).values():
                numbers_by_client["kafka-python"] += [int(record.value) for record in records]
        consumer.close()

    def librdkafka() -> None:
        consumer = _confluent(bootstrap, topic, topic, strategy)
        while not stopped.is_set():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                numbers_by_client["librdkafka"].append(int(message.value()))
        consumer.close()

    member = MemberThread(bootstrap, topic, topic, partition_assignment_strategy=strategy)
    threads = [
        threading.Thread(target=kafka_python, daemon=True),
        threading.Thread(target=librdkafka, daemon=True),
    ]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(member.consumer.assignment()) == 2, 60)
    time.sleep(1)
    with Producer(bootstrap) as producer:
        for number in range(600):
            producer.send(topic, b"%d" % number, partition=number % 6)
    numbers_by_client["ours"] = []
    wait_until(lambda: sum(map(len, numbers_by_client.values())) + len(member.values) >= 600, 60)
    numbers_by_client["ours"] = [int(value) for _, _, value in member.values]
    stopped.set()
    for thread in threads:
        thread.join(30)
    wait_until(lambda: len(member.consumer.assignment()) == 6)
    member.stop()
    assert {who: len(set(numbers)) for who, numbers in numbers_by_client.items()} == dict.fromkeys(
        numbers_by_client, 200
    )
    assert sorted({number for numbers in numbers_by_client.values() for number in numbers}) == list(
        range(600)
    )


@pytest.mark.clients
def test_librdkafka_reads_our_records_with_every_codec(bootstrap: str, topic: str) -> None:
    confluent_kafka = pytest.importorskip("confluent_kafka")
    sent: list[bytes] = []
    for compression in ("none", "gzip", "snappy", "lz4", "zstd"):
        with Producer(bootstrap, compression_type=compression) as producer:
            for number in range(200):
                value = f"{compression} {number}".encode()
                producer.send(topic, value, partition=0, headers=[("a", b"b")])
                sent.append(value)
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": f"{topic}-x"})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    end = time.monotonic() + 20
    while len(values) < len(sent) and time.monotonic() < end:
        values += [m.value() for m in consumer.consume(1000, 0.5) if m.error() is None]
    consumer.close()
    assert values == sent


@pytest.mark.clients
def test_keys_map_to_the_partitions_of_kafka_python(bootstrap: str, cluster: Admin) -> None:
    kafka = pytest.importorskip("kafka")
    topic = f"t{next(_names)}"
    cluster.create_topics({topic: 7})
    theirs = kafka.KafkaProducer(bootstrap_servers=bootstrap)
    keys = [b"x" * (number % 23) + b"%d" % number for number in range(300)]
    expected = [theirs.send(topic, key=key, value=b"").get(10).partition for key in keys]
    theirs.close()
    with Producer(bootstrap) as producer:
        deliveries = [producer.send(topic, b"", key=key) for key in keys]
        assert [delivery.result(10).partition for delivery in deliveries] == expected


# ---- librdkafka's mock cluster, which deviates from Kafka


# API key -> the newest version that librdkafka itself uses.
MOCK_CAPS = {8: 7, 9: 5, 11: 5, 12: 3, 13: 1, 14: 3}


@pytest.fixture
def mock_cluster() -> Iterator[str]:
    confluent_kafka = pytest.importorskip("confluent_kafka")
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"test.mock.num.brokers": 3, "bootstrap.servers": "ignored"})
    brokers = admin.list_topics(timeout=10).brokers.values()
    yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    del admin, confluent_kafka


@pytest.mark.clients
def test_on_librdkafkas_mock_cluster_of_three(mock_cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaders and the coordinator are on different nodes. A lone consumer and a group read all records.

    The mock cluster does not support CreateTopics. It creates a missing topic, with four partitions, when a
    client requests the topic's metadata. The mock cluster advertises JoinGroup v6 and other flexible
    versions, but closes the connection on requests of these versions. So the members of the group use lower
    versions (`MOCK_CAPS`).

    If a SyncGroup arrives after the leader's, the mock cluster answers it with INVALID_REQUEST and a null
    assignment. Half of the rebalances would therefore fail after 10 s each, so the test delays the leader's
    assignment.
    """

    quick = ASSIGNORS["range"]

    def slowly(*arguments: Any) -> Any:
        time.sleep(0.3)
        return quick.assign(*arguments)

    monkeypatch.setitem(ASSIGNORS, "range", replace(quick, assign=slowly))
    with Producer(mock_cluster, allow_auto_create_topics=True) as producer:
        deliveries = [producer.send("mocked", b"%d" % number, key=b"%d" % number) for number in range(500)]
        assert all(delivery.result(10).offset is not None for delivery in deliveries)
    with Consumer(mock_cluster, auto_offset_reset="earliest") as alone:
        alone.assign(alone.partitions_for("mocked"))
        values: list[int] = []
        while len(values) < 500:
            values += [int(record.value or b"") for record in alone.poll(5)]
    assert sorted(values) == list(range(500))
    members = [
        MemberThread(mock_cluster, "mocked", "g", MOCK_CAPS, partition_assignment_strategy="range")
        for _ in range(2)
    ]
    wait_until(lambda: [len(member.consumer.assignment()) for member in members] == [2, 2], 60)
    wait_until(lambda: len({value for member in members for _, _, value in member.values}) == 500)
    for member in members:
        member.stop()

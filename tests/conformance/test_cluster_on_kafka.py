"""Operator actions on a Kafka cluster of three brokers, while groups read and producers write.

No record is lost, no record below a committed offset is read again, and no client reports an error. `traffic`
starts the readers and writers.

A run draws two scenarios with the seed `KPROTO_SEED`. `KPROTO_ALL_PLAYS=1` runs all (tox -e soak).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from random import Random
from typing import Any

import pytest

from consumer import Consumer, Producer, TopicPartition
from kproto.errors import BrokerError, RequestTimedOut
from kproto.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from kproto.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kproto.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from kproto.messages.unregister_broker import UnregisterBrokerRequest
from kproto.testing.faults import Proxy
from tests.conformance import judges
from tests.conformance.client_scenarios import SEED
from tests.conformance.cluster_close import AtWork
from tests.conformance.cluster_readers import Ledger, Readers
from tests.conformance.cluster_traffic import (
    LOOPS,
    PARTITIONS,
    SESSION,
    client_resources,
    new_resources,
    topic,
    traffic,
    wait_until_in_sync,
)
from tests.conformance.kafka_cluster import Fleet, until

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with Fleet(tmp_path_factory.mktemp("fleet")) as running:
        yield running


def rolling(fleet: Fleet, away: Callable[[int], None]) -> None:
    for node in fleet.nodes:
        wait_until_in_sync(fleet)
        away(node)
        time.sleep(1)
        fleet.start(node)
    wait_until_in_sync(fleet)


def move(fleet: Fleet, name: str, replicas: list[int]) -> None:
    """Move all partitions of a topic to these brokers, and make the first one the leader."""
    partitions = sorted(fleet.partitions(name))
    reassignments = [ReassignablePartition(partition_index=index, replicas=replicas) for index in partitions]
    topics = [ReassignableTopic(name=name, partitions=reassignments)]
    answer: Any = fleet.cluster.request(AlterPartitionReassignmentsRequest(topics=topics))
    assert answer.error_code == 0

    def there() -> bool:
        entries = fleet.partitions(name).values()
        return bool(entries) and all(
            sorted(e.isr_nodes) == sorted(e.replica_nodes) == sorted(replicas) for e in entries
        )

    until(there, f"{name} has moved")
    fleet.cluster.request(
        ElectLeadersRequest(
            election_type=0, topic_partitions=[TopicPartitions(topic=name, partitions=partitions)]
        )
    )
    until(lambda: all(e.leader_id == replicas[0] for e in fleet.partitions(name).values()), "it leads")


# ---- the scenarios


def a_rolling_restart(fleet: Fleet) -> None:
    with traffic(fleet) as readers:
        rolling(fleet, fleet.stop)
        for reader in readers.values():
            assert reader.ledger.kinds("lost", "refused", "uncommitted") == []


def every_broker_dies_once(fleet: Fleet) -> None:
    with traffic(fleet):
        rolling(fleet, fleet.kill)


def partitions_move_to_other_leaders(fleet: Fleet) -> None:
    """Partitions move to other leaders. The old leaders keep running, and name the new leader in their
    responses.
    """
    with traffic(fleet) as readers:
        names = sorted({reader.topic for reader in readers.values()})
        for replicas in ([1, 2], [3, 2], [2, 3, 1]):
            for name in names:
                move(fleet, name, replicas)
        for reader in readers.values():
            assert reader.ledger.kinds("lost", "refused", "uncommitted", "unreachable") == []


def a_broker_restarts_on_another_port(fleet: Fleet) -> None:
    """The broker that coordinates a group restarts on another port."""
    with traffic(fleet) as readers:
        node = fleet.cluster.coordinator(readers["range"].group)
        fleet.kill(node)
        fleet.start(node, port=judges.free_port())
        wait_until_in_sync(fleet)


def all_brokers_move(fleet: Fleet) -> None:
    """All brokers restart on other ports, as in a rebuilt cluster. Only the bootstrap address stays valid."""
    first = f"127.0.0.1:{fleet.ports[min(fleet.nodes)]}"
    with Proxy(first) as name, traffic(fleet, name.bootstrap, session_timeout_ms=180_000) as readers:
        for node in fleet.nodes:
            fleet.kill(node)
        died = time.monotonic()
        ports = {node: judges.free_port() for node in fleet.nodes}
        name.target = ("127.0.0.1", ports[min(fleet.nodes)])
        fleet.start_all(ports)
        for reader in readers.values():
            reader.away = time.monotonic() - died
        wait_until_in_sync(fleet)


def a_broker_is_replaced(fleet: Fleet) -> None:
    """A new broker takes over the partitions of the old broker with the highest id.

    After the move, the old broker is removed and unregistered.
    """
    with traffic(fleet):
        old = max(fleet.nodes)
        new = old + 1
        fleet.add(new)
        remaining = [node for node in fleet.nodes if node not in (old, new)]
        for name in (*fleet.cluster.topics(), "__consumer_offsets", "__transaction_state"):
            move(fleet, name, [new, *remaining])
        fleet.remove(old)
        answer: Any = fleet.cluster.request(UnregisterBrokerRequest(broker_id=old))
        assert answer.error_code == 0
        wait_until_in_sync(fleet)


def a_broker_freezes(fleet: Fleet) -> None:
    """All clients recover from a frozen broker: a coordinator and leader whose connections stay open."""
    with traffic(fleet) as readers:
        node = fleet.cluster.coordinator(readers["range"].group)
        fleet.freeze(node)
        time.sleep(12)
        fleet.thaw(node)
        wait_until_in_sync(fleet)


def all_are_closed_while_a_broker_is_frozen(fleet: Fleet) -> None:
    """Each kind of client closes within its timeout, and leaves no thread running and no connection open."""
    name, before = topic(fleet), client_resources(fleet)
    first = f"127.0.0.1:{fleet.ports[min(fleet.nodes)]}"
    for frozen in fleet.nodes:
        with AtWork(first, name, PARTITIONS) as clients:
            fleet.freeze(frozen)
            took = clients.close_all(4.0)
            fleet.thaw(frozen)
        for who, (seconds, error) in took.items():
            print(f"{who}: {seconds:.1f} s{f', {type(error).__name__}: {error}' if error else ''}"[:160])
        assert {who: round(seconds, 1) for who, (seconds, _) in took.items() if seconds > 5.5} == {}
        # The producer still has unsent records when it closes.
        assert isinstance(took["Producer"][1], RequestTimedOut)
        assert isinstance(took["AsyncProducer"][1], RequestTimedOut)
        assert not (new := new_resources(fleet, before)), new
        wait_until_in_sync(fleet)


def too_few_replicas(fleet: Fleet) -> None:
    """The producer waits while fewer replicas than min.insync.replicas are in sync, and then continues.

    A killed broker stays listed and in sync until its session expires, so the scenario waits for the expiry.
    A broker that restarts earlier would be listed before it can respond.
    """
    *killed, survivor = sorted(fleet.nodes)
    with traffic(fleet) as readers:
        for node in killed:
            fleet.kill(node)
        until(lambda: fleet.listed_brokers() == {survivor}, "the cluster lists only the remaining broker")
        for reader in readers.values():
            until(partial(_in_sync, fleet, reader.topic, [survivor]), "only the remaining broker is in sync")
        acknowledged = [len(reader.sent) for reader in readers.values()]
        time.sleep(3)
        assert [len(reader.sent) for reader in readers.values()] == acknowledged
        for node in killed:
            fleet.start(node)
        wait_until_in_sync(fleet)


def _in_sync(fleet: Fleet, topic: str, nodes: list[int]) -> bool:
    entries = fleet.partitions(topic).values()
    return bool(entries) and all(entry.isr_nodes == nodes for entry in entries)


def a_topic_is_deleted_and_recreated(fleet: Fleet) -> None:
    name = topic(fleet)
    ledger, records = Ledger(), [f"{number}".encode() for number in range(300)]
    options: dict[str, Any] = {"group_id": name, "metadata_max_age_ms": 2_000, **SESSION}
    with Readers(fleet.bootstrap, name, ledger, LOOPS, **options), Producer(fleet.bootstrap) as producer:
        for value in records[:120]:
            producer.send(name, value, partition=int(value) % PARTITIONS)
        until(lambda: ledger.count == 120, "the old records are read")
        fleet.cluster.delete_topics([name])
        between = [
            producer.send(name, value, partition=int(value) % PARTITIONS) for value in records[120:132]
        ]
        time.sleep(2)
        ledger.committed.clear()
        ledger.read.clear()
        fleet.cluster.create_topics({name: PARTITIONS}, replication_factor=3)
        after = [producer.send(name, value, partition=int(value) % PARTITIONS) for value in records[132:]]
        offsets = sorted(delivery.result(60).offset or 0 for delivery in (*between, *after))
        assert offsets == sorted([*range(30)] * PARTITIONS)
        until(lambda: ledger.count == 180, "the new records are read", 60)
    assert sorted(value for read in ledger.read.values() for value in read.values()) == list(range(120, 300))


def a_quota(fleet: Fleet) -> None:
    """Clients whose id has quotas of 100 kB/s transfer 1.5 MB in each direction without an error."""
    name = topic(fleet, 1)
    ops = [
        OpData(key=key, value=100_000.0, remove=False) for key in ("consumer_byte_rate", "producer_byte_rate")
    ]
    entity = [AlterClientQuotasRequestEntityData(entity_type="client-id", entity_name=name)]
    entry = AlterClientQuotasRequestEntryData(entity=entity, ops=ops)
    fleet.cluster.request(AlterClientQuotasRequest(entries=[entry], validate_only=False))
    time.sleep(1)
    events: list[Any] = []
    options: dict[str, Any] = {"client_id": name, "group_id": name, "auto_offset_reset": "earliest"}
    with (
        Producer(fleet.bootstrap, client_id=name, batch_size=100_000) as producer,
        Consumer(fleet.bootstrap, session_timeout_ms=6_000, heartbeat_interval_ms=500, **options) as consumer,
    ):
        consumer.events(events.append)
        consumer.subscribe(name)
        deliveries = [producer.send(name, b"x" * 1000) for _ in range(1_500)]
        got = 0
        end = time.monotonic() + 120
        while got < 1_500 and time.monotonic() < end:
            got += len(consumer.poll(0.5))
        assert got == 1_500
        assert sorted(delivery.result().offset for delivery in deliveries) == list(range(1_500))
    kinds = {change.kind for change in events}
    assert "throttled" in kinds
    assert not kinds & {"lost", "refused", "unreachable", "uncommitted"}


def a_consumer_reads_from_the_replica_in_its_rack(fleet: Fleet) -> None:
    """A consumer reads from the follower in its rack (KIP-392), or from the leader when the follower dies."""
    node = sorted(fleet.nodes)[1]
    rack = chr(ord("a") + (node - 1) % 26)
    name = topic(fleet, 1)
    move(fleet, name, [other_node for other_node in fleet.nodes if other_node != node] + [node])
    partition = TopicPartition(name, 0)
    with (
        Consumer(fleet.bootstrap, client_rack=rack, auto_offset_reset="earliest") as consumer,
        Producer(fleet.bootstrap) as producer,
    ):
        consumer.assign({partition: 0})
        state = consumer._operations.engine.core.partitions.get(partition)
        assert state is not None
        read = count()

        def reads() -> None:
            number = next(read)
            producer.send(name, b"%d" % number, partition=0).result(60)
            until(lambda: [r.value for r in consumer.poll(0.2)] == [b"%d" % number], f"{number} is read", 60)

        until(lambda: reads() or state.replica == node, "it reads nearby", 60)
        fleet.kill(node)
        until(lambda: reads() or state.replica is None, "it reads from the leader", 60)
        fleet.start(node)
        wait_until_in_sync(fleet)


def a_producer_writes_to_the_leaders_in_its_rack(fleet: Fleet) -> None:
    """Records without a key go to the leaders in the producer's rack (KIP-1123).

    While the only broker in this rack is down, the records go to the leaders in all other racks.
    """
    node = sorted(fleet.nodes)[1]
    name = topic(fleet, 6)

    def led() -> set[int]:
        return {index for index, entry in fleet.partitions(name).items() if entry.leader_id == node}

    options: dict[str, Any] = {"partitioner_rack_aware": True, "client_rack": chr(ord("a") + (node - 1) % 26)}
    with Producer(fleet.bootstrap, metadata_max_age_ms=1_000, **options) as producer:

        def written() -> set[int]:
            deliveries = [producer.send(name, b"r" * 17_000) for _ in range(60)]
            return {delivery.result(60).partition for delivery in deliveries}

        assert 0 < len(led()) < 6
        until(lambda: written() == led(), "it writes to the rack", 60)
        fleet.kill(node)
        until(lambda: not led(), "the other brokers lead", 60)
        until(lambda: written() == set(range(6)), "it writes to all partitions", 60)
        fleet.start(node)
        wait_until_in_sync(fleet)
        elected = [TopicPartitions(topic=name, partitions=[*range(6)])]
        fleet.cluster.request(ElectLeadersRequest(election_type=0, topic_partitions=elected))
        assert 0 < len(led()) < 6
        until(lambda: written() == led(), "it writes to the rack again", 60)


def a_batch_is_too_large_now(fleet: Fleet) -> None:
    """After max.message.bytes is lowered, batches are split, down to single records."""
    name = topic(fleet, 1, **{"max.message.bytes": "3000"})
    with Producer(fleet.bootstrap) as producer:
        small = [producer.send(name, b"m" * 500) for _ in range(100)]
        assert sorted(delivery.result(60).offset for delivery in small) == list(range(100))
        with pytest.raises(BrokerError, match="MESSAGE_TOO_LARGE"):
            producer.send(name, b"M" * 5_000).result(60)
        assert producer.send(name, b"m").result(60).offset == 100


SCENARIOS = (
    a_rolling_restart,
    every_broker_dies_once,
    partitions_move_to_other_leaders,
    a_broker_restarts_on_another_port,
    all_brokers_move,
    a_broker_freezes,
    all_are_closed_while_a_broker_is_frozen,
    too_few_replicas,
    a_topic_is_deleted_and_recreated,
    a_quota,
    a_consumer_reads_from_the_replica_in_its_rack,
    a_producer_writes_to_the_leaders_in_its_rack,
    a_batch_is_too_large_now,
    a_broker_is_replaced,
)
DRAWN = Random(SEED).sample([scenario.__name__ for scenario in SCENARIOS], 2)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_clients_survive_operator_actions(
    scenario: Callable[[Fleet], None], request: pytest.FixtureRequest
) -> None:
    if scenario.__name__ not in DRAWN and not os.environ.get("KPROTO_ALL_PLAYS"):
        pytest.skip(f"not drawn (KPROTO_SEED={SEED}); KPROTO_ALL_PLAYS=1 plays all")
    fleet: Fleet = request.getfixturevalue("fleet")
    wait_until_in_sync(fleet)
    scenario(fleet)

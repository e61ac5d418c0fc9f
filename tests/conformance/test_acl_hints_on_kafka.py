"""The ACL that an authorization error names is sufficient: bob gets this ACL and no other."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from consumer import Admin, Consumer, PartitionConsumers, Producer, QueueProducer, TopicPartition
from kproto.broker.security.acls import Operation, PatternType, Permission, Resource
from kproto.errors import KprotoError, NotAuthorized, PartialFailure
from kproto.messages.create_acls import AclCreation, CreateAclsRequest
from kproto.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest

secured = pytest.importorskip("tests.conformance.secured_kafka")
from tests.conformance.entry_points import message  # noqa: E402

TOPIC, GROUP, ID = "flights", "readers", "billing-1"
T0 = TopicPartition(TOPIC, 0)
NEEDS = re.compile(r"an ACL that allows ([A-Z_]+).*? on the (topic|group|cluster|transactional id)\b")
ON = {
    "topic": (Resource.TOPIC, TOPIC),
    "group": (Resource.GROUP, GROUP),
    "cluster": (Resource.CLUSTER, "kafka-cluster"),
    "transactional id": (Resource.TRANSACTIONAL_ID, ID),
}


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("embedded", marks=pytest.mark.thorough),
        pytest.param("real", marks=[pytest.mark.kafka, pytest.mark.java]),
    ],
)
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    run_broker = secured.embedded_kafka if request.param == "embedded" else secured.real_kafka
    with run_broker(tmp_path_factory.mktemp("secured")) as broker:
        # All clients use one listener, because embedded_kafka runs a separate broker for each listener.
        place = broker.places["SASL_PLAINTEXT"]
        with Admin(place, timeout=60, **how("alice")) as alice:
            alice.create_topics({TOPIC: 1}, exist_ok=True)
            with Producer(place, **how("alice")) as producer:
                producer.send(TOPIC, b"x").result(60)
            yield place, alice


def how(user: str) -> Any:
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_username": user,
        "sasl_password": secured.USERS[user],
    }


# ---- bob's operations, each of which returns on success


def reads_in_a_group(place: str) -> None:
    with Consumer(place, group_id=GROUP, auto_offset_reset="earliest", **how("bob")) as consumer:
        consumer.subscribe([TOPIC])
        while not consumer.poll(10):
            pass
        consumer.commit()


def reads_alone(place: str) -> None:
    with Consumer(place, auto_offset_reset="earliest", **how("bob")) as consumer:
        consumer.assign([T0])
        while not consumer.poll(10):
            pass


def reads_as_sarama(place: str) -> None:
    with PartitionConsumers(place, **how("bob")) as consumers:
        reader = consumers.consume_partition(TOPIC, 0, "oldest")
        try:
            next(iter(reader))
        finally:
            reader.close()


def writes(place: str) -> None:
    with Producer(place, max_block_ms=10_000, **how("bob")) as producer:
        producer.send(TOPIC, b"x").result(30)


def writes_as_sarama(place: str) -> None:
    producer = QueueProducer(place, **how("bob"))
    producer.input(message())
    producer.async_close()
    for error in producer.errors():
        raise error.error


def writes_in_a_transaction(place: str) -> None:
    options: Any = {"transactional_id": ID, "max_block_ms": 10_000, **how("bob")}
    with Producer(place, **options) as producer, producer.transaction():
        producer.send(TOPIC, b"x")


def asks(call: Callable[[Admin], object]) -> Callable[[str], None]:
    def ask(place: str) -> None:
        with Admin(place, timeout=30, **how("bob")) as cluster:
            call(cluster)

    return ask


def forget_group(cluster: Admin) -> None:
    try:
        cluster.delete_groups([GROUP])
    except PartialFailure as failure:
        raise failure.failed[GROUP] from None


OPERATIONS: dict[str, Callable[[str], None]] = {
    "reads in a group": reads_in_a_group,
    "reads alone": reads_alone,
    "writes": writes,
    "writes as sarama does": writes_as_sarama,
    "writes in a transaction": writes_in_a_transaction,
    "makes a topic": asks(lambda cluster: cluster.create_topics({"made": 1}, exist_ok=True)),
    "grows a topic": asks(lambda cluster: cluster.create_partitions({"made": 2})),
    "deletes a topic": asks(lambda cluster: cluster.delete_topics(["made"])),
    "looks at a group": asks(lambda cluster: cluster.group(GROUP)),
    "commits for a group": asks(lambda cluster: cluster.commit_offsets(GROUP, {T0: 0})),
    "looks what is committed": asks(lambda cluster: cluster.committed_offsets(GROUP, [T0])),
    "looks where a log ends": asks(lambda cluster: cluster.list_offsets({T0: "latest"})),
    "forgets a group": asks(forget_group),
}


def give(alice: Admin, error: NotAuthorized) -> tuple[str, str]:
    """Create the ACL that the error names. Return its operation and its resource type."""
    match = NEEDS.search(str(error))
    assert match is not None, str(error)
    operation, resource_kind = match.groups()
    resource, name = ON[resource_kind]
    if resource_kind == "topic" and "'made'" in str(error):
        name = "made"
    if resource_kind != "cluster":
        assert name in str(error), "on what?"
    creation = AclCreation(
        resource_type=resource,
        resource_name=name,
        resource_pattern_type=PatternType.LITERAL,
        principal="User:bob",
        host="*",
        operation=Operation[operation],
        permission_type=Permission.ALLOW,
    )
    answer: Any = alice.request(CreateAclsRequest(creations=[creation]))
    assert answer.results[0].error_code == 0
    return operation, resource_kind


def delete_all_acls(alice: Admin) -> None:
    everything = DeleteAclsFilter(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter="User:bob",
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    alice.request(DeleteAclsRequest(filters=[everything]))


def test_the_acl_named_by_an_error_is_sufficient(kafka: Any, caplog: pytest.LogCaptureFixture) -> None:
    place, alice = kafka
    for wish, come in OPERATIONS.items():
        granted: list[tuple[str, str]] = []
        end = time.monotonic() + 60
        while True:
            try:
                come(place)
                break
            except NotAuthorized as error:
                lines = [line for line in caplog.messages if str(error) in line]
                assert len(lines) <= 1, lines
                assert not [record for record in caplog.records if record.exc_info]
                caplog.clear()
                needed = NEEDS.search(str(error))
                # The error repeats until Kafka applies the new ACL. An ACL that exists is not created again.
                if needed is None or needed.groups() not in granted:
                    granted.append(give(alice, error))
            except KprotoError as error:
                if "this broker has no transactions" in str(error):
                    break
                raise AssertionError(f"{wish}, with {granted}") from error
            assert len(granted) < 8, (wish, granted)
            assert time.monotonic() < end, (wish, granted)
            time.sleep(0.05)
        assert granted, f"{wish}: bob may do that anyway"
        delete_all_acls(alice)
        while True:  # Wait until the removal of the ACLs takes effect.
            with Admin(place, timeout=30, **how("bob")) as bob:
                if not bob.topics():
                    break

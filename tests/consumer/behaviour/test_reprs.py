"""The repr of each client, and of each object that a client returns, is one line."""

from __future__ import annotations

import asyncio
from socket import socket
from typing import Any

import pytest

from consumer import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    ConsumerRecord,
    GroupChange,
    Producer,
)
from kproto import TopicPartition, running
from kproto.errors import RequestTimedOut
from kproto.records import Record


def test_a_consumer_shows_its_group_and_the_number_of_its_partitions() -> None:
    consumer = Consumer("127.0.0.1:1", group_id="readers")
    assert repr(consumer) == "<Consumer 'kproto': group 'readers', 0 partitions>"
    consumer.close()
    assert repr(consumer) == "<Consumer 'kproto': group 'readers', 0 partitions, closed>"


def test_a_consumer_without_a_group_shows_no_group() -> None:
    with Consumer("127.0.0.1:1", client_id="me") as consumer:
        consumer.assign([TopicPartition("t", 0)])
        assert repr(consumer) == "<Consumer 'me': 1 partitions>"


def test_a_cluster_shows_its_client_id() -> None:
    with Admin("127.0.0.1:1") as cluster:
        assert repr(cluster) == "<Admin 'kproto'>"


def test_asyncio_clients_show_the_same() -> None:
    async def main() -> None:
        reader, admin = AsyncConsumer("127.0.0.1:1", group_id="readers"), AsyncAdmin("127.0.0.1:1")
        producer = AsyncProducer("127.0.0.1:1", client_id="me")
        assert repr(reader) == "<AsyncConsumer 'kproto': group 'readers', 0 partitions>"
        assert repr(admin) == "<AsyncAdmin 'kproto'>"
        assert repr(producer) == "<AsyncProducer 'me': 0 records on their way>"
        for client in (reader, admin, producer):
            client.kill()

    asyncio.run(main())


@pytest.mark.parametrize("client", [AsyncAdmin, AsyncConsumer, Admin, Consumer])
def test_the_text_of_a_client_is_the_name_of_its_logs(client: Any) -> None:
    instance = client("127.0.0.1:1", client_id="me")
    assert str(instance) == str(getattr(instance, "_runtime", getattr(instance, "_operations", None)))
    assert "me" in str(instance)
    instance.kill()


def test_a_producer_shows_its_open_records_and_a_server_its_address() -> None:
    with running(topics={"t": 1}) as server:
        assert repr(server) == f"<Server at {server.bootstrap}>"
        with Producer(server.bootstrap, linger_ms=60_000) as producer:
            delivery = producer.send("t", b"v")
            assert repr(producer) == "<Producer 'kproto': 1 records on their way>"
            assert repr(delivery) == "<Delivery to t-0: open>"
        assert repr(producer) == "<Producer 'kproto': 0 records on their way, closed>"
        assert "offset=0" in repr(delivery)
    assert repr(server) == f"<Server at {server.bootstrap}, stopped>"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (GroupChange(at=1_250, kind="rejoining"), "00:00:01.250 UTC rejoining"),
        (
            GroupChange(
                at=86_400_000,
                kind="assigned",
                generation=3,
                partitions=(TopicPartition("t", 1),),
                owned=(TopicPartition("t", 0), TopicPartition("t", 1)),
            ),
            "00:00:00.000 UTC assigned t-1; owns t-0, t-1; generation 3",
        ),
        (GroupChange(at=0, kind="assigned"), "00:00:00.000 UTC assigned; owns nothing"),
        (
            GroupChange(at=0, kind="reset", partitions=(TopicPartition("t", 1),), offset=0, reason="new"),
            "00:00:00.000 UTC reset t-1; at offset 0; new",
        ),
    ],
)
def test_a_group_change_is_one_line(change: GroupChange, expected: str) -> None:
    assert str(change) == expected


def test_a_record_is_one_line_with_topic_partition_and_offset() -> None:
    record = ConsumerRecord("t", 2, 17, 0, "CreateTime", b"UA", b"\xff" * 70, (("gate", None),))
    text = "\\xff" * 60
    assert str(record) == f"t-2 @ 17: 'UA' = '{text}'... (70 bytes), gate: null"


def test_a_record_of_a_batch_is_one_line_with_its_offset() -> None:
    assert str(Record(5, 0, None, b"v")) == "5: 'v'"


def test_a_commit_without_a_coordinator_names_each_unreachable_broker() -> None:
    with socket() as first_socket, socket() as second_socket:
        for bound in (first_socket, second_socket):
            bound.bind(("127.0.0.1", 0))  # The port is bound, but nothing listens on it.
        first, second = (f"127.0.0.1:{bound.getsockname()[1]}" for bound in (first_socket, second_socket))
        with Consumer(f"{first},{second}", group_id="g") as consumer:
            partition = TopicPartition("t", 0)
            consumer.assign([partition])
            with pytest.raises(RequestTimedOut, match="coordinator is not known: no broker at") as error_info:
                consumer.commit({partition: 1}, timeout=1)
    assert first in str(error_info.value)
    assert second in str(error_info.value)

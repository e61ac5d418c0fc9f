"""The admin client deletes the records below given offsets, on the embedded broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from consumer import Admin, Producer, TopicPartition
from kproto.broker.server import Server, running
from kproto.errors import ConfigError, OffsetOutOfRange, PartialFailure, UnknownTopic

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def server() -> Iterator[Server]:
    """Start a broker with three records in each partition of "t"."""
    with running(topics={"t": 2}) as server:
        with Producer(server.bootstrap) as producer:
            for number in range(6):
                producer.send("t", b"x", partition=number % 2)
        yield server


def test_records_below_the_offsets_are_deleted(server: Server) -> None:
    with Admin(server.bootstrap) as admin:
        assert admin.delete_records({P0: 2, P1: "latest"}) == {P0: 2, P1: 3}
        starts = admin.list_offsets({P0: "earliest", P1: "earliest"})
        assert (starts[P0].offset, starts[P1].offset) == (2, 3)


def test_a_wrong_offset_or_partition_does_not_affect_the_others(server: Server) -> None:
    missing = TopicPartition("missing", 0)
    with Admin(server.bootstrap) as admin:
        with pytest.raises(PartialFailure, match="DeleteRecords failed for 2 of 3 items") as caught:
            admin.delete_records({P0: 1, P1: 9, missing: 0})
        assert caught.value.succeeded == {P0: 1}
        assert isinstance(caught.value.failed[P1], OffsetOutOfRange)
        assert isinstance(caught.value.failed[missing], UnknownTopic)


def test_an_offset_that_is_not_one_is_rejected_before_a_request() -> None:
    with Admin("127.0.0.1:1") as admin, pytest.raises(ConfigError, match='offset, or "latest"'):
        admin.delete_records({P0: "earliest"})

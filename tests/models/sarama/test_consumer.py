"""sarama's Consumer without a group: the cases of consumer_test.go about ConsumePartition's behaviour."""

from __future__ import annotations

from typing import Any

from kproto.group.subscription import TopicPartition
from kproto.messages.fetch import FetchRequest
from kproto.models import contract as c
from kproto.models import sarama
from kproto.testing.world import ModelClient, World
from tests.rules import rule

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def world_with_client(**config: Any) -> tuple[World, ModelClient]:
    """Return a simulated cluster with two partitions of five records, and a new client."""
    world = World({"t": 2}, seed=1)
    for partition in (0, 1):
        world.write("t", partition, *[f"{partition}-{number}" for number in range(5)])
    return world, world.join("a", sarama, group_id="g", reset="earliest", **config)


def errors(member: ModelClient) -> list[str]:
    return [report.name for report in member.reports if report.kind == "error"]


def test_a_partition_is_consumed_from_the_requested_offset() -> None:
    world, a = world_with_client()
    a.assign({T0: 3, T1: None})
    world.run(2_000)
    assert sorted(a.values()) == ["0-3", "0-4", "1-0", "1-1", "1-2", "1-3", "1-4"]


@rule("M185")
def test_offsets_minus_1_and_minus_2_mean_the_newest_and_the_oldest() -> None:
    world, a = world_with_client()
    a.assign({T0: -1, T1: -2})
    world.run(2_000)
    world.write("t", 0, "new")
    world.run(1_000)
    assert sorted(a.values()) == ["1-0", "1-1", "1-2", "1-3", "1-4", "new"]


def test_a_partition_can_be_consumed_only_once_at_a_time() -> None:
    # Mirrors sarama's TestConsumerDuplicate
    world, a = world_with_client()
    a.assign({T0: 0})
    world.run(2_000)
    a.assign({T0: 2})
    world.run(2_000)
    assert errors(a) == ["sarama.ConfigurationError"]
    assert a.values() == ["0-0", "0-1", "0-2", "0-3", "0-4"]


@rule("M185")
def test_an_offset_after_the_end_of_the_log_is_out_of_range() -> None:
    # sarama's TestConsumerShutsDownOutOfRange covers errors of later fetches. This test covers the error that
    # ConsumePartition returns.
    world, a = world_with_client()
    a.assign({T0: 6})
    world.run(2_000)
    assert errors(a) == ["KError(1)"]
    assert world.requests_of(a, FetchRequest) == []


@rule("M193")
def test_a_closed_partition_can_be_consumed_again() -> None:
    world, a = world_with_client()
    a.assign({T0: 4})
    world.run(1_000)
    a.do(c.AssignCalled({T0: None}, "remove"))
    world.run(1_000)
    world.write("t", 0, "unseen")
    world.run(1_000)
    assert a.values() == ["0-4"]
    a.assign({T0: 5})
    world.run(1_000)
    assert a.values() == ["0-4", "unseen"]


def test_a_consumer_without_a_group_neither_joins_nor_commits() -> None:
    world, a = world_with_client(auto_commit=True, auto_commit_ms=100)
    a.assign({T0: 0, T1: 0})
    world.run(5_000)
    a.close()
    world.run(1_000)
    assert a.closed
    assert len(a.records) == 10
    assert {type(request).__name__ for _, request, _ in world.requests} == {
        "MetadataRequest",
        "ListOffsetsRequest",
        "FetchRequest",
    }


def test_a_partition_continues_after_a_consumer_error() -> None:
    world, a = world_with_client()
    a.assign({T0: 0})
    world.run(2_000)
    world.fault("cut", a)
    world.write("t", 0, "later")
    world.run(5_000)
    assert errors(a) == ["sarama.ConsumerError"]
    assert a.values()[-1] == "later"

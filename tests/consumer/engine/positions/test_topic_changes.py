"""A re-created topic follows the policy for new partitions, and a missing partition is reported."""

from __future__ import annotations

import pytest

from kproto.messages.list_offsets import ListOffsetsRequest
from kproto.messages.offset_fetch import OffsetFetchRequest
from tests.consumer.engine.stage import GROUP, caught_up_member, numbers, world_with_records
from tests.consumer.stage import World, tp
from tests.consumer.truncated_log import committed_world, new_member

METADATA = 3


def recreate(world: World, records: int) -> None:
    """Delete and re-create the topic, and write records into it."""
    world.delete_topic("t")
    world.create("t", 1)
    world.write("t", 0, *(f"new {number}" for number in range(records)))


@pytest.mark.parametrize(("partitions", "reason"), [(1, "1 partition (yet)"), (2, "2 partitions (yet)")])
def test_an_assigned_partition_that_does_not_exist_is_reported_once(partitions: int, reason: str) -> None:
    world = World({"t": partitions})
    a = world.consumer(metadata_max_age_ms=1_000)
    a.assign({tp("t", 5): 0, tp("t", 0): 0})
    world.run(5_000)
    [change] = a.changes_of("missing")
    assert (change.partitions, change.reason) == ((tp("t", 5),), f"topic 't' has {reason}")


@pytest.mark.rule("M206")
@pytest.mark.parametrize("policy", ["earliest", "latest", "none"])
def test_a_re_created_topic_is_read_by_the_policy_for_new_partitions(policy: str) -> None:
    world = world_with_records()
    a = caught_up_member(world, on_new_partition=policy)
    recreate(world, 3)
    world.run(5_000)
    applied = "latest" if policy == "latest" else "earliest"
    [change] = [change for change in a.changes_of("reset") if "re-created" in change.reason]
    assert change.reason == f"the topic was re-created: {applied}"
    assert (change.before, change.offset) == (10, 3 if applied == "latest" else 0)
    assert a.values()[10:] == ([] if applied == "latest" else ["new 0", "new 1", "new 2"])


@pytest.mark.rule("M206")
@pytest.mark.parametrize(("policy", "lookups"), [("earliest", 2), ("none", 1)])
def test_a_member_that_has_read_nothing_looks_for_a_commit_of_the_re_created_topic(
    policy: str, lookups: int
) -> None:
    """Another owner may have committed an offset in the re-created topic. The member therefore looks up the
    committed offset again. With the policy "none", it starts at the topic's first offset without a lookup.
    """
    world = committed_world()
    b = new_member(world, on_new_partition=policy)
    assert world.run(until=lambda: b.position(tp("t", 0)) == 10)
    world.run(1_000)
    assert len(world.requests_of(b, OffsetFetchRequest)) == 1
    recreate(world, 3)
    world.run(5_000)
    assert len(world.requests_of(b, OffsetFetchRequest)) == lookups
    assert b.values() == ["new 0", "new 1", "new 2"]


def test_topic_ids_of_an_upgraded_broker_do_not_reset_a_position() -> None:
    world = world_with_records()
    a = world.consumer(**GROUP)
    a.engine.core.network.caps[METADATA] = 9  # Metadata version 9 is the last one without topic ids.
    a.subscribe("t")
    assert world.run(until=lambda: len(a.records) == 10)
    lookups = len(world.requests_of(a, ListOffsetsRequest))
    assert world.requests_of(a, OffsetFetchRequest)
    del a.engine.core.network.caps[METADATA]
    world.run(3_000)
    world.write("t", 0, "10")
    assert world.run(3_000, until=lambda: a.values() == numbers(0, 11))
    assert len(world.requests_of(a, ListOffsetsRequest)) == lookups
    assert len(world.requests_of(a, OffsetFetchRequest)) == 1
    assert [change.reason for change in a.changes_of("reset")] == ["no committed offset: earliest"]

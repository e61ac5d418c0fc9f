"""Each item of an admin call has its own result or error, even if brokers of the cluster fail.

Each result of an admin call agrees with the cluster's state.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from consumer.engine.admin import group_changes, groups, offsets, records
from consumer.engine.admin.plan import Plan
from kproto.errors import PartialFailure, RequestTimedOut, UnknownTopic
from kproto.messages.delete_groups import DeleteGroupsRequest
from kproto.messages.delete_records import DeleteRecordsRequest
from kproto.messages.list_groups import ListGroupsRequest
from tests.bundles import bundles, check_each
from tests.consumer.behaviour.simulated_admin import SimulatedAdmin
from tests.consumer.stage import World, tp

BROKERS = (1, 2, 3)
PARTITIONS = [tp("t", index) for index in range(6)]
ENDS = dict.fromkeys(PARTITIONS, 2)


def stage(seed: int = 0) -> tuple[World, SimulatedAdmin]:
    """Return a cluster of three brokers, each of which leads two partitions with three records each."""
    world = World({"t": len(PARTITIONS)}, brokers=len(BROKERS), seed=seed)
    for partition in PARTITIONS:
        world.write("t", partition.partition, "a", "b", "c")
        world.elect("t", partition.partition, BROKERS[partition.partition % 3])
    return world, SimulatedAdmin(world)


def of_broker(node: int) -> set[Any]:
    return {partition for partition in PARTITIONS if BROKERS[partition.partition % 3] == node}


def delete(admin: SimulatedAdmin, ends: dict[Any, int] | None = None) -> Plan[Any]:
    return records.delete_records(admin.view, ends or ENDS, admin.clock, timeout_ms=5_000)


def starts(world: World) -> dict[Any, int]:
    return {partition: world.log(partition).start_offset for partition in PARTITIONS}


# ---- leaders


def test_each_leader_gets_one_request_with_its_partitions() -> None:
    world, admin = stage()
    done = admin.run(delete(admin))
    assert (done.error, done.value) == (None, ENDS)
    assert len(world.requests_of(admin, DeleteRecordsRequest)) == len(BROKERS)
    assert starts(world) == ENDS


@pytest.mark.parametrize("limit", [4_000, 12_000])  # The request to the silent broker times out after 5 s.
def test_a_silent_broker_hides_no_result_of_the_others(limit: int) -> None:
    world, admin = stage()
    admin.run(delete(admin, dict.fromkeys(PARTITIONS, 1)))  # Now the client is connected to all brokers.
    world.fault("stall", node=2)
    done = admin.run(delete(admin), limit)
    assert isinstance(done.error, PartialFailure)
    assert set(done.error.failed) == of_broker(2)
    assert done.error.succeeded == {p: 2 for p in PARTITIONS if p not in of_broker(2)}
    assert {type(error) for error in done.error.failed.values()} == {RequestTimedOut}
    world.heal()
    assert admin.run(delete(admin)).error is None


def test_a_moved_leader_gets_the_request() -> None:
    world, admin = stage()
    admin.run(delete(admin, {PARTITIONS[0]: 1}))  # Now the client knows the leaders.
    for partition in of_broker(1):
        world.elect("t", partition.partition, 3)
    done = admin.run(delete(admin))
    assert (done.error, done.value) == (None, ENDS)


@pytest.mark.parametrize("wait", [0, 1, 2, 3, 5])
def test_partitions_of_a_broker_that_stops_during_the_call_are_not_lost(wait: int) -> None:
    world, admin = stage()
    admin.run(delete(admin, {PARTITIONS[0]: 1}))
    world.call_later(wait, lambda: world.stop_broker(2))
    done = admin.run(delete(admin))
    assert (done.error, done.value) == (None, ENDS)
    assert starts(world) == ENDS


def test_a_missing_partition_hides_no_result_of_the_others() -> None:
    _, admin = stage()
    missing = tp("t", 99)
    done = admin.run(delete(admin, {missing: 1, **ENDS}))
    assert isinstance(done.error, PartialFailure)
    assert isinstance(done.error.failed[missing], UnknownTopic)
    assert done.error.succeeded == ENDS


# ---- coordinators


GROUPS = ["a", "b", "c", "d"]


def with_groups() -> tuple[World, SimulatedAdmin]:
    """Return a cluster: broker 1 coordinates the group "a", broker 2 "b" and "d", and broker 3 "c"."""
    world, admin = stage()
    for name, node in zip(GROUPS, (1, 2, 3, 2), strict=True):
        commit = offsets.commit_offsets(admin.view, name, {PARTITIONS[0]: (1, None, "")}, admin.clock)
        assert admin.run(commit).error is None
        world.move_coordinator(name, node)
    return world, admin


def test_each_broker_lists_its_groups() -> None:
    world, admin = with_groups()
    done = admin.run(groups.list_groups(admin.view, admin.clock))
    assert sorted(done.value) == GROUPS
    assert len(world.requests_of(admin, ListGroupsRequest)) == len(BROKERS)


def test_groups_of_a_broker_that_stops_are_listed_by_its_successor() -> None:
    world, admin = with_groups()
    admin.run(groups.list_groups(admin.view, admin.clock))
    world.call_later(1, lambda: world.stop_broker(2))
    done = admin.run(groups.list_groups(admin.view, admin.clock))
    assert sorted(done.value) == GROUPS


def test_groups_are_deleted_by_their_coordinators_even_if_one_moves() -> None:
    world, admin = with_groups()
    world.call_later(2, lambda: world.move_coordinator("b", 3, loading_ms=500))
    done = admin.run(group_changes.delete_groups(admin.view, [*GROUPS, "missing"], admin.clock))
    assert isinstance(done.error, PartialFailure)
    assert list(done.error.succeeded) == GROUPS
    assert list(done.error.failed) == ["missing"]
    assert world.requests_of(admin, DeleteGroupsRequest)
    assert admin.run(groups.list_groups(admin.view, admin.clock)).value == {}


# ---- random faults


def disturb(world: World, random: Random) -> None:
    """Schedule random changes of the cluster and random faults of the network for the next 3 s."""
    for _ in range(random.randint(1, 6)):
        node, partition = random.choice(BROKERS), random.randrange(len(PARTITIONS))
        lasts = random.randint(1, 6_000)
        changes: list[Callable[[], object]] = [
            lambda partition=partition, node=node: (
                node in world.brokers and world.elect("t", partition, node)
            ),
            lambda node=node, lasts=lasts: world.fault("stall", node=node, lasts=lasts),
            lambda node=node, lasts=lasts: world.fault("refuse", node=node, lasts=lasts),
            lambda node=node: world.fault("cut", node=node),
            lambda node=node: len(world.brokers) > 1 and node in world.brokers and world.stop_broker(node),
            lambda node=node: node not in world.brokers and world.start_broker(node),
        ]
        world.call_later(random.randint(0, 3_000), random.choice(changes))


@pytest.mark.parametrize("seeds", bundles(range(60)))
def test_results_are_true_and_complete_under_random_faults(seeds: list[int]) -> None:
    def check(seed: int) -> None:
        random = Random(seed)
        world, admin = stage(seed)
        if random.random() < 0.5:
            admin.run(delete(admin, {PARTITIONS[0]: 1}))
        disturb(world, random)
        done = admin.run(delete(admin), 8_000)
        succeeded, failed = done.value, {}
        if done.error is not None:
            assert isinstance(done.error, PartialFailure | RequestTimedOut), done.error
            if isinstance(done.error, PartialFailure):
                succeeded, failed = done.error.succeeded, done.error.failed
                assert succeeded.keys() | failed.keys() == ENDS.keys()
                assert {type(error) for error in failed.values()} == {RequestTimedOut}, failed
            else:
                succeeded = {}
        assert all(succeeded[partition] == starts(world)[partition] == 2 for partition in succeeded)
        world.heal()
        for node in BROKERS:
            if node not in world.brokers:
                world.start_broker(node)
        repeated = admin.run(delete(admin))
        assert (repeated.error, repeated.value) == (None, ENDS)

    check_each(seeds, check)

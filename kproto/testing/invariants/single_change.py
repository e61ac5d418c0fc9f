"""Invariants of one rebalance, and of one commit."""

from __future__ import annotations

from collections.abc import Mapping

from ...group.subscription import TopicPartition
from ..world import Consumer, World
from .queries import (
    InvariantBroken,
    violation,
)


def a_cooperative_rebalance_takes_two_rounds(world: World, group: str, since: int) -> None:
    """I5: after one change of its members or topics, a group is stable again within two generations.

    `since` is the turn of the world in which the change happened.
    """
    generations = [
        observation
        for observation in world.observations
        if observation.kind == "settled" and observation.source == group and observation.turn > since
    ]
    if len(generations) > 2:
        raise violation(world, group, f"took {len(generations)} generations to become stable", generations[2])


def a_cooperative_rebalance_moves_no_more_than_it_must(
    before: Mapping[str, set[TopicPartition]], after: Mapping[str, set[TopicPartition]]
) -> None:
    """I5: a member that stays keeps its partitions, except those that other members need for a fair share.

    `before` and `after` map the names of members to their partitions before and after the rebalance.
    """
    partition_count = len({partition for owned in after.values() for partition in owned})
    fair_share = partition_count // max(1, len(after))
    for name, owned_before in before.items():
        kept_count = len(owned_before & after.get(name, set()))
        if name in after and kept_count < min(len(owned_before), fair_share):
            raise InvariantBroken(
                f"{name} kept {kept_count} of {len(owned_before)} partitions, "
                f"but a fair share is {fair_share}"
            )


def a_commit_blocks_no_fetch(world: World, consumer: Consumer) -> None:
    """I2: while a commit is in flight, a consumer that polls receives the records of its partitions.

    Before the call, delay the responses of the coordinator but of no other broker (with an injected fault),
    start a commit, and let some time pass. The commit must still be in flight.
    """
    in_flight = [token for token in consumer.requested_commits if token not in consumer.done]
    if not in_flight:
        raise violation(world, consumer.name, "has no commit in flight: start one before this check")
    for partition in consumer.owned.intersection(world.partitions()):
        position, end = consumer.position(partition), world.log(partition).end_offset
        if position != end:
            commit = in_flight[0]
            why = f"the position of {partition} is {position} of {end} while commit {commit} is in flight"
            raise violation(world, consumer.name, why)

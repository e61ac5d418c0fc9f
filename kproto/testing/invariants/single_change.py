"""What holds of one rebalance, and of one commit."""

from __future__ import annotations

from collections.abc import Mapping

from ...group.subscription import TopicPartition
from ..world import Consumer, World
from .claim import (
    Broken,
    broken,
)


def a_cooperative_rebalance_takes_two_rounds(world: World, group: str, since: int) -> None:
    """I5: after one change (a member, a topic) the group is settled within two generations."""
    rounds = [
        seen
        for seen in world.observations
        if seen.kind == "settled" and seen.source == group and seen.turn > since
    ]
    if len(rounds) > 2:
        raise broken(world, group, f"took {len(rounds)} generations to settle", rounds[2])


def a_cooperative_rebalance_moves_no_more_than_it_must(
    before: Mapping[str, set[TopicPartition]], after: Mapping[str, set[TopicPartition]]
) -> None:
    """I5: who stays keeps all but what others lack for a fair share."""
    total = len({partition for owned in after.values() for partition in owned})
    least = total // max(1, len(after))
    for name, had in before.items():
        kept = len(had & after.get(name, set()))
        if name in after and kept < min(len(had), least):
            raise Broken(f"{name} kept {kept} of {len(had)} partitions, and a fair share is {least}")


def a_commit_blocks_no_fetch(world: World, consumer: Consumer) -> None:
    """I2: while a commit is open, what is there of the partitions is handed out to who polls.

    To be looked at when a commit has been open for a while, and only the coordinator is in trouble.
    """
    waiting = [token for token in consumer.requested_commits if token not in consumer.done]
    if not waiting:
        raise broken(world, consumer.name, "has no commit open: there is nothing to be seen")
    for partition in consumer.owned.intersection(world.partitions()):
        position, end = consumer.position(partition), world.log(partition).end_offset
        if position != end:
            why = f"{partition} stands at {position} of {end} while commit {waiting[0]} is open"
            raise broken(world, consumer.name, why)

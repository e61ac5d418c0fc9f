"""What holds when the world has come to rest: all faults healed, all applications polling, some time gone."""

from __future__ import annotations

from ...group.subscription import Assignment, TopicPartition
from ..world import Member, World
from .claim import (
    broken,
    consumers,
    not_given,
    passed_over_by_others,
)


def what_is_owned_is_read(world: World) -> None:
    """I1, I15: whoever polls has read what it owns to the end; offsets without records are no lag."""
    for consumer in consumers(world):
        if not consumer.alive or not consumer.is_polling:
            continue
        for partition in consumer.owned.intersection(world.partitions()):
            state = consumer.engine.partitions.get(partition)
            if state is None:
                raise broken(
                    world, consumer.name, f"was assigned {partition}, and its engine doesn't have it"
                )
            end = world.log(partition).end_offset
            if not state.paused and (not state.has_position or state.position != end):
                where = state.position if state.has_position else state.state.value
                raise broken(
                    world, consumer.name, f"{partition} stands at {where}, and its log ends at {end}"
                )


def every_record_was_delivered(world: World) -> None:
    """I10, I14: each record since the group began was given to one of its members, also of new partitions.
    Not of those that a leader of another client can't see (sarama-cluster's: S1-9).
    """
    for group in {consumer.group for consumer in consumers(world) if consumer.group is not None}:
        members = [consumer for consumer in consumers(world) if consumer.group == group]
        if not any(member.alive and member.is_polling and not member.has_final_error for member in members):
            continue
        given: dict[TopicPartition, set[int]] = {}
        skipped = {partition for name, partition in passed_over_by_others(world) if name == group}
        for seen in world.observations:
            client = world.clients.get(seen.source)
            if client is None or client.group != group:
                continue
            if seen.kind == "delivered":
                given.setdefault(seen.partitions[0], set()).update(seen.detail)
            elif seen.kind == "sought":
                skipped.update(seen.partitions or world.partitions())
        if any(member.options.auto_offset_reset != "earliest" for member in members):
            continue
        skipped |= _unseen(world, group)
        wanted = {topic for member in members if member.alive for topic in member.engine.topics}
        for partition in world.partitions():
            if partition.topic in wanted and partition not in skipped | world.disturbed:
                end = world.log(partition).end_offset
                missing = not_given(world, partition, given.get(partition, set()), end)
                if missing is not None:
                    raise broken(world, group, f"record {missing} of {partition} was given to nobody")


def _unseen(world: World, group_id: str) -> set[TopicPartition]:
    """What nobody is assigned, where who divides doesn't look for new partitions."""
    group = world.cluster.classic_coordinator.groups.get(group_id)
    others = [one for one in world.alive_clients(Member) if one.group == group_id]
    if group is None or all(one.sees_growth or one.member_id != group.leader for one in others):
        return set()
    plans = [Assignment.decode(member.assignment).partitions for member in group.members.values()]
    return set(world.partitions()).difference(*plans)


def the_group_converges(world: World) -> None:
    """I9, I17, I19: the group is stable, and each partition that is wanted is with one of its members."""
    for group_id in {
        client.group for client in world.clients.values() if client.alive and client.group is not None
    }:
        members = [consumer for consumer in consumers(world) if consumer.group == group_id and consumer.alive]
        able = [
            member
            for member in members
            if member.is_polling and member.engine.topics and not member.has_final_error
        ]
        others = [one for one in world.alive_clients(Member) if one.group == group_id]
        if not able or others or len(able) < len([member for member in members if member.engine.topics]):
            continue
        group = world.cluster.classic_coordinator.groups.get(group_id)
        if not world.is_stable(group_id) or group is None:
            state = "gone" if group is None else group.state.value
            raise broken(world, group_id, f"is {state}, with {', '.join(one.name for one in able)}")
        outside = [one.name for one in able if one.member_id not in group]
        if outside:
            raise broken(world, group_id, f"is without {', '.join(outside)}")
        owned = [partition for one in able for partition in one.owned]
        wanted = {
            partition
            for partition in world.partitions()
            if any(partition.topic in one.engine.topics for one in able)
        }
        if len(owned) != len(set(owned)) or set(owned) != wanted:
            raise broken(world, group_id, f"owns {sorted(owned)}, and should own {sorted(wanted)}")


def what_was_assigned_is_owned(world: World) -> None:
    """I11: each member works on what its coordinator assigned, whether its metadata shows it or not."""
    for consumer in consumers(world):
        group = world.cluster.classic_coordinator.groups.get(consumer.group or "")
        if group is None or not world.is_stable(group.group_id) or not consumer.is_stable():
            continue
        member = group.members.get(consumer.member_id)
        if member is None or not consumer.is_polling:
            continue
        assigned = set(Assignment.decode(member.assignment).partitions)
        if assigned != consumer.owned:
            why = f"owns {sorted(consumer.owned)}, and is assigned {sorted(assigned)}"
            raise broken(world, consumer.name, why)

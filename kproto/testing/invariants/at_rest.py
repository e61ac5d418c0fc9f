"""Invariants of a settled world: all faults are healed, all applications poll, and some time has passed."""

from __future__ import annotations

from ...group.subscription import Assignment, TopicPartition
from ..world import ModelClient, World
from .queries import (
    consumers,
    first_undelivered,
    skipped_by_models,
    violation,
)


def what_is_owned_is_read(world: World) -> None:
    """I1, I15: each polling consumer has read its partitions to the log end offset.

    A consumer's position is the log end offset even if the last offsets of the log have no records.
    """
    for consumer in consumers(world):
        if not consumer.alive or not consumer.is_polling:
            continue
        for partition in consumer.owned.intersection(world.partitions()):
            state = consumer.engine.partitions.get(partition)
            if state is None:
                raise violation(
                    world, consumer.name, f"was assigned {partition}, which its engine does not know"
                )
            end = world.log(partition).end_offset
            if not state.paused and (not state.has_position or state.position != end):
                position = state.position if state.has_position else state.state.value
                raise violation(
                    world,
                    consumer.name,
                    f"the position of {partition} is {position}, but its log ends at {end}",
                )


def every_record_was_delivered(world: World) -> None:
    """I10, I14: each record of a group's subscribed topics was delivered to a member.

    Records of new partitions are exempt if the leader is a model that does not notice new partitions
    (sarama-cluster).

    Groups whose reset policy is not "earliest" are exempt. Partitions are exempt if an application called
    seek for them, or if their log lost records.
    """
    for group in {consumer.group for consumer in consumers(world) if consumer.group is not None}:
        members = [consumer for consumer in consumers(world) if consumer.group == group]
        if not any(member.alive and member.is_polling and not member.has_final_error for member in members):
            continue
        delivered: dict[TopicPartition, set[int]] = {}
        exempt_partitions = {partition for name, partition in skipped_by_models(world) if name == group}
        for observation in world.observations:
            client = world.clients.get(observation.source)
            if client is None or client.group != group:
                continue
            if observation.kind == "delivered":
                delivered.setdefault(observation.partitions[0], set()).update(observation.detail)
            elif observation.kind == "sought":
                exempt_partitions.update(observation.partitions or world.partitions())
        if any(member.options.auto_offset_reset != "earliest" for member in members):
            continue
        exempt_partitions |= _partitions_ignored_by_leader(world, group)
        subscribed_topics = {topic for member in members if member.alive for topic in member.engine.topics}
        for partition in world.partitions():
            if partition.topic in subscribed_topics and partition not in exempt_partitions | world.disturbed:
                end = world.log(partition).end_offset
                missing = first_undelivered(world, partition, delivered.get(partition, set()), end)
                if missing is not None:
                    raise violation(
                        world, group, f"record {missing} of {partition} was delivered to no member"
                    )


def _partitions_ignored_by_leader(world: World, group_id: str) -> set[TopicPartition]:
    """Return the partitions without an owner, if the group's leader may not know them.

    The result is empty unless the leader is a model that does not notice added partitions.
    """
    group = world.cluster.coordinator.describe(group_id)
    models = [model for model in world.alive_clients(ModelClient) if model.group == group_id]
    if group is None or all(model.sees_growth or model.member_id != group.leader for model in models):
        return set()
    assignments = [Assignment.decode(member.assignment).partitions for member in group.members]
    return set(world.partitions()).difference(*assignments)


def the_group_converges(world: World) -> None:
    """I9, I17, I19: the group is stable, and each subscribed partition is owned by one of its members.

    Groups with a model, and groups in which a subscribed member does not poll, are not checked.
    """
    for group_id in {
        client.group for client in world.clients.values() if client.alive and client.group is not None
    }:
        members = [consumer for consumer in consumers(world) if consumer.group == group_id and consumer.alive]
        polling_members = [
            member
            for member in members
            if member.is_polling and member.engine.topics and not member.has_final_error
        ]
        models = [model for model in world.alive_clients(ModelClient) if model.group == group_id]
        subscribed_members = [member for member in members if member.engine.topics]
        if not polling_members or models or len(polling_members) < len(subscribed_members):
            continue
        group = world.cluster.coordinator.describe(group_id)
        if not world.is_stable(group_id) or group is None:
            state = "gone" if group is None else group.state
            polling_names = ", ".join(member.name for member in polling_members)
            raise violation(
                world,
                group_id,
                f"is {state}, not Stable; these members poll: {polling_names}",
            )
        non_members = [member.name for member in polling_members if group.member(member.member_id) is None]
        if non_members:
            raise violation(
                world, group_id, f"these consumers poll but are not its members: {', '.join(non_members)}"
            )
        owned_partitions = [partition for member in polling_members for partition in member.owned]
        subscribed_partitions = {
            partition
            for partition in world.partitions()
            if any(partition.topic in member.engine.topics for member in polling_members)
        }
        if (
            len(owned_partitions) != len(set(owned_partitions))
            or set(owned_partitions) != subscribed_partitions
        ):
            raise violation(
                world,
                group_id,
                f"owns {sorted(owned_partitions)}, and should own {sorted(subscribed_partitions)}",
            )


def what_was_assigned_is_owned(world: World) -> None:
    """I11: each member owns all its assigned partitions, even if its cluster metadata lacks some."""
    for consumer in consumers(world):
        group = world.cluster.coordinator.describe(consumer.group or "")
        if group is None or not world.is_stable(group.group_id) or not consumer.is_stable():
            continue
        member = group.member(consumer.member_id)
        if member is None or not consumer.is_polling:
            continue
        assigned = set(Assignment.decode(member.assignment).partitions)
        if assigned != consumer.owned:
            why = f"owns {sorted(consumer.owned)}, but is assigned {sorted(assigned)}"
            raise violation(world, consumer.name, why)

"""Invariants that hold at every moment, for `World.watch`."""

from __future__ import annotations

from ...group.protocol import GroupDescription
from ...group.subscription import Assignment, TopicPartition
from ..world import Client, ModelClient, World
from .queries import violation


def no_partition_has_two_owners(world: World) -> None:
    """I4: at most one of the members in a group's current generation owns a partition.

    Three kinds of owners are not counted:

    * a member that the coordinator has removed, until a response reports the removal

    * a static member for which a rebalance did not wait

    * a model that joined without revoking its partitions
    """
    owners: dict[tuple[str, TopicPartition], str] = {}
    groups: dict[str, GroupDescription | None] = {}
    for client in world.clients.values():
        if not client.alive or client.group is None or not client.owned:
            continue
        if client.group not in groups:
            groups[client.group] = world.cluster.coordinator.describe(client.group)
        group = groups[client.group]
        if group is None or group.member(client.member_id) is None or client.generation != group.epoch:
            continue
        leaving = client.leaving
        for partition in client.owned:
            if partition in leaving:
                continue
            owner = owners.setdefault((client.group, partition), client.name)
            if owner != client.name and not any(
                _is_unassigned_to_model(group, world.clients[name], partition)
                for name in (owner, client.name)
            ):
                raise violation(world, client.name, f"{partition} is also owned by {owner}")


def _is_unassigned_to_model(group: GroupDescription, client: Client, partition: TopicPartition) -> bool:
    """Return whether a model owns a partition that its generation did not assign to it.

    librdkafka can cause this. If topics grow while the application is receiving an assignment, librdkafka
    joins again without a REVOKE event (rd_kafka_cgrp_revoke_all_rejoin). So the application keeps the
    partitions of the previous generation.
    """
    member = group.member(client.member_id)
    return (
        isinstance(client, ModelClient)
        and member is not None
        and partition not in Assignment.decode(member.assignment).partitions
    )


def a_fenced_member_is_silent(world: World) -> None:
    """I3: a fenced client delivers nothing until its next assignment.

    The model of sarama-cluster is exempt, because a fenced sarama-cluster continues to deliver records.
    """
    delivery = world.observations[-1] if world.observations else None
    if delivery is None or delivery.kind != "delivered":
        return
    client = world.clients[delivery.source]
    if isinstance(client, ModelClient) and not client.is_silent_when_fenced:
        return
    for observation in reversed(world.observations):
        if observation.source != delivery.source:
            continue
        if observation.kind in ("assigned", "subscribed"):
            return
        if observation.kind == "fenced":
            raise violation(
                world,
                delivery.source,
                f"was fenced ({observation.detail}), but delivers {delivery.partitions}",
                delivery,
            )

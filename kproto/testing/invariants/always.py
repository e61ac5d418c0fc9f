"""Invariants that hold at every moment, for `World.watch`."""

from __future__ import annotations

from ...group.classic.coordinator.state import ClassicGroup
from ...group.subscription import Assignment, TopicPartition
from ..world import Client, ModelClient, World
from .queries import violation


def no_partition_has_two_owners(world: World) -> None:
    """I4: among the members of a group's generation, at most one works on a partition.

    A removed member is not counted before a response has reported the removal to it. A static member for
    which a rebalance did not wait is not counted either, nor is a model that joined without revoking its
    partitions.
    """
    owners: dict[tuple[str, TopicPartition], str] = {}
    for client in world.clients.values():
        if not client.alive or client.group is None or not client.owned:
            continue
        group = world.cluster.classic_coordinator.groups.get(client.group)
        if group is None or client.member_id not in group or client.generation != group.generation:
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


def _is_unassigned_to_model(group: ClassicGroup, client: Client, partition: TopicPartition) -> bool:
    """Return whether a model owns a partition that its generation did not assign to it.

    librdkafka owns such partitions after it joined without a REVOKE: if its topics grow while its application
    gets an assignment (rd_kafka_cgrp_revoke_all_rejoin).
    """
    plan = group.members[client.member_id].assignment
    return isinstance(client, ModelClient) and partition not in Assignment.decode(plan).partitions


def a_fenced_member_is_silent(world: World) -> None:
    """I3: a fenced client delivers nothing until its next assignment.

    The model of sarama-cluster is exempt: the original continues to deliver.
    """
    last = world.observations[-1] if world.observations else None
    if last is None or last.kind != "delivered":
        return
    client = world.clients[last.source]
    if isinstance(client, ModelClient) and not client.is_silent_when_fenced:
        return
    for observation in reversed(world.observations):
        if observation.source != last.source:
            continue
        if observation.kind in ("assigned", "subscribed"):
            return
        if observation.kind == "fenced":
            raise violation(
                world, last.source, f"was fenced ({observation.detail}) and delivers {last.partitions}", last
            )

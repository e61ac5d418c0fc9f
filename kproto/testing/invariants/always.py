"""What holds at every moment; these are for `World.watch`."""

from __future__ import annotations

from ...group.classic.coordinator.state import ClassicGroup
from ...group.subscription import Assignment, TopicPartition
from ..world import Client, Member, World
from .claim import broken


def no_partition_has_two_owners(world: World) -> None:
    """I4: of those who are members in the group's generation, one works on a partition.

    Who was put out of the group and has not heard of it yet is no owner: nobody could have told it. So it is
    with a static member that a rebalance did not wait for, and with a member of another client that joined
    without giving back what it had.
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
            other = owners.setdefault((client.group, partition), client.name)
            if other != client.name and not any(
                _was_not_given(group, world.clients[one], partition) for one in (other, client.name)
            ):
                raise broken(world, client.name, f"{partition} is with {other}, too")


def _was_not_given(group: ClassicGroup, client: Client, partition: TopicPartition) -> bool:
    """Whether another client's member holds what its generation has not given it.

    librdkafka's does: when its topics grow while its application is being assigned partitions, it joins
    without a REVOKE (rd_kafka_cgrp_revoke_all_rejoin).
    """
    plan = group.members[client.member_id].assignment
    return isinstance(client, Member) and partition not in Assignment.decode(plan).partitions


def a_fenced_member_is_silent(world: World) -> None:
    """I3: who hears that it is no member any more hands out nothing until it is assigned something anew; but
    for sarama-cluster, which does.
    """
    last = world.observations[-1] if world.observations else None
    if last is None or last.kind != "delivered":
        return
    client = world.clients[last.source]
    if isinstance(client, Member) and not client.is_silent_when_fenced:
        return
    for seen in reversed(world.observations):
        if seen.source != last.source:
            continue
        if seen.kind in ("assigned", "subscribed"):
            return
        if seen.kind == "fenced":
            raise broken(
                world, last.source, f"was fenced ({seen.detail}) and hands out {last.partitions}", last
            )

"""What holds at every moment; these are for `World.watch`."""

from __future__ import annotations

from ...group.classic import Group
from ...group.subscription import Assignment, TopicPartition
from ..world import Client, Member, World
from .looking import broken


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
        group = world.cluster.coordinator.groups.get(client.group)
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


def _was_not_given(group: Group, client: Client, partition: TopicPartition) -> bool:
    """Whether another client's member holds what its generation has not given it.

    librdkafka's does: when its topics grow while its application is being assigned partitions, it joins
    without a REVOKE (rd_kafka_cgrp_revoke_all_rejoin).
    """
    return isinstance(client, Member) and partition not in _given(group, client)


def _given(group: Group, client: Client) -> tuple[TopicPartition, ...]:
    """What the group's generation gave this member of it."""
    plan = group.members[client.member_id].assignment
    return Assignment.decode(plan).partitions if plan else ()


def _is_given(world: World, client: Client, partition: TopicPartition) -> bool:
    """Whether a partition is this client's by the generation that it is in."""
    group = world.cluster.coordinator.groups.get(client.group or "")
    present = group is not None and client.member_id in group and client.generation == group.generation
    return present and group is not None and partition in _given(group, client)


def a_fenced_member_is_silent(world: World) -> None:
    """I3: who hears that it is no member any more hands out nothing until it is assigned something anew.

    sarama-cluster hands out before it tells its application of the assignment (its loop sends the
    notification when it has subscribed), so another client that is a member again may hand out what it was
    given.
    """
    last = world.seen[-1] if world.seen else None
    if last is None or last.what != "delivered":
        return
    for seen in reversed(world.seen):
        if seen.who != last.who:
            continue
        if seen.what in ("assigned", "subscribed"):
            return
        if seen.what == "fenced":
            client = world.clients[last.who]
            if isinstance(client, Member) and all(_is_given(world, client, one) for one in last.partitions):
                return
            raise broken(world, last.who, f"was fenced ({seen.detail}) and hands out {last.partitions}", last)

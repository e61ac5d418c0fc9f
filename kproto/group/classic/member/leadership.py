"""What a member does while it leads: read what everybody wants, divide, and watch whether the division still
holds.

* The plan is for the topics of all members, not only for the leader's own.
* The snapshot of those topics is taken when the plan is made. A later one that differs (more partitions,
  fewer, a topic that went, and with `client.rack` other racks) is the reason for the next rebalance.
* The leader also remembers how many partitions each topic had at the group's first assignment, and tells the
  members in the assignment's user data, which other clients ignore. Whoever leads next passes it on. A
  partition beyond it came later, so that without a commit it starts at its first record: `latest` would skip
  what was written before the group noticed. A topic is remembered only if that is certain: at the group's
  first generation, or because the topic did not exist yet at some later one. Not with the sticky assignor:
  sarama's members send its user data back as their own claim.
* A static leader whose process began anew leads on by the plan that is there (KIP-814). What that was made
  with it can't know, but DescribeGroups tells whether somebody has each partition: `is_whole`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ....errors import DecodeError, IllegalState, KprotoError
from ....messages.describe_groups import DescribeGroupsResponse
from ....messages.sync_group import SyncGroupRequestAssignment
from ....wire.message import Message, Struct
from ....wire.types import Int32, String
from ...assignors import Assignor
from ...protocol import Metadata
from ...subscription import Assignment, Subscription, TopicPartition, read_subscription

MAGIC = b"kproto\0\1"  # name and version of our user data

Snapshot = dict[str, int | tuple[frozenset[str], ...]]


class Memory(Message, versions="0"):
    """What a leader tells of the group's topics: how many partitions they had at its first assignment."""

    topics: list[TopicMemory]


class TopicMemory(Struct):
    topic: String
    existed: Int32


def encode_memory(existed: Mapping[str, int]) -> bytes:
    """User data for assignments: topic -> number of partitions at the group's first assignment."""
    topics = [TopicMemory(topic=topic, existed=existed[topic]) for topic in sorted(existed)]
    return MAGIC + Memory(topics=topics).encode(0)


def read_memory(user_data: bytes | None) -> dict[str, int] | None:
    """What a leader said in an assignment's user data; None if it isn't one of ours."""
    if user_data is None or not user_data.startswith(MAGIC):
        return None
    try:
        body = Memory.decode(memoryview(user_data)[len(MAGIC) :], 0)
    except DecodeError:
        return None
    return {one.topic: one.existed for one in body.topics if one.existed >= 0}


def subscriptions(members: Iterable[tuple[str, str | None, bytes]]) -> dict[str, Subscription]:
    """Member id -> subscription, from (member id, instance id, metadata); equal metadata is read once."""
    read: dict[tuple[bytes, str | None], Subscription] = {}
    found: dict[str, Subscription] = {}
    for member_id, instance_id, metadata in members:
        key = (metadata, instance_id)
        if key not in read:
            read[key] = read_subscription(metadata, instance_id)
        found[member_id] = read[key]
    return found


def topics_of(group: Mapping[str, Subscription]) -> frozenset[str]:
    """All topics that somebody in the group wants."""
    return frozenset[str]().union(*{subscription.topics for subscription in group.values()})


def snapshot(topics: Iterable[str], metadata: Metadata, with_racks: bool) -> Snapshot:
    """The partitions of `topics`, in a form that differs when a rebalance is due; without missing topics."""
    found: Snapshot = {}
    for topic in topics:
        count = metadata.partitions.get(topic, 0)
        if count:
            found[topic] = tuple(metadata.racks[topic]) if with_racks and topic in metadata.racks else count
    return found


def is_whole(described: DescribeGroupsResponse, topics: Iterable[str], metadata: Metadata) -> bool:
    """Whether the members have together just those partitions of `topics` that there are."""
    assignments = [member.member_assignment for group in described.groups for member in group.members]
    try:
        given = {tp for one in assignments if one for tp in Assignment.decode(one).partitions}
    except KprotoError:
        return False
    known = {topic: metadata.partitions[topic] for topic in topics if metadata.partitions.get(topic)}
    there = {TopicPartition(topic, number) for topic, count in known.items() for number in range(count)}
    return there == {tp for tp in given if tp.topic in known}


def existed_by_now(
    existed: Mapping[str, int],
    topics: Iterable[str],
    metadata: Metadata,
    before: Metadata | None,
    first: bool,
) -> dict[str, int]:
    """`existed`, with what this assignment makes certain.

    `before` is the metadata of the assignment before this one, where there was one.
    """
    found: dict[str, int] = {} if first else dict(existed)
    for topic in topics:
        count = metadata.partitions.get(topic, 0)
        if before is not None and topic in found:
            old, new = before.ids.get(topic), metadata.ids.get(topic)
            if old is not None and new is not None and old != new:
                found[topic] = 0  # deleted and made again: none of its partitions existed
        elif topic not in found:
            appeared = before is not None and before.complete and topic not in before.partitions
            if count == 0 or (appeared and not first):
                found[topic] = 0
            elif first:
                found[topic] = count
    return found


def new_partitions(added: Iterable[TopicPartition], existed: Mapping[str, int]) -> frozenset[TopicPartition]:
    """Those that certainly came into being after the group's first assignment."""
    return frozenset(tp for tp in added if tp.topic in existed and tp.partition >= existed[tp.topic])


def plan(
    assignor: Assignor,
    group: Mapping[str, Subscription],
    metadata: Metadata,
    existed: Mapping[str, int],
    encode: Callable[[Assignment], bytes] = Assignment.encode,
) -> list[SyncGroupRequestAssignment]:
    """Divide, and say it in the words of SyncGroup. Raises what the assignor raises, and IllegalState.

    `encode` is for who doesn't write a member's partitions in order.
    """
    wanted = topics_of(group)
    partitions = {
        topic: metadata.partitions[topic] for topic in sorted(wanted) if metadata.partitions.get(topic)
    }
    racks = {topic: metadata.racks[topic] for topic in partitions if topic in metadata.racks}
    divided = assignor.assign(partitions, group, racks)
    if assignor.cooperative and assignor.name != "cooperative-sticky":
        _check_cooperative(divided, group)
    user_data = encode_memory(existed) if assignor.name != "sticky" else None
    return [
        SyncGroupRequestAssignment(
            member_id=member_id,
            assignment=encode(Assignment(partitions=tuple(divided.get(member_id, ())), user_data=user_data)),
        )
        for member_id in group
    ]


def _check_cooperative(
    divided: Mapping[str, list[TopicPartition]], group: Mapping[str, Subscription]
) -> None:
    """No partition may be given to one member in the round in which another one has to let go of it."""
    added = {
        tp for member_id, given in divided.items() for tp in set(given).difference(group[member_id].owned)
    }
    for member_id, subscription in group.items():
        moved = added.intersection(subscription.owned).difference(divided.get(member_id, ()))
        if moved:
            raise IllegalState(f"{min(moved)} goes to another member before {member_id} let go of it")

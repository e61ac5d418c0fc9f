"""The pure functions with which a leader decodes subscriptions, assigns partitions and compares metadata.

* The assignment covers the topics of all members, not only the leader's own (M80, M200).

* When it computes an assignment, the leader takes a snapshot of the metadata of all members' topics.

* The leader rejoins if later metadata differs from this snapshot in partition counts, in topics, or, with
  `client.rack`, in racks (M92).

* M206: the leader stores how many partitions each topic had at the group's first assignment. A partition
  beyond this count is new.

* M206: by default, a new partition without a committed offset is read from its first record. A start at the
  latest offset would skip the records written before the group noticed the partition.

* M206: every assignment carries the stored partition counts in its user data, so that every later leader
  knows them. Other clients ignore this user data.

* R226: the user data of the sticky assignor contains no partition counts, because sarama's members copy the
  user data of their assignment into their next subscription.

* M206: in the group's first generation, the count of a topic is its number of partitions. In a later
  generation, the count of a re-created topic becomes 0. A topic without a count gets 0 if it does not exist,
  or if it is known to have been created since the previous assignment. Otherwise it gets no count.

* A restarted static leader keeps the group's assignment, without knowing the metadata from which it was
  computed (KIP-814). The leader rejoins if DescribeGroups shows that the assigned partitions are not exactly
  the existing ones (`is_complete`).

* `is_empty_by_mistake` returns whether DescribeGroups shows that a follower's empty assignment is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping

from ....errors import DecodeError, IllegalState, KprotoError
from ....messages.describe_groups import DescribeGroupsResponse
from ....messages.sync_group import SyncGroupRequestAssignment
from ....wire.message import Message, Struct
from ....wire.types import Int32, String
from ...assignors import Assignor
from ...protocol import MetadataUpdated
from ...subscription import Assignment, Subscription, TopicPartition, read_subscription

# The first bytes of kproto's user data: kproto's name and the version of the format.
MAGIC = b"kproto\0\1"

# Maps a topic to its number of partitions. If the member has a rack, maps the topic to the racks of each
# partition's replicas instead.
Snapshot = dict[str, int | tuple[frozenset[str], ...]]


class InitialCounts(Message, versions="0"):
    """The user data of an assignment: each topic's number of partitions at the group's first assignment."""

    topics: list[TopicInitialCount]


class TopicInitialCount(Struct):
    topic: String
    initial_count: Int32


def encode_initial_counts(initial_counts: Mapping[str, int]) -> bytes:
    """Return the user data of an assignment. `initial_counts` maps a topic to its number of partitions."""
    topics = [
        TopicInitialCount(topic=topic, initial_count=initial_counts[topic])
        for topic in sorted(initial_counts)
    ]
    return MAGIC + InitialCounts(topics=topics).encode(0)


def decode_initial_counts(user_data: bytes | None) -> dict[str, int] | None:
    """Return a mapping from topic to number of partitions, or None if kproto did not write `user_data`."""
    if user_data is None or not user_data.startswith(MAGIC):
        return None
    try:
        counts = InitialCounts.decode(memoryview(user_data)[len(MAGIC) :], 0)
    except DecodeError:
        return None
    return {entry.topic: entry.initial_count for entry in counts.topics if entry.initial_count >= 0}


def decode_subscriptions(members: Iterable[tuple[str, str | None, bytes]]) -> dict[str, Subscription]:
    """Decode (member id, instance id, metadata) triples into a mapping from member id to subscription.

    Identical metadata of several dynamic members is decoded only once.
    """
    decoded: dict[tuple[bytes, str | None], Subscription] = {}
    subscriptions: dict[str, Subscription] = {}
    for member_id, instance_id, metadata in members:
        key = (metadata, instance_id)
        if key not in decoded:
            decoded[key] = read_subscription(metadata, instance_id)
        subscriptions[member_id] = decoded[key]
    return subscriptions


def topics_of(subscriptions: Mapping[str, Subscription]) -> frozenset[str]:
    """Return the topics to which at least one member subscribes."""
    return frozenset[str]().union(*{subscription.topics for subscription in subscriptions.values()})


def take_snapshot(topics: Iterable[str], metadata: MetadataUpdated, with_racks: bool) -> Snapshot:
    """Return a snapshot: each topic's partition count or, if `with_racks`, the racks of its partitions.

    The snapshot is compared with later metadata. Topics that do not exist are omitted.
    """
    snapshot: Snapshot = {}
    for topic in topics:
        count = metadata.partitions.get(topic, 0)
        if count:
            has_racks = with_racks and topic in metadata.racks
            snapshot[topic] = tuple(metadata.racks[topic]) if has_racks else count
    return snapshot


def is_complete(described: DescribeGroupsResponse, topics: Iterable[str], metadata: MetadataUpdated) -> bool:
    """Return whether every existing partition of `topics` is assigned, and no other partition.

    If the DescribeGroups response has no assignments, for example because of an error, the result is False.
    """
    try:
        assigned = {partition for _, owned in _decode_owners(described) for partition in owned}
    except KprotoError:
        return False
    counts = {topic: metadata.partitions[topic] for topic in topics if metadata.partitions.get(topic)}
    existing = {TopicPartition(topic, index) for topic, count in counts.items() for index in range(count)}
    return existing == {partition for partition in assigned if partition.topic in counts}


def is_empty_by_mistake(described: DescribeGroupsResponse, member_id: str, topics: Container[str]) -> bool:
    """Return whether a follower, whose assignment is empty, should have received partitions.

    The result is True if the coordinator has stored an assignment with partitions for the member.
    The result is also True if no member owns any partition of `topics`. The likely cause is a leader that
    took itself for a follower, and therefore sent no assignments.

    The result is False if `described` has no stable group with this member.
    """
    if not any(group.group_state == "Stable" for group in described.groups):
        return False
    try:
        owners = _decode_owners(described)
    except KprotoError:
        return False
    own_assignments = [owned for owner_id, owned in owners if owner_id == member_id]
    is_in_group = bool(own_assignments)
    has_partitions = own_assignments != [()]
    some_member_owns = any(partition.topic in topics for _, owned in owners for partition in owned)
    return is_in_group and (has_partitions or not some_member_owns)


def _decode_owners(described: DescribeGroupsResponse) -> list[tuple[str, tuple[TopicPartition, ...]]]:
    """Return the member id and the partitions of each described member.

    Raises DecodeError for an invalid assignment.
    """
    return [
        (member.member_id, Assignment.decode(member.member_assignment).partitions)
        for group in described.groups
        for member in group.members
    ]


def update_initial_counts(
    initial_counts: Mapping[str, int],
    topics: Iterable[str],
    metadata: MetadataUpdated,
    previous: MetadataUpdated | None,
    is_first_generation: bool,
) -> dict[str, int]:
    """Return `initial_counts`, with updated counts for new and re-created topics.

    In the first generation, `initial_counts` is ignored, and each topic gets its number of partitions. In
    later generations, a topic without a count gets 0 if it does not exist, or if it is known to have been
    created after the previous assignment. Otherwise it gets no count.

    `previous` is the metadata of the assignment before this one, or None if it is unknown.
    """
    counts: dict[str, int] = {} if is_first_generation else dict(initial_counts)
    for topic in topics:
        count = metadata.partitions.get(topic, 0)
        if previous is not None and topic in counts:
            old_id, new_id = previous.ids.get(topic), metadata.ids.get(topic)
            if old_id is not None and new_id is not None and old_id != new_id:
                # The topic was deleted and re-created, so all its partitions are new.
                counts[topic] = 0
        elif topic not in counts:
            is_new = previous is not None and previous.complete and topic not in previous.partitions
            if count == 0 or (is_new and not is_first_generation):
                counts[topic] = 0
            elif is_first_generation:
                counts[topic] = count
    return counts


def find_new_partitions(
    added: Iterable[TopicPartition], initial_counts: Mapping[str, int]
) -> frozenset[TopicPartition]:
    """Return the partitions that are known to be newer than the group's first assignment (M206)."""
    return frozenset(
        partition
        for partition in added
        if partition.topic in initial_counts and partition.partition >= initial_counts[partition.topic]
    )


def assign(
    assignor: Assignor,
    subscriptions: Mapping[str, Subscription],
    metadata: MetadataUpdated,
    initial_counts: Mapping[str, int],
    encode: Callable[[Assignment], bytes] = Assignment.encode,
) -> list[SyncGroupRequestAssignment]:
    """Return the assignments for SyncGroup. Exceptions of the assignor are not caught.

    Raises IllegalState if a cooperative assignor moves a partition that its owner has not revoked.

    `encode` encodes one assignment. Simulated clients that do not sort the partitions pass their own
    function.
    """
    topics = topics_of(subscriptions)
    counts = {topic: metadata.partitions[topic] for topic in sorted(topics) if metadata.partitions.get(topic)}
    racks = {topic: metadata.racks[topic] for topic in counts if topic in metadata.racks}
    assigned = assignor.assign(counts, subscriptions, racks)
    # As in Java, the assignments of the built-in cooperative-sticky assignor are not checked.
    if assignor.cooperative and assignor.name != "cooperative-sticky":
        _check_cooperative(assigned, subscriptions)
    # With sarama's sticky strategy, members would send these counts back as the user data of their next
    # subscription (R226).
    user_data = encode_initial_counts(initial_counts) if assignor.name != "sticky" else None
    return [
        SyncGroupRequestAssignment(
            member_id=member_id,
            assignment=encode(Assignment(partitions=tuple(assigned.get(member_id, ())), user_data=user_data)),
        )
        for member_id in subscriptions
    ]


def _check_cooperative(
    assigned: Mapping[str, list[TopicPartition]], subscriptions: Mapping[str, Subscription]
) -> None:
    """Raise IllegalState if a partition moves to another member before its owner has revoked it (M80)."""
    added = {
        partition
        for member_id, partitions in assigned.items()
        for partition in set(partitions).difference(subscriptions[member_id].owned)
    }
    for member_id, subscription in subscriptions.items():
        moved = added.intersection(subscription.owned).difference(assigned.get(member_id, ()))
        if moved:
            raise IllegalState(
                f"the assignor moves {min(moved)} to another member before {member_id} has revoked it"
            )

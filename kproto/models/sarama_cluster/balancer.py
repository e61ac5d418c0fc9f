"""sarama-cluster's subscription and assignment (balancer.go, v2.1.15).

* The subscription declares version 1, but contains only the fields of version 0.

* Each topic is assigned separately. Range rounds the boundaries of its ranges: of 5 partitions, 3 members get
  2, 1 and 2. Roundrobin starts with the first member for every topic.

* Members without a partition are not in the assignment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...group.subscription import Subscription, TopicPartition, read_subscription
from ...messages.consumer_protocol import ConsumerProtocolSubscription
from ...messages.join_group import JoinGroupResponse

STRATEGIES = ("range", "roundrobin")  # The protocols of JoinGroup, in the order of the request.


def subscription(topics: Iterable[str]) -> bytes:
    """Return JoinGroup's metadata, which is the same for range and roundrobin."""
    return b"\0\1" + ConsumerProtocolSubscription(topics=list(topics), user_data=None).encode(0)


def read_members(joined: JoinGroupResponse) -> dict[str, Subscription]:
    """Decode the members' subscriptions from the JoinGroup response that the leader received."""
    return {member.member_id: read_subscription(member.metadata) for member in joined.members}


def topics_of(members: Mapping[str, Subscription]) -> list[str]:
    """Return all topics that any member subscribes to."""
    return sorted({topic for member in members.values() for topic in member.topics})


def assign_partitions(
    strategy: str, members: Mapping[str, Subscription], counts: Mapping[str, int]
) -> dict[str, list[TopicPartition]]:
    """Map each member's id to its partitions. Members without a partition are left out."""
    plan: dict[str, list[TopicPartition]] = {}
    for topic, count in counts.items():
        member_ids = sorted(
            member_id for member_id, subscription in members.items() if topic in subscription.topics
        )
        for index in range(count):
            if strategy == "roundrobin":
                position = index % len(member_ids)
            else:
                position = _range_position(index, count, len(member_ids))
            plan.setdefault(member_ids[position], []).append(TopicPartition(topic, index))
    return plan


def _range_position(index: int, count: int, member_count: int) -> int:
    """Return the position of the member whose range of the `count` partitions contains partition `index`."""
    position = 0
    while position + 1 < member_count and index >= _range_start(position + 1, count, member_count):
        position += 1
    return position


def _range_start(position: int, count: int, member_count: int) -> int:
    """Return `position * count / member_count`, rounded to a whole number; halves are rounded up."""
    return (2 * position * count + member_count) // (2 * member_count)

"""sarama-cluster's subscription and plan (balancer.go, v2.1.15).

* The subscription says version 1 and has the fields of version 0.
* Each topic is divided for itself. Range rounds its borders (of 5 partitions, 3 members get 2, 1, 2), and
  roundrobin begins with the first member at every topic. Members that get nothing are not in the plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...group.subscription import Subscription, TopicPartition, read_subscription
from ...messages.consumer_protocol import ConsumerProtocolSubscription
from ...messages.join_group import JoinGroupResponse

STRATEGIES = ("range", "roundrobin")  # What JoinGroup offers, in this order.


def subscription(topics: Iterable[str]) -> bytes:
    """JoinGroup's metadata, the same for both strategies."""
    return b"\0\1" + ConsumerProtocolSubscription(topics=list(topics), user_data=None).encode(0)


def read_members(joined: JoinGroupResponse) -> dict[str, Subscription]:
    """What a leader is told."""
    return {member.member_id: read_subscription(member.metadata) for member in joined.members}


def topics_of(members: Mapping[str, Subscription]) -> list[str]:
    """All topics that somebody wants."""
    return sorted({topic for member in members.values() for topic in member.topics})


def assign_partitions(
    strategy: str, members: Mapping[str, Subscription], counts: Mapping[str, int]
) -> dict[str, list[TopicPartition]]:
    """Member id -> its partitions, for those that get any."""
    plan: dict[str, list[TopicPartition]] = {}
    for topic, count in counts.items():
        member_ids = sorted(
            member_id for member_id, subscription in members.items() if topic in subscription.topics
        )
        for index in range(count):
            position = (
                index % len(member_ids)
                if strategy == "roundrobin"
                else _range_position(index, count, len(member_ids))
            )
            plan.setdefault(member_ids[position], []).append(TopicPartition(topic, index))
    return plan


def _range_position(index: int, count: int, members: int) -> int:
    """Whose range the partition is in: member i has those from round(i * count / members) on."""
    position = 0
    while position + 1 < members and index >= (2 * (position + 1) * count + members) // (2 * members):
        position += 1
    return position

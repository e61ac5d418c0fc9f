"""sarama-cluster's subscription and plan (balancer.go, v2.1.15).

* The subscription declares version 1, but has the fields of version 0.
* Each topic is assigned separately. Range rounds its borders (of 5 partitions, 3 members get 2, 1 and 2), and
  roundrobin starts with the first member at every topic. Members without a partition are not in the plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...group.subscription import Subscription, TopicPartition, read_subscription
from ...messages.consumer_protocol import ConsumerProtocolSubscription
from ...messages.join_group import JoinGroupResponse

STRATEGIES = ("range", "roundrobin")  # the protocols of JoinGroup, in this order


def subscription(topics: Iterable[str]) -> bytes:
    """Return JoinGroup's metadata, which is the same for both strategies."""
    return b"\0\1" + ConsumerProtocolSubscription(topics=list(topics), user_data=None).encode(0)


def read_members(joined: JoinGroupResponse) -> dict[str, Subscription]:
    """Return the subscriptions that a leader receives."""
    return {member.member_id: read_subscription(member.metadata) for member in joined.members}


def topics_of(members: Mapping[str, Subscription]) -> list[str]:
    """Return all topics that any member subscribes to."""
    return sorted({topic for member in members.values() for topic in member.topics})


def assign_partitions(
    strategy: str, members: Mapping[str, Subscription], counts: Mapping[str, int]
) -> dict[str, list[TopicPartition]]:
    """Return member id -> its partitions, for members with at least one."""
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
    """Return the member whose range holds the partition: member i's starts at round(i * count / members)."""
    position = 0
    while position + 1 < members and index >= (2 * (position + 1) * count + members) // (2 * members):
        position += 1
    return position

"""sarama's balance strategies, and the encoding of subscriptions and assignments (v1.61.1).

The functions follow balance_strategy.go, balance_strategy_cooperative_sticky.go and
consumer_group_members.go.

* range: each topic's members, sorted by member id (even if they are static), get consecutive partitions. If
  the division leaves a remainder, the first members get one partition more (R223).

* roundrobin: the partitions go to the members in the order of their ids. The partitions are sorted by the
  string "topic-partition", so t-10 precedes t-2 (R224). Members that do not subscribe to the topic are
  skipped.

* sticky and cooperative-sticky: see `sticky_balance_strategy` (R225, R227).

* The subscription has version 2, or a lower version if Config.Version is below 3.2 (R228). It lists the
  topics in the application's order.

* In its JoinGroup, a sticky member sends the user data of its last assignment back: the partitions and the
  generation (R226). A cooperative member sends the generation and the partitions that it owns (M74).

* SyncGroup contains an assignment of version 0 for every member, even for a member without partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ...group.subscription import (
    Assignment,
    Subscription,
    TopicPartition,
    by_topic,
    cooperative_user_data,
    sticky_user_data,
)
from ...messages.consumer_protocol import (
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)
from . import sticky_balance_strategy

Plan = dict[str, list[TopicPartition]]
Counts = Mapping[str, int]

ASSIGNMENT_VERSION = 0


def subscription(
    strategy: str,
    topics: Iterable[str],
    user_data: bytes | None,
    owned: Iterable[TopicPartition],
    generation: int,
    last_generation: int,
    version: int = 2,
) -> bytes:
    """Return JoinGroup's metadata for one strategy.

    `last_generation` is the member's previous generation, which cooperative-sticky sends as user data.
    """
    if strategy == "cooperative-sticky":
        user_data = cooperative_user_data(last_generation)
    body = ConsumerProtocolSubscription(
        topics=list(topics),
        user_data=user_data,
        owned_partitions=[
            ConsumerProtocolSubscriptionTopicPartition(topic=topic, partitions=partitions)
            for topic, partitions in by_topic(owned)
        ],
        generation_id=generation,
    )
    return version.to_bytes(2, "big") + body.encode(version)


def assign_partitions(strategy: str, members: Mapping[str, Subscription], counts: Counts) -> Plan:
    """Return the assignment, which maps each member's id to its partitions."""
    plan: Plan = {member_id: [] for member_id in members}
    _STRATEGIES[strategy](plan, members, counts)
    return plan


def assignments(strategy: str, plan: Plan, generation: int) -> dict[str, bytes]:
    """Map each member's id to its encoded assignment for SyncGroup."""
    return {
        member_id: Assignment(
            partitions=tuple(partitions),
            user_data=sticky_user_data(partitions, generation) if strategy == "sticky" else None,
        ).encode(ASSIGNMENT_VERSION)
        for member_id, partitions in plan.items()
    }


def _range(plan: Plan, members: Mapping[str, Subscription], counts: Counts) -> None:
    for topic in sorted({topic for member in members.values() for topic in member.topics}):
        member_ids = sorted(
            member_id for member_id, subscription in members.items() if topic in subscription.topics
        )
        per_member, remainder = divmod(counts.get(topic, 0), len(member_ids))
        start = 0
        for position, member_id in enumerate(member_ids):
            end = start + per_member + (1 if position < remainder else 0)
            plan[member_id] += [TopicPartition(topic, index) for index in range(start, end)]
            start = end


def _round_robin(plan: Plan, members: Mapping[str, Subscription], counts: Counts) -> None:
    """Give each partition to the next subscriber of its topic. Skip a topic without subscribers."""
    member_ids = sorted(members)
    partitions = [TopicPartition(topic, index) for topic, count in counts.items() for index in range(count)]
    position = 0
    for partition in sorted(partitions, key=str):
        for skipped in range(len(member_ids)):
            member_id = member_ids[(position + skipped) % len(member_ids)]
            if partition.topic in members[member_id].topics:
                plan[member_id].append(partition)
                position += skipped + 1
                break
        else:
            position += len(member_ids)


def _sticky(plan: Plan, members: Mapping[str, Subscription], counts: Counts) -> None:
    plan.update(sticky_balance_strategy.assign_partitions(members, counts, cooperative=False))


def _cooperative_sticky(plan: Plan, members: Mapping[str, Subscription], counts: Counts) -> None:
    plan.update(sticky_balance_strategy.assign_partitions(members, counts, cooperative=True))


# Each function adds the partitions of all topics to the members' lists in the plan.
_STRATEGIES: dict[str, Callable[[Plan, Mapping[str, Subscription], Counts], None]] = {
    "range": _range,
    "roundrobin": _round_robin,
    "sticky": _sticky,
    "cooperative-sticky": _cooperative_sticky,
}

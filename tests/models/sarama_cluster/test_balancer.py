"""sarama-cluster's leader rounds the ends of ranges, and omits members without partitions."""

from __future__ import annotations

from kproto.group.subscription import Subscription, TopicPartition
from kproto.models.sarama_cluster import balancer


def members(*names: str) -> dict[str, Subscription]:
    return {name: Subscription(topics=("t",)) for name in names}


def test_range_rounds_its_borders() -> None:
    plan = balancer.assign_partitions("range", members("a", "b", "c"), {"t": 5})
    assert {name: len(partitions) for name, partitions in plan.items()} == {"a": 2, "b": 1, "c": 2}
    # With one partition and two members, the range of member 0 ends at 0.5, which is rounded up to 1.
    assert balancer.assign_partitions("range", members("a", "b"), {"t": 1}) == {"a": [TopicPartition("t", 0)]}


def test_members_without_a_partition_are_not_in_the_plan() -> None:
    assert len(balancer.assign_partitions("roundrobin", members("a", "b"), {"t": 1})) == 1

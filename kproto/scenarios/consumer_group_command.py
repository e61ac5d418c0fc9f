"""The output of kafka-consumer-groups --describe, for a group of a world's cluster."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from consumer.engine.admin import cluster as cluster_plans
from consumer.engine.admin import records as record_plans

from ..group.subscription import Assignment, TopicPartition
from ..messages.describe_groups import DescribeGroupsRequest
from ..messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from ..testing.world import Consumer, World

COLUMNS: Final = (
    "GROUP",
    "TOPIC",
    "PARTITION",
    "CURRENT-OFFSET",
    "LOG-END-OFFSET",
    "LAG",
    "CONSUMER-ID",
    "HOST",
    "CLIENT-ID",
)


class Row(NamedTuple):
    """One line of --describe, with a field for each column. "-" means that the partition has no owner."""

    group: str
    topic: str
    partition: int
    current_offset: int
    log_end_offset: int
    lag: int
    consumer_id: str
    host: str
    client_id: str

    def __str__(self) -> str:
        return " ".join(str(column) for column in self)


def describe(world: World, group: str) -> list[Row]:
    """Return a row for each partition with a committed offset, sorted by partition.

    A client `tool` sends DescribeGroups, OffsetFetch and ListOffsets. The world runs until the client has
    received the responses.
    """
    tool = world.clients.get("tool") or world.consumer(client_id="tool")
    assert isinstance(tool, Consumer)
    topics = world.cluster.topics
    view, clock = tool.engine.core.view, tool.engine.core.clock
    route = ("group", group)
    described, _ = _run_plan(
        world, tool, cluster_plans.request(view, DescribeGroupsRequest(groups=[group]), route, clock)
    )
    offset_request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
    fetched, _ = _run_plan(world, tool, cluster_plans.request(view, offset_request, route, clock))
    committed = {
        TopicPartition(
            topics.name(topic.topic_id) or topic.name, partition.partition_index
        ): partition.committed_offset
        for topic in fetched.groups[0].topics
        for partition in topic.partitions
    }
    log_end_offsets = _run_plan(
        world,
        tool,
        record_plans.list_offsets(
            view,
            dict.fromkeys(committed, "latest"),
            clock,
            isolation="read_uncommitted",
            timeout_ms=5_000,
        ),
    )
    owners = {
        tp: (member.member_id, member.client_host, member.client_id)
        for member in described.groups[0].members
        for tp in Assignment.decode(member.member_assignment).partitions
    }
    return [
        Row(
            group,
            *tp,
            offset,
            log_end_offsets[tp].offset,
            log_end_offsets[tp].offset - offset,
            *owners.get(tp, ("-", "-", "-")),
        )
        for tp, offset in sorted(committed.items())
    ]


def _run_plan(world: World, tool: Consumer, plan: Any) -> Any:
    """Run an admin plan in the client `tool` until it ends; return its value or raise its error."""
    token = tool.run(plan)
    world.run(10_000, until=lambda: token in tool.done)
    value, error = tool.done[token]
    if error is not None:
        raise error
    return value

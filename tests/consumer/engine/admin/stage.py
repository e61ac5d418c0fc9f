"""Run a plan of the admin client with prepared answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from consumer.engine.admin import Ask, Plan, Rest
from consumer.engine.metadata.cluster import ClusterView
from consumer.engine.network.call import Call, Prepared
from kproto.errors import ConnectionFailed
from kproto.group.subscription import TopicPartition
from kproto.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from kproto.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kproto.wire.message import Message

P0 = TopicPartition("t", 0)


CLUSTER = MetadataResponse(
    brokers=[MetadataResponseBroker(node_id=1, host="broker", port=9092)],
    controller_id=1,
    topics=[
        MetadataResponseTopic(
            error_code=0,
            name="t",
            partitions=[
                MetadataResponsePartition(
                    error_code=0, partition_index=0, leader_id=1, replica_nodes=[1], isr_nodes=[1]
                )
            ],
        )
    ],
)


COORDINATOR = FindCoordinatorResponse(
    coordinators=[Coordinator(key="g", node_id=1, host="broker", port=9092, error_code=0, error_message=None)]
)


LOST = ConnectionFailed("broker:9092", "the connection broke")


VERSIONS = {
    "Metadata": 9,
    "FindCoordinator": 4,
    "OffsetCommit": 8,
    "OffsetFetch": 8,
    "Produce": 9,
    "Fetch": 12,
    "ConsumerGroupDescribe": 1,
}


def clock() -> int:
    return 0


def known() -> ClusterView:
    view = ClusterView()
    view.update(CLUSTER, 0, version=9, everything=True)
    return view


def play(plan: Plan[Any], *answers: Message | Exception) -> tuple[Any, list[str]]:
    """(what the plan returns, what it asked and rested for); "resting" when it rests and nothing is left."""
    said: list[str] = []
    left = list(answers)
    give: list[Call] | None = None
    try:
        while True:
            asked: Sequence[Ask] | Rest = next(plan) if give is None else plan.send(give)
            if isinstance(asked, Rest):
                said.append(asked.why)
                if not left:
                    return "resting", said
                give = []
                continue
            give = []
            for ask in asked:
                kind = ask.request.message if isinstance(ask.request, Prepared) else type(ask.request)
                call = Call(ask.request, node=ask.node, lane=ask.lane, deadline=9999, timeout_ms=9999)
                said.append(kind.__name__.removesuffix("Request"))
                call.version = VERSIONS.get(call.name, 5)
                answer = left.pop(0)
                if isinstance(answer, Message):
                    call.response = answer
                else:
                    call.error = answer
                give.append(call)
    except StopIteration as end:
        assert left == []
        return end.value, said

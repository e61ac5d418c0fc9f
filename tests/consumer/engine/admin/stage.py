"""Runs a plan, the generator that yields the requests of one admin call, with prepared responses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from consumer.engine.admin.plan import Ask, Plan, Rest
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


CONNECTION_LOST = ConnectionFailed("broker:9092", "the connection broke")


VERSIONS = {
    "Metadata": 9,
    "FindCoordinator": 4,
    "OffsetCommit": 8,
    "OffsetFetch": 8,
    "Produce": 9,
    "Fetch": 12,
    "ConsumerGroupDescribe": 1,
    "ShareGroupDescribe": 1,
    "StreamsGroupDescribe": 0,
}


def cluster_of(*leaders: int, brokers: int = 3) -> MetadataResponse:
    """Return the metadata of a cluster with the topic "t". Broker `leaders[n]` leads partition n."""
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node, host=f"broker-{node}", port=9092)
            for node in range(1, brokers + 1)
        ],
        controller_id=1,
        topics=[
            MetadataResponseTopic(
                error_code=0,
                name="t",
                partitions=[
                    MetadataResponsePartition(
                        error_code=0, partition_index=index, leader_id=leader, replica_nodes=[], isr_nodes=[]
                    )
                    for index, leader in enumerate(leaders)
                ],
            )
        ],
    )


def view_of(*leaders: int, brokers: int = 3) -> ClusterView:
    """Return a view that contains the metadata that `cluster_of` returns."""
    view = ClusterView()
    view.update(cluster_of(*leaders, brokers=brokers), 0, version=9, everything=True)
    return view


def clock() -> int:
    return 0


def known() -> ClusterView:
    view = ClusterView()
    view.update(CLUSTER, 0, version=9, everything=True)
    return view


def play(plan: Plan[Any], *responses: Message | Exception) -> tuple[Any, list[str]]:
    """Run a plan, and return its result and its log.

    The log lists the plan's requests and the reasons for its pauses.

    The result is "resting" if the plan pauses after it has used all prepared responses.
    """
    log: list[str] = []
    remaining = list(responses)
    calls: list[Call] | None = None
    try:
        while True:
            step: Sequence[Ask] | Rest = next(plan) if calls is None else plan.send(calls)
            if isinstance(step, Rest):
                log.append(step.why)
                if not remaining:
                    return "resting", log
                calls = []
                continue
            calls = []
            for ask in step:
                kind = ask.request.message if isinstance(ask.request, Prepared) else type(ask.request)
                call = Call(ask.request, node=ask.node, lane=ask.lane, deadline=9999, timeout_ms=9999)
                log.append(kind.__name__.removesuffix("Request"))
                call.version = VERSIONS.get(call.name, 5)
                response = remaining.pop(0)
                if isinstance(response, Message):
                    call.response = response
                else:
                    call.error = response
                calls.append(call)
    except StopIteration as end:
        assert remaining == []
        return end.value, log


def asks_of(plan: Plan[Any]) -> list[Ask]:
    """Return the first requests of a plan."""
    asks = next(plan)
    assert isinstance(asks, list)
    return asks


def request_of(plan: Plan[Any]) -> Any:
    """Return the message of a plan's first request; the plan must begin with a single request."""
    [ask] = asks_of(plan)
    return ask.request

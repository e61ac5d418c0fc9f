"""Requests to change several topics are repeated for the topics that are throttled.

The controller throttles the later topics of a request that exceeds its mutation quota (KIP-599).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from consumer.engine.admin import topics as topic_plans
from consumer.engine.admin.plan import Ask, Plan, Rest
from consumer.engine.network.call import Call, Prepared
from kproto.error_codes import ErrorCode
from kproto.errors import BrokerError
from kproto.messages.create_partitions import CreatePartitionsResponse, CreatePartitionsTopicResult
from kproto.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from kproto.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from kproto.wire.message import Message
from tests.consumer.engine.admin.stage import CLUSTER, clock, known

NAMES = ["a", "b", "c"]
THROTTLED = ErrorCode.THROTTLING_QUOTA_EXCEEDED


def create() -> Plan[None]:
    totals = dict.fromkeys(NAMES, 1)
    return topic_plans.create_topics(
        known(), totals, clock, replication_factor=1, configs={}, timeout_ms=1000, exist_ok=False
    )


def grow() -> Plan[None]:
    return topic_plans.create_partitions(known(), dict.fromkeys(NAMES, 2), clock, timeout_ms=1000)


def delete() -> Plan[None]:
    return topic_plans.delete_topics(known(), NAMES, clock, timeout_ms=1000)


def created(codes: Mapping[str, int]) -> Message:
    results = [
        CreatableTopicResult(name=name, error_code=code, error_message=None) for name, code in codes.items()
    ]
    return CreateTopicsResponse(throttle_time_ms=0, topics=results)


def grown(codes: Mapping[str, int]) -> Message:
    results = [
        CreatePartitionsTopicResult(name=name, error_code=code, error_message=None)
        for name, code in codes.items()
    ]
    return CreatePartitionsResponse(throttle_time_ms=0, results=results)


def deleted(codes: Mapping[str, int]) -> Message:
    results = [DeletableTopicResult(name=name, error_code=code) for name, code in codes.items()]
    return DeleteTopicsResponse(throttle_time_ms=0, responses=results)


def run(plan: Plan[None], responses: Sequence[Message]) -> list[list[str]]:
    """Run a plan until its last response, and return the topics in each request to the controller."""
    sent: list[list[str]] = []
    remaining = list(responses)
    step: Sequence[Ask] | Rest = next(plan)
    while True:
        calls: list[Call] = []
        if not isinstance(step, Rest):
            [ask] = step
            call = Call(ask.request, node=ask.node, lane=ask.lane, deadline=9999, timeout_ms=9999)
            call.version, call.response = 5, CLUSTER
            if call.name != "Metadata":
                request: Any = ask.request.build(5) if isinstance(ask.request, Prepared) else ask.request
                topics = request.topic_names if call.name == "DeleteTopics" else request.topics
                sent.append([topic if isinstance(topic, str) else topic.name for topic in topics])
                call.response = remaining.pop(0)
            calls.append(call)
        try:
            step = plan.send(calls)
        except StopIteration:
            return sent
        if not remaining and not isinstance(step, Rest):
            return sent


@pytest.mark.parametrize(("make_plan", "response"), [(create, created), (grow, grown), (delete, deleted)])
def test_only_the_throttled_topics_are_sent_again(
    make_plan: Callable[[], Plan[None]], response: Callable[[Mapping[str, int]], Message]
) -> None:
    """A second request would fail for the topics that succeeded, for example with TOPIC_ALREADY_EXISTS."""
    responses = [
        response({"a": 0, "b": THROTTLED, "c": THROTTLED}),
        response({"b": 0, "c": THROTTLED}),
        response({"c": 0}),
    ]
    assert run(make_plan(), responses) == [["a", "b", "c"], ["b", "c"], ["c"]]


def test_a_permanent_error_is_raised_even_if_another_topic_is_throttled() -> None:
    response = created({"a": THROTTLED, "b": ErrorCode.INVALID_TOPIC_EXCEPTION, "c": 0})
    with pytest.raises(BrokerError, match="INVALID_TOPIC_EXCEPTION"):
        run(create(), [response])

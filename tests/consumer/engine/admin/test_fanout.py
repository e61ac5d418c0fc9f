"""`fan_out` divides an admin call into requests to several brokers: routing, batches, retries, deadlines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import pytest

from consumer.engine import events as ev
from consumer.engine.admin.engine import AdminEngine, step
from consumer.engine.admin.fanout import (
    Answer,
    Router,
    fan_out,
    for_all,
    single_value,
    to_any_broker,
    to_controller,
    to_coordinators,
    to_leaders,
    to_nodes,
)
from consumer.engine.admin.plan import Ask, DeadlinePassed, Plan, Rest, expect_response
from consumer.engine.error_actions import CONTROLLER
from consumer.engine.metadata.cluster import ClusterView
from consumer.engine.network.call import Call
from kproto.error_codes import ErrorCode
from kproto.errors import (
    BrokerError,
    ConnectionFailed,
    KprotoError,
    NotAuthorized,
    PartialFailure,
    RequestTimedOut,
    UnknownTopic,
    UnsupportedVersion,
)
from kproto.group.subscription import TopicPartition
from kproto.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from kproto.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from kproto.wire.message import Message
from tests.consumer.engine.admin.stage import CONNECTION_LOST, clock, cluster_of, play, view_of

LOADING, NOT_LEADER = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_LEADER_OR_FOLLOWER
DENIED, MISSING = ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.GROUP_ID_NOT_FOUND
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def response(**codes: int) -> DeleteGroupsResponse:
    """Return a DeleteGroups response. `codes` maps group ids to error codes."""
    results = [DeletableGroupResult(group_id=name, error_code=code) for name, code in codes.items()]
    return DeleteGroupsResponse(throttle_time_ms=0, results=results)


def request(items: Sequence[Any]) -> Message:
    return DeleteGroupsRequest(groups_names=[str(item) for item in items])


def read(call: Call, items: Sequence[str]) -> Iterator[Answer[str, str]]:
    for result in expect_response(DeleteGroupsResponse, call).results:
        yield Answer(result.group_id, result.group_id.upper(), result.error_code)


def fan(items: Sequence[Any], router: Router[Any] | None = None, **options: Any) -> Plan[dict[Any, Any]]:
    router = router or to_any_broker(view_of(1), clock)
    return fan_out(items, router, "DeleteGroups", {}, request, read, **options)


def asked(plan: Plan[Any], *, calls: list[Call] | None = None) -> list[Ask]:
    """Continue a plan with the results of its `calls`, and return its next requests. Pauses are skipped."""
    requests: Any = plan.send(calls) if calls is not None else next(plan)
    while isinstance(requests, Rest):
        requests = plan.send([])
    return list(requests)


def answered(asks: Sequence[Ask], *outcomes: Message | KprotoError | None) -> list[Call]:
    """Return a call for each request.

    `outcomes` has one element per call: its response, its error, or None if the call has neither.
    """
    calls: list[Call] = []
    for ask, outcome in zip(asks, outcomes, strict=True):
        call = Call(ask.request, node=ask.node, lane=ask.lane, deadline=9, timeout_ms=9)
        if isinstance(outcome, KprotoError):
            call.error = outcome
        else:
            call.response = outcome
        calls.append(call)
    return calls


def names_of(ask: Ask) -> list[str]:
    assert isinstance(ask.request, DeleteGroupsRequest)
    return ask.request.groups_names


def test_the_values_of_all_items_are_returned_in_the_order_of_the_items() -> None:
    result, log = play(fan(["b", "a", "b"]), response(a=0, b=0))
    assert list(result.items()) == [("b", "B"), ("a", "A")]
    assert log == ["DeleteGroups"]


def test_a_call_without_items_sends_nothing() -> None:
    assert play(fan([])) == ({}, [])


def test_a_failure_names_the_failed_items_and_keeps_the_values_of_the_others() -> None:
    with pytest.raises(PartialFailure) as caught:
        play(fan(["a", "b", "c"]), response(a=0, b=DENIED, c=MISSING))
    assert caught.value.succeeded == {"a": "A"}
    assert {item: type(error) for item, error in caught.value.failed.items()} == {
        "b": NotAuthorized,
        "c": BrokerError,
    }
    assert str(caught.value).startswith("DeleteGroups failed for 2 of 3 items: DeleteGroups: ")


def test_the_message_of_a_failure_of_many_items_lists_the_first_three() -> None:
    error = PartialFailure("X", {}, {f"i{n}": UnsupportedVersion("X", -1, "no") for n in range(9)})
    assert str(error) == "X failed for 9 of 9 items: i0: X: no; i1: X: no; i2: X: no and 6 more"


def test_only_items_with_a_retriable_error_are_sent_again() -> None:
    plan = fan(["a", "b"])
    asks = asked(plan)
    [again] = asked(plan, calls=answered(asks, response(a=0, b=LOADING)))
    assert names_of(again) == ["b"]
    with pytest.raises(StopIteration) as end:
        plan.send(answered([again], response(b=0)))
    assert end.value.value == {"a": "A", "b": "B"}


def test_an_item_that_the_response_omits_is_sent_again() -> None:
    result, log = play(fan(["a", "b"]), response(a=0), response(b=0))
    assert result == {"a": "A", "b": "B"}
    assert log == ["DeleteGroups", "the response to DeleteGroups does not contain b", "DeleteGroups"]


def test_answers_about_other_items_and_second_answers_are_ignored() -> None:
    twice = response(a=0, other=DENIED)
    twice.results.append(DeletableGroupResult(group_id="a", error_code=DENIED))
    assert play(fan(["a"]), twice)[0] == {"a": "A"}


def test_items_are_sent_to_their_brokers_in_one_request_each() -> None:
    view = view_of(1, 2, 1)
    partitions = [TopicPartition("t", index) for index in range(3)]
    router: Router[Any] = to_leaders(view, clock, lambda partition: partition)
    assert [ask.node for ask in asked(fan(partitions, router))] == [1, 2]
    assert [ask.node for ask in asked(fan(partitions, router, one_by_one=True))] == [1, 2, 1]


def test_a_partition_is_sent_to_the_new_leader_after_not_leader() -> None:
    def read_leader(call: Call, items: Sequence[Any]) -> Iterator[Answer[Any, Any]]:
        yield from for_all(items, NOT_LEADER if call.node == 1 else 0)

    router: Router[Any] = to_leaders(view_of(1), clock, lambda item: item)
    plan = fan_out([TopicPartition("t", 0)], router, "DeleteGroups", {}, request, read_leader)
    [first] = asked(plan)
    lookups = asked(plan, calls=answered([first], response()))
    calls = answered(lookups, cluster_of(2))
    calls[0].version = 9
    [second] = asked(plan, calls=calls)
    assert (first.node, second.node) == (1, 2)


def test_a_topic_that_does_not_exist_fails_after_some_responses() -> None:
    partition = TopicPartition("missing", 0)
    plan = fan([partition], to_leaders(view_of(1), clock, lambda item: item))
    with pytest.raises(PartialFailure) as caught:
        play(plan, *[cluster_of(1)] * 3)
    assert isinstance(caught.value.failed[partition], UnknownTopic)


def test_a_partition_that_does_not_exist_does_not_affect_the_others() -> None:
    partitions = [TopicPartition("t", 0), TopicPartition("t", 7)]
    router: Router[Any] = to_leaders(view_of(1), clock, lambda item: item)

    def read_all(call: Call, items: Sequence[Any]) -> Iterator[Answer[Any, int]]:
        for item in items:
            yield Answer(item, 5)

    plan = fan_out(partitions, router, "DeleteGroups", {}, request, read_all)
    with pytest.raises(PartialFailure, match="t-7: the topic has 1 partitions") as caught:
        play(plan, cluster_of(1), response(), cluster_of(1), cluster_of(1))
    assert caught.value.succeeded == {partitions[0]: 5}


def test_a_code_for_an_executed_request_counts_as_success_only_after_a_lost_response() -> None:
    plan = fan(["a"], executed_code=MISSING)
    assert play(plan, CONNECTION_LOST, cluster_of(1), response(a=MISSING))[0] == {"a": "A"}
    with pytest.raises(PartialFailure):
        play(fan(["a"], executed_code=MISSING), response(a=MISSING))


def test_a_request_that_the_broker_does_not_know_fails_its_items() -> None:
    error = UnsupportedVersion("DeleteGroups", -1, "the broker does not know it")

    def read_nodes(call: Call, items: Sequence[int]) -> Iterator[Answer[int, str]]:
        for item in items:
            yield Answer(item, "x")

    router: Router[int] = to_nodes(view_of(1), clock, lambda node: node)
    plan = fan_out([1, 2], router, "DeleteGroups", {}, request, read_nodes)
    with pytest.raises(PartialFailure) as caught:
        play(plan, error, response())
    assert caught.value.failed == {1: error}
    assert caught.value.succeeded == {2: "x"}


def test_a_broker_that_is_not_in_the_cluster_fails_with_the_ids_of_its_brokers() -> None:
    plan = fan([7], to_nodes(view_of(1), clock, lambda node: node))
    with pytest.raises(PartialFailure, match=r"broker 7 is not in the cluster; its brokers are \[1, 2, 3\]"):
        play(plan, cluster_of(1))


def coordinator(key: str, node: int, code: int = 0) -> FindCoordinatorResponse:
    entry = Coordinator(key=key, node_id=node, host="h", port=1, error_code=code, error_message=None)
    return FindCoordinatorResponse(coordinators=[entry])


def test_groups_are_sent_to_their_coordinators_and_looked_up_again_after_not_coordinator() -> None:
    plan = fan(["a", "b"], to_coordinators(view_of(1), 0))
    lookups = asked(plan)
    assert len(lookups) == 2
    calls = answered(lookups, coordinator("a", 1), coordinator("b", 2))
    for call in calls:
        call.version = 4
    asks = asked(plan, calls=calls)
    assert [(ask.node, names_of(ask)) for ask in asks] == [(1, ["a"]), (2, ["b"])]
    lookups = asked(plan, calls=answered(asks, response(a=0), response(b=ErrorCode.NOT_COORDINATOR)))
    assert len(lookups) == 1


def test_a_group_that_may_not_be_looked_up_does_not_affect_the_others() -> None:
    plan = fan(["a", "b"], to_coordinators(view_of(1), 0))
    with pytest.raises(PartialFailure) as caught:
        play(plan, coordinator("a", 1, DENIED), coordinator("b", 2), response(b=0))
    assert isinstance(caught.value.failed["a"], NotAuthorized)
    assert caught.value.succeeded == {"b": "B"}


def test_the_next_controller_is_looked_up_after_not_controller() -> None:
    view = view_of(1)
    plan = fan_out(["a"], to_controller(view, clock), "DeleteGroups", CONTROLLER, request, read)
    moved = cluster_of(1)
    moved.controller_id = 3
    asks = asked(plan)
    assert asks[0].node == 1
    lookups = asked(plan, calls=answered(asks, response(a=ErrorCode.NOT_CONTROLLER)))
    calls = answered(lookups, moved)
    calls[0].version = 9
    [ask] = asked(plan, calls=calls)
    assert ask.node == 3


def test_an_unreachable_cluster_is_the_error_of_the_call() -> None:
    plan = fan(["a"], to_controller(ClusterView(), clock))
    with pytest.raises(ConnectionFailed):
        play(plan, CONNECTION_LOST)


def test_a_lookup_that_fails_after_a_result_does_not_hide_the_result() -> None:
    plan = fan(["a", "b"])
    with pytest.raises(PartialFailure) as caught:
        play(plan, response(a=0), CONNECTION_LOST, CONNECTION_LOST)
    assert caught.value.succeeded == {"a": "A"}
    assert caught.value.failed == {"b": CONNECTION_LOST}


def test_at_the_deadline_arrived_responses_count_and_open_items_time_out() -> None:
    partitions = [TopicPartition("t", index) for index in range(3)]
    router: Router[Any] = to_leaders(view_of(1, 2, 3), clock, lambda item: item)

    def read_all(call: Call, items: Sequence[Any]) -> Iterator[Answer[Any, int]]:
        for item in items:
            yield Answer(item, 5)

    plan = fan_out(partitions, router, "DeleteGroups", {}, request, read_all)
    calls = answered(asked(plan), response(), None, CONNECTION_LOST)
    timeout = RequestTimedOut("DeleteGroups", 10)
    with pytest.raises(PartialFailure) as caught:
        plan.throw(DeadlinePassed(timeout, calls))
    assert caught.value.succeeded == {partitions[0]: 5}
    assert caught.value.failed == dict.fromkeys(partitions[1:], timeout)


def test_the_runner_ends_the_plan_at_its_deadline() -> None:
    client = AdminEngine([("broker", 9092)], Random(1), client_id="c", request_timeout_ms=1000)
    step(client, ev.Run("x", fan(["a"]), 300), 0)
    [done] = [action for action in step(client, ev.Tick(), 300) if isinstance(action, ev.Done)]
    assert isinstance(done.error, PartialFailure)
    assert isinstance(done.error.failed["a"], RequestTimedOut)


def test_a_call_about_one_item_raises_the_error_of_the_item() -> None:
    assert play(single_value(fan(["a"])), response(a=0))[0] == "A"
    with pytest.raises(NotAuthorized):
        play(single_value(fan(["a"])), response(a=DENIED))


def test_an_unknown_topic_in_a_response_is_retried_a_few_times() -> None:
    with pytest.raises(PartialFailure) as caught:
        play(fan(["a"]), *[response(a=UNKNOWN), cluster_of(1)] * 3, response(a=UNKNOWN))
    assert isinstance(caught.value.failed["a"], UnknownTopic)

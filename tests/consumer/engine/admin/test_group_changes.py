"""Changes of groups in the admin API: deletion, members and committed offsets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from consumer import Admin, Consumer, TopicPartition
from consumer.engine.admin import group_changes as plans
from kproto.broker.server import Server, running
from kproto.error_codes import ErrorCode
from kproto.errors import BrokerError, NotAuthorized, PartialFailure
from kproto.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from kproto.messages.leave_group import LeaveGroupResponse, MemberResponse
from kproto.messages.offset_delete import OffsetDeleteResponse
from tests.consumer.engine.admin.stage import CONNECTION_LOST, COORDINATOR, clock, known, play

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def server() -> Iterator[Server]:
    with running(topics={"t": 2}, settings={"group.initial.rebalance.delay.ms": "0"}) as server:
        yield server


def member(server: Server, instance_id: str | None = None) -> Consumer:
    """Return a member of group "g" that owns both partitions of "t"."""
    options = {} if instance_id is None else {"group_instance_id": instance_id}
    consumer = Consumer(server.bootstrap, group_id="g", **options)  # type: ignore[arg-type]
    consumer.subscribe(["t"])
    while len(consumer.assignment()) < 2:
        consumer.poll(0.1)
    return consumer


def test_a_static_member_is_removed(server: Server) -> None:
    consumer = member(server, "one")
    with Admin(server.bootstrap) as admin:
        admin.remove_members_from_consumer_group("g", ["one"], reason="decommissioned")
        assert admin.group("g").members == ()
    consumer.kill()


def test_an_unknown_static_member_does_not_affect_the_others(server: Server) -> None:
    consumer = member(server, "one")
    with Admin(server.bootstrap) as admin:
        with pytest.raises(PartialFailure, match="group 'g', member 'two'") as caught:
            admin.remove_members_from_consumer_group("g", ["two", "one"])
        assert caught.value.succeeded == {"one": None}
    consumer.kill()


def test_all_members_are_removed(server: Server) -> None:
    consumer = member(server)
    with Admin(server.bootstrap) as admin:
        admin.remove_members_from_consumer_group("g")
        assert admin.group("g").members == ()
        admin.remove_members_from_consumer_group("g")
    consumer.kill()


def left(code: int, group_code: int = 0) -> LeaveGroupResponse:
    entry = MemberResponse(member_id="", group_instance_id="one", error_code=code)
    return LeaveGroupResponse(
        throttle_time_ms=0, error_code=group_code, members=[] if group_code else [entry]
    )


def test_a_member_that_is_gone_after_a_lost_response_counts_as_removed() -> None:
    plan = plans.remove_members(known(), "g", ["one"], None, clock)
    responses = (COORDINATOR, CONNECTION_LOST, COORDINATOR, left(ErrorCode.UNKNOWN_MEMBER_ID))
    assert play(plan, *responses)[0] == {"one": None}


def test_an_error_of_the_group_is_the_error_of_each_member() -> None:
    plan = plans.remove_members(known(), "g", ["one", "two"], None, clock)
    with pytest.raises(PartialFailure) as caught:
        play(plan, COORDINATOR, left(0, ErrorCode.GROUP_AUTHORIZATION_FAILED))
    assert [type(error) for error in caught.value.failed.values()] == [NotAuthorized, NotAuthorized]


def test_committed_offsets_of_single_partitions_are_deleted(server: Server) -> None:
    with Admin(server.bootstrap) as admin:
        admin.commit_offsets("g", {P0: 1, P1: 2})
        admin.delete_consumer_group_offsets("g", [P0])
        committed = admin.committed_offsets("g", [P0, P1])
        assert committed[P0] is None
        assert committed[P1] is not None


def test_offsets_of_a_subscribed_topic_are_not_deleted(server: Server) -> None:
    consumer = member(server)
    with Admin(server.bootstrap) as admin:
        with pytest.raises(PartialFailure) as caught:
            admin.delete_consumer_group_offsets("g", [P0])
        [error] = caught.value.failed.values()
        assert isinstance(error, BrokerError)
        assert error.code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    consumer.close()


def test_an_error_of_the_group_is_the_error_of_each_partition() -> None:
    plan = plans.delete_offsets(known(), "g", [P0, P1], clock)
    response = OffsetDeleteResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND, throttle_time_ms=0, topics=[])
    with pytest.raises(PartialFailure, match="OffsetDelete failed for 2 of 2 items"):
        play(plan, COORDINATOR, response)


def test_a_deletion_whose_response_was_lost_has_succeeded() -> None:
    not_found = DeleteGroupsResponse(
        throttle_time_ms=0, results=[DeletableGroupResult(group_id="g", error_code=69)]
    )
    deletion = plans.delete_groups(known(), ["g"], clock)
    assert play(deletion, COORDINATOR, CONNECTION_LOST, COORDINATOR, not_found)[0] == {"g": None}
    with pytest.raises(PartialFailure, match="GROUP_ID_NOT_FOUND"):
        play(plans.delete_groups(known(), ["g"], clock), COORDINATOR, not_found)

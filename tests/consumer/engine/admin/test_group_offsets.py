"""The admin API commits and lists offsets of groups, and start offsets of share groups.

An error of one topic or group does not hide the results of the others.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from consumer import Admin, CommittedOffset, Consumer, SharePartitionOffset, TopicPartition
from consumer.engine.admin import group_offsets as plans
from consumer.engine.network.call import Call
from kproto.broker.server import Server, running
from kproto.error_codes import ErrorCode
from kproto.errors import CommitFailed, NotAuthorized, PartialFailure
from kproto.messages.alter_share_group_offsets import AlterShareGroupOffsetsResponse
from kproto.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from kproto.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from kproto.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from tests.consumer.engine.admin.stage import COORDINATOR, asks_of, clock, known, play

P0, P1, MISSING = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("missing", 0)


@pytest.fixture
def server() -> Iterator[Server]:
    with running(topics={"t": 2}, settings={"group.initial.rebalance.delay.ms": "0"}) as server:
        yield server


def test_offsets_of_several_groups_are_committed_and_listed(server: Server) -> None:
    with Admin(server.bootstrap) as admin:
        admin.alter_consumer_group_offsets("a", {P0: 3, P1: (4, "note")})
        admin.alter_consumer_group_offsets("b", {P1: CommittedOffset(5, "", None)})
        assert admin.list_consumer_group_offsets({"a": None, "b": [P0, P1], "c": None}) == {
            "a": {P0: CommittedOffset(3, "", None), P1: CommittedOffset(4, "note", None)},
            "b": {P0: None, P1: CommittedOffset(5, "", None)},
            "c": {},
        }
        assert admin.committed_offsets("a", [P0]) == {P0: CommittedOffset(3, "", None)}


def test_a_missing_topic_does_not_hide_the_other_commits(server: Server) -> None:
    with Admin(server.bootstrap) as admin:
        with pytest.raises(PartialFailure, match="group 'a', missing-0") as caught:
            admin.alter_consumer_group_offsets("a", {MISSING: 1, P0: 2})
        assert caught.value.succeeded == {P0: None}
        assert admin.committed_offsets("a") == {P0: CommittedOffset(2, "", None)}


def test_a_group_with_members_rejects_each_offset(server: Server) -> None:
    with Admin(server.bootstrap) as admin, Consumer(server.bootstrap, group_id="g") as consumer:
        consumer.subscribe(["t"])
        while not consumer.assignment():
            consumer.poll(0.1)
        with pytest.raises(PartialFailure, match="stop them first") as caught:
            admin.alter_consumer_group_offsets("g", {P0: 1})
        assert isinstance(caught.value.failed[P0], CommitFailed)


def test_a_denied_group_does_not_hide_the_offsets_of_others() -> None:
    def fetched(code: int) -> OffsetFetchResponse:
        return OffsetFetchResponse(
            groups=[OffsetFetchResponseGroup(group_id="g", topics=[], error_code=code)]
        )

    plan = plans.list_consumer_group_offsets(known(), {"g": None}, clock, require_stable=False)
    with pytest.raises(PartialFailure) as caught:
        play(plan, COORDINATOR, fetched(ErrorCode.GROUP_AUTHORIZATION_FAILED))
    assert isinstance(caught.value.failed["g"], NotAuthorized)
    plan = plans.list_consumer_group_offsets(known(), {"g": None}, clock, require_stable=False)
    assert play(plan, COORDINATOR, fetched(0))[0] == {"g": {}}


def test_the_error_of_a_group_names_the_partition_with_its_error_code() -> None:
    plan = plans.list_consumer_group_offsets(known(), {"g": None}, clock, require_stable=False)
    rejected = [
        OffsetFetchResponsePartitions(
            partition_index=partition,
            committed_offset=-1,
            committed_leader_epoch=-1,
            metadata="",
            error_code=code,
        )
        for partition, code in enumerate(
            (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_SERVER_ERROR)
        )
    ]
    topic = OffsetFetchResponseTopics(name="t", partitions=rejected)
    response = OffsetFetchResponse(
        groups=[OffsetFetchResponseGroup(group_id="g", topics=[topic], error_code=0)]
    )
    with pytest.raises(PartialFailure, match="group 'g': t-0") as caught:
        play(plan, COORDINATOR, response)
    assert isinstance(caught.value.failed["g"], NotAuthorized)


# ---- share groups


def share(*entries: tuple[int, int, int]) -> DescribeShareGroupOffsetsResponse:
    """Return a response about the group "g". An entry is a partition, its start offset and its error code."""
    partitions = [
        DescribeShareGroupOffsetsResponsePartition(
            partition_index=index, start_offset=offset, leader_epoch=0, lag=2, error_code=code
        )
        for index, offset, code in entries
    ]
    topic = DescribeShareGroupOffsetsResponseTopic(
        topic_name="t", topic_id=uuid.UUID(int=1), partitions=partitions
    )
    group = DescribeShareGroupOffsetsResponseGroup(group_id="g", topics=[topic], error_code=0)
    return DescribeShareGroupOffsetsResponse(throttle_time_ms=0, groups=[group])


def test_a_share_group_has_a_start_offset_for_each_partition_that_it_has_read() -> None:
    plan = plans.list_share_group_offsets(known(), {"g": [P0, P1]}, clock)
    offsets, _ = play(plan, COORDINATOR, share((1, -1, 0), (0, 7, 0)))
    assert offsets == {"g": {P0: SharePartitionOffset(7, 0, 2), P1: None}}


def test_an_error_of_a_partition_is_the_error_of_its_share_group() -> None:
    plan = plans.list_share_group_offsets(known(), {"g": None}, clock)
    with pytest.raises(PartialFailure, match="t-0"):
        play(plan, COORDINATOR, share((0, -1, ErrorCode.TOPIC_AUTHORIZATION_FAILED)))


def test_a_share_group_with_members_rejects_new_start_offsets() -> None:
    plan = plans.alter_share_group_offsets(known(), "g", {P0: 1, P1: 2}, clock)
    response = AlterShareGroupOffsetsResponse(
        throttle_time_ms=0, error_code=ErrorCode.NON_EMPTY_GROUP, error_message="has members", responses=[]
    )
    with pytest.raises(PartialFailure, match="has members") as caught:
        play(plan, COORDINATOR, response)
    assert set(caught.value.failed) == {P0, P1}


def test_offsets_of_a_share_group_are_deleted_by_topic() -> None:
    def topic(name: str, code: int) -> DeleteShareGroupOffsetsResponseTopic:
        return DeleteShareGroupOffsetsResponseTopic(
            topic_name=name, topic_id=uuid.UUID(int=0), error_code=code, error_message="why"
        )

    response = DeleteShareGroupOffsetsResponse(
        throttle_time_ms=0,
        error_code=0,
        responses=[topic("t", 0), topic("u", ErrorCode.TOPIC_AUTHORIZATION_FAILED)],
    )
    with pytest.raises(PartialFailure, match="group 'g', u: why") as caught:
        play(plans.delete_share_group_offsets(known(), "g", ["t", "u"], clock), COORDINATOR, response)
    assert caught.value.succeeded == {"t": None}


def test_all_partitions_of_a_share_group_are_requested_without_topics() -> None:
    plan = plans.list_share_group_offsets(known(), {"g": None}, clock)
    [lookup] = asks_of(plan)
    call = Call(lookup.request, node=None, lane=lookup.lane, deadline=9, timeout_ms=9)
    call.version, call.response = 4, COORDINATOR
    [ask] = plan.send([call])  # type: ignore[misc]
    [group] = ask.request.groups  # type: ignore[union-attr]
    assert (group.group_id, group.topics) == ("g", None)

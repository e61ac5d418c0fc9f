"""After a group has moved to another broker, its old coordinator answers requests with NOT_COORDINATOR."""

from __future__ import annotations

import pytest

from kproto.error_codes import ErrorCode
from kproto.group.classic.coordinator import ClassicGroupState
from kproto.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from kproto.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kproto.messages.join_group import JoinGroupRequest
from kproto.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from kproto.messages.metadata import MetadataRequest
from kproto.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from kproto.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from tests.group.classic.coordinator.stage import SESSION, Stage
from tests.rules import rule


@rule("R179")
def test_a_delayed_join_group_is_answered_when_the_group_moves() -> None:
    stage = Stage()
    stage.add_member()
    sent = stage.coordinator.hand_over("g", stage.now)
    assert [action.response.error_code for action in sent] == [ErrorCode.NOT_COORDINATOR]  # type: ignore[attr-defined]


@rule("R41")
@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
def test_a_join_group_that_is_rejected_by_the_broker_keeps_its_member_id(code: ErrorCode) -> None:
    request = JoinGroupRequest(
        group_id="g", session_timeout_ms=SESSION, member_id="m", protocol_type="consumer", protocols=[]
    )
    assert Stage().coordinator.error_response(request, code, 9).member_id == "m"  # type: ignore[attr-defined]


@rule("R179")
def test_a_delayed_sync_group_is_answered_when_the_group_moves() -> None:
    stage = Stage()
    _, follower = stage.create_generation({}, {})
    stage.sync(follower)
    sent = stage.coordinator.hand_over("g", stage.now)
    assert [action.response.error_code for action in sent] == [ErrorCode.NOT_COORDINATOR]  # type: ignore[attr-defined]


@rule("R175")
def test_the_sessions_restart_when_the_new_coordinator_has_loaded_the_group() -> None:
    stage = Stage()
    (member,) = stage.create_stable_group()
    stage.wait(SESSION - 1)
    stage.coordinator.hand_over("g", stage.now + 2_000)
    stage.wait(SESSION + 1_999)
    assert stage.state is ClassicGroupState.STABLE
    stage.wait(1)
    assert list(stage.group().members) == []
    assert stage.heartbeat(member) is ErrorCode.UNKNOWN_MEMBER_ID


NOT_COORDINATOR = ErrorCode.NOT_COORDINATOR


@rule("R4", "R104")
@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (0, (0, [NOT_COORDINATOR], [])),
        (1, (0, [NOT_COORDINATOR], [])),
        (2, (NOT_COORDINATOR, [], [])),
        (7, (NOT_COORDINATOR, [], [])),
        (8, (0, [], [NOT_COORDINATOR])),
        (10, (0, [], [NOT_COORDINATOR])),
    ],
)
def test_the_error_of_offset_fetch_stands_where_its_version_expects_it(
    version: int, expected: tuple[int, list[int], list[int]]
) -> None:
    topics = [OffsetFetchRequestTopic(name="flights", partition_indexes=[0])]
    groups = [OffsetFetchRequestGroup(group_id="g", topics=None)]
    request = OffsetFetchRequest(group_id="g", topics=topics, groups=groups)
    response = Stage().coordinator.error_response(request, NOT_COORDINATOR, version)
    assert isinstance(response, OffsetFetchResponse)
    partitions = [partition.error_code for topic in response.topics for partition in topic.partitions]
    assert (response.error_code, partitions, [group.error_code for group in response.groups]) == expected


def test_the_error_of_a_request_about_several_groups_stands_in_each_of_them() -> None:
    coordinator = Stage().coordinator
    described = coordinator.error_response(DescribeGroupsRequest(groups=["g", "h"]), NOT_COORDINATOR, 5)
    assert isinstance(described, DescribeGroupsResponse)
    assert [(group.group_id, group.error_code, group.members) for group in described.groups] == [
        ("g", NOT_COORDINATOR, []),
        ("h", NOT_COORDINATOR, []),
    ]
    deleted = coordinator.error_response(DeleteGroupsRequest(groups_names=["g", "h"]), NOT_COORDINATOR, 2)
    assert isinstance(deleted, DeleteGroupsResponse)
    assert [(result.group_id, result.error_code) for result in deleted.results] == [
        ("g", NOT_COORDINATOR),
        ("h", NOT_COORDINATOR),
    ]
    listed = coordinator.error_response(ListGroupsRequest(), NOT_COORDINATOR, 4)
    assert isinstance(listed, ListGroupsResponse)
    assert (listed.error_code, listed.groups) == (NOT_COORDINATOR, [])


@rule("R90")
def test_the_error_of_a_transactional_commit_stands_in_each_partition() -> None:
    partitions = [
        TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=1, committed_metadata="")
        for index in (0, 1)
    ]
    request = TxnOffsetCommitRequest(
        transactional_id="t",
        group_id="g",
        producer_id=1,
        producer_epoch=0,
        topics=[TxnOffsetCommitRequestTopic(name="flights", partitions=partitions)],
    )
    response = Stage().coordinator.error_response(request, NOT_COORDINATOR, 3)
    assert isinstance(response, TxnOffsetCommitResponse)
    codes = [(p.partition_index, p.error_code) for topic in response.topics for p in topic.partitions]
    assert codes == [(0, NOT_COORDINATOR), (1, NOT_COORDINATOR)]


def test_a_request_that_cannot_report_an_error_raises_type_error() -> None:
    with pytest.raises(TypeError, match="MetadataRequest has no response that only reports an error"):
        Stage().coordinator.error_response(MetadataRequest(topics=[]), NOT_COORDINATOR, 0)


def test_a_group_that_does_not_exist_moves_without_a_response() -> None:
    stage = Stage()
    stage.create_stable_group()
    assert stage.coordinator.hand_over("other", stage.now) == []

"""The coordinator as the broker uses it: groups that move to another broker."""

from __future__ import annotations

import pytest

from kproto.error_codes import ErrorCode
from kproto.group.classic.coordinator import ClassicGroupState
from kproto.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from tests.group.classic.coordinator.stage import SESSION, Stage
from tests.rules import rule


@rule("R179")
def test_a_delayed_join_group_is_answered_when_the_group_moves() -> None:
    stage = Stage()
    stage.add_member()
    sent = stage.coordinator.hand_over("g", stage.now)
    assert [action.response.error_code for action in sent] == [ErrorCode.NOT_COORDINATOR]  # type: ignore[attr-defined]


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

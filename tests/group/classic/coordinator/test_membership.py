"""Heartbeats keep a member in its group, and a session timeout or LeaveGroup removes it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kproto.error_codes import ErrorCode
from kproto.group.classic.coordinator import ClassicGroup, ClassicGroupState, RebalanceStarted
from kproto.messages.leave_group import LeaveGroupRequest
from tests.group.classic.coordinator.stage import SESSION, Stage
from tests.rules import rule

# Heartbeat


@rule("R70")
def test_a_heartbeat_to_a_missing_group_is_unknown_member() -> None:
    """Mirrors GroupCoordinatorTest.testHeartbeatUnknownGroup."""
    assert Stage().heartbeat("m", 1) is ErrorCode.UNKNOWN_MEMBER_ID


@rule("R72")
def test_a_heartbeat_to_an_empty_group_is_unknown_member() -> None:
    """Mirrors GroupCoordinatorTest.testHeartbeatEmptyGroup."""
    stage = Stage()
    (member,) = stage.create_stable_group()
    stage.leave(member)
    assert stage.heartbeat(member) is ErrorCode.UNKNOWN_MEMBER_ID


@rule("R14")
def test_a_sync_to_an_empty_group_id_is_rejected() -> None:
    assert Stage().sync("m", 1, group="").code is ErrorCode.INVALID_GROUP_ID


@rule("R14")
def test_a_heartbeat_to_an_empty_group_id_is_rejected() -> None:
    assert Stage().heartbeat("m", 1, group="") is ErrorCode.INVALID_GROUP_ID


@rule("R71")
@pytest.mark.parametrize("generation", [1, 99])
def test_a_heartbeat_of_an_unknown_member_is_rejected_in_every_generation(generation: int) -> None:
    """Mirrors GroupCoordinatorTest.testHeartbeatUnknownConsumerExistingGroup."""
    stage = Stage()
    stage.create_stable_group()
    assert stage.heartbeat("ghost", generation) is ErrorCode.UNKNOWN_MEMBER_ID


@rule("R16", "R71")
@pytest.mark.parametrize("generation", [0, 2, -1])
def test_a_heartbeat_in_another_generation_is_rejected(generation: int) -> None:
    """Mirrors GroupCoordinatorTest.testHeartbeatIllegalGeneration."""
    stage = Stage()
    (member,) = stage.create_stable_group()
    assert stage.heartbeat(member, generation) is ErrorCode.ILLEGAL_GENERATION


@rule("R71")
def test_a_heartbeat_with_a_pending_member_id_is_unknown_member() -> None:
    stage = Stage()
    stage.create_stable_group()
    assert stage.heartbeat(stage.join().member_id) is ErrorCode.UNKNOWN_MEMBER_ID


@rule("R74")
def test_a_heartbeat_in_completing_rebalance_succeeds() -> None:
    """GroupCoordinatorTest.testHeartbeatRebalanceInProgress, despite its name."""
    stage = Stage()
    (member,) = stage.create_generation()
    assert stage.heartbeat(member) is ErrorCode.NONE


@rule("R73")
def test_a_heartbeat_in_preparing_rebalance_is_rebalance_in_progress() -> None:
    """Mirrors GroupCoordinatorTest.testHeartbeatDuringRebalanceCausesRebalanceInProgress."""
    stage = Stage()
    leader, follower = stage.create_stable_group({}, {})
    stage.join(leader)
    assert stage.heartbeat(follower) is ErrorCode.REBALANCE_IN_PROGRESS


@rule("R167")
def test_in_the_initial_delay_the_generation_is_zero() -> None:
    """During the initial delay the generation is 0, as in Kafka 4.3.1.

    A member that waits for its JoinGroup response may send heartbeats with generation 0.
    """
    stage = Stage()
    member, _ = stage.add_member()
    assert stage.heartbeat(member, 0) is ErrorCode.REBALANCE_IN_PROGRESS


@rule("R75", "R133")
def test_heartbeats_keep_a_member_in_a_stable_group() -> None:
    """Mirrors GroupCoordinatorTest.testHeartbeatMaintainsSession."""
    stage = Stage()
    (member,) = stage.create_stable_group()
    for _ in range(5):
        stage.wait(SESSION - 1)
        assert stage.heartbeat(member) is ErrorCode.NONE


@rule("R73", "R133")
def test_heartbeats_keep_a_member_in_preparing_rebalance() -> None:
    stage = Stage()
    leader, follower = stage.create_stable_group({}, {})
    stage.join(leader)
    for _ in range(3):
        stage.wait(SESSION - 1)
        assert stage.heartbeat(follower) is ErrorCode.REBALANCE_IN_PROGRESS


@rule("R133", "R136")
def test_a_silent_member_is_removed_after_its_session_timeout() -> None:
    """Mirrors GroupCoordinatorTest.testSessionTimeout."""
    stage = Stage()
    (member,) = stage.create_stable_group()
    stage.wait(SESSION - 1)
    assert stage.state is ClassicGroupState.STABLE
    stage.wait(1)
    assert stage.heartbeat(member) is ErrorCode.UNKNOWN_MEMBER_ID
    assert (stage.state, stage.generation()) == (ClassicGroupState.EMPTY, 2)


@rule("R133")
def test_a_rejected_heartbeat_does_not_restart_the_session() -> None:
    stage = Stage()
    (member,) = stage.create_stable_group()
    stage.wait(SESSION - 1)
    stage.heartbeat(member, 99)
    stage.wait(1)
    assert stage.state is ClassicGroupState.EMPTY


@rule("R136")
def test_two_members_that_expire_together_are_both_removed() -> None:
    stage = Stage()
    leader, *_ = stage.create_stable_group({"session": 20_000}, {}, {})
    stage.wait(SESSION)
    assert list(stage.group().members) == [leader]


# LeaveGroup


@rule("R76", "R77")
def test_leaving_a_missing_group_is_an_error_of_each_member_from_v3_on() -> None:
    """Mirrors GroupCoordinatorTest.testLeaveGroupUnknownGroup."""
    answer = Stage().leave("m", "n")
    assert answer.code is ErrorCode.NONE
    assert answer.codes == [ErrorCode.UNKNOWN_MEMBER_ID] * 2


@rule("R3", "R77")
def test_leaving_a_missing_group_is_an_error_of_the_request_before_v3() -> None:
    assert Stage().leave_v2("m") is ErrorCode.UNKNOWN_MEMBER_ID


@rule("R14", "R77")
def test_leaving_an_empty_group_id_is_an_error_of_the_request() -> None:
    answer = Stage().leave("m", group="")
    assert (answer.code, answer.codes) == (ErrorCode.INVALID_GROUP_ID, [])


@rule("R80")
def test_an_unknown_member_cannot_leave() -> None:
    """Mirrors GroupCoordinatorTest.testLeaveGroupUnknownConsumerExistingGroup."""
    stage = Stage()
    stage.create_stable_group()
    assert stage.leave("ghost").codes == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert stage.leave("").codes == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert stage.state is ClassicGroupState.STABLE


@rule("R3")
@pytest.mark.parametrize("version", [0, 1, 2])
def test_before_v3_one_member_leaves(version: int) -> None:
    """Mirrors GroupCoordinatorTest.testValidLeaveGroup."""
    stage = Stage()
    leader, follower = stage.create_stable_group({}, {})
    assert stage.leave_v2(follower, version=version) is ErrorCode.NONE
    assert list(stage.group().members) == [leader]
    assert stage.state is ClassicGroupState.PREPARING_REBALANCE


@rule("R76")
def test_leaving_members_are_returned_as_the_request_named_them() -> None:
    stage = Stage()
    stage.create_stable_group({"instance": "a"})
    (echoed,) = stage.leave(("", "a")).response.members
    assert (echoed.member_id, echoed.group_instance_id) == ("", "a")


@rule("R78")
def test_an_administrator_removes_a_static_member_by_its_instance_id() -> None:
    """Mirrors GroupCoordinatorTest.testLeaveGroupStaticMemberWithUnknownMemberId."""
    stage = Stage()
    stage.create_stable_group({"instance": "a"})
    assert stage.leave(("", "a")).codes == [ErrorCode.NONE]
    assert stage.state is ClassicGroupState.EMPTY


@rule("R82")
def test_several_static_members_leave_in_one_rebalance() -> None:
    """Mirrors GroupCoordinatorTest.testStaticMembersValidBatchLeaveGroup."""
    stage = Stage()
    stage.create_stable_group({"instance": "a"}, {"instance": "b"}, {})
    stage.notices.clear()
    assert stage.leave(("", "a"), ("", "b")).codes == [ErrorCode.NONE] * 2
    assert sum(isinstance(notice, RebalanceStarted) for notice in stage.notices) == 1


@rule("R80")
def test_a_fenced_instance_does_not_keep_another_member_from_leaving() -> None:
    """Mirrors GroupCoordinatorTest.testStaticMembersFencedInstanceBatchLeaveGroup."""
    stage = Stage()
    _, remaining = stage.create_stable_group({"instance": "a"}, {"instance": "b"})
    codes = stage.leave(("", "a"), ("ghost", "b")).codes
    assert codes == [ErrorCode.NONE, ErrorCode.FENCED_INSTANCE_ID]
    assert list(stage.group().members) == [remaining]


@rule("R78")
def test_an_unknown_instance_does_not_keep_another_member_from_leaving() -> None:
    """Mirrors GroupCoordinatorTest.testStaticMembersUnknownInstanceBatchLeaveGroup."""
    stage = Stage()
    stage.create_stable_group({"instance": "a"})
    assert stage.leave(("", "z"), ("", "a")).codes == [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE]


@rule("R80")
def test_a_member_that_is_named_twice_leaves_once() -> None:
    stage = Stage()
    (member,) = stage.create_stable_group()
    assert stage.leave(member, member).codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]


@rule("R79")
def test_members_and_pending_member_ids_leave_together() -> None:
    """Mirrors GroupMetadataManagerTest.testJoinedMemberPendingMemberBatchLeaveGroup."""
    stage = Stage()
    (member,) = stage.create_stable_group()
    pending = stage.join().member_id
    assert stage.leave(pending, member).codes == [ErrorCode.NONE] * 2
    assert stage.state is ClassicGroupState.EMPTY


@rule("R79")
def test_a_pending_member_id_that_leaves_a_stable_group_starts_no_rebalance() -> None:
    """A LeaveGroup for a pending member id starts no rebalance, unlike in Kafka 4.3.1."""
    stage = Stage()
    (member,) = stage.create_stable_group()
    assert stage.leave(stage.join().member_id).codes == [ErrorCode.NONE]
    assert stage.heartbeat(member) is ErrorCode.NONE


@rule("R81")
def test_the_waiting_join_of_a_member_that_leaves_is_answered() -> None:
    stage = Stage()
    leader, follower = stage.create_stable_group({}, {})
    waiting = stage.join(leader)
    stage.leave(leader)
    assert (waiting.code, waiting.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")
    assert stage.join(follower).response.leader == follower


@rule("R50", "R81")
def test_leaving_in_completing_rebalance_makes_the_others_join_again() -> None:
    stage = Stage()
    leader, follower = stage.create_generation({}, {})
    waiting = stage.sync(follower)
    stage.leave(leader)
    assert waiting.code is ErrorCode.REBALANCE_IN_PROGRESS


@rule("R76")
def test_a_leave_group_without_members_changes_nothing() -> None:
    stage = Stage()
    (member,) = stage.create_stable_group()
    answer = stage.send(LeaveGroupRequest(group_id="g", members=[]), 5)
    assert (answer.code, answer.codes) == (ErrorCode.NONE, [])
    assert stage.heartbeat(member) is ErrorCode.NONE


class Unsearched(dict[str, ClassicGroup]):
    """A dict of groups that raises when a caller iterates over all groups, which no step may do."""

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("a step iterated over all groups")

    values = items = keys = __iter__  # type: ignore[assignment]


def test_the_deadlines_of_one_group_cost_the_same_beside_many_groups() -> None:
    stage = Stage(group_initial_rebalance_delay_ms=0)
    (silent,) = stage.create_stable_group()
    second, joined = stage.add_member(group="other")
    stage.wait(0)
    stage.sync(second, joined.response.generation_id, group="other")
    stage.coordinator.groups = Unsearched(stage.coordinator.groups)
    for _ in range(4):
        stage.wait(SESSION // 3)
        assert stage.heartbeat(second, joined.response.generation_id, group="other") is ErrorCode.NONE
    assert stage.heartbeat(silent) is ErrorCode.UNKNOWN_MEMBER_ID

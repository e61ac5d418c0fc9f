"""SyncGroup returns the leader's assignments, for which the other members wait."""

from __future__ import annotations

from typing import Any

import pytest

from kproto.error_codes import ErrorCode
from kproto.group.classic.coordinator import ClassicGroupState
from tests.group.classic.coordinator.stage import REBALANCE, SESSION, Stage
from tests.rules import rule


@rule("R59")
def test_a_sync_to_a_missing_group_is_unknown_member() -> None:
    """Mirrors GroupCoordinatorTest.testSyncGroupFromUnknownGroup."""
    assert Stage().sync("m", 1).code is ErrorCode.UNKNOWN_MEMBER_ID


@rule("R61")
def test_a_sync_to_an_empty_group_is_unknown_member() -> None:
    stage = Stage()
    (member,) = stage.create_stable_group()
    stage.leave(member)
    assert stage.sync(member).code is ErrorCode.UNKNOWN_MEMBER_ID


@rule("R60")
def test_a_sync_of_an_unknown_member_is_rejected() -> None:
    """Mirrors GroupCoordinatorTest.testSyncGroupFromUnknownMember."""
    stage = Stage()
    stage.create_stable_group()
    assert stage.sync("ghost").code is ErrorCode.UNKNOWN_MEMBER_ID


@rule("R16", "R60")
@pytest.mark.parametrize("generation", [0, 2])
def test_a_sync_in_another_generation_is_rejected(generation: int) -> None:
    """Mirrors GroupCoordinatorTest.testSyncGroupFromIllegalGeneration."""
    stage = Stage()
    (member,) = stage.create_generation()
    assert stage.sync(member, generation).code is ErrorCode.ILLEGAL_GENERATION


@rule("R16", "R60")
def test_an_unknown_member_is_rejected_before_its_generation_is_checked() -> None:
    stage = Stage()
    stage.create_stable_group()
    assert stage.sync("ghost", 99).code is ErrorCode.UNKNOWN_MEMBER_ID


@rule("R60")
def test_another_generation_is_rejected_before_the_protocol_is_checked() -> None:
    stage = Stage()
    (member,) = stage.create_generation()
    assert stage.sync(member, 99, protocol_name="sticky").code is ErrorCode.ILLEGAL_GENERATION


@rule("R60")
@pytest.mark.parametrize("protocol", [{"protocol_type": "connect"}, {"protocol_name": "sticky"}])
def test_another_protocol_is_inconsistent(protocol: dict[str, Any]) -> None:
    """GroupCoordinatorTest.testSyncGroupReturnsAnErrorWhenProtocolTypeIsInconsistent and ...Name..."""
    stage = Stage()
    (member,) = stage.create_generation()
    assert stage.sync(member, **protocol).code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@rule("R57")
@pytest.mark.parametrize("missing", ["protocol_type", "protocol_name"])
def test_v5_without_a_protocol_is_inconsistent_even_with_an_empty_group_id(missing: str) -> None:
    """SyncGroup checks the protocol before the group id, as in Kafka 4.3.1."""
    stage = Stage()
    protocol: dict[str, Any] = {missing: None}
    answer = stage.sync("m", 1, group="", **protocol)
    assert answer.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert stage.sync("m", 1, group="").code is ErrorCode.INVALID_GROUP_ID


@rule("R57")
def test_before_v5_the_protocol_need_not_be_named() -> None:
    """Mirrors GroupCoordinatorTest.testSyncGroupSucceedWhenProtocolTypeAndNameAreNotProvided."""
    stage = Stage()
    (member,) = stage.create_generation()
    answer = stage.sync(member, assignments={}, protocol_type=None, protocol_name=None, version=4)
    assert answer.code is ErrorCode.NONE


@rule("R65")
def test_the_response_contains_the_protocol_of_the_group() -> None:
    """Mirrors GroupCoordinatorTest.testSyncGroupSucceedWhenProtocolTypeAndNameAreConsistent."""
    stage = Stage()
    (member,) = stage.create_generation()
    response = stage.sync(member, assignments={}).response
    assert (response.protocol_type, response.protocol_name) == ("consumer", "range")


@rule("R68")
def test_an_error_contains_no_protocol() -> None:
    response = Stage().sync("m", 1).response
    assert (response.protocol_type, response.protocol_name, response.assignment) == (None, None, b"")


@rule("R60")
def test_before_the_first_generation_any_protocol_name_is_accepted_but_not_any_type() -> None:
    """Before the first generation, a SyncGroup with any protocol name gets REBALANCE_IN_PROGRESS.

    A SyncGroup with a protocol type other than the group's gets INCONSISTENT_GROUP_PROTOCOL. Kafka 4.3.1
    responds with the same two error codes.
    """
    stage = Stage()
    member, _ = stage.add_member()
    assert stage.sync(member, 0, protocol_name="sticky").code is ErrorCode.REBALANCE_IN_PROGRESS
    assert stage.sync(member, 0, protocol_type="connect").code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@rule("R63", "R65")
def test_a_follower_waits_for_the_leader() -> None:
    """Mirrors GroupCoordinatorTest.testSyncGroupLeaderAfterFollower."""
    stage = Stage()
    leader, follower = stage.create_generation({}, {})
    waiting = stage.sync(follower)
    assert waiting.waits
    own = stage.sync(leader, assignments={leader: b"L", follower: b"F"})
    assert (own.response.assignment, waiting.response.assignment) == (b"L", b"F")
    assert stage.state is ClassicGroupState.STABLE


@rule("R66")
def test_a_follower_that_syncs_after_the_leader_receives_its_assignment_at_once() -> None:
    """Mirrors GroupCoordinatorTest.testSyncGroupFollowerAfterLeader."""
    stage = Stage()
    leader, follower = stage.create_generation({}, {})
    stage.sync(leader, assignments={follower: b"F"})
    assert stage.sync(follower).response.assignment == b"F"


@rule("R64")
def test_a_member_that_the_leader_left_out_is_assigned_nothing() -> None:
    """Mirrors GroupCoordinatorTest.testSyncGroupEmptyAssignment."""
    stage = Stage()
    (leader,) = stage.create_generation()
    assert stage.sync(leader, assignments={"ghost": b"x"}).response.assignment == b""
    assert stage.heartbeat(leader) is ErrorCode.NONE


@rule("R64")
def test_a_member_that_the_leader_left_out_loses_its_last_assignment() -> None:
    stage = Stage()
    leader, follower = stage.create_stable_group({}, {})
    stage.join(leader)
    stage.join(follower)
    stage.sync(leader, assignments={leader: b"L"})
    assert stage.sync(follower).response.assignment == b""


@rule("R64")
def test_assignments_of_a_follower_are_ignored() -> None:
    stage = Stage()
    leader, follower = stage.create_generation({}, {})
    assert stage.sync(follower, assignments={follower: b"mine"}).waits
    stage.sync(leader, assignments={follower: b"F"})
    assert stage.sync(follower, assignments={follower: b"mine"}).response.assignment == b"F"


@rule("R66")
def test_assignments_of_the_leader_in_stable_are_ignored() -> None:
    stage = Stage()
    (leader,) = stage.create_generation()
    stage.sync(leader, assignments={leader: b"first"})
    assert stage.sync(leader, assignments={leader: b"second"}).response.assignment == b"first"


@rule("R185")
def test_metadata_and_assignments_may_be_any_bytes() -> None:
    stage = Stage()
    (member,) = stage.create_generation({"protocols": [("range", b"\xff")]})
    assert stage.sync(member, assignments={member: b"\xff"}).response.assignment == b"\xff"


@rule("R62")
def test_a_sync_in_preparing_rebalance_is_rebalance_in_progress() -> None:
    stage = Stage()
    leader, follower = stage.create_stable_group({}, {})
    stage.join(leader)
    assert stage.sync(follower).code is ErrorCode.REBALANCE_IN_PROGRESS


@rule("R50")
def test_a_new_rebalance_answers_the_members_that_wait_for_their_assignment() -> None:
    stage = Stage()
    _, follower = stage.create_generation({}, {})
    waiting = stage.sync(follower)
    stage.add_member()
    assert waiting.code is ErrorCode.REBALANCE_IN_PROGRESS


@rule("R50", "R133")
def test_a_new_rebalance_restarts_the_sessions_of_the_members_that_wait_for_their_assignment() -> None:
    stage = Stage()
    _, follower = stage.create_generation({}, {})
    stage.sync(follower)
    stage.wait(SESSION - 1)
    stage.add_member()
    stage.wait(SESSION - 1)
    assert stage.heartbeat(follower) is ErrorCode.REBALANCE_IN_PROGRESS


@rule("R50", "R161")
def test_the_others_join_again_when_the_leader_expires_before_its_assignment() -> None:
    """Mirrors GroupCoordinatorTest.testLeaderFailureInSyncGroup."""
    stage = Stage()
    _, follower = stage.create_generation({}, {})
    waiting = stage.sync(follower)
    stage.wait(SESSION)
    assert waiting.code is ErrorCode.REBALANCE_IN_PROGRESS
    assert stage.join(follower).response.leader == follower


@rule("R63")
def test_a_repeated_sync_replaces_the_one_that_waits() -> None:
    stage = Stage()
    _, follower = stage.create_generation({}, {})
    first = stage.sync(follower)
    assert stage.sync(follower).waits
    assert first.code is ErrorCode.REBALANCE_IN_PROGRESS


@rule("R81")
def test_the_waiting_sync_of_a_removed_member_is_answered() -> None:
    """A waiting SyncGroup gets UNKNOWN_MEMBER_ID when its member leaves. Kafka never answers it."""
    stage = Stage()
    _, follower = stage.create_generation({}, {})
    waiting = stage.sync(follower)
    stage.leave(follower)
    assert waiting.code is ErrorCode.UNKNOWN_MEMBER_ID


@rule("R65", "R133", "R135")
def test_a_member_that_waits_in_sync_does_not_expire_and_its_session_restarts_with_the_response() -> None:
    stage = Stage()
    leader, follower = stage.create_generation({}, {"session": 6_000})
    waiting = stage.sync(follower)
    stage.wait(SESSION - 1)
    stage.heartbeat(leader)
    stage.wait(SESSION - 1)
    stage.sync(leader, assignments={follower: b"F"})
    assert waiting.response.assignment == b"F"
    stage.wait(5_999)
    assert stage.heartbeat(follower) is ErrorCode.NONE


@rule("R66", "R133")
def test_a_sync_in_stable_restarts_the_session() -> None:
    """In Stable, kproto restarts a member's session timeout at SyncGroup. Kafka 4.3.1 does not."""
    stage = Stage()
    (member,) = stage.create_stable_group()
    stage.wait(SESSION - 1)
    stage.sync(member)
    stage.wait(SESSION - 1)
    assert stage.heartbeat(member) is ErrorCode.NONE


# Members that never sync


def alive(stage: Stage, members: list[str], ms: int, generation: int) -> list[ErrorCode]:
    """Send a heartbeat from each member every 5 s for `ms`; return the codes of the last heartbeats."""
    codes: list[ErrorCode] = []
    for _ in range(ms // 5_000):
        stage.wait(5_000)
        codes = [stage.heartbeat(member, generation) for member in members]
    return codes


@rule("R146", "R147")
def test_a_member_that_never_syncs_is_removed_after_the_rebalance_timeout_despite_heartbeats() -> None:
    """Mirrors GroupCoordinatorTest.testRebalanceTimesOutWhenSyncRequestIsNotReceived."""
    stage = Stage()
    members = stage.create_generation({"rebalance": 20_000}, {"rebalance": 20_000})
    began = stage.generation()
    assert set(alive(stage, members, 15_000, began)) == {ErrorCode.NONE}
    assert set(alive(stage, members, 5_000, began)) == {ErrorCode.UNKNOWN_MEMBER_ID}
    assert stage.state is ClassicGroupState.EMPTY


@rule("R55", "R146")
def test_the_largest_rebalance_timeout_is_the_deadline_for_sync_group() -> None:
    stage = Stage()
    members = stage.create_generation({"rebalance": 20_000}, {"rebalance": 30_000})
    assert set(alive(stage, members, 25_000, 1)) == {ErrorCode.NONE}
    assert set(alive(stage, members, 5_000, 1)) == {ErrorCode.UNKNOWN_MEMBER_ID}


@rule("R147")
def test_followers_that_never_sync_are_removed_and_the_leader_must_rejoin() -> None:
    """Mirrors GroupCoordinatorTest.testRebalanceTimesOutWhenSyncRequestIsNotReceivedFromFollowers."""
    stage = Stage()
    leader, follower = stage.create_generation({}, {})
    stage.sync(leader, assignments={})
    codes = alive(stage, [leader, follower], REBALANCE, 1)
    assert codes == [ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID]
    assert stage.group().rebalance_reasons == [f"no SyncGroup from {follower}"]


@rule("R147")
def test_a_leader_that_never_syncs_is_removed_and_the_followers_must_rejoin() -> None:
    """Mirrors GroupCoordinatorTest.testRebalanceTimesOutWhenSyncRequestIsNotReceivedFromLeaders."""
    stage = Stage()
    leader, follower = stage.create_generation({}, {})
    waiting = stage.sync(follower)
    for _ in range(REBALANCE // 5_000):
        stage.heartbeat(leader)
        stage.wait(5_000)
    assert waiting.code is ErrorCode.REBALANCE_IN_PROGRESS
    assert stage.heartbeat(leader) is ErrorCode.UNKNOWN_MEMBER_ID
    assert list(stage.group().members) == [follower]


@rule("R146")
def test_when_all_have_synced_nothing_happens_at_the_rebalance_timeout() -> None:
    """Mirrors GroupCoordinatorTest.testRebalanceDoesNotTimeOutWhenAllSyncAreReceived."""
    stage = Stage()
    members = stage.create_stable_group({}, {})
    assert set(alive(stage, members, 2 * REBALANCE, 1)) == {ErrorCode.NONE}


@rule("R148")
def test_only_an_accepted_sync_counts_after_the_assignment() -> None:
    stage = Stage()
    leader, accepted, rejected = stage.create_generation({}, {}, {})
    stage.sync(leader, assignments={})
    assert stage.sync(accepted).code is ErrorCode.NONE
    assert stage.sync(rejected, 99).code is ErrorCode.ILLEGAL_GENERATION
    codes = alive(stage, [leader, accepted, rejected], REBALANCE, 1)
    assert codes == [
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]


@rule("R148")
def test_only_an_accepted_sync_counts_before_the_assignment() -> None:
    stage = Stage()
    leader, accepted, rejected = stage.create_generation({}, {}, {})
    stage.sync(accepted)
    assert stage.sync(rejected, 99).code is ErrorCode.ILLEGAL_GENERATION
    stage.sync(leader, assignments={})
    codes = alive(stage, [leader, accepted, rejected], REBALANCE, 1)
    assert codes == [
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]


def test_many_members_that_never_sync_are_counted_in_the_reason() -> None:
    stage = Stage()
    stage.create_generation(*[{"session": 600_000}] * 5)
    stage.wait(REBALANCE)
    assert stage.group().rebalance_reasons[0].endswith("and 2 more")


@rule("R60")
def test_a_group_that_became_empty_has_no_protocol_name() -> None:
    stage = Stage()
    (member,) = stage.create_stable_group()
    stage.leave(member)
    newcomer, _ = stage.add_member()
    assert stage.sync(newcomer, protocol_name="other").code is ErrorCode.REBALANCE_IN_PROGRESS


@rule("R62")
def test_a_sync_in_preparing_rebalance_does_not_restart_the_session() -> None:
    stage = Stage()
    (member,) = stage.create_stable_group()
    stage.wait(SESSION - 1_000)
    stage.add_member()
    assert stage.sync(member).code is ErrorCode.REBALANCE_IN_PROGRESS
    stage.wait(1_000)
    assert stage.heartbeat(member) is ErrorCode.UNKNOWN_MEMBER_ID

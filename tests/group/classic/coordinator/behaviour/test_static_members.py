"""Static members (KIP-345) that restart within the session timeout keep their membership.

The member id of the former incarnation is fenced.
"""

from __future__ import annotations

import pytest

from kproto.error_codes import ErrorCode
from kproto.group.classic.coordinator import ClassicGroupState, RebalanceStarted
from tests.group.classic.coordinator.stage import BOTH, DELAY, REBALANCE, SESSION, Stage
from tests.rules import rule

A = {"instance": "a"}
B = {"instance": "b"}


@rule("R15")
def test_a_registered_instance_id_with_another_member_id_is_fenced() -> None:
    """Mirrors GroupCoordinatorTest.staticMemberReJoinWithExplicitUnknownMemberId."""
    stage = Stage()
    stage.create_stable_group(A)
    assert stage.join("ghost", instance="a").code is ErrorCode.FENCED_INSTANCE_ID


@rule("R15")
@pytest.mark.parametrize(("instance", "position"), [("b", 0), ("a", 1)], ids=["follower", "leader"])
def test_an_instance_id_with_the_member_id_of_another_member_is_fenced(instance: str, position: int) -> None:
    """Mirrors GroupCoordinatorTest.staticMemberReJoinAsFollowerWithMismatchedMemberId and ...AsLeader..."""
    stage = Stage()
    members = stage.create_stable_group(A, B)
    assert stage.join(members[position], instance=instance).code is ErrorCode.FENCED_INSTANCE_ID


@rule("R15")
def test_a_member_id_with_an_unregistered_instance_id_is_unknown() -> None:
    """Mirrors GroupCoordinatorTest.staticMemberJoinWithUnknownInstanceIdAndKnownMemberId."""
    stage = Stage()
    (member,) = stage.create_stable_group(A)
    assert stage.join(member, instance="z").code is ErrorCode.UNKNOWN_MEMBER_ID


@rule("R15")
def test_the_member_id_of_a_static_member_is_valid_without_its_instance_id() -> None:
    stage = Stage()
    (member,) = stage.create_stable_group(A)
    assert stage.heartbeat(member) is ErrorCode.NONE


@rule("R28", "R42")
def test_every_restart_receives_a_new_member_id_that_starts_with_the_instance_id() -> None:
    """Mirrors GroupCoordinatorTest.shouldGetDifferentStaticMemberIdAfterEachRejoin."""
    stage = Stage()
    member_ids = {stage.create_stable_group(A)[0]} | {stage.join(instance="a").member_id for _ in range(5)}
    assert len(member_ids) == 6
    assert all(member_id.startswith("a-") for member_id in member_ids)


@rule("R42", "R43")
def test_a_follower_that_restarts_keeps_generation_and_assignment() -> None:
    """Mirrors GroupCoordinatorTest.staticMemberRejoinAsFollowerWithUnknownMemberId."""
    stage = Stage()
    leader, follower = stage.create_stable_group(A, B)
    restarted = stage.join(instance="b")
    assert (restarted.response.generation_id, restarted.response.leader, restarted.response.members) == (
        1,
        leader,
        [],
    )
    assert not restarted.response.skip_assignment
    assert stage.state is ClassicGroupState.STABLE
    assert stage.sync(restarted.member_id, instance="b").response.assignment == follower.encode()
    assert stage.heartbeat(leader) is ErrorCode.NONE


@rule("R43")
def test_from_v9_a_leader_that_restarts_leads_but_skips_the_assignment() -> None:
    """GroupMetadataManagerTest.testStaticMemberRejoinWithLeaderIdAndUnknownMemberId, KIP-814."""
    stage = Stage()
    stage.create_stable_group(A, B)
    restarted = stage.join(instance="a", version=9)
    assert restarted.response.leader == restarted.member_id
    assert restarted.response.skip_assignment
    assert len(restarted.response.members) == 2


@rule("R43")
def test_before_v9_a_restarted_leader_receives_its_former_member_id_as_the_leader() -> None:
    """Mirrors GroupCoordinatorTest.staticMemberRejoinWithLeaderIdAndUnknownMemberId."""
    stage = Stage()
    former_id, _ = stage.create_stable_group(A, B)
    restarted = stage.join(instance="a", version=8)
    assert restarted.response.leader == former_id
    assert restarted.response.members == []
    assert stage.group().leader == restarted.member_id, "it is the leader nevertheless"


@rule("R15", "R42")
def test_the_former_incarnation_is_fenced_in_every_request() -> None:
    """Every request from the former incarnation is fenced. Mirrors
    GroupCoordinatorTest.staticMemberSyncAsLeaderWithInvalidMemberId and its counterparts.
    """
    stage = Stage()
    former_id, _ = stage.create_stable_group(A, B)
    stage.join(instance="a")
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert stage.heartbeat(former_id, instance="a") is fenced
    assert stage.sync(former_id, instance="a").code is fenced
    assert stage.commit(former_id, 1, instance="a").codes == [fenced]
    assert stage.join(former_id, instance="a").code is fenced
    assert stage.leave((former_id, "a")).codes == [fenced]
    assert stage.commit_in_transaction(member_id=former_id, generation=1, instance="a").codes == [fenced]


@rule("R15")
def test_the_former_incarnation_without_its_instance_id_is_unknown() -> None:
    stage = Stage()
    (former_id,) = stage.create_stable_group(A)
    stage.join(instance="a")
    assert stage.heartbeat(former_id) is ErrorCode.UNKNOWN_MEMBER_ID


@rule("R42")
def test_the_waiting_join_of_a_replaced_follower_is_fenced_at_once() -> None:
    """Mirrors GroupCoordinatorTest.staticMemberFenceDuplicateRejoinedFollower."""
    stage = Stage()
    leader, follower = stage.create_stable_group(A, B)
    rejoined = stage.join(follower, instance="b", protocols=[("range", b"new")])
    restarted = stage.join(instance="b")
    assert rejoined.code is ErrorCode.FENCED_INSTANCE_ID
    assert restarted.waits
    stage.join(leader, instance="a")
    assert restarted.code is ErrorCode.NONE


@rule("R47")
def test_a_restart_completes_a_join_phase_that_waits_for_this_member() -> None:
    stage = Stage()
    leader, _ = stage.create_stable_group(A, B)
    waiting = stage.join(leader, instance="a")
    assert waiting.waits
    restarted = stage.join(instance="b")
    assert [waiting.code, restarted.code] == [ErrorCode.NONE, ErrorCode.NONE]


@rule("R42", "R47")
def test_the_waiting_join_of_a_replaced_member_is_fenced_and_its_new_incarnation_waits() -> None:
    """Mirrors GroupMetadataManagerTest.testJoinGroupReplaceStaticMember."""
    stage = Stage()
    former_id, answer = stage.add_member(**A)
    restarted = stage.join(instance="a")
    assert (answer.code, answer.member_id) == (ErrorCode.FENCED_INSTANCE_ID, former_id)
    stage.wait(DELAY)
    assert restarted.code is ErrorCode.NONE
    assert list(stage.group().members) == [restarted.member_id]


@rule("R42")
def test_the_waiting_sync_of_a_replaced_member_is_fenced() -> None:
    """Mirrors GroupCoordinatorTest.staticMemberFenceDuplicateSyncingFollowerAfterMemberIdChanged."""
    stage = Stage()
    _, follower = stage.create_generation(A, B)
    waiting = stage.sync(follower, instance="b")
    assert waiting.waits
    stage.join(instance="b")
    assert waiting.code is ErrorCode.FENCED_INSTANCE_ID


@rule("R46")
def test_a_restart_in_completing_rebalance_starts_a_rebalance() -> None:
    """Mirrors GroupMetadataManagerTest.testReplaceStaticMemberInCompletingRebalanceStateTriggersRebalance."""
    stage = Stage()
    leader, _ = stage.create_generation(A, B)
    restarted = stage.join(instance="b")
    assert restarted.waits
    assert stage.state is ClassicGroupState.PREPARING_REBALANCE
    assert stage.join(leader, instance="a").response.generation_id == 2


@rule("R43")
def test_a_restart_that_keeps_the_selected_protocol_starts_no_rebalance() -> None:
    """Mirrors GroupCoordinatorTest....ChangeOfProtocolWhileSelectProtocolUnchanged."""
    stage = Stage()
    stage.create_stable_group({**A, "protocols": BOTH}, {**B, "protocols": BOTH})
    restarted = stage.join(instance="b", protocols=[("range", b"changed")])
    assert (restarted.response.generation_id, stage.state) == (1, ClassicGroupState.STABLE)


@rule("R45")
def test_a_restart_that_changes_the_selected_protocol_starts_a_rebalance() -> None:
    """Mirrors GroupCoordinatorTest....ChangeOfProtocolWithSelectedProtocolChanged."""
    stage = Stage()
    leader, _ = stage.create_stable_group({**A, "protocols": BOTH}, {**B, "protocols": BOTH})
    restarted = stage.join(instance="b", protocols=[("roundrobin", b"rr")])
    assert restarted.waits
    assert isinstance(stage.notices[-1], RebalanceStarted)
    assert "changes the protocol from range to roundrobin" in stage.notices[-1].reason
    stage.join(leader, instance="a", protocols=BOTH)
    assert restarted.response.protocol_name == "roundrobin"


@rule("R42")
def test_a_restart_replaces_the_timeouts() -> None:
    """GroupCoordinatorTest.staticMemberRejoinWithUpdatedSessionAndRebalanceTimeoutsAndPersistChange."""
    stage = Stage()
    stage.create_stable_group(A)
    restarted = stage.join(instance="a", session=20_000, rebalance=30_000)
    member = stage.group().members[restarted.member_id]
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (20_000, 30_000)


@rule("R42", "R133")
def test_after_a_restart_the_first_session_still_has_the_old_timeout() -> None:
    """After a restart of a static member, its first session keeps the old session timeout.

    As in Kafka 4.3.1, the coordinator starts the session timer before it stores the new session timeout.
    """
    stage = Stage()
    stage.create_stable_group({**A, "session": 6_000})
    restarted = stage.join(instance="a", session=20_000)
    stage.wait(5_999)
    assert stage.heartbeat(restarted.member_id) is ErrorCode.NONE
    stage.wait(19_999)
    assert stage.heartbeat(restarted.member_id) is ErrorCode.NONE, (
        "the new timeout counts from the first heartbeat on"
    )
    second_restart = stage.join(instance="a", session=6_000)
    assert second_restart.code is ErrorCode.NONE
    stage.wait(20_000)
    assert stage.state is ClassicGroupState.EMPTY


@rule("R48")
def test_a_static_member_that_rejoins_with_its_member_id_is_treated_like_a_dynamic_one() -> None:
    """Mirrors GroupCoordinatorTest.staticMemberRejoinWithKnownMemberId, ...WithLeaderIdAndKnownMemberId."""
    stage = Stage()
    leader, follower = stage.create_generation(A, B)
    assert stage.join(follower, instance="b").code is ErrorCode.NONE
    stage.sync_all([leader, follower])
    assert stage.join(follower, instance="b").code is ErrorCode.NONE
    assert stage.join(leader, instance="a").waits


@rule("R52")
def test_absent_static_members_stay_and_are_in_the_leaders_list() -> None:
    """Mirrors GroupCoordinatorTest.testStaticMemberFollowerFailToRejoinBeforeRebalanceTimeout."""
    stage = Stage()
    leader, absent = stage.create_stable_group({**A, "session": 1_800_000}, {**B, "session": 1_800_000})
    answer = stage.join(leader, instance="a", session=1_800_000)
    stage.wait(REBALANCE)
    assert [m.member_id for m in answer.response.members] == [leader, absent]
    assert answer.response.members[1].group_instance_id == "b"


@rule("R53", "R162")
def test_an_absent_static_leader_stays_a_member_but_another_leads() -> None:
    """Mirrors GroupCoordinatorTest.testStaticMemberLeaderFailToRejoinBeforeRebalanceTimeout."""
    stage = Stage()
    leader, follower = stage.create_stable_group({**A, "session": 1_800_000}, {**B, "session": 1_800_000})
    answer = stage.join(follower, instance="b", protocols=[("range", b"new")], session=1_800_000)
    stage.wait(REBALANCE)
    assert answer.response.leader == follower
    assert leader in [m.member_id for m in answer.response.members]


@rule("R55", "R147")
def test_an_absent_static_member_is_removed_when_it_does_not_sync() -> None:
    stage = Stage()
    leader, absent = stage.create_stable_group({**A, "session": 1_800_000}, {**B, "session": 1_800_000})
    stage.join(leader, instance="a", session=1_800_000)
    stage.wait(REBALANCE)
    stage.sync(leader, assignments={leader: b"all"})
    stage.wait(REBALANCE)
    assert stage.heartbeat(absent, instance="b") is ErrorCode.UNKNOWN_MEMBER_ID


@rule("R53", "R140")
def test_with_only_absent_static_members_the_rebalance_waits_again() -> None:
    """Mirrors GroupMetadataManagerTest.testGroupStuckInRebalanceTimeoutDueToNonjoinedStaticMember."""
    stage = Stage()
    _, dynamic = stage.create_stable_group({**A, "session": 1_800_000}, {})
    stage.leave(dynamic)
    stage.wait(10 * REBALANCE)
    assert (stage.state, stage.generation()) == (ClassicGroupState.PREPARING_REBALANCE, 1)
    assert stage.join(instance="a").response.generation_id == 2


@rule("R140")
def test_the_wait_for_absent_static_members_ends_with_their_sessions() -> None:
    """GroupCoordinatorTest.testLeaderFailToRejoinBeforeFinalRebalanceTimeoutWithLongSessionTimeout."""
    stage = Stage()
    _, dynamic = stage.create_stable_group({**A, "session": 100_000}, {})
    stage.leave(dynamic)
    stage.wait(100_000)
    assert (stage.state, stage.generation()) == (ClassicGroupState.EMPTY, 2)


@rule("R135")
def test_a_replaced_new_member_does_not_expire_while_it_waits() -> None:
    """A static member that replaces its former incarnation does not expire while its JoinGroup waits.

    In Kafka a member that replaces another one counts as new, and may therefore expire while its JoinGroup
    waits.
    """
    stage = Stage(group_initial_rebalance_delay_ms=30_000)
    stage.join(instance="a", session=6_000)
    restarted = stage.join(instance="a", session=6_000)
    stage.wait(30_000)
    assert restarted.code is ErrorCode.NONE


@rule("R49")
def test_a_new_incarnation_that_has_synced_is_not_removed_for_its_former_one() -> None:
    """A restarted static member that has sent SyncGroup is not removed at the deadline for SyncGroup.

    Kafka 4.3.1 still expects SyncGroup from the former member id at this deadline, and starts a rebalance.
    """
    stage = Stage()
    leader, late = stage.create_generation({**A, "session": 1_800_000}, {**B, "session": 1_800_000})
    stage.sync(leader, assignments={late: b"part"})
    restarted = stage.join(instance="b", session=1_800_000)
    assert stage.sync(restarted.member_id, instance="b").response.assignment == b"part"
    stage.wait(REBALANCE)
    assert stage.heartbeat(leader) is ErrorCode.NONE
    assert stage.heartbeat(restarted.member_id) is ErrorCode.NONE


@rule("R84", "R136")
def test_a_static_member_is_removed_after_its_session_timeout() -> None:
    stage = Stage()
    (member,) = stage.create_stable_group(A)
    stage.wait(SESSION)
    assert stage.heartbeat(member, instance="a") is ErrorCode.UNKNOWN_MEMBER_ID
    assert stage.group().instances == {}


@rule("R42")
def test_a_restart_keeps_the_client_id_and_host_of_the_former_incarnation() -> None:
    stage = Stage()
    stage.create_stable_group({**A, "client": "first"})
    stage.join(instance="a", client="second")
    (member,) = stage.describe().members
    assert (member.client_id, member.client_host) == ("first", "/127.0.0.1")


@rule("R42", "R133")
def test_a_restart_restarts_the_session() -> None:
    stage = Stage()
    stage.create_stable_group({**A, "session": 10_000})
    stage.wait(9_000)
    restarted = stage.join(instance="a", session=10_000)
    stage.wait(9_000)
    assert stage.heartbeat(restarted.member_id) is ErrorCode.NONE


@rule("R42", "R133")
def test_after_a_restart_a_longer_session_timeout_does_not_count_yet() -> None:
    stage = Stage()
    stage.create_stable_group({**A, "session": 6_000})
    stage.join(instance="a", session=20_000)
    stage.wait(6_000)
    assert stage.state is ClassicGroupState.EMPTY


@rule("R160")
def test_a_leader_stays_the_leader_if_another_member_is_first_in_the_list() -> None:
    stage = Stage()
    first, second = stage.create_stable_group({**A, "session": 1_800_000}, {**B, "session": 1_800_000})
    stage.join(second, instance="b", protocols=[("range", b"new")], session=1_800_000)
    stage.wait(REBALANCE)
    assert stage.group().leader == second
    rejoined = stage.join(first, instance="a", protocols=[("range", b"new")], session=1_800_000)
    stage.join(second, instance="b", protocols=[("range", b"new")], session=1_800_000)
    assert list(stage.group().members) == [first, second]
    assert rejoined.response.leader == second


@rule("R163")
def test_a_member_that_restarts_is_the_last_in_the_list() -> None:
    stage = Stage()
    _, second = stage.create_stable_group(A, B)
    restarted = stage.join(instance="a", version=9)
    assert [member.member_id for member in restarted.response.members] == [second, restarted.member_id]

"""A join phase ends when all members have joined or timed out; that of an empty group, after a delay."""

from __future__ import annotations

import pytest

from kproto.error_codes import ErrorCode
from kproto.group.classic.coordinator import (
    ClassicGroupState,
    GenerationStarted,
    GroupEmptied,
    MemberRemoved,
    RebalanceCompleted,
    RebalanceStarted,
    Tick,
    next_deadline,
)
from kproto.group.settings import MAX_GROUP_METADATA_BYTES
from tests.group.classic.coordinator.stage import BOTH, DELAY, REBALANCE, SESSION, Stage
from tests.rules import rule

# group.initial.rebalance.delay.ms


@rule("R141")
def test_the_first_member_waits_for_the_initial_delay() -> None:
    """Mirrors GroupCoordinatorTest.shouldDelayInitialRebalanceByGroupInitialRebalanceDelayOnEmptyGroup."""
    stage = Stage()
    _, answer = stage.add_member()
    stage.wait(DELAY - 1)
    assert answer.waits
    stage.wait(1)
    assert answer.code is ErrorCode.NONE


@rule("R142")
def test_a_second_member_prolongs_the_initial_delay() -> None:
    """Mirrors GroupCoordinatorTest.shouldResetRebalanceDelayWhenNewMemberJoinsGroupInInitialRebalance."""
    stage = Stage()
    _, first = stage.add_member()
    stage.wait(DELAY - 1)
    _, second = stage.add_member()
    stage.wait(1 + DELAY - 1)
    assert first.waits
    assert second.waits
    stage.wait(1)
    assert not first.waits
    assert not second.waits


@rule("R143")
def test_the_initial_delay_is_never_prolonged_beyond_the_first_members_rebalance_timeout() -> None:
    """Joins prolong the initial delay up to the first member's rebalance timeout: 3 + 3 + 3 + 1 s.

    Mirrors GroupCoordinatorTest.shouldDelayRebalanceUptoRebalanceTimeout.
    """
    stage = Stage()
    _, first = stage.add_member(rebalance=10_000)
    for _ in range(3):
        stage.wait(DELAY - 1)
        stage.add_member(rebalance=600_000)
        stage.wait(1)
    stage.wait(999)
    assert first.waits
    stage.wait(1)
    assert not first.waits


@rule("R144")
def test_the_initial_delay_does_not_end_early_when_all_members_have_joined() -> None:
    stage = Stage()
    stage.add_member()
    _, second = stage.add_member()
    assert second.waits


@rule("R144")
def test_the_initial_delay_does_not_end_early_when_a_pending_member_id_expires() -> None:
    """The initial delay continues when a pending member id expires. In Kafka 4.3.1 it ends immediately."""
    stage = Stage(group_initial_rebalance_delay_ms=20_000)
    _, first = stage.add_member()
    stage.join(session=6_000)
    stage.wait(6_000)
    assert stage.group().pending == {}
    assert first.waits


@rule("R144")
def test_without_an_initial_delay_the_first_member_is_answered_at_the_next_tick() -> None:
    stage = Stage(group_initial_rebalance_delay_ms=0)
    _, answer = stage.add_member()
    assert next_deadline(stage.coordinator) == stage.now
    stage.wait(0)
    assert answer.code is ErrorCode.NONE


@rule("R145")
def test_a_group_that_became_empty_waits_for_the_initial_delay_again() -> None:
    """A group that became empty waits for the initial delay again, and joins extend it.

    In Kafka's former coordinator, GroupCoordinator.scala, joins extend only the delay before a group's
    first generation.
    """
    stage = Stage()
    (member,) = stage.create_stable_group()
    stage.leave(member)
    _, first = stage.add_member()
    stage.wait(DELAY - 1)
    stage.add_member()
    stage.wait(1)
    assert first.waits
    stage.wait(DELAY)
    assert first.response.generation_id == 3


@rule("R54", "R144", "R167")
def test_a_group_whose_members_leave_during_the_initial_delay_is_empty_at_its_end() -> None:
    """A group whose members leave during the initial delay is Empty in generation 1.

    The group becomes Empty at the end of the delay. The next member starts generation 2, as in Kafka 4.3.1.
    """
    stage = Stage()
    member, answer = stage.add_member()
    stage.leave(member)
    assert answer.code is ErrorCode.UNKNOWN_MEMBER_ID
    assert stage.state is ClassicGroupState.PREPARING_REBALANCE
    stage.wait(DELAY)
    assert (stage.state, stage.generation()) == (ClassicGroupState.EMPTY, 1)
    stage.create_stable_group()
    assert stage.generation() == 2


# Join phases that complete before the rebalance timeout


@rule("R51")
def test_a_rebalance_completes_when_all_members_have_rejoined() -> None:
    stage = Stage()
    leader, follower = stage.create_stable_group({}, {})
    first = stage.join(leader)
    assert first.waits
    second = stage.join(follower)
    assert first.response.generation_id == second.response.generation_id == 2


@rule("R51")
def test_a_pending_member_id_delays_the_rebalance_until_it_joins() -> None:
    """Mirrors GroupCoordinatorTest.testJoinGroupCompletionWhenPendingMemberJoins."""
    stage = Stage()
    (leader,) = stage.create_stable_group()
    newcomer = stage.join().member_id
    answer = stage.join(leader)
    assert answer.waits
    stage.join(newcomer)
    assert answer.code is ErrorCode.NONE


@rule("R51", "R138")
def test_a_pending_member_id_delays_the_rebalance_until_it_expires() -> None:
    """Mirrors GroupCoordinatorTest.testJoinGroupCompletionWhenPendingMemberTimesOut."""
    stage = Stage()
    (leader,) = stage.create_stable_group()
    newcomer = stage.join(session=SESSION).member_id
    answer = stage.join(leader)
    stage.wait(SESSION - 1)
    assert answer.waits
    stage.wait(1)
    assert answer.code is ErrorCode.NONE
    assert stage.join(newcomer).code is ErrorCode.UNKNOWN_MEMBER_ID


@rule("R51", "R79")
def test_a_pending_member_id_delays_the_rebalance_until_it_leaves() -> None:
    """Mirrors GroupCoordinatorTest.testPendingMembersLeavesGroup."""
    stage = Stage()
    (leader,) = stage.create_stable_group()
    newcomer = stage.join().member_id
    answer = stage.join(leader)
    assert stage.leave(newcomer).codes == [ErrorCode.NONE]
    assert answer.code is ErrorCode.NONE


@rule("R138")
def test_a_pending_member_that_never_joins_delays_but_does_not_block_the_rebalance() -> None:
    """Mirrors GroupCoordinatorTest.testSecondMemberPartiallyJoinAndTimeout."""
    stage = Stage()
    (leader,) = stage.create_stable_group()
    stage.join(session=SESSION)
    assert stage.state is ClassicGroupState.STABLE
    answer = stage.join(leader)
    stage.wait(SESSION)
    stage.sync(leader, assignments={leader: b""})
    assert (answer.code, stage.state) == (ErrorCode.NONE, ClassicGroupState.STABLE)


@rule("R81")
def test_a_rebalance_completes_when_the_last_missing_member_leaves() -> None:
    stage = Stage()
    leader, follower = stage.create_stable_group({}, {})
    answer = stage.join(leader)
    stage.leave(follower)
    assert answer.response.generation_id == 2
    assert [m.member_id for m in answer.response.members] == [leader]


@rule("R54", "R83", "R167")
def test_a_group_whose_last_member_leaves_is_empty_in_the_next_generation() -> None:
    stage = Stage()
    (member,) = stage.create_stable_group()
    stage.leave(member)
    assert (stage.state, stage.generation()) == (ClassicGroupState.EMPTY, 2)


# The rebalance timeout


@rule("R52")
def test_a_dynamic_member_that_has_not_joined_by_the_rebalance_timeout_is_removed() -> None:
    """Mirrors GroupCoordinatorTest.testRebalanceCompletesBeforeMemberJoins."""
    stage = Stage()
    leader, absent = stage.create_stable_group({"rebalance": 20_000}, {"rebalance": 20_000})
    answer = stage.join(leader, rebalance=20_000)
    for _ in range(3):
        stage.wait(5_000)
        assert stage.heartbeat(absent) is ErrorCode.REBALANCE_IN_PROGRESS
    stage.wait(5_000)
    assert answer.response.generation_id == 2
    assert stage.heartbeat(absent) is ErrorCode.UNKNOWN_MEMBER_ID


@rule("R139")
def test_the_largest_rebalance_timeout_of_the_members_counts() -> None:
    stage = Stage()
    leader, follower = stage.create_stable_group({"rebalance": 8_000}, {"rebalance": 9_000})
    answer = stage.join(leader, rebalance=8_000)
    stage.wait(8_000)
    stage.heartbeat(follower)
    assert answer.waits
    stage.wait(1_000)
    assert not answer.waits


@rule("R139")
def test_the_longer_timeout_of_a_new_member_does_not_extend_a_running_rebalance() -> None:
    stage = Stage()
    leader, _ = stage.create_stable_group({"rebalance": 8_000}, {"rebalance": 8_000})
    answer = stage.join(leader, rebalance=8_000)
    stage.add_member(rebalance=600_000)
    stage.wait(8_000)
    assert not answer.waits


@rule("R136")
def test_a_silent_member_expires_in_a_rebalance_which_then_completes() -> None:
    """Mirrors GroupCoordinatorTest.testSessionTimeoutDuringRebalance."""
    stage = Stage()
    leader, silent = stage.create_stable_group({}, {})
    answer = stage.join(leader)
    stage.wait(SESSION)
    assert answer.response.generation_id == 2
    assert stage.heartbeat(silent, 2) is ErrorCode.UNKNOWN_MEMBER_ID


# New members


@rule("R134")
def test_a_new_member_may_wait_longer_than_its_session_timeout() -> None:
    stage = Stage()
    leader, follower = stage.create_stable_group({}, {})
    _, answer = stage.add_member()
    for _ in range(4):
        stage.wait(SESSION - 1)
        stage.heartbeat(leader)
        stage.heartbeat(follower)
    assert answer.waits


@rule("R81", "R134")
def test_a_new_member_that_waits_five_minutes_is_removed() -> None:
    """Mirrors GroupCoordinatorTest.testNewMemberJoinExpiration."""
    stage = Stage()
    (leader,) = stage.create_stable_group({"rebalance": 3_600_000})
    newcomer, answer = stage.add_member()
    for _ in range(5 * 60_000 // 5_000):
        assert answer.waits
        stage.heartbeat(leader)
        stage.wait(5_000)
    assert (answer.code, answer.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")
    assert list(stage.group().members) == [leader]
    assert stage.join(newcomer).code is ErrorCode.UNKNOWN_MEMBER_ID


@rule("R134")
@pytest.mark.parametrize("request_kind", ["Heartbeat", "OffsetCommit"])
def test_after_a_request_of_a_new_member_its_session_timeout_applies(request_kind: str) -> None:
    stage = Stage()
    (leader,) = stage.create_stable_group()
    newcomer, answer = stage.add_member()
    if request_kind == "Heartbeat":
        assert stage.heartbeat(newcomer) is ErrorCode.REBALANCE_IN_PROGRESS
    else:
        assert stage.commit(newcomer, stage.generation()).codes == [ErrorCode.NONE]
    stage.wait(SESSION - 1)
    stage.heartbeat(leader)
    assert answer.waits
    stage.wait(1)
    assert answer.code is ErrorCode.UNKNOWN_MEMBER_ID


@rule("R55", "R133", "R134")
def test_the_session_timeout_of_a_new_member_counts_from_its_first_generation() -> None:
    """GroupCoordinatorTest.testNewMemberTimeoutCompletion, testNewMemberFailureAfterJoinGroupCompletion."""
    stage = Stage()
    stage.create_generation()
    stage.wait(SESSION)
    assert stage.state is ClassicGroupState.EMPTY


# Leaders and generations


@rule("R167")
def test_generations_count_from_one() -> None:
    """Mirrors GroupCoordinatorTest.testGenerationIdIncrementsOnRebalance."""
    stage = Stage()
    (leader,) = stage.create_stable_group()
    assert stage.generation() == 1
    assert stage.join(leader).response.generation_id == 2


@rule("R160")
def test_the_leader_stays_the_leader() -> None:
    stage = Stage()
    leader, follower = stage.create_stable_group({}, {})
    stage.join(leader)
    assert stage.join(follower).response.leader == leader


@rule("R161", "R163")
def test_when_the_leader_leaves_the_member_that_joined_first_leads() -> None:
    stage = Stage()
    leader, second, third = stage.create_stable_group({}, {}, {})
    stage.leave(leader)
    stage.join(third)
    assert stage.join(second).response.leader == second


@rule("R164")
def test_a_protocol_that_only_a_removed_member_lacked_can_be_selected() -> None:
    stage = Stage()
    _, rich = stage.create_stable_group({}, {"protocols": [("roundrobin", b"rr"), ("range", b"r")]})
    stage.leave(stage.group().leader or "")
    assert stage.join(rich, protocols=reversed(BOTH)).response.protocol_name == "roundrobin"


# Reported reasons and events of rebalances


@rule("R39")
def test_the_reason_of_an_unchanged_follower_starts_no_rebalance() -> None:
    stage = Stage()
    _, follower = stage.create_stable_group({}, {})
    assert stage.join(follower, reason="topic flights was created").code is ErrorCode.NONE
    assert stage.state is ClassicGroupState.STABLE


@rule("R39")
def test_every_rebalance_reports_its_reason() -> None:
    stage = Stage()
    leader, follower = stage.create_stable_group({"client": "a"}, {"client": "b"})
    stage.join(leader, reason="topic flights was created")
    stage.join(follower)
    stage.sync_all([leader, follower])
    stage.leave(follower, reason="the consumer is being closed")
    stage.wait(SESSION)
    reasons = [notice.reason for notice in stage.notices if isinstance(notice, RebalanceStarted)]
    assert reasons == [
        f"{leader} joined",
        f"leader {leader} rejoined: topic flights was created",
        f"{follower} left: the consumer is being closed",
    ]
    stage.notices.clear()
    (member,) = stage.create_stable_group()
    stage.wait(SESSION)
    assert stage.notices[-2:] == [
        RebalanceStarted("g", 4, f"{member} sent nothing for {SESSION} ms"),
        GroupEmptied("g", 5, f"{member} sent nothing for {SESSION} ms"),
    ]


def test_a_completed_rebalance_reports_its_generation_and_members() -> None:
    stage = Stage()
    members = stage.create_stable_group({}, {})
    assert stage.notices[-1] == RebalanceCompleted("g", 1, tuple(members))


def test_the_reason_of_the_last_rebalance_is_kept() -> None:
    stage = Stage()
    (member,) = stage.create_stable_group({"instance": "one"})
    assert stage.group().rebalance_reasons == [f"one ({member}) joined"]


def test_a_generation_reports_every_change_of_its_join_phase() -> None:
    stage = Stage()
    leader, follower = stage.create_stable_group({}, {})
    stage.notices.clear()
    stage.join(leader, reason="cached metadata has changed")
    joined, _ = stage.add_member()
    stage.leave(follower)
    [generation] = [notice for notice in stage.notices if isinstance(notice, GenerationStarted)]
    reasons = (
        f"leader {leader} rejoined: cached metadata has changed",
        f"{joined} joined",
        f"{follower} left",
    )
    assert generation == GenerationStarted("g", 2, reasons)


def test_a_removed_member_is_reported_with_the_reason() -> None:
    stage = Stage()
    leader, late, leaving = stage.create_stable_group({}, {"session": 2 * REBALANCE}, {})
    stage.leave(leaving, reason="closed")
    stage.join(leader)
    stage.wait(REBALANCE)
    removed = [notice for notice in stage.notices if isinstance(notice, MemberRemoved)]
    assert removed == [
        MemberRemoved("g", leaving, f"{leaving} left: closed"),
        MemberRemoved("g", late, f"{late} did not rejoin within {REBALANCE} ms"),
    ]


# Deadlines


@rule("R149")
def test_an_idle_coordinator_has_only_the_deadline_of_its_cleanup() -> None:
    stage = Stage()
    assert next_deadline(stage.coordinator) is None
    stage.step(Tick())
    assert next_deadline(stage.coordinator) == stage.now + 600_000


def test_the_next_deadline_is_never_late() -> None:
    stage = Stage()
    leader, follower = stage.create_stable_group({}, {"session": 7_000})
    stage.heartbeat(leader)
    stage.heartbeat(follower)
    due = next_deadline(stage.coordinator)
    assert due is not None
    assert due <= stage.now + 7_000


@rule("R136")
def test_deadlines_fire_before_a_later_event() -> None:
    """After a missed Tick, as on a suspended broker, a member expires before its heartbeat is served."""
    stage = Stage()
    (member,) = stage.create_stable_group()
    stage.now += SESSION
    assert stage.heartbeat(member) is ErrorCode.UNKNOWN_MEMBER_ID


@rule("R132")
def test_a_deadline_that_an_earlier_one_has_moved_does_not_fire() -> None:
    """A deadline does not fire if an earlier deadline, handled in the same Tick, moves it.

    The Tick is late: the deadline of the join phase and the leader's session timeout have both passed. The
    end of the join phase comes first, and restarts the session timeout.
    """
    stage = Stage()
    leader, _ = stage.create_stable_group({"rebalance": 8_000}, {"rebalance": 8_000})
    answer = stage.join(leader, rebalance=8_000)
    stage.now += SESSION
    stage.step(Tick())
    assert answer.code is ErrorCode.NONE
    assert list(stage.group().members) == [leader]


@rule("R140")
def test_a_join_phase_waits_again_for_static_members_that_never_join() -> None:
    """If only static members remain and none of them has rejoined, the join phase starts again.

    The remaining member's rebalance timeout is 0, so the join phase starts again every millisecond.
    """
    stage = Stage()
    static, dynamic = stage.create_stable_group({"rebalance": 1, "instance": "i"}, {"rebalance": 1})
    stage.join(static, instance="i", rebalance=0)
    stage.join(dynamic, rebalance=1)
    stage.sync_all([static, dynamic])
    stage.leave(dynamic)
    stage.wait(2)
    assert stage.state is ClassicGroupState.PREPARING_REBALANCE
    assert next_deadline(stage.coordinator) == stage.now + 1


@rule("R139")
def test_a_rebalance_without_members_ends_at_the_next_tick_despite_a_pending_member_id() -> None:
    stage = Stage()
    (member,) = stage.create_stable_group()
    stage.join()
    stage.leave(member)
    assert stage.generation() == 1
    stage.wait(0)
    assert (stage.state, stage.generation()) == (ClassicGroupState.EMPTY, 2)


def test_assignments_above_the_limit_for_a_groups_metadata_are_rejected() -> None:
    stage = Stage()
    leader, follower = stage.create_generation({}, {})
    half = bytes(MAX_GROUP_METADATA_BYTES // 2)
    response = stage.sync(leader, assignments={leader: half, follower: half + b"x"})
    assert response.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert stage.state is ClassicGroupState.COMPLETING_REBALANCE
    assert stage.sync(leader, assignments={leader: half, follower: half}).code is ErrorCode.NONE

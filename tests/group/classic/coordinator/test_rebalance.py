"""When a rebalance ends: the initial delay, the rebalance timeout, handed out ids, and who is out then."""

from __future__ import annotations

from kproto.error_codes import ErrorCode
from kproto.group.classic.coordinator import (
    ClassicGroupState,
    GroupEmptied,
    RebalanceCompleted,
    RebalanceStarted,
    Tick,
    next_deadline,
)
from kproto.group.classic.coordinator.settings import NEW_MEMBER_JOIN_TIMEOUT_MS
from tests.group.classic.coordinator.stage import BOTH, DELAY, SESSION, Stage

# The initial delay


def test_the_first_member_waits_out_the_initial_delay() -> None:
    """GroupCoordinatorTest.shouldDelayInitialRebalanceByGroupInitialRebalanceDelayOnEmptyGroup."""
    stage = Stage()
    _, answer = stage.enter()
    stage.wait(DELAY - 1)
    assert answer.waits
    stage.wait(1)
    assert answer.code is ErrorCode.NONE


def test_a_second_member_prolongs_the_initial_delay_by_another_one() -> None:
    """GroupCoordinatorTest.shouldResetRebalanceDelayWhenNewMemberJoinsGroupInInitialRebalance."""
    stage = Stage()
    _, first = stage.enter()
    stage.wait(DELAY - 1)
    _, second = stage.enter()
    stage.wait(1 + DELAY - 1)
    assert first.waits
    assert second.waits
    stage.wait(1)
    assert not first.waits
    assert not second.waits


def test_the_initial_delay_is_never_prolonged_beyond_the_first_members_rebalance_timeout() -> None:
    """GroupCoordinatorTest.shouldDelayRebalanceUptoRebalanceTimeout: 3 + 3 + 3 + 1 s."""
    stage = Stage()
    _, first = stage.enter(rebalance=10_000)
    for _ in range(3):
        stage.wait(DELAY - 1)
        stage.enter(rebalance=600_000)
        stage.wait(1)
    stage.wait(999)
    assert first.waits
    stage.wait(1)
    assert not first.waits


def test_the_initial_delay_does_not_end_early_when_all_have_come() -> None:
    stage = Stage()
    stage.enter()
    _, second = stage.enter()
    assert second.waits


def test_the_initial_delay_does_not_end_early_when_a_handed_out_id_expires() -> None:
    """Seen on Kafka 4.3.1: there it ends at once."""
    stage = Stage(group_initial_rebalance_delay_ms=20_000)
    _, first = stage.enter()
    stage.join(session=6_000)
    stage.wait(6_000)
    assert stage.group().pending == {}
    assert first.waits


def test_without_an_initial_delay_the_first_member_is_answered_at_the_next_tick() -> None:
    stage = Stage(group_initial_rebalance_delay_ms=0)
    _, answer = stage.enter()
    assert next_deadline(stage.coordinator) == stage.now
    stage.wait(0)
    assert answer.code is ErrorCode.NONE


def test_a_group_that_was_empty_after_members_delays_again_and_prolongs_again() -> None:
    """Kafka's older coordinator prolongs only before the first generation."""
    stage = Stage()
    (member,) = stage.stable()
    stage.leave(member)
    _, first = stage.enter()
    stage.wait(DELAY - 1)
    stage.enter()
    stage.wait(1)
    assert first.waits
    stage.wait(DELAY)
    assert first.response.generation_id == 3


def test_members_that_all_leave_in_the_initial_delay_leave_an_empty_group_at_its_end() -> None:
    """Seen on Kafka 4.3.1: Empty at generation 1, and the next member's first generation is 2."""
    stage = Stage()
    member, answer = stage.enter()
    stage.leave(member)
    assert answer.code is ErrorCode.UNKNOWN_MEMBER_ID
    assert stage.state is ClassicGroupState.PREPARING_REBALANCE
    stage.wait(DELAY)
    assert (stage.state, stage.generation()) == (ClassicGroupState.EMPTY, 1)
    stage.stable()
    assert stage.generation() == 2


# Ending early


def test_a_rebalance_ends_when_all_have_come_back() -> None:
    stage = Stage()
    leader, follower = stage.stable({}, {})
    one = stage.join(leader)
    assert one.waits
    two = stage.join(follower)
    assert one.response.generation_id == two.response.generation_id == 2


def test_a_handed_out_id_holds_the_rebalance_until_it_joins() -> None:
    """GroupCoordinatorTest.testJoinGroupCompletionWhenPendingMemberJoins."""
    stage = Stage()
    (leader,) = stage.stable()
    newcomer = stage.join().member_id
    answer = stage.join(leader)
    assert answer.waits
    stage.join(newcomer)
    assert answer.code is ErrorCode.NONE


def test_a_handed_out_id_holds_the_rebalance_until_it_expires() -> None:
    """GroupCoordinatorTest.testJoinGroupCompletionWhenPendingMemberTimesOut."""
    stage = Stage()
    (leader,) = stage.stable()
    newcomer = stage.join(session=SESSION).member_id
    answer = stage.join(leader)
    stage.wait(SESSION - 1)
    assert answer.waits
    stage.wait(1)
    assert answer.code is ErrorCode.NONE
    assert stage.join(newcomer).code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_handed_out_id_holds_the_rebalance_until_it_is_given_back() -> None:
    """GroupCoordinatorTest.testPendingMembersLeavesGroup."""
    stage = Stage()
    (leader,) = stage.stable()
    newcomer = stage.join().member_id
    answer = stage.join(leader)
    assert stage.leave(newcomer).codes == [ErrorCode.NONE]
    assert answer.code is ErrorCode.NONE


def test_a_second_member_that_never_comes_back_delays_but_does_not_block() -> None:
    """GroupCoordinatorTest.testSecondMemberPartiallyJoinAndTimeout."""
    stage = Stage()
    (leader,) = stage.stable()
    stage.join(session=SESSION)
    assert stage.state is ClassicGroupState.STABLE
    answer = stage.join(leader)
    stage.wait(SESSION)
    stage.sync(leader, plan={leader: b""})
    assert (answer.code, stage.state) == (ErrorCode.NONE, ClassicGroupState.STABLE)


def test_the_leaving_of_the_last_one_awaited_ends_the_rebalance() -> None:
    stage = Stage()
    leader, follower = stage.stable({}, {})
    answer = stage.join(leader)
    stage.leave(follower)
    assert answer.response.generation_id == 2
    assert [m.member_id for m in answer.response.members] == [leader]


def test_a_group_whose_last_member_leaves_is_empty_at_the_next_generation() -> None:
    stage = Stage()
    (member,) = stage.stable()
    stage.leave(member)
    assert (stage.state, stage.generation()) == (ClassicGroupState.EMPTY, 2)


# The rebalance timeout


def test_a_dynamic_member_that_has_not_come_by_the_rebalance_timeout_is_out() -> None:
    """GroupCoordinatorTest.testRebalanceCompletesBeforeMemberJoins."""
    stage = Stage()
    leader, absent = stage.stable({"rebalance": 20_000}, {"rebalance": 20_000})
    answer = stage.join(leader, rebalance=20_000)
    for _ in range(3):
        stage.wait(5_000)
        assert stage.heartbeat(absent) is ErrorCode.REBALANCE_IN_PROGRESS
    stage.wait(5_000)
    assert answer.response.generation_id == 2
    assert stage.heartbeat(absent) is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_longest_rebalance_timeout_of_the_members_counts() -> None:
    stage = Stage()
    leader, other = stage.stable({"rebalance": 8_000}, {"rebalance": 9_000})
    answer = stage.join(leader, rebalance=8_000)
    stage.wait(8_000)
    stage.heartbeat(other)
    assert answer.waits
    stage.wait(1_000)
    assert not answer.waits


def test_a_newcomers_longer_timeout_does_not_prolong_a_rebalance_that_runs() -> None:
    stage = Stage()
    leader, _ = stage.stable({"rebalance": 8_000}, {"rebalance": 8_000})
    answer = stage.join(leader, rebalance=8_000)
    stage.enter(rebalance=600_000)
    stage.wait(8_000)
    assert not answer.waits


def test_a_silent_member_expires_in_a_rebalance_which_then_ends() -> None:
    """GroupCoordinatorTest.testSessionTimeoutDuringRebalance."""
    stage = Stage()
    leader, silent = stage.stable({}, {})
    answer = stage.join(leader)
    stage.wait(SESSION)
    assert answer.response.generation_id == 2
    assert stage.heartbeat(silent, 2) is ErrorCode.UNKNOWN_MEMBER_ID


# Newcomers


def test_a_newcomer_may_wait_longer_than_its_session_timeout() -> None:
    stage = Stage()
    leader, other = stage.stable({}, {})
    _, answer = stage.enter()
    for _ in range(4):
        stage.wait(SESSION - 1)
        stage.heartbeat(leader)
        stage.heartbeat(other)
    assert answer.waits


def test_a_newcomer_that_waits_five_minutes_is_out() -> None:
    """GroupCoordinatorTest.testNewMemberJoinExpiration."""
    stage = Stage()
    (leader,) = stage.stable({"rebalance": 3_600_000})
    newcomer, answer = stage.enter()
    for _ in range(NEW_MEMBER_JOIN_TIMEOUT_MS // 5_000):
        assert answer.waits
        stage.heartbeat(leader)
        stage.wait(5_000)
    assert (answer.code, answer.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")
    assert list(stage.group().members) == [leader]
    assert stage.join(newcomer).code is ErrorCode.UNKNOWN_MEMBER_ID


def test_once_its_generation_began_a_newcomers_session_timeout_counts() -> None:
    """GroupCoordinatorTest.testNewMemberTimeoutCompletion, testNewMemberFailureAfterJoinGroupCompletion."""
    stage = Stage()
    stage.gathered()
    stage.wait(SESSION)
    assert stage.state is ClassicGroupState.EMPTY


# Leaders and generations


def test_generations_count_from_one() -> None:
    """GroupCoordinatorTest.testGenerationIdIncrementsOnRebalance."""
    stage = Stage()
    (leader,) = stage.stable()
    assert stage.generation() == 1
    assert stage.join(leader).response.generation_id == 2


def test_the_leader_stays_the_leader() -> None:
    stage = Stage()
    leader, follower = stage.stable({}, {})
    stage.join(leader)
    assert stage.join(follower).response.leader == leader


def test_when_the_leader_leaves_the_eldest_member_leads() -> None:
    stage = Stage()
    leader, second, third = stage.stable({}, {}, {})
    stage.leave(leader)
    stage.join(third)
    assert stage.join(second).response.leader == second


def test_a_protocol_that_only_a_lost_member_lacked_can_be_chosen() -> None:
    stage = Stage()
    _, rich = stage.stable({}, {"protocols": [("roundrobin", b"rr"), ("range", b"r")]})
    stage.leave(stage.group().leader or "")
    assert stage.join(rich, protocols=reversed(BOTH)).response.protocol_name == "roundrobin"


# What is told


def test_every_rebalance_says_why() -> None:
    stage = Stage()
    leader, follower = stage.stable({"client": "a"}, {"client": "b"})
    stage.join(leader, reason="topic flights was created")
    stage.join(follower)
    stage.sync_all([leader, follower])
    stage.leave(follower, reason="the consumer is being closed")
    stage.wait(SESSION)
    reasons = [told.reason for told in stage.told if isinstance(told, RebalanceStarted)]
    assert reasons == [
        f"{leader} joined",
        f"leader {leader} rejoined: topic flights was created",
        f"{follower} left: the consumer is being closed",
    ]
    stage.told.clear()
    (member,) = stage.stable()
    stage.wait(SESSION)
    assert stage.told[-2:] == [
        RebalanceStarted("g", 4, f"{member} sent nothing for {SESSION} ms"),
        GroupEmptied("g", 5, f"{member} sent nothing for {SESSION} ms"),
    ]


def test_a_stable_group_tells_its_generation_and_members() -> None:
    stage = Stage()
    members = stage.stable({}, {})
    assert stage.told[-1] == RebalanceCompleted("g", 1, tuple(members))


def test_the_reason_of_the_last_rebalance_is_kept() -> None:
    stage = Stage()
    (member,) = stage.stable({"instance": "one"})
    assert stage.group().rebalance_reason == f"one ({member}) joined"


# Deadlines


def test_an_idle_coordinator_only_wakes_for_its_cleanup() -> None:
    stage = Stage()
    assert next_deadline(stage.coordinator) is None
    stage.step(Tick())
    assert next_deadline(stage.coordinator) == stage.now + 600_000


def test_the_next_deadline_is_never_late() -> None:
    stage = Stage()
    leader, follower = stage.stable({}, {"session": 7_000})
    stage.heartbeat(leader)
    stage.heartbeat(follower)
    due = next_deadline(stage.coordinator)
    assert due is not None
    assert due <= stage.now + 7_000


def test_what_is_due_happens_before_the_event_that_comes_late() -> None:
    """No Tick was sent, as if the shell had been asleep."""
    stage = Stage()
    (member,) = stage.stable()
    stage.now += SESSION
    assert stage.heartbeat(member) is ErrorCode.UNKNOWN_MEMBER_ID


def test_members_that_wait_for_nothing_but_themselves_do_not_stop_time() -> None:
    """A static member with rebalance timeout 0 is away: the wait is repeated, by a millisecond at least."""
    stage = Stage()
    static, dynamic = stage.stable({"rebalance": 1, "instance": "i"}, {"rebalance": 1})
    stage.join(static, instance="i", rebalance=0)
    stage.join(dynamic, rebalance=1)
    stage.sync_all([static, dynamic])
    stage.leave(dynamic)
    stage.wait(2)
    assert stage.state is ClassicGroupState.PREPARING_REBALANCE
    assert next_deadline(stage.coordinator) == stage.now + 1


def test_the_last_member_gone_with_an_id_outstanding_the_group_empties_at_the_next_tick() -> None:
    stage = Stage()
    (member,) = stage.stable()
    stage.join()
    stage.leave(member)
    assert stage.generation() == 1
    stage.wait(0)
    assert (stage.state, stage.generation()) == (ClassicGroupState.EMPTY, 2)

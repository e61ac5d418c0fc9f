"""A stable member sends heartbeats. After errors and timeouts it rejoins, loses its partitions or leaves."""

from __future__ import annotations

from typing import Any

import pytest

from kproto.group.classic.member import (
    CoordinatorFound,
    CoordinatorLost,
    FindCoordinator,
    Policy,
    PollEntered,
    PollLeft,
    Rejoining,
    RejoinRequested,
    Send,
    SendFailed,
    Tick,
    next_deadline,
)
from kproto.group.protocol import RevokePurpose
from kproto.messages.heartbeat import HeartbeatRequest
from kproto.messages.join_group import JoinGroupRequest
from kproto.messages.leave_group import LeaveGroupRequest
from kproto.messages.sync_group import SyncGroupRequest
from tests.group.classic.member.stage import (
    BACKOFF,
    COOPERATIVE,
    EAGER,
    INTERVAL,
    POLL,
    SESSION,
    AdoptAssignment,
    ErrorCode,
    Lose,
    MemberState,
    Revoke,
    Solo,
    Subscription,
    parts,
)
from tests.rules import rule

BOTH = pytest.mark.parametrize("assignors", [EAGER, COOPERATIVE])
UNKNOWN = pytest.mark.parametrize(
    ("code", "member_id"), [(ErrorCode.UNKNOWN_MEMBER_ID, ""), (ErrorCode.ILLEGAL_GENERATION, "me")]
)


# Heartbeats


@rule("M105")
def test_a_heartbeat_is_due_after_the_interval_and_not_before() -> None:
    """Mirrors HeartbeatTest.testShouldHeartbeat, testShouldNotHeartbeat, testTimeToNextHeartbeat."""
    solo = Solo().stable()
    assert next_deadline(solo.member) == solo.now + INTERVAL
    solo.wait(INTERVAL - 1)
    assert not solo.has_request(HeartbeatRequest)
    solo.wait(1)
    solo.answer_heartbeat(request=solo.pop_request(HeartbeatRequest))
    assert next_deadline(solo.member) == solo.now + INTERVAL


@rule("M117")
def test_join_group_restarts_the_timers() -> None:
    solo = Solo(COOPERATIVE, policy=Policy(lose_on_session_timeout=True)).stable()
    solo.apply(RejoinRequested("because"))
    solo.wait(INTERVAL // 2)
    solo.answer_join(generation=2)
    member = solo.member
    timers = member.heartbeat_at, member.session_ends_at, member.poll_ends_at
    assert timers == (solo.now + INTERVAL, solo.now + SESSION, solo.now + POLL)


@rule("M117")
def test_sync_group_does_not_restart_the_timers() -> None:
    solo = Solo().syncing()
    member = solo.member
    timers = member.heartbeat_at, member.session_ends_at, member.poll_ends_at
    solo.wait(INTERVAL // 2)
    solo.answer_sync(*parts("t", 0))
    assert (member.heartbeat_at, member.session_ends_at, member.poll_ends_at) == timers


@rule("M105")
def test_only_one_heartbeat_is_in_flight_at_a_time() -> None:
    solo = Solo().stable()
    solo.next_heartbeat()
    solo.wait(SESSION - INTERVAL - 1)
    solo.apply(Tick())
    assert not solo.has_request(HeartbeatRequest)


@rule("M56")
def test_the_next_heartbeat_follows_the_response_to_the_previous_one() -> None:
    """Mirrors ConsumerCoordinatorTest.testNormalHeartbeat."""
    solo = Solo().stable()
    for _ in range(5):
        assert solo.answer_heartbeat() == []


@rule("M20", "M111")
def test_javas_session_timeout_looks_the_coordinator_up_and_loses_nothing() -> None:
    """With Java's policy, a session timeout makes the member look up the coordinator.

    After the timeout, the member keeps its partitions, because only the coordinator can remove it from the
    group (HeartbeatTest.testSessionTimeoutExpired).
    """
    solo = Solo().stable()
    solo.next_heartbeat()
    solo.wait(SESSION)
    solo.pop_action(FindCoordinator)
    assert not solo.has_action(Lose)
    assert solo.state is MemberState.STABLE


@rule("M56")
def test_a_heartbeat_response_restarts_the_session_timeout() -> None:
    """Mirrors HeartbeatTest.testResetSession."""
    solo = Solo().stable()
    solo.answer_heartbeat()
    solo.next_heartbeat()
    solo.wait(SESSION - INTERVAL - 1)
    assert not solo.has_action(FindCoordinator)
    solo.wait(1)
    assert solo.has_action(FindCoordinator)


@rule("M30")
def test_a_found_coordinator_restarts_javas_session_timeout() -> None:
    solo = Solo().stable()
    solo.apply(CoordinatorLost())
    solo.wait(SESSION - 1)
    solo.pop_action(FindCoordinator)
    solo.find_coordinator()
    solo.wait(2)
    assert not solo.has_action(FindCoordinator)


@rule("M111")
def test_the_session_timeout_loses_all_partitions_if_the_policy_says_so() -> None:
    """A member that loses all partitions because its session has timed out keeps its member id.

    librdkafka instead drops the member id, although the coordinator may be available again before it removes
    the member.
    """
    solo = Solo(policy=Policy(lose_on_session_timeout=True)).stable()
    known = solo.next_heartbeat().member_id
    solo.wait(SESSION)
    assert solo.pop_action(Lose).partitions == parts("t", 0, 1)
    solo.pop_action(FindCoordinator)
    solo.find_coordinator()
    solo.release()
    solo.poll()
    assert solo.pop_request(JoinGroupRequest).member_id == known != ""


@rule("M57")
@pytest.mark.parametrize("code", [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR])
def test_a_heartbeat_to_the_wrong_coordinator_looks_it_up_and_keeps_the_membership(
    code: ErrorCode,
) -> None:
    """Mirrors ConsumerCoordinatorTest.testCoordinatorNotAvailable, testNotCoordinator."""
    solo = Solo().stable()
    solo.answer_heartbeat(code)
    solo.pop_action(FindCoordinator)
    solo.find_coordinator()
    assert solo.next_heartbeat().generation_id == 1
    assert not solo.has_request(JoinGroupRequest)


@rule("M26")
def test_a_lost_connection_looks_the_coordinator_up_and_keeps_the_generation() -> None:
    """Mirrors ConsumerCoordinatorTest.testCoordinatorDisconnect."""
    solo = Solo().stable()
    solo.apply(SendFailed(solo.next_heartbeat(), "broken"))
    solo.pop_action(FindCoordinator)
    solo.find_coordinator()
    assert solo.next_heartbeat().generation_id == 1


@rule("M59", "M105")
def test_other_heartbeat_errors_are_retried_with_a_growing_backoff() -> None:
    solo = Solo().stable()
    at: list[int] = []
    for _ in range(5):
        request = solo.next_heartbeat() if not at else solo.pop_request(HeartbeatRequest)
        solo.answer_heartbeat(ErrorCode.GROUP_AUTHORIZATION_FAILED, request)
        start = solo.now
        while not solo.has_request(HeartbeatRequest):
            solo.wait(1)
        at.append(solo.now - start)
    assert at == [100, 200, 400, 800, 1000]


@rule("M105")
def test_the_backoff_of_failed_heartbeats_starts_again_after_a_join() -> None:
    solo = Solo(COOPERATIVE, policy=Policy(lose_on_session_timeout=True)).stable()
    solo.answer_heartbeat(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    solo.apply(RejoinRequested("because"))
    solo.answer_join(generation=2)
    solo.answer_sync(*parts("t", 0, 1))
    solo.answer_heartbeat(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert next_deadline(solo.member) == solo.now + BACKOFF


@rule("M107")
def test_no_heartbeat_is_sent_while_the_coordinator_is_unknown() -> None:
    solo = Solo().stable()
    solo.apply(CoordinatorLost())
    solo.wait(2 * INTERVAL)
    assert not solo.has_request(HeartbeatRequest)


@rule("M107")
def test_the_session_timeout_is_checked_before_the_heartbeat_interval() -> None:
    solo = Solo().stable()
    solo.now += SESSION
    solo.apply(Tick())
    solo.pop_action(FindCoordinator)
    assert not solo.has_request(HeartbeatRequest)


@rule("M107")
def test_the_session_timeout_is_checked_before_the_poll_interval() -> None:
    """After a suspension, the member first looks up the coordinator. A poll during the lookup keeps it in the
    group.
    """
    solo = Solo().stable()
    solo.now += POLL
    solo.apply(Tick())
    solo.pop_action(FindCoordinator)
    assert solo.state is MemberState.STABLE
    solo.poll()
    solo.find_coordinator()
    solo.apply(Tick())
    assert solo.state is MemberState.STABLE
    assert not solo.has_request(LeaveGroupRequest)


@rule("M107")
def test_javas_poll_interval_is_not_checked_while_the_coordinator_is_unknown() -> None:
    solo = Solo().stable()
    solo.apply(CoordinatorLost())
    solo.wait(2 * POLL)
    assert solo.state is MemberState.STABLE
    assert next_deadline(solo.member) is None
    solo.find_coordinator()
    solo.wait(0)
    assert solo.state is MemberState.EXPIRED
    assert solo.pop_request(LeaveGroupRequest).members[0].member_id == "me"


@rule("M107", "M111")
def test_a_session_that_times_out_with_the_poll_interval_keeps_the_member_id() -> None:
    """No LeaveGroup is sent if session.timeout.ms and max.poll.interval.ms expire in one Tick.

    With `lose_on_session_timeout`, the member only loses its partitions, and joins again with its member id.
    """
    solo = Solo(COOPERATIVE, policy=Policy(lose_on_session_timeout=True)).stable()
    solo.now += POLL
    solo.apply(Tick())
    solo.pop_action(Lose)
    solo.find_coordinator()
    solo.release()
    assert solo.pop_request(JoinGroupRequest).member_id == "me"
    assert not solo.has_request(LeaveGroupRequest)


# Errors


@rule("M13", "M59", "M76")
@BOTH
@UNKNOWN
def test_an_unknown_member_or_generation_loses_all_partitions_and_rejoins(
    assignors: tuple[str, ...], code: ErrorCode, member_id: str
) -> None:
    """Mirrors ConsumerCoordinatorTest.testIllegalGeneration, testUnknownMemberId."""
    solo = Solo(assignors).stable()
    solo.answer_heartbeat(code)
    lose = solo.pop_action(Lose)
    assert lose.partitions == parts("t", 0, 1)
    assert solo.member.identity is None
    assert not solo.has_request(JoinGroupRequest)
    solo.release()
    request = solo.pop_request(JoinGroupRequest)
    reason = f"encountered {code.name} from HEARTBEAT response"
    assert (request.member_id, request.reason, lose.reason) == (member_id, reason, reason)
    assert not solo.has_action(Revoke)


@rule("M61")
@UNKNOWN
def test_a_commit_of_an_unknown_member_or_generation_does_the_same(code: ErrorCode, member_id: str) -> None:
    """testCommitOffsetUnknownMemberShouldResetToNoGeneration, ...IllegalGenerationShouldResetGenerationId."""
    solo = Solo().stable()
    solo.answer_commit(code)
    assert solo.has_action(Lose)
    solo.release()
    request = solo.pop_request(JoinGroupRequest)
    assert request.member_id == member_id
    assert request.reason == f"encountered {code.name} from OFFSET_COMMIT response"


@rule("M74")
def test_lost_partitions_are_not_in_the_next_subscription() -> None:
    solo = Solo(COOPERATIVE).stable()
    solo.answer_heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    solo.release()
    actions = Subscription.decode(solo.pop_request(JoinGroupRequest).protocols[0].metadata)
    assert (actions.owned, actions.generation) == ((), None)


@rule("M74", "R214")
def test_the_assignors_user_data_keeps_the_last_generation_after_a_loss() -> None:
    """After a member has lost its generation, its user data still contains the last generation.

    As in Java, the subscription's own generation field contains -1.
    """
    solo = Solo(COOPERATIVE).stable(generation=6)
    solo.answer_heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    solo.release()
    actions = Subscription.decode(solo.pop_request(JoinGroupRequest).protocols[0].metadata)
    assert actions.user_data == (6).to_bytes(4, "big")


STALE = [
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.REBALANCE_IN_PROGRESS,
]


@rule("M3", "M118")
@pytest.mark.parametrize("code", STALE)
def test_a_heartbeat_response_of_an_earlier_generation_changes_nothing(code: ErrorCode) -> None:
    """AbstractCoordinatorTest.testHeartbeat...ResponseWithOldGeneration: unknown, illegal, fenced."""
    solo = Solo(COOPERATIVE).stable()
    old = solo.next_heartbeat()
    solo.apply(RejoinRequested("because"))
    solo.answer_join(generation=2)
    solo.answer_sync(*parts("t", 0, 1))
    solo.actions.clear()
    solo.answer_heartbeat(code, old)
    assert solo.actions == []
    assert solo.state is MemberState.STABLE


@rule("M3")
@pytest.mark.parametrize("code", STALE)
@pytest.mark.parametrize("sent", [(1, "me"), (2, "you")])
def test_a_commit_response_of_an_earlier_identity_changes_nothing(
    code: ErrorCode, sent: tuple[int, str]
) -> None:
    """ConsumerCoordinatorTest.testCommitOffsetIllegalGenerationWithNewGeneration and similar ones."""
    solo = Solo().stable(generation=2)
    solo.answer_commit(code, *sent)
    assert solo.actions == []


@rule("M61")
def test_a_commit_error_during_an_eager_join_is_left_to_the_join_in_flight() -> None:
    solo = Solo().stable()
    solo.apply(RejoinRequested("because"))
    solo.release()
    solo.actions.clear()
    solo.answer_commit(ErrorCode.ILLEGAL_GENERATION)
    assert solo.actions == []
    assert solo.state is MemberState.JOINING


@rule("M61")
def test_a_commit_error_during_a_cooperative_join_loses_and_rejoins() -> None:
    solo = Solo(COOPERATIVE).stable()
    solo.apply(RejoinRequested("because"))
    old = solo.pop_request(JoinGroupRequest)
    solo.answer_commit(ErrorCode.ILLEGAL_GENERATION)
    assert solo.pop_action(Lose).partitions == parts("t", 0, 1)
    solo.answer_join(generation=2, request=old)
    solo.release()
    assert solo.pop_request(JoinGroupRequest).member_id == "me"


@rule("M61")
@pytest.mark.parametrize(
    "code",
    [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.REQUEST_TIMED_OUT],
)
def test_a_commit_to_the_wrong_coordinator_looks_it_up(code: ErrorCode) -> None:
    """Mirrors Kafka's testCommitOffsetAsyncNotCoordinator, testCommitOffsetAsyncCoordinatorNotAvailable."""
    solo = Solo().stable()
    solo.answer_commit(code)
    solo.pop_action(FindCoordinator)
    assert solo.state is MemberState.STABLE


@rule("M61")
@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE])
def test_other_commit_errors_do_not_change_the_member(code: ErrorCode) -> None:
    solo = Solo().stable()
    solo.answer_commit(code)
    assert solo.actions == []


# Rebalances


@rule("M14", "M77")
def test_an_eager_member_revokes_everything_before_it_joins() -> None:
    """Mirrors ConsumerCoordinatorTest.testRejoinGroup, EAGER."""
    solo = Solo(EAGER).stable()
    solo.now += 1_000
    solo.answer_heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert solo.member.session_ends_at == solo.now + SESSION
    assert solo.pop_action(Revoke).partitions == parts("t", 0, 1)
    assert not solo.has_request(JoinGroupRequest)
    solo.release()
    request = solo.pop_request(JoinGroupRequest)
    assert Subscription.decode(request.protocols[0].metadata).owned == ()
    assert request.reason == "group is already rebalancing"


@rule("M78")
def test_a_cooperative_member_joins_at_once_and_keeps_its_partitions() -> None:
    """Mirrors ConsumerCoordinatorTest.testRejoinGroup, COOPERATIVE."""
    solo = Solo(COOPERATIVE).stable(generation=3)
    solo.answer_heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert not solo.has_action(Revoke)
    actions = Subscription.decode(solo.pop_request(JoinGroupRequest).protocols[0].metadata)
    assert (actions.owned, actions.generation) == (parts("t", 0, 1), 3)
    assert solo.member.owned == parts("t", 0, 1)


@rule("M77")
def test_an_eager_member_without_partitions_runs_the_revoked_callback() -> None:
    """An eager member without partitions runs the revoked callback with an empty set, as in Java."""
    solo = Solo(EAGER).syncing()
    solo.answer_sync()
    solo.apply(RejoinRequested("because"))
    assert solo.pop_action(Revoke).partitions == ()


@rule("M61")
def test_a_commit_answered_with_rebalance_in_progress_rejoins() -> None:
    """Mirrors ConsumerCoordinatorTest.testCommitOffsetRebalanceInProgress."""
    solo = Solo(COOPERATIVE).stable()
    solo.answer_commit(ErrorCode.REBALANCE_IN_PROGRESS)
    request = solo.pop_request(JoinGroupRequest)
    assert request.reason == "offset commit failed since group is already rebalancing"
    assert request.member_id == "me"


@rule("M15", "M58")
def test_rebalance_in_progress_is_ignored_during_a_rebalance() -> None:
    """Mirrors AbstractCoordinatorTest.testHeartbeatRebalanceInProgressResponseDuringRebalancing."""
    solo = Solo(COOPERATIVE).stable()
    solo.apply(RejoinRequested("because"))
    solo.answer_join(generation=2)
    solo.now += 1_000
    solo.answer_heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert solo.member.session_ends_at == solo.now + SESSION
    assert (solo.state, solo.member.rejoin_reason) == (MemberState.SYNCING, "because")
    assert not solo.has_request(JoinGroupRequest)


@rule("M79", "M84", "M91")
def test_a_cooperative_member_revokes_adopts_and_rejoins() -> None:
    solo = Solo(COOPERATIVE).stable(*parts("t", 0, 1))
    solo.apply(RejoinRequested("because"))
    solo.answer_join(generation=2)
    solo.answer_sync(*parts("t", 1, 2))
    revoke = solo.pop_action(Revoke)
    assert (revoke.partitions, revoke.reason) == (parts("t", 0), "need to revoke partitions and re-join")
    assert revoke.purpose is RevokePurpose.REASSIGNED
    assert not solo.has_action(AdoptAssignment)
    assert (solo.state, solo.member.owned) == (MemberState.ADOPTING, parts("t", 0, 1))
    solo.release()
    assign = solo.pop_action(AdoptAssignment)
    assert (assign.added, assign.owned, assign.generation) == (parts("t", 2), parts("t", 1, 2), 2)
    request = solo.pop_request(JoinGroupRequest)
    assert request.reason == "need to revoke partitions and re-join"
    actions = Subscription.decode(request.protocols[0].metadata)
    assert (actions.owned, actions.generation) == (parts("t", 1, 2), 2)


@rule("M4")
def test_the_identity_is_new_before_partitions_are_revoked() -> None:
    """Mirrors ConsumerCoordinatorTest.shouldUpdateConsumerGroupMetadataBeforeCallbacks."""
    solo = Solo(COOPERATIVE).stable()
    solo.apply(RejoinRequested("because"))
    solo.answer_join(generation=2)
    solo.answer_sync(*parts("t", 1))
    solo.pop_action(Revoke)
    identity = solo.member.identity
    assert identity is not None
    assert identity.generation == 2


@rule("M84")
def test_a_cooperative_member_that_keeps_all_partitions_joins_only_once() -> None:
    solo = Solo(COOPERATIVE).stable()
    solo.apply(RejoinRequested("because"))
    solo.answer_join(generation=2)
    solo.answer_sync(*parts("t", 0, 1, 2))
    assert solo.pop_action(AdoptAssignment).added == parts("t", 2)
    assert not solo.has_request(JoinGroupRequest)


@pytest.mark.parametrize(
    ("instance_id", "finishes", "generation", "rejoins"),
    [
        ("i", True, 2, True),
        ("i", True, 3, True),
        ("i", False, 2, False),  # Java
        ("i", False, 3, False),
        # A dynamic member joins only once, because its first JoinGroup has already started a rebalance.
        (None, True, 3, False),
    ],
)
def test_partitions_that_a_static_member_revoked_before_it_was_removed_are_assigned_again(
    instance_id: str | None, finishes: bool, generation: int, rejoins: bool
) -> None:
    """A static member that revoked partitions before its removal rejoins, so that they are reassigned.

    The coordinator may accept the removed member without a rebalance. The revoked partitions then still have
    no owner in the group's assignment, so the member joins a second time.
    """
    options = {"group_instance_id": instance_id, "policy": Policy(finish_revocations=finishes)}
    solo = Solo(COOPERATIVE, rebalance_timeout_ms=SESSION // 2, **options).stable()
    solo.poll()
    solo.apply(RejoinRequested("because"))
    solo.answer_join(generation=2)
    solo.answer_sync(*parts("t", 1))
    assert solo.pop_action(Revoke).partitions == parts("t", 0)
    solo.wait(SESSION // 2)
    assert solo.state is MemberState.EXPIRED
    solo.release()
    solo.poll()
    solo.answer_join(generation=generation)
    solo.answer_sync(*parts("t", 1))
    assert solo.has_request(JoinGroupRequest) is rejoins
    if rejoins:  # The member rejoins once.
        solo.answer_join(generation=generation + 1)
        solo.answer_sync(*parts("t", 1))
        assert not solo.has_request(JoinGroupRequest)


@rule("M76")
def test_a_loss_replaces_an_unanswered_revocation() -> None:
    solo = Solo(COOPERATIVE).stable()
    solo.apply(RejoinRequested("because"))
    solo.answer_join(generation=2)
    solo.answer_sync(*parts("t", 1))
    solo.pop_action(Revoke)
    solo.answer_heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    assert solo.pop_action(Lose).partitions == parts("t", 0, 1)
    solo.release()
    assert not solo.has_action(AdoptAssignment)
    assert solo.pop_request(JoinGroupRequest).member_id == ""


@rule("M19")
@pytest.mark.parametrize("phase", ["releasing", "adopting"])
def test_heartbeats_continue_while_partitions_are_released(phase: str) -> None:
    solo = Solo(EAGER if phase == "releasing" else COOPERATIVE).stable()
    solo.apply(RejoinRequested("because"))
    if phase == "adopting":
        solo.answer_join(generation=2)
        solo.answer_sync(*parts("t", 1))
    assert solo.state.value == phase
    for _ in range(5):
        solo.answer_heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert not solo.has_request(JoinGroupRequest)


@rule("M4")
@pytest.mark.parametrize("phase", ["releasing", "adopting"])
def test_offsets_can_be_committed_while_partitions_are_released(phase: str) -> None:
    solo = Solo(EAGER if phase == "releasing" else COOPERATIVE).stable()
    solo.apply(RejoinRequested("because"))
    if phase == "adopting":
        solo.answer_join(generation=2)
        solo.answer_sync(*parts("t", 1))
    assert solo.member.identity is not None


def test_a_second_release_changes_nothing() -> None:
    solo = Solo(EAGER).stable()
    solo.apply(RejoinRequested("because"))
    solo.release()
    solo.actions.clear()
    solo.release()
    assert solo.actions == []


@rule("M21")
def test_nothing_is_revoked_while_the_coordinator_is_unknown() -> None:
    solo = Solo(EAGER).stable()
    solo.apply(CoordinatorLost())
    solo.apply(RejoinRequested("because"))
    assert not solo.has_action(Revoke)
    solo.find_coordinator()
    assert solo.has_action(Revoke)


@rule("M21")
def test_the_revoked_callback_runs_once_for_a_chain_of_failed_joins() -> None:
    solo = Solo(EAGER).stable()
    solo.apply(RejoinRequested("because"))
    solo.pop_action(Revoke)
    solo.release()
    for _ in range(3):
        solo.answer_join(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        solo.wait(BACKOFF)
    assert not solo.has_action(Revoke)


# The subscription


@rule("M19", "M92", "M116")
def test_a_changed_subscription_rejoins_with_that_reason() -> None:
    solo = Solo(COOPERATIVE, {"t": 3, "u": 1}).stable()
    solo.subscribe("t", "u")
    request = solo.pop_request(JoinGroupRequest)
    assert request.reason == "subscription has changed"
    assert Subscription.decode(request.protocols[0].metadata).topics == ("t", "u")


@rule("M100")
def test_the_same_subscription_again_does_nothing() -> None:
    solo = Solo().stable()
    solo.subscribe("t")
    assert solo.actions == []


@rule("M78")
def test_a_cooperative_member_revokes_partitions_of_unsubscribed_topics() -> None:
    solo = Solo(COOPERATIVE, {"t": 3, "u": 1}).joining("t", "u")
    solo.answer_join()
    solo.answer_sync(*parts("t", 0), *parts("u", 0))
    solo.actions.clear()
    solo.subscribe("t")
    assert solo.pop_action(Revoke).partitions == parts("u", 0)
    assert not solo.has_request(JoinGroupRequest)
    solo.release()
    assert Subscription.decode(solo.pop_request(JoinGroupRequest).protocols[0].metadata).owned == parts(
        "t", 0
    )


@rule("M94")
def test_a_subscription_that_changes_during_a_join_causes_a_second_join() -> None:
    solo = Solo(COOPERATIVE, {"t": 3, "u": 1}).joining("t")
    solo.subscribe("t", "u")
    solo.answer_join()
    solo.answer_sync(*parts("t", 0))
    assert solo.pop_request(JoinGroupRequest).reason == "subscription has changed"


@rule("M200")
def test_metadata_of_the_old_topics_is_kept_until_the_next_join() -> None:
    """Mirrors ConsumerCoordinatorTest.testMetadataTopicsDuringSubscriptionChange."""
    solo = Solo(EAGER).stable()
    solo.subscribe("u")
    assert solo.member.topics_of_interest == {"t", "u"}
    solo.release()
    assert solo.member.topics_of_interest == {"u"}


@rule("M24", "M92", "M116")
def test_a_requested_rejoin_sends_its_reason_in_at_most_255_characters() -> None:
    """Mirrors AbstractCoordinatorTest.testRejoinReason."""
    solo = Solo(COOPERATIVE).stable()
    solo.apply(RejoinRequested("x" * 300))
    assert solo.pop_request(JoinGroupRequest).reason == "x" * 255


@rule("M9")
def test_the_reason_is_cleared_after_the_join() -> None:
    """Mirrors AbstractCoordinatorTest.testRejoinReason."""
    solo = Solo(COOPERATIVE).stable()
    solo.apply(RejoinRequested("because"))
    solo.answer_join(generation=2)
    solo.answer_sync(*parts("t", 0, 1))
    assert solo.member.rejoin_reason == ""


@rule("M74")
def test_the_sticky_assignors_user_data_is_the_last_assignment() -> None:
    solo = Solo(("sticky",)).joining()
    request = solo.pop_request(JoinGroupRequest)
    assert Subscription.decode(request.protocols[0].metadata).user_data is None
    solo.answer_join(generation=4, request=request)
    solo.answer_sync(*parts("t", 0))
    solo.apply(RejoinRequested("because"))
    solo.release()
    actions = Subscription.decode(solo.pop_request(JoinGroupRequest).protocols[0].metadata).user_data
    assert actions == b"\0\0\0\1\0\1t\0\0\0\1\0\0\0\0" + (4).to_bytes(4, "big")


# The poll interval


@rule("M16", "M110", "M116")
def test_a_member_whose_application_does_not_poll_leaves_with_that_reason() -> None:
    """Mirrors HeartbeatTest.testPollTimeout."""
    solo = Solo(session_timeout_ms=POLL * 2).stable()
    solo.wait(POLL - 1)
    assert not solo.has_request(LeaveGroupRequest)
    solo.wait(1)
    request = solo.pop_request(LeaveGroupRequest)
    assert [(m.member_id, m.reason) for m in request.members] == [
        ("me", "consumer poll timeout has expired.")
    ]
    assert solo.pop_action(Lose).partitions == parts("t", 0, 1)
    assert (solo.state, solo.member.identity) == (MemberState.EXPIRED, None)


@rule("M110")
def test_an_expired_member_rejoins_with_the_next_poll() -> None:
    solo = Solo(session_timeout_ms=POLL * 2).stable()
    solo.wait(POLL)
    solo.release()
    solo.wait(POLL)
    assert not solo.has_request(JoinGroupRequest)
    solo.poll()
    request = solo.pop_request(JoinGroupRequest)
    assert (request.member_id, request.reason) == ("", "consumer pro-actively leaving the group")


@rule("M110")
def test_an_expired_member_rejoins_only_after_its_partitions_are_released() -> None:
    solo = Solo(session_timeout_ms=POLL * 2).stable()
    solo.wait(POLL)
    solo.poll()
    assert not solo.has_request(JoinGroupRequest)
    solo.release()
    assert solo.has_request(JoinGroupRequest)


@rule("M108")
def test_a_poll_restarts_the_poll_interval() -> None:
    solo = Solo(session_timeout_ms=POLL * 3).stable()
    solo.wait(POLL - 1)
    solo.poll()
    solo.wait(POLL - 1)
    assert solo.state is MemberState.STABLE
    solo.wait(1)
    assert solo.state is MemberState.EXPIRED


@rule("M112")
def test_the_poll_interval_does_not_run_inside_poll() -> None:
    """The time that the application spends waiting in poll does not count towards max.poll.interval.ms.

    librdkafka implements this rule in rd_kafka_app_poll_start.
    """
    solo = Solo(session_timeout_ms=POLL * 30).stable()
    solo.apply(PollEntered())
    solo.wait(POLL * 20)
    assert solo.state is MemberState.STABLE
    solo.apply(PollLeft())
    solo.wait(POLL - 1)
    assert solo.state is MemberState.STABLE
    solo.wait(1)
    assert solo.state is MemberState.EXPIRED


@rule("M112")
def test_a_poll_that_began_before_the_join_stops_the_poll_interval() -> None:
    solo = Solo(session_timeout_ms=POLL * 30)
    solo.apply(PollEntered())
    solo.stable()
    solo.wait(POLL * 2)
    assert solo.state is MemberState.STABLE


@rule("M108")
def test_a_poll_restarts_the_poll_interval_while_the_coordinator_is_unknown() -> None:
    """Mirrors ConsumerCoordinatorTest.testUpdateLastHeartbeatPollWhenCoordinatorUnknown."""
    solo = Solo(session_timeout_ms=POLL * 3).stable()
    solo.apply(CoordinatorLost())
    solo.wait(POLL - 1)
    solo.poll()
    solo.find_coordinator()
    solo.wait(POLL - 1)
    assert solo.state is MemberState.STABLE
    solo.wait(1)
    assert solo.state is MemberState.EXPIRED


@rule("M110", "M115")
def test_a_static_member_that_does_not_poll_sends_no_leave_group() -> None:
    solo = Solo(group_instance_id="i", session_timeout_ms=POLL * 2).stable()
    solo.wait(POLL)
    assert solo.has_action(Lose)
    assert not solo.has_request(LeaveGroupRequest)


@rule("M110")
def test_an_expired_member_sends_no_heartbeat() -> None:
    solo = Solo(session_timeout_ms=POLL * 2).stable()
    solo.wait(POLL)
    solo.actions.clear()
    solo.wait(POLL)
    assert solo.actions == []


@rule("M16")
def test_a_member_expires_while_the_application_does_not_release_partitions() -> None:
    solo = Solo(EAGER, session_timeout_ms=POLL * 2).stable()
    solo.apply(RejoinRequested("because"))
    solo.wait(POLL)
    assert solo.state is MemberState.EXPIRED
    assert solo.pop_action(Lose).partitions == parts("t", 0, 1)


@rule("M107")
def test_javas_poll_interval_does_not_run_while_join_group_is_in_flight() -> None:
    solo = Solo().joining()
    solo.wait(POLL * 3)
    assert solo.has_request(JoinGroupRequest)
    solo.answer_join()
    solo.wait(1)
    assert solo.state is MemberState.SYNCING


@rule("M111")
@pytest.mark.parametrize("known", [True, False])
def test_the_poll_interval_runs_during_a_join_if_the_session_timeout_loses(known: bool) -> None:
    """With `lose_on_session_timeout`, max.poll.interval.ms continues to run during a JoinGroup.

    The member keeps its partitions until the JoinGroup response, but the group may assign them to other
    members earlier.
    """
    solo = Solo(
        COOPERATIVE, policy=Policy(lose_on_session_timeout=True), session_timeout_ms=POLL * 2
    ).stable()
    solo.poll()
    solo.apply(RejoinRequested("because"))
    request = solo.pop_request(JoinGroupRequest)
    if not known:
        solo.apply(CoordinatorLost())
    solo.wait(POLL - 1)
    assert not solo.has_action(Lose)
    solo.wait(1)
    assert (solo.state, solo.member.identity) == (MemberState.EXPIRED, None)
    assert solo.pop_action(Lose).partitions == parts("t", 0, 1)
    assert solo.has_request(LeaveGroupRequest) is known
    solo.answer_join(generation=2, request=request)
    assert solo.state is MemberState.EXPIRED


@rule("M26")
def test_a_member_continues_after_its_coordinator_is_found_again() -> None:
    solo = Solo().syncing()
    request = solo.pop_request(SyncGroupRequest)
    solo.apply(CoordinatorFound("node"))
    solo.answer_sync(*parts("t", 0), request=request)
    assert solo.state is MemberState.STABLE


# ---- the session timeout during a rebalance


def _rejoining(**options: Any) -> Solo:
    """Return a member that has sent JoinGroup and still owns two partitions. Its session starts now."""
    solo = Solo(COOPERATIVE, policy=Policy(lose_on_session_timeout=True), **options).stable()
    solo.apply(PollEntered())
    solo.apply(RejoinRequested("because"))
    solo.pop_action(Rejoining)
    return solo


def _heartbeat(solo: Solo) -> Send:
    reasons = [a for a in solo.actions if isinstance(a, Send) and isinstance(a.request, HeartbeatRequest)]
    assert len(reasons) == 1
    solo.actions.remove(reasons[0])
    return reasons[0]


@rule("M6")
def test_a_member_that_keeps_partitions_sends_heartbeats_during_a_join() -> None:
    solo = _rejoining()
    join = solo.pop_request(JoinGroupRequest)
    for _ in range(20):  # 20 heartbeat intervals (60 s): six session timeouts.
        solo.wait(INTERVAL)
        sent = _heartbeat(solo)
        assert sent.urgent
        assert isinstance(sent.request, HeartbeatRequest)
        assert (sent.request.generation_id, sent.request.member_id) == (1, "me")
        solo.answer_heartbeat(ErrorCode.REBALANCE_IN_PROGRESS, request=sent.request)
        assert solo.actions == []
    solo.answer_join(generation=2, request=join)
    assert solo.state is MemberState.SYNCING
    solo.wait(INTERVAL)
    assert not _heartbeat(solo).urgent


@rule("M111")
@pytest.mark.parametrize(
    "answer", [None, ErrorCode.ILLEGAL_GENERATION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
)
def test_kept_partitions_are_lost_a_session_timeout_after_the_last_response(answer: ErrorCode | None) -> None:
    """A rejoining member loses its partitions if no heartbeat succeeds for a session timeout.

    An ILLEGAL_GENERATION response only means that a new generation has started. The JoinGroup response of
    this generation may be on its way, so the member keeps its partitions until the session
    timeout.
    """
    solo = _rejoining()
    solo.pop_request(JoinGroupRequest)
    end = solo.now + SESSION
    while solo.now < end - 1:
        assert not solo.has_action(Lose)
        solo.wait(1)
        if answer is not None and solo.has_request(HeartbeatRequest):
            solo.answer_heartbeat(answer, request=solo.pop_request(HeartbeatRequest))
    solo.wait(1)
    assert solo.pop_action(Lose).partitions == parts("t", 0, 1)
    assert (solo.state, solo.member.identity) == (MemberState.RELEASING, None)
    solo.pop_action(FindCoordinator)
    solo.find_coordinator()
    solo.release()
    second_join = solo.pop_request(JoinGroupRequest)
    assert (second_join.member_id, Subscription.decode(second_join.protocols[0].metadata).owned) == ("me", ())


@rule("M59")
def test_illegal_generation_during_a_join_repeats_the_heartbeat_after_a_backoff() -> None:
    solo = _rejoining()
    solo.pop_request(JoinGroupRequest)
    solo.answer_heartbeat(ErrorCode.ILLEGAL_GENERATION)
    assert next_deadline(solo.member) == solo.now + BACKOFF


@rule("M59")
def test_a_member_that_is_removed_while_it_joins_loses_its_partitions_at_once() -> None:
    solo = _rejoining()
    solo.pop_request(JoinGroupRequest)
    solo.wait(INTERVAL)
    solo.answer_heartbeat(ErrorCode.UNKNOWN_MEMBER_ID, request=solo.pop_request(HeartbeatRequest))
    assert solo.pop_action(Lose).partitions == parts("t", 0, 1)


@rule("M26")
def test_a_failed_heartbeat_does_not_end_the_join_in_flight() -> None:
    solo = _rejoining()
    join = solo.pop_request(JoinGroupRequest)
    solo.wait(INTERVAL)
    solo.apply(SendFailed(solo.pop_request(HeartbeatRequest), "broken"))
    assert (solo.state, solo.actions) == (MemberState.JOINING, [])
    solo.wait(BACKOFF)
    solo.answer_heartbeat(ErrorCode.NOT_COORDINATOR, request=solo.pop_request(HeartbeatRequest))
    solo.pop_action(FindCoordinator)
    assert (solo.state, solo.has_action(Lose)) == (MemberState.UNJOINED, False)
    solo.answer_join(generation=2, request=join)
    assert solo.state is MemberState.UNJOINED


@rule("M111")
def test_failed_joins_do_not_prolong_the_session() -> None:
    solo = _rejoining()
    began = solo.now
    while not solo.has_action(Lose):
        solo.wait(SESSION // 3)
        if solo.state is MemberState.JOINING:
            solo.apply(SendFailed(solo.pop_request(JoinGroupRequest), "broken"))
        if solo.has_action(FindCoordinator):
            solo.pop_action(FindCoordinator)
            solo.find_coordinator()
        assert solo.now - began < SESSION * 4 // 3
    assert solo.pop_action(Lose).partitions == parts("t", 0, 1)


@rule("M111")
def test_the_session_timeout_runs_while_the_member_cannot_join() -> None:
    solo = _rejoining()
    solo.apply(CoordinatorLost())
    solo.wait(SESSION - 1)
    assert (solo.state, solo.has_action(Lose)) == (MemberState.UNJOINED, False)
    solo.wait(1)
    assert solo.pop_action(Lose).partitions == parts("t", 0, 1)
    assert solo.state is MemberState.RELEASING


@rule("M56")
def test_a_late_heartbeat_response_restarts_the_session_during_a_join() -> None:
    solo = Solo(COOPERATIVE, policy=Policy(lose_on_session_timeout=True)).stable()
    solo.apply(PollEntered())
    request = solo.next_heartbeat()
    solo.apply(RejoinRequested("because"))
    solo.wait(SESSION // 2)
    solo.answer_heartbeat(request=request)
    solo.wait(SESSION - 1)
    assert not solo.has_action(Lose)
    solo.wait(1)
    assert solo.has_action(Lose)


@rule("M6")
@pytest.mark.parametrize(
    ("assignors", "policy"), [(COOPERATIVE, Policy()), (EAGER, Policy(lose_on_session_timeout=True))]
)
def test_javas_member_waits_for_the_join_without_a_session_timeout(
    assignors: tuple[str, ...], policy: Policy
) -> None:
    solo = Solo(assignors, policy=policy).stable()
    solo.apply(PollEntered())
    solo.apply(RejoinRequested("because"))
    if assignors == EAGER:
        solo.release()
    request = solo.pop_request(JoinGroupRequest)
    solo.wait(POLL * 3)
    solo.apply(CoordinatorLost())
    solo.wait(POLL * 3)
    assert not solo.has_action(Lose)
    assert not solo.has_request(HeartbeatRequest)
    assert (solo.state, solo.member.rebalance_request) == (MemberState.UNJOINED, None)
    solo.answer_join(request=request)
    assert solo.state is MemberState.UNJOINED

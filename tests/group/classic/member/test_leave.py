"""`unsubscribe` and `close` work in every state, and complete within their timeout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kproto.errors import EncodeError, UnsupportedVersion
from kproto.group.classic.member import (
    CloseRequested,
    CoordinatorLost,
    Fatal,
    MetadataUpdated,
    Policy,
    RejoinRequested,
    Send,
    SendFailed,
    SendRefused,
    SubscriptionChanged,
    Unsubscribed,
    in_version,
)
from kproto.group.protocol import RevokePurpose
from kproto.messages.heartbeat import HeartbeatRequest
from kproto.messages.join_group import JoinGroupRequest
from kproto.messages.leave_group import LeaveGroupRequest
from kproto.messages.sync_group import SyncGroupRequest
from tests.group.classic.member.stage import (
    COOPERATIVE,
    EAGER,
    POLL,
    AdoptAssignment,
    ErrorCode,
    Left,
    Lose,
    MemberState,
    Revoke,
    Solo,
    Subscription,
    parts,
)
from tests.rules import rule


def planning() -> Solo:
    solo = Solo().joining()
    solo.answer_join(members={"me": Subscription(topics=("t",)), "you": Subscription(topics=("u",))})
    return solo


def rejoining(solo: Solo) -> Solo:
    solo.apply(RejoinRequested("because"))
    return solo


def adopting() -> Solo:
    solo = rejoining(Solo(COOPERATIVE).stable())
    solo.answer_join(generation=2)
    solo.answer_sync(*parts("t", 1))
    return solo


def unjoined() -> Solo:
    solo = rejoining(Solo(COOPERATIVE).stable())
    solo.answer_join(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return solo


def dropped() -> Solo:
    solo = Solo(session_timeout_ms=2 * POLL).stable()
    solo.wait(POLL)
    return solo


def failed() -> Solo:
    solo = rejoining(Solo(COOPERATIVE).stable())
    solo.answer_join(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return solo


def fenced() -> Solo:
    solo = Solo(group_instance_id="i").stable()
    solo.answer_heartbeat(ErrorCode.FENCED_INSTANCE_ID)
    return solo


def unsubscribing() -> Solo:
    solo = Solo().stable()
    solo.apply(Unsubscribed())
    return solo


def closing() -> Solo:
    solo = Solo().stable()
    solo.apply(CloseRequested(timeout_ms=1))
    return solo


def leaving() -> Solo:
    solo = closing()
    solo.release()
    return solo


WAYS: dict[MemberState, Callable[[], Solo]] = {
    MemberState.IDLE: Solo,
    MemberState.UNJOINED: unjoined,
    MemberState.RELEASING: lambda: rejoining(Solo(EAGER).stable()),
    MemberState.JOINING: lambda: rejoining(Solo(COOPERATIVE).stable()),
    MemberState.ASSIGNING: planning,
    MemberState.SYNCING: lambda: Solo().syncing(),
    MemberState.ADOPTING: adopting,
    MemberState.STABLE: lambda: Solo().stable(),
    MemberState.EXPIRED: dropped,
    MemberState.FAILED: failed,
    MemberState.FENCED: fenced,
    MemberState.UNSUBSCRIBING: unsubscribing,
    MemberState.CLOSING: closing,
    MemberState.LEAVING: leaving,
}


@pytest.fixture(params=WAYS, ids=lambda state: state.value)
def anywhere(request: pytest.FixtureRequest) -> Solo:
    """Return a member. Each test runs once for each state of the member, except CLOSED."""
    solo = WAYS[request.param]()
    assert solo.state is request.param
    return solo


# Errors in many states


HELD = ["unjoined", "releasing", "joining", "assigning", "syncing", "adopting", "stable"]


def in_state(name: str, **options: Any) -> Solo:
    """Return a leader that owns t-0 and t-1, in this state of its next rebalance.

    The leader is eager in the state "releasing", and cooperative in the other states.
    """
    solo = Solo(
        EAGER if name == "releasing" else COOPERATIVE, {"t": 2}, session_timeout_ms=2 * POLL, **options
    )
    solo.leading()
    if name != "stable":
        solo.apply(RejoinRequested("because"))
    if name == "unjoined":
        solo.answer_join(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    elif name == "assigning":
        want = Subscription(topics=("t", "u"))
        solo.answer_join(generation=2, members={"me": want, "you": want})
    elif name in ("syncing", "adopting"):
        solo.answer_join(generation=2)
        if name == "adopting":
            solo.answer_sync(*parts("t", 1))
    assert solo.state.value == name
    return solo


@rule("M59")
@pytest.mark.parametrize("state", HELD)
def test_a_member_is_fenced_in_every_state_that_has_a_generation(state: str) -> None:
    solo = in_state(state, group_instance_id="i")
    solo.answer_commit(ErrorCode.FENCED_INSTANCE_ID, solo.member.generation or 0)
    assert solo.state is MemberState.FENCED


def test_a_member_that_is_fenced_while_it_unsubscribes_never_joins_again() -> None:
    solo = Solo(group_instance_id="i").stable()
    beat = solo.next_heartbeat()
    solo.apply(Unsubscribed())
    solo.answer_heartbeat(ErrorCode.FENCED_INSTANCE_ID, beat)
    assert (solo.state, solo.pop_action(Fatal).final) == (MemberState.FENCED, True)
    solo.release()
    solo.subscribe("t")
    assert solo.state is MemberState.FENCED


def test_a_member_that_is_fenced_while_it_closes_loses_its_partitions_and_closes() -> None:
    solo = Solo(group_instance_id="i").stable()
    beat = solo.next_heartbeat()
    solo.apply(CloseRequested())
    solo.answer_heartbeat(ErrorCode.FENCED_INSTANCE_ID, beat)
    assert solo.pop_action(Lose).partitions == parts("t", 0, 1)
    solo.release()
    assert solo.state is MemberState.CLOSED
    assert solo.has_action(Left)


@rule("M59")
@pytest.mark.parametrize("state", HELD)
def test_a_fenced_member_of_java_rejoins_at_the_next_poll(state: str) -> None:
    """The first poll of a fenced Java member raises FencedInstanceIdException.

    The second poll runs the `lost` callback and joins without a member id.
    """
    solo = in_state(state, group_instance_id="i", policy=Policy(fenced_join_again=True))
    solo.actions.clear()
    member = solo.member
    beat = HeartbeatRequest(
        group_id="g", generation_id=member.generation or 0, member_id=member.member_id, group_instance_id="i"
    )
    solo.answer_heartbeat(ErrorCode.FENCED_INSTANCE_ID, beat)
    assert (solo.state, solo.pop_action(Fatal).final) == (MemberState.FAILED, False)
    assert solo.pop_action(Lose).partitions == parts("t", 0, 1)
    solo.poll()
    solo.release()
    request = solo.pop_request(JoinGroupRequest)
    reason = "encountered FENCED_INSTANCE_ID from HEARTBEAT response"
    assert (request.member_id, request.reason) == ("", reason)


@rule("M61")
@pytest.mark.parametrize("state", HELD)
def test_a_fenced_commit_does_not_change_javas_member(state: str) -> None:
    """Java raises the error of a commit that fails with FENCED_INSTANCE_ID, but the member keeps its state.

    Only the member's next heartbeat, which is also fenced, changes the state. See Java's
    OffsetCommitResponseHandler.
    """
    solo = in_state(state, group_instance_id="i", policy=Policy(fenced_join_again=True))
    solo.actions.clear()
    assert solo.answer_commit(ErrorCode.FENCED_INSTANCE_ID, solo.member.generation or 0) == []
    assert solo.state.value == state


@rule("M42", "M51")
@pytest.mark.parametrize("phase", ["join", "sync"])
def test_a_fenced_join_of_java_is_retried_with_the_same_member_id(phase: str) -> None:
    """After FENCED_INSTANCE_ID, Java's member sends JoinGroup again with the same member id.

    The coordinator also fences this JoinGroup, so the newer process with the same instance id stays a member.
    """
    solo = Solo(group_instance_id="i", policy=Policy(fenced_join_again=True))
    solo.stable().apply(RejoinRequested("because"))
    solo.release()
    if phase == "join":
        solo.answer_join(ErrorCode.FENCED_INSTANCE_ID)
    else:
        solo.answer_join(generation=2)
        solo.answer_sync(code=ErrorCode.FENCED_INSTANCE_ID)
    assert not solo.pop_action(Fatal).final
    solo.actions.clear()
    solo.poll()
    request = solo.pop_request(JoinGroupRequest)
    reason = "rebalance failed due to FencedInstanceIdException"
    assert (request.member_id, request.reason) == ("me", reason)


@rule("M116")
def test_the_first_join_after_an_unsubscribe_has_the_reason_of_a_leave() -> None:
    """The first JoinGroup after an unsubscribe gives as its reason that the member left.

    As in Java, an unsubscribe resets the member and requests a rejoin, even before the first join.
    """
    solo = Solo()
    solo.apply(Unsubscribed())
    assert solo.joining().pop_request(JoinGroupRequest).reason == "consumer pro-actively leaving the group"


@rule("M25")
@pytest.mark.parametrize("request_kind", [JoinGroupRequest, SyncGroupRequest])
def test_a_request_that_cannot_be_sent_is_raised_and_retried_by_the_next_poll(
    request_kind: type[JoinGroupRequest] | type[SyncGroupRequest],
) -> None:
    solo = Solo(group_instance_id="i").joining()
    if request_kind is SyncGroupRequest:
        solo.answer_join()
    refusal = EncodeError("JoinGroup", 4, "group_instance_id", "versions 5 and above")
    solo.apply(SendRefused(solo.pop_request(request_kind), refusal))
    assert (solo.state, solo.pop_action(Fatal).error) == (MemberState.FAILED, refusal)
    assert solo.member.coordinator == "node"
    solo.poll()
    assert solo.has_request(JoinGroupRequest)


@rule("M60")
@pytest.mark.parametrize("version", range(6))
def test_leave_group_can_be_sent_in_every_version(version: int) -> None:
    solo = closing()
    solo.release()
    request = in_version(solo.pop_request(LeaveGroupRequest), version)
    actions = LeaveGroupRequest.decode(request.encode(version), version)
    assert (actions.member_id or actions.members[0].member_id) == "me"


@rule("M60")
def test_a_leave_group_that_cannot_be_sent_still_closes_the_member() -> None:
    solo = leaving()
    solo.apply(
        SendRefused(solo.pop_request(LeaveGroupRequest), EncodeError("LeaveGroup", 0, "members", "no"))
    )
    assert solo.state is MemberState.CLOSED


@rule("M13", "M59")
@pytest.mark.parametrize("state", HELD)
def test_a_member_loses_its_partitions_in_every_state_with_a_generation(state: str) -> None:
    solo = in_state(state)
    solo.answer_commit(ErrorCode.UNKNOWN_MEMBER_ID, solo.member.generation or 0)
    assert solo.pop_action(Lose).partitions == parts("t", 0, 1)
    assert solo.state is MemberState.RELEASING


@rule("M16")
@pytest.mark.parametrize("state", [state for state in HELD if state not in ("unjoined", "joining")])
def test_the_poll_interval_runs_in_every_state_with_heartbeats(state: str) -> None:
    solo = in_state(state)
    solo.wait(POLL)
    assert solo.state is MemberState.EXPIRED
    assert solo.pop_action(Lose).partitions == parts("t", 0, 1)


@rule("M76")
def test_a_member_without_partitions_rejoins_at_once_after_a_reset() -> None:
    solo = Solo().syncing()
    solo.answer_sync()
    solo.answer_heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    assert not solo.has_action(Lose)
    assert solo.has_request(JoinGroupRequest)


# Close


@rule("M98")
def test_close_ends_within_its_timeout_from_every_state_without_responses(anywhere: Solo) -> None:
    """`close` ends within its timeout from every state if no response arrives. Mirrors
    ConsumerCoordinatorTest.testCloseNoResponseForLeaveGroup and similar tests.
    """
    anywhere.apply(CloseRequested(timeout_ms=5_000))
    anywhere.wait(5_000)
    assert anywhere.state is MemberState.CLOSED
    anywhere.pop_action(Left)


@rule("M98")
def test_close_with_timeout_zero_does_not_wait_in_any_state(anywhere: Solo) -> None:
    """Mirrors ConsumerCoordinatorTest.testCloseNoWait."""
    anywhere.apply(CloseRequested(timeout_ms=0))
    anywhere.wait(0)
    assert anywhere.state is MemberState.CLOSED


@rule("M98")
def test_close_ends_at_once_from_every_state_with_responses(anywhere: Solo) -> None:
    anywhere.apply(CloseRequested())
    while anywhere.member.unreleased is not None:
        anywhere.release()
    if anywhere.state is MemberState.LEAVING:
        anywhere.answer_leave()
    assert anywhere.state is MemberState.CLOSED
    assert anywhere.member.owned == ()


@rule("M98")
def test_no_action_follows_close_in_any_state(anywhere: Solo) -> None:
    open_request = anywhere.member.rebalance_request
    anywhere.apply(CloseRequested(timeout_ms=0))
    anywhere.wait(0)
    anywhere.actions.clear()
    anywhere.subscribe("t")
    anywhere.find_coordinator()
    anywhere.apply(CoordinatorLost())
    anywhere.apply(MetadataUpdated({"t": 9}))
    anywhere.apply(RejoinRequested("because"))
    anywhere.apply(Unsubscribed())
    anywhere.apply(CloseRequested())
    anywhere.poll()
    anywhere.release()
    if open_request is not None:
        anywhere.apply(SendFailed(open_request))
    anywhere.wait(POLL)
    assert anywhere.actions == []


@rule("M17", "M98", "M116")
def test_close_revokes_then_leaves_then_ends() -> None:
    """Mirrors ConsumerCoordinatorTest.testLeaveGroupOnClose, testCloseDynamicAssignment."""
    solo = Solo().stable()
    solo.apply(CloseRequested())
    revoke = solo.pop_action(Revoke)
    assert (revoke.partitions, revoke.purpose) == (parts("t", 0, 1), RevokePurpose.CLOSE)
    assert solo.member.identity is not None
    assert not solo.has_request(LeaveGroupRequest)
    solo.release()
    request = solo.member.leave_request
    assert isinstance(request, LeaveGroupRequest)
    assert [(m.member_id, m.reason) for m in request.members] == [("me", "the consumer is being closed")]
    assert not solo.has_action(Left)
    solo.answer_leave()
    solo.pop_action(Left)


@rule("M98")
def test_heartbeats_continue_while_close_releases_partitions() -> None:
    solo = Solo().stable()
    solo.apply(CloseRequested())
    solo.next_heartbeat()


@rule("M97")
@pytest.mark.parametrize("state", ["joining", "syncing", "unjoined"])
def test_close_during_a_rebalance_loses_the_partitions(state: str) -> None:
    solo = rejoining(Solo(COOPERATIVE).stable())
    if state == "syncing":
        solo.answer_join(generation=2)
    elif state == "unjoined":
        solo.answer_join(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert solo.state.value == state
    solo.apply(CloseRequested())
    assert solo.pop_action(Lose).partitions == parts("t", 0, 1)
    assert solo.member.identity is None


@rule("M98")
def test_close_without_leave_sends_no_leave_group() -> None:
    solo = Solo().stable()
    solo.apply(CloseRequested(leave=False))
    solo.release()
    solo.pop_action(Left)
    assert not solo.has_request(LeaveGroupRequest)


@rule("M60", "M115")
def test_a_static_member_does_not_leave() -> None:
    """Mirrors AbstractCoordinatorTest.testLeaveGroupSentWithGroupInstanceIdUnSet."""
    solo = Solo(group_instance_id="i").stable()
    solo.apply(CloseRequested())
    solo.release()
    solo.pop_action(Left)
    assert not solo.has_request(LeaveGroupRequest)


@rule("M60")
def test_a_member_with_a_pending_member_id_leaves() -> None:
    """Mirrors ConsumerCoordinatorTest.testPendingMemberShouldLeaveGroup."""
    solo = Solo().joining()
    solo.answer_join(ErrorCode.MEMBER_ID_REQUIRED, member_id="me-7")
    solo.apply(CloseRequested())
    assert [m.member_id for m in solo.pop_request(LeaveGroupRequest).members] == ["me-7"]


@rule("M60")
def test_leave_group_during_a_join_uses_another_connection() -> None:
    solo = Solo().joining()
    solo.answer_join(ErrorCode.MEMBER_ID_REQUIRED, member_id="me-7")
    solo.actions.clear()
    solo.apply(CloseRequested())
    assert solo.pop_action(Send).urgent


@rule("M60")
def test_a_member_without_a_member_id_sends_no_leave_group() -> None:
    solo = Solo().joining()
    solo.apply(CloseRequested())
    solo.pop_action(Left)
    assert not solo.has_request(LeaveGroupRequest)


@rule("M60")
def test_a_member_without_a_coordinator_closes_without_leave_group() -> None:
    solo = Solo().stable()
    solo.apply(CoordinatorLost())
    solo.apply(CloseRequested())
    solo.release()
    solo.pop_action(Left)
    assert not solo.has_request(LeaveGroupRequest)


@rule("M60")
@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS])
def test_any_response_to_leave_group_closes_the_member(code: ErrorCode) -> None:
    solo = leaving()
    solo.answer_leave(code)
    solo.pop_action(Left)


@rule("M60")
def test_a_lost_connection_during_leave_group_closes_the_member() -> None:
    solo = leaving()
    solo.apply(SendFailed(solo.pop_request(LeaveGroupRequest)))
    solo.pop_action(Left)


def test_close_does_not_adopt_a_pending_assignment() -> None:
    """A close does not adopt the pending assignment.

    The close first releases the partitions of the pending revocation, and then the others.
    """
    solo = adopting()
    solo.pop_action(Revoke)
    solo.apply(CloseRequested())
    solo.release()
    revoke = solo.pop_action(Revoke)
    assert (revoke.partitions, revoke.purpose) == (parts("t", 1), RevokePurpose.CLOSE)
    assert revoke.reason == "the consumer is being closed"
    solo.release()
    assert solo.has_request(LeaveGroupRequest)
    assert not solo.has_action(AdoptAssignment)


def test_a_second_close_can_only_shorten_the_timeout() -> None:
    solo = Solo().stable()
    solo.apply(CloseRequested(timeout_ms=10_000))
    solo.apply(CloseRequested(timeout_ms=2_000))
    solo.apply(CloseRequested(timeout_ms=60_000))
    solo.wait(2_000)
    assert solo.state is MemberState.CLOSED


@rule("M97")
def test_a_heartbeat_error_during_close_turns_the_revocation_into_a_loss() -> None:
    solo = Solo().stable()
    solo.apply(CloseRequested())
    solo.pop_action(Revoke)
    solo.answer_heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    assert solo.pop_action(Lose).partitions == parts("t", 0, 1)
    solo.release()
    solo.pop_action(Left)
    assert not solo.has_request(LeaveGroupRequest)


# Unsubscribe


@rule("M17", "M99", "M116")
def test_unsubscribe_revokes_leaves_and_becomes_idle() -> None:
    """Mirrors ConsumerCoordinatorTest.testMaybeLeaveGroup."""
    solo = Solo().stable()
    solo.apply(Unsubscribed())
    revoke = solo.pop_action(Revoke)
    assert (revoke.partitions, revoke.purpose) == (parts("t", 0, 1), RevokePurpose.UNSUBSCRIBE)
    solo.release()
    request = solo.pop_request(LeaveGroupRequest)
    assert [(m.member_id, m.reason) for m in request.members] == [
        ("me", "the consumer unsubscribed from all topics")
    ]
    assert (solo.state, solo.member.identity) == (MemberState.IDLE, None)
    solo.wait(POLL)
    assert not solo.has_request(HeartbeatRequest)


@rule("M97")
def test_unsubscribe_after_a_reset_loses_the_partitions() -> None:
    """Mirrors ConsumerCoordinatorTest.testUnsubscribeWithInvalidGeneration."""
    solo = Solo().stable()
    solo.answer_heartbeat(ErrorCode.ILLEGAL_GENERATION)
    solo.pop_action(Lose)
    solo.apply(Unsubscribed())
    assert not solo.has_action(Revoke)
    solo.release()
    assert solo.state is MemberState.IDLE


@rule("M100")
def test_an_empty_subscription_unsubscribes() -> None:
    solo = Solo().stable()
    solo.apply(SubscriptionChanged(frozenset()))
    assert solo.state is MemberState.UNSUBSCRIBING


def test_a_subscription_after_unsubscribe_joins_without_a_member_id() -> None:
    solo = Solo().stable()
    solo.apply(Unsubscribed())
    solo.release()
    solo.subscribe("t")
    request = solo.pop_request(JoinGroupRequest)
    assert (request.member_id, request.reason) == ("", "consumer pro-actively leaving the group")


def test_a_subscription_during_unsubscribe_joins_after_the_member_has_left() -> None:
    solo = Solo().stable()
    solo.apply(Unsubscribed())
    solo.subscribe("t")
    assert not solo.has_request(JoinGroupRequest)
    solo.release()
    assert solo.has_request(LeaveGroupRequest)
    assert solo.pop_request(JoinGroupRequest).member_id == ""


@rule("M60")
def test_a_member_id_received_during_unsubscribe_is_left() -> None:
    solo = rejoining(Solo(COOPERATIVE).stable())
    request = solo.pop_request(JoinGroupRequest)
    solo.apply(Unsubscribed())
    solo.answer_join(generation=2, member_id="me-too", request=request)
    solo.release()
    assert [m.member_id for m in solo.pop_request(LeaveGroupRequest).members] == ["me-too"]


OVER = {MemberState.FENCED, MemberState.CLOSING, MemberState.LEAVING}


@pytest.mark.parametrize(
    "state", [state for state in WAYS if state not in OVER], ids=lambda state: state.value
)
def test_unsubscribe_becomes_idle_from_every_state_that_is_not_final(state: MemberState) -> None:
    solo = WAYS[state]()
    solo.apply(Unsubscribed())
    while solo.member.unreleased is not None:
        solo.release()
    assert solo.state is MemberState.IDLE
    assert solo.member.owned == ()


def leave_group(solo: Solo) -> Send:
    (send,) = [a for a in solo.actions if isinstance(a, Send) and isinstance(a.request, LeaveGroupRequest)]
    return send


@pytest.mark.parametrize("response", ["none", "join", "sync", "refused"])
def test_leave_group_is_urgent_only_behind_a_join_group_or_sync_group_in_flight(response: str) -> None:
    """A LeaveGroup behind a JoinGroup or SyncGroup in flight is urgent: it uses a separate connection.

    Brokers answer a connection's requests in order. On the same connection, the LeaveGroup would wait for the
    response to the JoinGroup or SyncGroup.
    """
    solo = rejoining(Solo(COOPERATIVE).stable())
    request: Any = solo.pop_request(JoinGroupRequest)
    if response == "sync":
        solo.answer_join(generation=2, request=request)
        request = solo.pop_request(SyncGroupRequest)
    solo.apply(Unsubscribed())
    if response == "join":
        solo.answer_join(generation=2, member_id="new", request=request)
    elif response == "sync":
        solo.answer_sync(*parts("t", 1), request=request)
    elif response == "refused":
        solo.apply(SendRefused(request, EncodeError("JoinGroup", 0, "reason", "no such field")))
    solo.release()
    send = leave_group(solo)
    assert send.urgent is (response == "none")
    assert isinstance(send.request, LeaveGroupRequest)
    assert [member.member_id for member in send.request.members] == ["new" if response == "join" else "me"]


def test_leave_group_is_not_urgent_while_the_leader_waits_for_metadata() -> None:
    solo = planning()
    solo.apply(CloseRequested())
    assert not leave_group(solo).urgent


def test_a_lost_coordinator_ends_a_close_that_waits_for_leave_group() -> None:
    solo = leaving()
    solo.apply(CoordinatorLost("no route"))
    assert solo.has_action(Left)
    assert solo.state is MemberState.CLOSED


@pytest.mark.parametrize(
    ("version", "instance", "raises"), [(4, "i", True), (5, "i", False), (4, None, False)]
)
def test_a_static_member_needs_join_group_version_5(version: int, instance: str | None, raises: bool) -> None:
    request = Solo(group_instance_id=instance).joining().pop_request(JoinGroupRequest)
    if raises:
        with pytest.raises(UnsupportedVersion, match="omit this option to join as a dynamic member"):
            in_version(request, version)
    else:
        assert in_version(request, version) is request

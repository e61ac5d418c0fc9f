"""Unsubscribing and closing, from every state and within the deadline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kproto.errors import EncodeError
from kproto.group.classic.member import (
    Close,
    CoordinatorLost,
    Failed,
    Fatal,
    Metadata,
    Policy,
    Refused,
    RequestRejoin,
    Send,
    Subscribe,
    Unsubscribe,
    in_version,
)
from kproto.messages.heartbeat import HeartbeatRequest
from kproto.messages.join_group import JoinGroupRequest
from kproto.messages.leave_group import LeaveGroupRequest
from kproto.messages.sync_group import SyncGroupRequest
from tests.group.classic.member.stage import (
    COOPERATIVE,
    EAGER,
    POLL,
    Assign,
    ErrorCode,
    Left,
    Lose,
    MemberState,
    Revoke,
    Solo,
    Subscription,
    parts,
)


def planning() -> Solo:
    solo = Solo().joining()
    solo.answer_join(members={"me": Subscription(topics=("t",)), "you": Subscription(topics=("u",))})
    return solo


def rejoining(solo: Solo) -> Solo:
    solo.tell(RequestRejoin("because"))
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
    solo.tell(Unsubscribe())
    return solo


def closing() -> Solo:
    solo = Solo().stable()
    solo.tell(Close(timeout_ms=1))
    return solo


def leaving() -> Solo:
    solo = closing()
    solo.let_go()
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
    """A member in each state but closed."""
    solo = WAYS[request.param]()
    assert solo.state is request.param
    return solo


# What is the same in many states


HELD = ["unjoined", "releasing", "joining", "assigning", "syncing", "adopting", "stable"]


def in_state(name: str, **options: Any) -> Solo:
    """A cooperative leader that owns t-0 and t-1 and is in the given state of its next rebalance."""
    solo = Solo(
        EAGER if name == "releasing" else COOPERATIVE, {"t": 2}, session_timeout_ms=2 * POLL, **options
    )
    solo.leading()
    if name != "stable":
        solo.tell(RequestRejoin("because"))
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


@pytest.mark.parametrize("state", HELD)
def test_a_member_is_fenced_in_every_state_that_has_a_generation(state: str) -> None:
    solo = in_state(state, group_instance_id="i")
    solo.answer_commit(ErrorCode.FENCED_INSTANCE_ID, solo.member.generation or 0)
    assert solo.state is MemberState.FENCED


def test_a_member_that_is_fenced_while_it_unsubscribes_never_joins_again() -> None:
    solo = Solo(group_instance_id="i").stable()
    beat = solo.beat()
    solo.tell(Unsubscribe())
    solo.answer_heartbeat(ErrorCode.FENCED_INSTANCE_ID, beat)
    assert (solo.state, solo.take(Fatal).final) == (MemberState.FENCED, True)
    solo.let_go()
    solo.subscribe("t")
    assert solo.state is MemberState.FENCED


def test_a_member_that_is_fenced_while_it_closes_loses_its_partitions_and_closes() -> None:
    solo = Solo(group_instance_id="i").stable()
    beat = solo.beat()
    solo.tell(Close())
    solo.answer_heartbeat(ErrorCode.FENCED_INSTANCE_ID, beat)
    assert solo.take(Lose).partitions == parts("t", 0, 1)
    solo.let_go()
    assert solo.state is MemberState.CLOSED
    assert solo.says(Left)


@pytest.mark.parametrize("state", HELD)
def test_a_member_that_may_fight_back_joins_again_at_the_next_poll(state: str) -> None:
    """Java's: the exception is thrown by one poll; the next one calls lost and joins again with no id."""
    solo = in_state(state, group_instance_id="i", policy=Policy(fenced_join_again=True))
    solo.said.clear()
    member = solo.member
    beat = HeartbeatRequest(
        group_id="g", generation_id=member.generation or 0, member_id=member.member_id, group_instance_id="i"
    )
    solo.answer_heartbeat(ErrorCode.FENCED_INSTANCE_ID, beat)
    assert (solo.state, solo.take(Fatal).final) == (MemberState.FAILED, False)
    assert solo.take(Lose).partitions == parts("t", 0, 1)
    solo.poll()
    solo.let_go()
    request = solo.request(JoinGroupRequest)
    reason = "encountered FENCED_INSTANCE_ID from HEARTBEAT response"
    assert (request.member_id, request.reason) == ("", reason)


@pytest.mark.parametrize("state", HELD)
def test_a_commit_that_is_fenced_changes_nothing_where_the_member_may_fight_back(state: str) -> None:
    """ConsumerCoordinator.OffsetCommitResponseHandler: it raises; the next heartbeat says what is so."""
    solo = in_state(state, group_instance_id="i", policy=Policy(fenced_join_again=True))
    solo.said.clear()
    assert solo.answer_commit(ErrorCode.FENCED_INSTANCE_ID, solo.member.generation or 0) == []
    assert solo.state.value == state


@pytest.mark.parametrize("phase", ["join", "sync"])
def test_a_refused_join_that_is_fenced_is_asked_again_by_the_same_member(phase: str) -> None:
    """As Java's, whose JoinGroup is fenced again then: the other process is left alone."""
    solo = Solo(group_instance_id="i", policy=Policy(fenced_join_again=True))
    solo.stable().tell(RequestRejoin("because"))
    solo.let_go()
    if phase == "join":
        solo.answer_join(ErrorCode.FENCED_INSTANCE_ID)
    else:
        solo.answer_join(generation=2)
        solo.answer_sync(code=ErrorCode.FENCED_INSTANCE_ID)
    assert not solo.take(Fatal).final
    solo.said.clear()
    solo.poll()
    request = solo.request(JoinGroupRequest)
    reason = "rebalance failed due to FencedInstanceIdException"
    assert (request.member_id, request.reason) == ("me", reason)


def test_who_unsubscribes_before_it_ever_joined_says_so_when_it_joins() -> None:
    """Java's unsubscribe resets its member and asks for a rejoin, whatever it was before."""
    solo = Solo()
    solo.tell(Unsubscribe())
    assert solo.joining().request(JoinGroupRequest).reason == "consumer pro-actively leaving the group"


@pytest.mark.parametrize("request_kind", [JoinGroupRequest, SyncGroupRequest])
def test_a_request_that_can_not_be_sent_is_raised_and_asked_again_by_the_next_poll(
    request_kind: type[JoinGroupRequest] | type[SyncGroupRequest],
) -> None:
    solo = Solo(group_instance_id="i").joining()
    if request_kind is SyncGroupRequest:
        solo.answer_join()
    refusal = EncodeError("JoinGroup", 4, "group_instance_id", "versions 5 and above")
    solo.tell(Refused(solo.request(request_kind), refusal))
    assert (solo.state, solo.take(Fatal).error) == (MemberState.FAILED, refusal)
    assert solo.member.coordinator == "node"
    solo.poll()
    assert solo.sends(JoinGroupRequest)


@pytest.mark.parametrize("version", range(6))
def test_a_member_says_in_every_version_that_it_leaves(version: int) -> None:
    solo = closing()
    solo.let_go()
    request = in_version(solo.request(LeaveGroupRequest), version)
    said = LeaveGroupRequest.decode(request.encode(version), version)
    assert (said.member_id or said.members[0].member_id) == "me"


def test_a_leave_that_can_not_be_sent_ends_the_member_all_the_same() -> None:
    solo = leaving()
    solo.tell(Refused(solo.request(LeaveGroupRequest), EncodeError("LeaveGroup", 0, "members", "no")))
    assert solo.state is MemberState.CLOSED


@pytest.mark.parametrize("state", HELD)
def test_a_member_is_lost_in_every_state_that_has_a_generation(state: str) -> None:
    solo = in_state(state)
    solo.answer_commit(ErrorCode.UNKNOWN_MEMBER_ID, solo.member.generation or 0)
    assert solo.take(Lose).partitions == parts("t", 0, 1)
    assert solo.state is MemberState.RELEASING


@pytest.mark.parametrize("state", [state for state in HELD if state not in ("unjoined", "joining")])
def test_the_poll_interval_counts_in_every_state_in_which_heartbeats_go_out(state: str) -> None:
    solo = in_state(state)
    solo.wait(POLL)
    assert solo.state is MemberState.EXPIRED
    assert solo.take(Lose).partitions == parts("t", 0, 1)


def test_a_member_that_has_nothing_joins_at_once_when_it_is_lost() -> None:
    solo = Solo().syncing()
    solo.answer_sync()
    solo.answer_heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    assert not solo.says(Lose)
    assert solo.sends(JoinGroupRequest)


# Close


def test_close_ends_within_its_deadline_from_every_state_even_if_nobody_answers(anywhere: Solo) -> None:
    """testCloseNoResponseForLeaveGroup, testCloseCoordinatorNotKnownNoCommits, and their like."""
    anywhere.tell(Close(timeout_ms=5_000))
    anywhere.wait(5_000)
    assert anywhere.state is MemberState.CLOSED
    anywhere.take(Left)


def test_close_without_time_does_not_wait_from_any_state(anywhere: Solo) -> None:
    """ConsumerCoordinatorTest.testCloseNoWait."""
    anywhere.tell(Close(timeout_ms=0))
    anywhere.wait(0)
    assert anywhere.state is MemberState.CLOSED


def test_close_ends_at_once_from_every_state_when_everybody_answers(anywhere: Solo) -> None:
    anywhere.tell(Close())
    while anywhere.member.unreleased is not None:
        anywhere.let_go()
    if anywhere.state is MemberState.LEAVING:
        anywhere.answer_leave()
    assert anywhere.state is MemberState.CLOSED
    assert anywhere.member.owned == ()


def test_nothing_is_said_after_close_from_any_state(anywhere: Solo) -> None:
    open_request = anywhere.member.rebalance_request
    anywhere.tell(Close(timeout_ms=0))
    anywhere.wait(0)
    anywhere.said.clear()
    anywhere.subscribe("t")
    anywhere.find()
    anywhere.tell(CoordinatorLost())
    anywhere.tell(Metadata({"t": 9}))
    anywhere.tell(RequestRejoin("because"))
    anywhere.tell(Unsubscribe())
    anywhere.tell(Close())
    anywhere.poll()
    anywhere.let_go()
    if open_request is not None:
        anywhere.tell(Failed(open_request))
    anywhere.wait(POLL)
    assert anywhere.said == []


def test_close_lets_go_then_leaves_then_is_done() -> None:
    """ConsumerCoordinatorTest.testLeaveGroupOnClose, testCloseDynamicAssignment."""
    solo = Solo().stable()
    solo.tell(Close())
    assert solo.take(Revoke).partitions == parts("t", 0, 1)
    assert solo.member.identity is not None
    assert not solo.sends(LeaveGroupRequest)
    solo.let_go()
    request = solo.member.leave_request
    assert isinstance(request, LeaveGroupRequest)
    assert [(m.member_id, m.reason) for m in request.members] == [("me", "the consumer is being closed")]
    assert not solo.says(Left)
    solo.answer_leave()
    solo.take(Left)


def test_heartbeats_go_on_while_the_application_lets_go_to_close() -> None:
    solo = Solo().stable()
    solo.tell(Close())
    solo.beat()


@pytest.mark.parametrize("state", ["joining", "syncing", "unjoined"])
def test_close_during_a_rebalance_loses_what_is_owned(state: str) -> None:
    solo = rejoining(Solo(COOPERATIVE).stable())
    if state == "syncing":
        solo.answer_join(generation=2)
    elif state == "unjoined":
        solo.answer_join(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert solo.state.value == state
    solo.tell(Close())
    assert solo.take(Lose).partitions == parts("t", 0, 1)
    assert solo.member.identity is None


def test_close_without_leaving_says_nothing_to_the_coordinator() -> None:
    solo = Solo().stable()
    solo.tell(Close(leave=False))
    solo.let_go()
    solo.take(Left)
    assert not solo.sends(LeaveGroupRequest)


def test_a_static_member_does_not_leave() -> None:
    """AbstractCoordinatorTest.testLeaveGroupSentWithGroupInstanceIdUnSet."""
    solo = Solo(group_instance_id="i").stable()
    solo.tell(Close())
    solo.let_go()
    solo.take(Left)
    assert not solo.sends(LeaveGroupRequest)


def test_a_pending_member_leaves() -> None:
    """ConsumerCoordinatorTest.testPendingMemberShouldLeaveGroup."""
    solo = Solo().joining()
    solo.answer_join(ErrorCode.MEMBER_ID_REQUIRED, member_id="me-7")
    solo.tell(Close())
    assert [m.member_id for m in solo.request(LeaveGroupRequest).members] == ["me-7"]


def test_a_leave_behind_a_parked_join_is_urgent() -> None:
    solo = Solo().joining()
    solo.answer_join(ErrorCode.MEMBER_ID_REQUIRED, member_id="me-7")
    solo.said.clear()
    solo.tell(Close())
    assert solo.take(Send).urgent


def test_a_member_without_an_id_has_nothing_to_leave() -> None:
    solo = Solo().joining()
    solo.tell(Close())
    solo.take(Left)
    assert not solo.sends(LeaveGroupRequest)


def test_a_member_whose_coordinator_is_unknown_closes_without_leaving() -> None:
    solo = Solo().stable()
    solo.tell(CoordinatorLost())
    solo.tell(Close())
    solo.let_go()
    solo.take(Left)
    assert not solo.sends(LeaveGroupRequest)


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS])
def test_any_answer_to_the_leave_will_do(code: ErrorCode) -> None:
    solo = leaving()
    solo.answer_leave(code)
    solo.take(Left)


def test_a_broken_connection_ends_the_leave() -> None:
    solo = leaving()
    solo.tell(Failed(solo.request(LeaveGroupRequest)))
    solo.take(Left)


def test_an_assignment_that_was_not_taken_over_yet_is_not_taken_over_by_close() -> None:
    """What is revoked first, then the rest."""
    solo = adopting()
    solo.take(Revoke)
    solo.tell(Close())
    solo.let_go()
    assert solo.take(Revoke).partitions == parts("t", 1)
    solo.let_go()
    assert solo.sends(LeaveGroupRequest)
    assert not solo.says(Assign)


def test_a_second_close_may_only_be_sooner() -> None:
    solo = Solo().stable()
    solo.tell(Close(timeout_ms=10_000))
    solo.tell(Close(timeout_ms=2_000))
    solo.tell(Close(timeout_ms=60_000))
    solo.wait(2_000)
    assert solo.state is MemberState.CLOSED


def test_a_heartbeat_that_is_refused_while_closing_turns_the_revocation_into_a_loss() -> None:
    solo = Solo().stable()
    solo.tell(Close())
    solo.take(Revoke)
    solo.answer_heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    assert solo.take(Lose).partitions == parts("t", 0, 1)
    solo.let_go()
    solo.take(Left)
    assert not solo.sends(LeaveGroupRequest)


# Unsubscribe


def test_unsubscribe_lets_go_leaves_and_is_idle() -> None:
    """ConsumerCoordinatorTest.testMaybeLeaveGroup."""
    solo = Solo().stable()
    solo.tell(Unsubscribe())
    assert solo.take(Revoke).partitions == parts("t", 0, 1)
    solo.let_go()
    request = solo.request(LeaveGroupRequest)
    assert [(m.member_id, m.reason) for m in request.members] == [
        ("me", "the consumer unsubscribed from all topics")
    ]
    assert (solo.state, solo.member.identity) == (MemberState.IDLE, None)
    solo.wait(POLL)
    assert not solo.sends(HeartbeatRequest)


def test_unsubscribe_with_a_reset_generation_loses() -> None:
    """ConsumerCoordinatorTest.testUnsubscribeWithInvalidGeneration."""
    solo = Solo().stable()
    solo.answer_heartbeat(ErrorCode.ILLEGAL_GENERATION)
    solo.take(Lose)
    solo.tell(Unsubscribe())
    assert not solo.says(Revoke)
    solo.let_go()
    assert solo.state is MemberState.IDLE


def test_an_empty_subscription_unsubscribes() -> None:
    solo = Solo().stable()
    solo.tell(Subscribe(frozenset()))
    assert solo.state is MemberState.UNSUBSCRIBING


def test_a_new_subscription_after_unsubscribe_joins_with_a_new_id() -> None:
    solo = Solo().stable()
    solo.tell(Unsubscribe())
    solo.let_go()
    solo.subscribe("t")
    request = solo.request(JoinGroupRequest)
    assert (request.member_id, request.reason) == ("", "consumer pro-actively leaving the group")


def test_a_new_subscription_while_unsubscribing_joins_when_it_has_left() -> None:
    solo = Solo().stable()
    solo.tell(Unsubscribe())
    solo.subscribe("t")
    assert not solo.sends(JoinGroupRequest)
    solo.let_go()
    assert solo.sends(LeaveGroupRequest)
    assert solo.request(JoinGroupRequest).member_id == ""


def test_a_join_that_is_answered_while_unsubscribing_is_left() -> None:
    solo = rejoining(Solo(COOPERATIVE).stable())
    request = solo.request(JoinGroupRequest)
    solo.tell(Unsubscribe())
    solo.answer_join(generation=2, member_id="me-too", request=request)
    solo.let_go()
    assert [m.member_id for m in solo.request(LeaveGroupRequest).members] == ["me-too"]


OVER = {MemberState.FENCED, MemberState.CLOSING, MemberState.LEAVING}


@pytest.mark.parametrize(
    "state", [state for state in WAYS if state not in OVER], ids=lambda state: state.value
)
def test_unsubscribe_ends_idle_from_every_state_that_is_not_the_end(state: MemberState) -> None:
    solo = WAYS[state]()
    solo.tell(Unsubscribe())
    while solo.member.unreleased is not None:
        solo.let_go()
    assert solo.state is MemberState.IDLE
    assert solo.member.owned == ()

"""A member's invariants hold after any events in any order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproto.group.classic.member import (
    CloseRequested,
    CommitAnswered,
    CoordinatorFound,
    CoordinatorLost,
    MemberState,
    MetadataUpdated,
    PollEntered,
    PollLeft,
    Received,
    RejoinRequested,
    Released,
    Send,
    SendFailed,
    SubscriptionChanged,
    Tick,
    Unsubscribed,
)
from kproto.group.subscription import Assignment
from kproto.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kproto.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from kproto.messages.leave_group import LeaveGroupResponse
from kproto.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kproto.wire.message import Message
from tests.group.classic.member.stage import COOPERATIVE, EAGER, POLL, Left, Lose, Revoke, Solo, parts

# ---- random events in random order

CODES = st.sampled_from([0, 0, 0, 0, 14, 15, 16, 22, 25, 27, 30, 79, 81, 82, -1, 999])
EVENTS = st.one_of(
    st.builds(SubscriptionChanged, st.frozensets(st.sampled_from("tu"))),
    st.just(Unsubscribed()),
    st.just(PollEntered()),
    st.just(PollLeft()),
    st.just(CoordinatorFound("node")),
    st.just(CoordinatorLost()),
    st.just(Released()),
    st.builds(MetadataUpdated, st.dictionaries(st.sampled_from("tu"), st.integers(0, 3))),
    st.builds(CommitAnswered, CODES, st.integers(0, 4), st.sampled_from(["me", "you"])),
    st.builds(RejoinRequested, st.just("because")),
)
MOVES = st.one_of(
    EVENTS,
    st.tuples(st.just("answer"), st.integers(0, 3), CODES),
    st.tuples(st.just("answer"), st.integers(0, 3), CODES),
    st.tuples(st.just("fail"), st.integers(0, 3), st.just(0)),
    st.tuples(st.just("wait"), st.sampled_from([1, 100, 3_000, 10_000, POLL]), st.just(0)),
)


def answer(request: Message, code: int, generation: int, index: int) -> Message:
    """Return a coordinator's response. This member leads odd generations, and owns partition `index` of t."""
    if isinstance(request, JoinGroupRequest):
        mine = JoinGroupResponseMember(member_id="me", metadata=request.protocols[0].metadata)
        return JoinGroupResponse(
            error_code=code,
            generation_id=generation,
            protocol_type="consumer",
            protocol_name=request.protocols[0].name,
            leader="me" if generation % 2 else "you",
            member_id="me",
            members=[mine] if generation % 2 else [],
        )
    if isinstance(request, SyncGroupRequest):
        plan = Assignment(partitions=parts("t", index)).encode()
        return SyncGroupResponse(error_code=code, assignment=plan)
    if isinstance(request, HeartbeatRequest):
        return HeartbeatResponse(error_code=code)
    return LeaveGroupResponse(error_code=code)


class Fuzzed(Solo):
    """A member that receives random events and checks its invariants."""

    generation = 0

    def play(self, moves: list[object]) -> None:
        for move in moves:
            if not isinstance(move, tuple):
                self.apply(move)  # type: ignore[arg-type]
            elif move[0] == "wait":
                self.wait(move[1])
            else:
                self.bring(*move)
            self.check()

    def bring(self, outcome: str, index: int, code: int) -> None:
        """Deliver the response to one of the requests in flight, or let the request fail."""
        sent = [action for action in self.actions if isinstance(action, Send)]
        if not sent:
            return
        request = sent[index % len(sent)]
        self.actions.remove(request)
        if outcome == "fail":
            self.apply(SendFailed(request.request))
            return
        self.generation += isinstance(request.request, JoinGroupRequest)
        self.apply(Received(request.request, answer(request.request, code, self.generation, index % 3)))

    def check(self) -> None:
        who = self.member
        assert set(who.unreleased or ()) <= set(who.owned)
        assert (who.state in (MemberState.RELEASING, MemberState.ADOPTING)) <= (who.unreleased is not None)
        assert (who.rebalance_request is not None) <= (
            who.is_rebalancing or who.state.value in ("unsubscribing", "closing")
        )
        opened = [a for a in self.all_actions if isinstance(a, Revoke | Lose)]
        assert (who.unreleased is not None) <= bool(opened)
        if who.identity is not None:
            assert who.identity.generation >= 0
        if who.state is MemberState.FENCED:
            assert who.identity is None


@given(st.sampled_from([EAGER, COOPERATIVE]), st.booleans(), st.lists(MOVES, max_size=40))
def test_close_ends_within_its_timeout_after_any_events(
    assignors: tuple[str, ...], static: bool, moves: list[object]
) -> None:
    solo = Fuzzed(assignors, group_instance_id="i" if static else None)
    solo.subscribe()
    solo.find_coordinator()
    solo.play(moves)
    solo.apply(CloseRequested(timeout_ms=1_000))
    solo.wait(1_000)
    assert solo.state is MemberState.CLOSED
    assert sum(isinstance(action, Left) for action in solo.all_actions) == 1


@pytest.mark.rule("M70")
@given(st.sampled_from([EAGER, COOPERATIVE]), st.lists(MOVES, max_size=40))
def test_the_same_events_return_the_same_actions(assignors: tuple[str, ...], moves: list[object]) -> None:
    first, second = Fuzzed(assignors), Fuzzed(assignors)
    for solo in (first, second):
        solo.subscribe()
        solo.play(moves)
    assert repr(first.all_actions) == repr(second.all_actions)


@given(st.lists(MOVES, max_size=40))
def test_a_member_becomes_stable_again_with_correct_responses(moves: list[object]) -> None:
    """A member that was not fenced recovers from any events once the coordinator responds correctly."""
    solo = Fuzzed(COOPERATIVE)
    solo.subscribe()
    solo.play(moves)
    solo.actions.clear()
    solo.subscribe("t")
    for _ in range(60):
        if solo.state is MemberState.STABLE and not solo.member.rejoin_needed:
            break
        solo.poll()
        if solo.member.is_finding_coordinator:
            solo.find_coordinator()
        if solo.member.unreleased is not None:
            solo.release()
        if solo.member.rebalance_request is not None:
            request = solo.member.rebalance_request
            solo.generation += isinstance(request, JoinGroupRequest)
            solo.apply(Received(request, answer(request, 0, solo.generation, 0)))
        if solo.state is MemberState.ASSIGNING:
            solo.apply(MetadataUpdated({"t": 3, "u": 1}))
        solo.wait(1_000)
    assert solo.state in (MemberState.STABLE, MemberState.FENCED)


def test_a_tick_that_comes_too_early_does_nothing() -> None:
    solo = Solo().stable()
    solo.now += 1
    assert solo.apply(Tick()) == []

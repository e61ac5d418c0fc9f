"""The classic member implements `kproto.group.protocol.ClientMember`, as the consumer's engine uses it."""

from __future__ import annotations

from typing import Any

import pytest

from kproto.group.classic.member import JAVA, KPROTO, MetadataUpdated, Unsubscribed
from kproto.group.classic.member.member import ClassicMember
from kproto.group.protocol import ClientMember
from kproto.messages.heartbeat import HeartbeatResponse
from kproto.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kproto.messages.leave_group import LeaveGroupResponse
from kproto.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tests.group.classic.member.stage import (
    COOPERATIVE,
    POLL,
    SESSION,
    MemberState,
    Solo,
    parts,
)


class Classic(Solo):
    """A `Solo` with the member class that clients use, instead of the bare state machine."""

    member: ClassicMember

    def __init__(self, assignors: tuple[str, ...] = COOPERATIVE, **options: Any) -> None:
        super().__init__(assignors, **options)
        self.member = ClassicMember(self.member.config, self.member.policy)
        self.apply(MetadataUpdated({"t": 3}))


def states(member: ClientMember) -> tuple[bool, bool, bool]:
    return member.is_joining, member.is_stable, member.is_unsubscribing


def test_a_member_says_whether_it_is_joining_stable_or_unsubscribing() -> None:
    solo = Classic()
    assert states(solo.member) == (False, False, False)
    solo.joining()
    assert states(solo.member) == (True, False, False)
    solo.answer_join()
    assert states(solo.member) == (False, False, False)
    solo.answer_sync(*parts("t", 0))
    assert states(solo.member) == (False, True, False)
    solo.apply(Unsubscribed())
    assert states(solo.member) == (False, False, True)


def test_a_join_group_or_sync_group_in_flight_is_pending_until_it_is_answered() -> None:
    solo = Classic().joining()
    join = solo.pop_request(JoinGroupRequest)
    assert solo.member.is_pending(join)
    assert not solo.member.is_pending(Classic().joining().pop_request(JoinGroupRequest))
    solo.answer_join(request=join)
    sync = solo.pop_request(SyncGroupRequest)
    assert (solo.member.is_pending(join), solo.member.is_pending(sync)) == (False, True)
    solo.answer_sync(request=sync)
    assert not solo.member.is_pending(sync)


def test_a_poll_restarts_the_poll_interval_of_a_member_and_of_no_other() -> None:
    solo = Classic(session_timeout_ms=10 * POLL).stable()
    solo.now += POLL - 1
    solo.member.on_poll(solo.now)
    solo.wait(POLL - 1)
    assert solo.state is MemberState.STABLE
    solo.wait(1)
    assert solo.state is MemberState.EXPIRED
    idle = Classic()
    idle.member.on_poll(idle.now)
    assert idle.member.poll_ends_at is None


@pytest.mark.parametrize(
    ("policy", "session", "expected"),
    [(KPROTO, SESSION, SESSION), (KPROTO, 2 * POLL, POLL), (JAVA, SESSION, POLL)],
)
def test_an_assignment_ends_with_the_poll_interval_and_outside_of_java_with_the_session(
    policy: Any, session: int, expected: int
) -> None:
    solo = Classic(policy=policy, session_timeout_ms=session)
    assert solo.member.assignment_deadline() is None
    solo.stable()
    assert solo.member.assignment_deadline() == solo.now + expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [(0, 0), (27, 0), (25, 0), (22, 0), (82, 0), (14, 14), (30, 30)],
)
def test_a_heartbeat_error_without_a_reaction_is_reported_as_retried(code: int, expected: int) -> None:
    assert Classic().member.retried_error(HeartbeatResponse(error_code=code)) == expected


@pytest.mark.parametrize(
    ("code", "expected"), [(0, 0), (79, 0), (30, 0), (15, 15), (16, 16), (27, 27), (25, 25), (22, 22)]
)
def test_an_error_after_which_the_member_rejoins_is_reported_as_retried(code: int, expected: int) -> None:
    member = Classic().member
    join = JoinGroupResponse(
        error_code=code, generation_id=-1, protocol_name="", leader="", member_id="", members=[]
    )
    assert member.retried_error(join) == expected
    assert member.retried_error(SyncGroupResponse(error_code=code, assignment=b"")) == expected
    assert member.retried_error(LeaveGroupResponse(error_code=code)) is None

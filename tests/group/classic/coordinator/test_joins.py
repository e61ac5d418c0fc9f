"""JoinGroup accepts or rejects a member, issues its id, and may start a rebalance."""

from __future__ import annotations

import pytest

from kproto.error_codes import ErrorCode
from kproto.group.classic.coordinator import ClassicGroupState
from kproto.group.classic.coordinator.state import MemberRemoved
from kproto.group.settings import MAX_GROUP_METADATA_BYTES
from tests.group.classic.coordinator.stage import BOTH, DELAY, RANGE, SESSION, Stage
from tests.rules import rule


@rule("R19")
@pytest.mark.parametrize("session", [6_000, 1_800_000])
def test_a_session_timeout_at_a_bound_is_accepted(session: int) -> None:
    assert Stage().join(session=session).code is ErrorCode.MEMBER_ID_REQUIRED


@rule("R19")
@pytest.mark.parametrize("session", [5_999, 1_800_001])
def test_a_session_timeout_out_of_bounds_is_rejected_and_creates_no_group(session: int) -> None:
    """Mirrors GroupCoordinatorTest.testJoinGroupSessionTimeoutTooSmall and TooLarge."""
    stage = Stage()
    assert stage.join(session=session).code is ErrorCode.INVALID_SESSION_TIMEOUT
    assert stage.state is ClassicGroupState.DEAD


@rule("R13", "R14")
def test_an_empty_group_id_is_rejected_before_the_session_timeout() -> None:
    """An empty group id is rejected before the session timeout is checked, as in Kafka 4.3.1. Mirrors
    GroupCoordinatorTest.testInvalidGroupId.
    """
    assert Stage().join(group="", session=1).code is ErrorCode.INVALID_GROUP_ID


@rule("R20")
@pytest.mark.parametrize("instance", [None, "i"])
def test_an_unknown_member_id_is_an_error_in_a_missing_group(instance: str | None) -> None:
    """Mirrors GroupCoordinatorTest.testJoinGroupUnknownConsumerNewGroup."""
    stage = Stage()
    answer = stage.join("ghost", instance=instance)
    assert (answer.code, answer.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "ghost")
    assert stage.state is ClassicGroupState.DEAD


@rule("R15")
def test_an_unknown_member_id_is_an_error_in_an_existing_group() -> None:
    """Mirrors GroupCoordinatorTest.testJoinGroupUnknownConsumerExistingGroup."""
    stage = Stage()
    stage.create_stable_group()
    assert stage.join("ghost").code is ErrorCode.UNKNOWN_MEMBER_ID


@rule("R37")
def test_the_id_of_a_former_member_is_unknown_in_an_empty_group() -> None:
    """Mirrors GroupMetadataManagerTest.testJoinGroupExistingMemberInEmptyState."""
    stage = Stage()
    (member,) = stage.create_stable_group()
    stage.leave(member)
    assert stage.state is ClassicGroupState.EMPTY
    assert stage.join(member).code is ErrorCode.UNKNOWN_MEMBER_ID


@rule("R25", "R28", "R30")
def test_a_new_dynamic_member_must_join_again_with_the_id_it_receives() -> None:
    """From JoinGroup v4 on, the first response is MEMBER_ID_REQUIRED with a member id (KIP-394)."""
    stage = Stage()
    answer = stage.join(version=4, client="app")
    assert answer.code is ErrorCode.MEMBER_ID_REQUIRED
    assert answer.member_id.startswith("app-")
    assert answer.response.generation_id == -1
    assert stage.state is ClassicGroupState.EMPTY
    assert stage.join(answer.member_id, version=4).waits


@rule("R26")
def test_before_v4_a_new_dynamic_member_is_added_at_once() -> None:
    stage = Stage()
    assert stage.join(version=3).waits
    assert stage.state is ClassicGroupState.PREPARING_REBALANCE


@rule("R25")
def test_every_first_join_receives_a_different_member_id() -> None:
    stage = Stage()
    assert stage.join().member_id != stage.join().member_id
    assert len(stage.group().pending) == 2


@rule("R27")
def test_a_new_static_member_is_added_at_once() -> None:
    """Mirrors GroupCoordinatorTest.staticMemberJoinAsFirstMember."""
    stage = Stage()
    answer = stage.join(instance="i")
    stage.wait(DELAY)
    assert answer.code is ErrorCode.NONE
    assert answer.member_id.startswith("i-")


@rule("R2")
def test_v0_uses_the_session_timeout_as_the_rebalance_timeout() -> None:
    """JoinGroup v0 has no rebalance timeout, so the session timeout replaces it."""
    stage = Stage()
    answer = stage.join(version=0, session=7_000, rebalance=-1)
    stage.wait(DELAY)
    assert stage.group().members[answer.member_id].rebalance_timeout_ms == 7_000


@rule("R24")
def test_another_protocol_type_is_inconsistent() -> None:
    """Mirrors GroupCoordinatorTest.testJoinGroupInconsistentProtocolType."""
    stage = Stage()
    stage.create_stable_group()
    answer = stage.join(protocol_type="connect")
    assert (answer.code, answer.member_id) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")


@rule("R24")
def test_no_protocol_in_common_is_inconsistent() -> None:
    """Mirrors GroupCoordinatorTest.testJoinGroupInconsistentGroupProtocol."""
    stage = Stage()
    stage.create_stable_group({"protocols": [("range", b"")]})
    assert stage.join(protocols=[("sticky", b"")]).code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@rule("R24")
def test_the_first_member_must_have_a_protocol_type_and_a_protocol() -> None:
    """GroupCoordinatorTest.testJoinGroupWithEmptyProtocolType and testJoinGroupWithEmptyGroupProtocol."""
    stage = Stage()
    assert stage.join(protocol_type="").code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert stage.join(protocols=[]).code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert stage.state is ClassicGroupState.EMPTY, "the rejected join created the group nevertheless"


@rule("R30")
def test_a_pending_member_id_survives_the_rejection_of_its_protocols() -> None:
    """Mirrors GroupCoordinatorTest.testJoinGroupSecondJoinInconsistentProtocol."""
    stage = Stage()
    stage.create_stable_group()
    member = stage.join().member_id
    assert stage.join(member, protocols=[]).code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert stage.join(member).waits


@rule("R30")
def test_a_pending_member_id_with_an_instance_id_is_a_server_error() -> None:
    """GroupMetadataManagerTest.testJoinGroupExistingPendingMemberWithGroupInstanceIdThrowsException."""
    stage = Stage()
    member = stage.join().member_id
    answer = stage.join(member, instance="i")
    assert (answer.code, answer.member_id) == (ErrorCode.UNKNOWN_SERVER_ERROR, "")


@rule("R1")
def test_an_error_contains_nothing_of_the_group() -> None:
    """Mirrors GroupCoordinatorTest.testJoinGroupProtocolTypeIsNotProvidedWhenAnErrorOccurs."""
    stage = Stage()
    stage.create_stable_group()
    response = stage.join("ghost").response
    assert (response.generation_id, response.protocol_type, response.protocol_name) == (-1, None, None)
    assert (response.leader, response.members) == ("", [])


@rule("R1")
@pytest.mark.parametrize(("version", "name"), [(6, ""), (7, None)])
def test_before_v7_an_empty_protocol_name_stands_for_none(version: int, name: str | None) -> None:
    assert Stage().join("ghost", version=version).response.protocol_name == name


@rule("R40")
def test_leader_and_follower_receive_the_protocol_type() -> None:
    """Mirrors GroupCoordinatorTest.testJoinGroupReturnsTheProtocolType."""
    stage = Stage()
    (_, leader), (_, follower) = stage.add_member(), stage.add_member()
    stage.wait(2 * DELAY)
    assert leader.response.protocol_type == follower.response.protocol_type == "consumer"


@rule("R40")
def test_only_the_leader_receives_the_members_with_their_metadata_for_the_selected_protocol() -> None:
    stage = Stage()
    a, leader = stage.add_member(protocols=[("range", b"A"), ("sticky", b"x")])
    b, follower = stage.add_member(protocols=[("range", b"B")], version=9)
    stage.wait(2 * DELAY)
    assert leader.response.leader == follower.response.leader == a
    assert [(m.member_id, m.metadata) for m in leader.response.members] == [(a, b"A"), (b, b"B")]
    assert follower.response.members == []


@rule("R164")
def test_the_protocol_that_most_members_prefer_is_selected() -> None:
    """Mirrors ClassicGroupTest.testSelectProtocol."""
    stage = Stage()
    stage.create_generation(
        {"protocols": [("range", b""), ("sticky", b"")]},
        {"protocols": [("sticky", b""), ("range", b"")]},
        {"protocols": [("sticky", b""), ("range", b"")]},
    )
    assert stage.group().protocol_name == "sticky"


@rule("R164")
def test_the_leaders_preference_breaks_a_tie() -> None:
    """The leader's preference breaks a tie between protocols. In Kafka the order of a hash map does."""
    stage = Stage()
    stage.create_generation(
        {"protocols": [("sticky", b""), ("range", b"")]},
        {"protocols": [("range", b""), ("sticky", b"")]},
    )
    assert stage.group().protocol_name == "sticky"


@rule("R164")
def test_only_protocols_that_all_members_support_are_selected() -> None:
    """Mirrors ClassicGroupTest.testSelectProtocolChoosesCompatibleProtocol."""
    stage = Stage()
    stage.create_generation(
        {"protocols": [("sticky", b""), ("range", b"")]},
        {"protocols": [("sticky", b""), ("range", b"")]},
        {"protocols": [("roundrobin", b""), ("range", b"")]},
    )
    assert stage.group().protocol_name == "range"


@rule("R165")
def test_a_protocol_that_is_listed_twice_counts_once() -> None:
    """A protocol that a member lists twice counts as one vote.

    In Kafka 4.3.1 counting the votes raises an exception, and the JoinGroup is never answered.
    """
    stage = Stage()
    protocols = [("range", b"1"), ("range", b"2"), ("roundrobin", b"3")]
    (member,) = stage.create_generation({"protocols": protocols})
    assert stage.group().protocol_name == "range"
    assert stage.group().members[member].metadata("range") == b"1"
    assert stage.join(protocols=RANGE).code is ErrorCode.MEMBER_ID_REQUIRED


@rule("R36")
def test_a_follower_that_rejoins_unchanged_receives_the_current_generation() -> None:
    """Mirrors GroupCoordinatorTest.testJoinGroupFromUnchangedFollowerDoesNotRebalance."""
    stage = Stage()
    leader, follower = stage.create_stable_group({}, {})
    answer = stage.join(follower)
    assert (answer.code, answer.response.generation_id, answer.response.leader) == (0, 1, leader)
    assert answer.response.members == []
    assert stage.state is ClassicGroupState.STABLE


@rule("R36")
def test_a_follower_that_rejoins_unchanged_keeps_the_length_of_its_session_timeout() -> None:
    stage = Stage()
    leader, follower = stage.create_stable_group({}, {})
    assert stage.join(follower, session=30_000).code is ErrorCode.NONE
    assert stage.heartbeat(follower) is ErrorCode.NONE
    stage.wait(SESSION - 1)
    assert stage.heartbeat(leader) is ErrorCode.NONE
    stage.wait(1)
    assert stage.heartbeat(follower) is ErrorCode.UNKNOWN_MEMBER_ID


@rule("R32", "R40")
def test_a_follower_that_rejoins_before_its_assignment_receives_no_members() -> None:
    stage = Stage()
    leader, follower = stage.create_generation({}, {})
    answer = stage.join(follower)
    assert (answer.response.generation_id, answer.response.leader) == (1, leader)
    assert answer.response.members == []


@rule("R36")
def test_a_follower_that_rejoins_unchanged_keeps_its_timeouts_and_its_session_deadline() -> None:
    stage = Stage()
    leader, follower = stage.create_stable_group({}, {})
    stage.wait(SESSION - 1)
    stage.heartbeat(leader)
    assert stage.join(follower, session=30_000).code is ErrorCode.NONE
    stage.wait(1)
    assert stage.heartbeat(follower) is ErrorCode.UNKNOWN_MEMBER_ID


@rule("R34")
def test_a_leader_that_rejoins_unchanged_starts_a_rebalance() -> None:
    """Mirrors GroupCoordinatorTest.testJoinGroupFromUnchangedLeaderShouldRebalance."""
    stage = Stage()
    leader, _ = stage.create_stable_group({}, {})
    assert stage.join(leader).waits
    assert stage.state is ClassicGroupState.PREPARING_REBALANCE


@rule("R35", "R38")
@pytest.mark.parametrize(
    "protocols",
    [
        [("range", b"new"), ("roundrobin", b"rr")],
        [("roundrobin", b"rr"), ("range", b"r")],
        [("range", b"r")],
    ],
    ids=["other bytes", "other order", "fewer"],
)
def test_a_follower_with_changed_metadata_starts_a_rebalance(protocols: list[tuple[str, bytes]]) -> None:
    """GroupMetadataManagerTest.testJoinGroupAsExistingMemberWithUpdatedMetadataTriggersRebalanceInStableState."""
    stage = Stage()
    _, follower = stage.create_stable_group({"protocols": BOTH}, {"protocols": BOTH})
    assert stage.join(follower, protocols=protocols).waits
    assert stage.state is ClassicGroupState.PREPARING_REBALANCE


@rule("R32")
def test_a_leader_that_rejoins_before_its_assignment_receives_the_members_again() -> None:
    """A leader that repeats its JoinGroup before SyncGroup receives the list of members again."""
    stage = Stage()
    leader, follower = stage.create_generation({}, {})
    repeated = stage.join(leader)
    assert [m.member_id for m in repeated.response.members] == [leader, follower]
    assert stage.join(follower).response.members == []
    assert stage.state is ClassicGroupState.COMPLETING_REBALANCE


@rule("R33")
def test_a_member_that_changes_its_metadata_before_the_assignment_starts_another_rebalance() -> None:
    """Mirrors GroupMetadataManagerTest.testJoinGroupExistingMemberUpdatedMetadataTriggersRebalance."""
    stage = Stage()
    _, follower = stage.create_generation({}, {})
    assert stage.join(follower, protocols=[("range", b"new")]).waits
    assert stage.state is ClassicGroupState.PREPARING_REBALANCE


@rule("R22")
def test_the_join_of_the_last_member_completes_the_join_phase() -> None:
    stage = Stage()
    leader, follower = stage.create_stable_group({}, {})
    first = stage.join(leader)
    assert first.waits
    second = stage.join(follower)
    assert [first.code, second.code] == [ErrorCode.NONE, ErrorCode.NONE]


@rule("R31")
def test_a_repeated_join_replaces_the_metadata_of_the_member() -> None:
    stage = Stage()
    member, _ = stage.add_member()
    answer = stage.join(member, protocols=[("range", b"new")])
    stage.wait(DELAY)
    assert [listed.metadata for listed in answer.response.members] == [b"new"]


@rule("R31")
def test_a_repeated_join_replaces_the_one_that_waits() -> None:
    """A repeated JoinGroup replaces the member's pending JoinGroup.

    kproto answers the replaced JoinGroup with an error. Kafka never answers it.
    """
    stage = Stage()
    member, first = stage.add_member()
    second = stage.join(member)
    assert first.code is ErrorCode.REBALANCE_IN_PROGRESS
    stage.wait(DELAY)
    assert second.code is ErrorCode.NONE


@rule("R24")
def test_a_member_cannot_change_to_protocols_that_others_do_not_support() -> None:
    stage = Stage()
    _, follower = stage.create_stable_group({"protocols": RANGE}, {"protocols": BOTH})
    assert stage.join(follower, protocols=[("sticky", b"")]).code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert stage.state is ClassicGroupState.STABLE


# group.max.size (KIP-389)


@rule("R21")
def test_a_full_group_rejects_new_members_in_completing_rebalance() -> None:
    """Mirrors GroupCoordinatorTest.testJoinGroupShouldReceiveErrorIfGroupOverMaxSize."""
    stage = Stage(group_max_size=2)
    stage.create_generation({}, {})
    answer = stage.join(version=3)
    assert (answer.code, answer.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")


@rule("R21")
def test_pending_member_ids_do_not_count_towards_the_group_size() -> None:
    """Mirrors GroupCoordinatorTest.testDynamicMembersJoinGroupWithMaxSizeAndRequiredKnownMember."""
    stage = Stage(group_max_size=2)
    ids = [stage.join().member_id for _ in range(4)]
    answers = [stage.join(member_id) for member_id in ids]
    assert [a.waits for a in answers] == [True, True, False, False]
    assert {a.code for a in answers[2:]} == {ErrorCode.GROUP_MAX_SIZE_REACHED}
    assert [stage.join(member_id).waits for member_id in ids[:2]] == [True, True], "members may rejoin"
    assert {stage.join(i).code for i in ids[2:]} == {ErrorCode.GROUP_MAX_SIZE_REACHED}


@rule("R21")
def test_a_full_group_rejects_an_unknown_member_id_for_its_size_first() -> None:
    """The coordinator checks whether the group is full before it checks the member id, as in Kafka 4.3.1."""
    stage = Stage(group_max_size=1)
    stage.create_stable_group()
    assert stage.join("ghost").code is ErrorCode.GROUP_MAX_SIZE_REACHED


@rule("R21")
def test_a_full_group_rejects_even_a_static_member_that_restarts() -> None:
    """A static member that restarts sends no member id, so a full group rejects it like a new member."""
    stage = Stage(group_max_size=1)
    (member,) = stage.create_stable_group({"instance": "i"})
    assert stage.join(instance="i").code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert stage.join(member, instance="i").response.generation_id == 2


@rule("R21")
def test_the_metadata_of_all_members_has_a_limit() -> None:
    stage = Stage()
    most = [("range", bytes(MAX_GROUP_METADATA_BYTES))]
    assert stage.join(version=3, protocols=most).waits
    assert stage.join(version=3, protocols=[("range", b"x")]).code is ErrorCode.GROUP_MAX_SIZE_REACHED


@rule("R21")
def test_metadata_above_the_limit_creates_no_member() -> None:
    stage = Stage()
    too_large = [("range", bytes(MAX_GROUP_METADATA_BYTES // 2)), ("x", bytes(MAX_GROUP_METADATA_BYTES))]
    assert stage.join(version=3, protocols=too_large).code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert not stage.group().members


@rule("R21")
def test_a_member_that_rejoins_replaces_its_own_metadata() -> None:
    stage = Stage()
    most = [("range", bytes(MAX_GROUP_METADATA_BYTES))]
    (member,) = stage.create_stable_group({"protocols": most})
    assert stage.join(member, protocols=most).code is ErrorCode.NONE


@rule("R21")
def test_a_member_with_too_large_metadata_stays_in_the_group() -> None:
    """If the member were removed, its earlier JoinGroup, which is delayed, would never be answered."""
    stage = Stage()
    member, other = stage.create_stable_group({}, {})
    too_large = [("range", bytes(MAX_GROUP_METADATA_BYTES + 1))]
    waiting = stage.join(member)
    assert stage.join(member, protocols=too_large).code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert stage.join(other).code is ErrorCode.NONE
    assert waiting.code is ErrorCode.NONE
    assert list(stage.group().members) == [member, other]
    assert not any(isinstance(notice, MemberRemoved) for notice in stage.notices)


@rule("R21")
def test_too_large_metadata_leaves_no_stable_group_without_members() -> None:
    stage = Stage()
    (member,) = stage.create_stable_group()
    too_large = [("range", bytes(MAX_GROUP_METADATA_BYTES + 1))]
    assert stage.join(member, protocols=too_large).code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert list(stage.group().members) == [member]


@rule("R21", "R22")
def test_the_last_members_that_rejoin_an_oversized_group_are_removed() -> None:
    """Mirrors GroupCoordinatorTest.testLastJoiningMembersAreKickedOutWhenReJoiningGroupWithMaxSize."""
    stage = Stage()
    members = stage.create_stable_group({}, {}, {})
    stage.coordinator.settings = type(stage.coordinator.settings)(group_max_size=2)
    answers = [stage.join(member) for member in members]
    assert answers[2].code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert [a.code for a in answers[:2]] == [ErrorCode.NONE, ErrorCode.NONE]
    assert list(stage.group().members) == members[:2]
    removed = [notice for notice in stage.notices if isinstance(notice, MemberRemoved)]
    assert removed == [MemberRemoved("g", members[2], "the group has more than 2 members")]


@rule("R21")
def test_an_empty_group_always_accepts_a_member() -> None:
    stage = Stage(group_max_size=1)
    (member,) = stage.create_stable_group()
    stage.leave(member)
    assert stage.join(version=3).waits


@rule("R8")
def test_a_new_group_is_empty_in_generation_zero_without_a_protocol() -> None:
    stage = Stage()
    stage.join()
    group = stage.group()
    assert (group.state, group.generation) == (ClassicGroupState.EMPTY, 0)
    assert (group.protocol_type, group.protocol_name, group.leader) == (None, None, None)


@rule("R29")
def test_the_first_member_sets_the_protocol_type_of_a_group_that_became_empty() -> None:
    stage = Stage()
    (member,) = stage.create_stable_group()
    stage.leave(member)
    newcomer, _ = stage.add_member(protocol_type="connect", protocols=[("default", b"")])
    assert (stage.group().protocol_type, stage.group().leader) == ("connect", newcomer)


@rule("R21")
def test_a_member_that_a_full_group_rejects_receives_no_member_id() -> None:
    stage = Stage(group_max_size=1)
    first, second = stage.join().member_id, stage.join().member_id
    stage.join(first)
    answer = stage.join(second)
    assert (answer.code, answer.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert list(stage.group().members) == [first]

"""DescribeGroups and ListGroups return groups. DeleteGroups deletes only groups without members."""

from __future__ import annotations

import pytest

from kproto.error_codes import ErrorCode
from kproto.group.classic.coordinator import ClassicGroupState
from kproto.messages.list_groups import ListGroupsRequest
from tests.group.classic.coordinator.stage import REBALANCE, Stage
from tests.rules import rule


@rule("R113")
@pytest.mark.parametrize("version", range(6))
def test_up_to_v5_an_unknown_group_is_dead_and_no_error(version: int) -> None:
    """Mirrors GroupCoordinatorTest.testDescribeGroupInactiveGroup."""
    group = Stage().describe("nobody", version=version)
    assert (group.error_code, group.group_state, group.error_message) == (0, "Dead", None)
    assert (group.protocol_type, group.protocol_data, group.members) == ("", "", [])


@rule("R113", "R116")
def test_from_v6_an_unknown_group_is_dead_and_an_error() -> None:
    """From v6 on, an unknown group has the error GROUP_ID_NOT_FOUND (KIP-1043)."""
    group = Stage().describe("nobody", version=6, operations=True)
    assert (group.error_code, group.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    assert group.error_message
    assert group.authorized_operations == -(2**31)


@rule("R116")
@pytest.mark.parametrize(("requested", "operations"), [(True, 3400), (False, -(2**31))])
def test_authorized_operations_are_returned_on_request(requested: bool, operations: int) -> None:
    """The authorized operations are returned on request. Up to v5 they are also returned for an unknown
    group; from v6 on, the response is GROUP_ID_NOT_FOUND.

    3400 has the bits of all operations on a group. Kafka 4.3.1 without an authorizer also returns 3400.
    """
    assert Stage().describe("nobody", version=5, operations=requested).authorized_operations == operations


@rule("R5", "R114")
def test_a_stable_group_is_described_completely() -> None:
    """Mirrors GroupCoordinatorTest.testDescribeGroupStableForStaticMember."""
    stage = Stage()
    (member,) = stage.create_stable_group(
        {"instance": "i", "client": "billing", "protocols": [("range", b"topics")]}
    )
    group = stage.describe()
    assert (group.error_code, group.error_message, group.group_state) == (0, None, "Stable")
    assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
    (shown,) = group.members
    assert (shown.member_id, shown.group_instance_id, shown.client_id) == (member, "i", "billing")
    assert (shown.client_host, shown.member_metadata) == ("/127.0.0.1", b"topics")
    assert shown.member_assignment == member.encode()


@rule("R115")
def test_outside_of_stable_neither_protocol_nor_metadata_is_shown() -> None:
    """Mirrors GroupMetadataManagerTest.testDescribeGroupRebalancing."""
    stage = Stage()
    stage.create_generation()
    group = stage.describe()
    assert (group.group_state, group.protocol_data) == ("CompletingRebalance", "")
    assert [m.member_metadata for m in group.members] == [b""]


@rule("R115")
def test_the_last_assignment_is_shown_until_the_next_one_arrives() -> None:
    """As observed with Kafka 4.3.1."""
    stage = Stage()
    leader, follower = stage.create_stable_group({}, {})
    stage.join(leader)
    assignments = [leader.encode(), follower.encode()]
    assert [m.member_assignment for m in stage.describe().members] == assignments
    stage.join(follower)
    assert stage.state is ClassicGroupState.COMPLETING_REBALANCE
    assert [m.member_assignment for m in stage.describe().members] == assignments


@rule("R50", "R115")
def test_a_rebalance_before_the_assignment_clears_the_last_assignment() -> None:
    """As observed with Kafka 4.3.1."""
    stage = Stage()
    leader, follower = stage.create_stable_group({}, {})
    stage.join(leader)
    stage.join(follower)
    stage.add_member()
    assert {m.member_assignment for m in stage.describe().members} == {b""}


@rule("R115")
def test_an_empty_group_keeps_its_protocol_type() -> None:
    stage = Stage()
    (member,) = stage.create_stable_group()
    stage.leave(member)
    group = stage.describe()
    assert (group.group_state, group.protocol_type, group.members) == ("Empty", "consumer", [])


@rule("R118", "R122")
def test_every_group_is_listed_with_state_and_type() -> None:
    """Mirrors GroupCoordinatorTest.testListGroupsIncludesStableGroups."""
    stage = Stage()
    stage.create_stable_group()
    stage.commit(group="offsets-only")
    listed = {g.group_id: (g.protocol_type, g.group_state, g.group_type) for g in stage.list_groups()}
    assert listed == {"g": ("consumer", "Stable", "classic"), "offsets-only": ("", "Empty", "classic")}


@rule("R119")
@pytest.mark.parametrize(
    ("states", "expected"),
    [
        (["Stable"], ["g"]),
        (["sTABLE"], ["g"]),
        ([" Stable "], ["g"]),
        (["Empty", "Stable"], ["g"]),
        (["Empty"], []),
        (["Confused"], []),
    ],
)
def test_the_state_filter_ignores_case_blanks_and_unknown_states(
    states: list[str], expected: list[str]
) -> None:
    """The state filter ignores case, surrounding spaces and unknown states, as in Kafka 4.3.1. Mirrors
    GroupCoordinatorTest.testListGroupsWithStates.
    """
    stage = Stage()
    stage.create_stable_group()
    assert [group.group_id for group in stage.list_groups(states)] == expected


@rule("R119")
@pytest.mark.parametrize(
    ("types", "count"), [(["Classic"], 1), ([" classic "], 1), (["consumer"], 0), (["?"], 0), ([], 1)]
)
def test_the_type_filter_ignores_case_blanks_and_unknown_types(types: list[str], count: int) -> None:
    """Mirrors GroupCoordinatorTest.testListGroupsWithTypes."""
    stage = Stage()
    stage.create_stable_group()
    assert len(stage.list_groups(types=types)) == count


@rule("R119")
def test_the_state_filter_matches_the_current_state() -> None:
    stage = Stage()
    member = stage.join().member_id
    assert stage.list_groups(["Empty"])
    stage.join(member)
    assert stage.list_groups(["PreparingRebalance"])
    stage.await_generation()
    assert stage.list_groups(["CompletingRebalance"])
    stage.sync_all([member])
    assert stage.list_groups(["Stable"])
    stage.leave(member)
    assert stage.list_groups(["Empty"])


@rule("R118")
@pytest.mark.parametrize("version", range(6))
def test_groups_are_listed_in_every_version(version: int) -> None:
    stage = Stage()
    stage.create_stable_group()
    assert [g.group_id for g in stage.send(ListGroupsRequest(), version).response.groups] == ["g"]


@rule("R124")
def test_a_group_with_members_is_not_deleted() -> None:
    """Mirrors GroupCoordinatorTest.testDeleteNonEmptyGroup."""
    stage = Stage()
    (member,) = stage.create_stable_group()
    assert stage.delete("g") == [ErrorCode.NON_EMPTY_GROUP]
    stage.join(member)
    assert stage.delete("g") == [ErrorCode.NON_EMPTY_GROUP]


@rule("R123")
def test_deleting_an_unknown_group_is_an_error() -> None:
    assert Stage().delete("nobody") == [ErrorCode.GROUP_ID_NOT_FOUND]


@rule("R125")
def test_an_empty_group_is_deleted_with_its_offsets() -> None:
    """Mirrors GroupCoordinatorTest.testDeleteEmptyGroupWithStoredOffsets."""
    stage = Stage()
    stage.commit()
    assert stage.delete("g") == [ErrorCode.NONE]
    assert stage.committed_offsets() == []
    assert stage.describe(version=5).group_state == "Dead"


@rule("R125")
def test_pending_member_ids_are_deleted_with_their_group() -> None:
    stage = Stage()
    pending = stage.join().member_id
    assert stage.delete("g") == [ErrorCode.NONE]
    assert stage.join(pending).code is ErrorCode.UNKNOWN_MEMBER_ID
    stage.wait(REBALANCE)


@rule("R125")
def test_a_group_that_is_named_twice_is_deleted_once() -> None:
    stage = Stage()
    stage.commit(group="")
    assert stage.delete("", "x", "") == [ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND]


def test_a_description_finds_a_member_by_its_id() -> None:
    stage = Stage()
    (member,) = stage.create_stable_group()
    described = stage.coordinator.describe("g")
    assert described is not None
    assert described.member(member) == described.members[0]
    assert described.member("other") is None
    assert stage.coordinator.describe("other") is None

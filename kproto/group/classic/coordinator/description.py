"""What anyone may know of a group: DescribeGroups and ListGroups.

Rules that hold here:

* An unknown group is described as "Dead". Up to v5 that is no error; from v6 on it is GROUP_ID_NOT_FOUND
  with a text.
* The protocol and what the members said in it are shown in Stable only. Assignments are shown as last stored:
  through a rebalance from Stable until the next plan, and no longer once a rebalance began before its plan
  was there.
* ListGroups filters by state and type as people write them: case and surrounding blanks don't matter, and a
  word that is no state matches nothing.

Follows GroupMetadataManager.describeGroups and listGroups of Kafka 4.3.
"""

from __future__ import annotations

from typing import Final

from ....error_codes import ErrorCode
from ....messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from ....messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from .state import Group, GroupState, Received, Turn

# Without an authorizer everyone may READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS and ALTER_CONFIGS a group: the
# bits are AclOperation's codes.
ALL_OPERATIONS: Final = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
NOT_ASKED: Final = -0x80000000  # Kafka's "no operations were asked for"

_V_NOT_FOUND: Final = 6  # KIP-1043: an unknown group is an error

CLASSIC: Final = "classic"


def describe_groups(turn: Turn, call: Received[DescribeGroupsRequest]) -> None:
    """Answer with every group asked for, in that order."""
    asked = call.request.include_authorized_operations
    turn.reply(
        call,
        DescribeGroupsResponse(
            groups=[
                _describe(_seen(turn, group_id), call.version, ALL_OPERATIONS if asked else NOT_ASKED)
                for group_id in call.request.groups
            ]
        ),
    )


def _seen(turn: Turn, group_id: str) -> Group:
    group = turn.coordinator.find(group_id)
    return group if group.written else Group(group_id)


def _describe(group: Group, version: int, operations: int) -> DescribedGroup:
    missing = group.state is GroupState.DEAD and version >= _V_NOT_FOUND
    stable = group.state is GroupState.STABLE
    return DescribedGroup(
        error_code=ErrorCode.GROUP_ID_NOT_FOUND if missing else ErrorCode.NONE,
        error_message=f"Group {group.group_id} not found." if missing else None,
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if stable else "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(group.protocol_name) if stable else b"",
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ],
        authorized_operations=NOT_ASKED if missing else operations,
    )


def list_groups(turn: Turn, call: Received[ListGroupsRequest]) -> None:
    """Answer with the groups that pass both filters; an empty filter lets everything pass."""
    states = {state.strip().lower() for state in call.request.states_filter}
    types = {kind.strip().lower() for kind in call.request.types_filter}
    turn.reply(
        call,
        ListGroupsResponse(
            error_code=ErrorCode.NONE,
            groups=[
                ListedGroup(
                    group_id=group.group_id,
                    protocol_type=group.protocol_type or "",
                    group_state=group.state.value,
                    group_type=CLASSIC,
                )
                for group in turn.coordinator.groups.values()
                if group.written
                and (not states or group.state.value.lower() in states)
                and (not types or CLASSIC in types)
            ],
        ),
    )

"""DescribeGroups and ListGroups.

* R113: an unknown group is described as Dead. The error code is NONE up to DescribeGroups v5, and
  GROUP_ID_NOT_FOUND with a message from v6 on.

* R114, R115: the protocol name and the members' metadata are shown in Stable only. The assignments that were
  stored last are shown in every state. A rebalance that starts in CompletingRebalance clears them.

* R119: ListGroups ignores case and surrounding whitespace in its filters. An unknown state or type in a
  filter matches no group.

The module follows GroupMetadataManager.describeGroups and listGroups of Kafka 4.3.
"""

from __future__ import annotations

from typing import Final

from ....error_codes import ErrorCode
from ....machine import RequestReceived
from ....messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from ....messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from .state import ClassicGroup, ClassicGroupState, GroupContext

# The operations that a broker without an authorizer reports as authorized: READ, DELETE, DESCRIBE,
# DESCRIBE_CONFIGS and ALTER_CONFIGS. Bit n stands for the AclOperation with code n.
ALL_OPERATIONS: Final = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
# Kafka's value of `authorized_operations` in the response to a request that does not ask for the operations.
OPERATIONS_NOT_REQUESTED: Final = -0x80000000

_NOT_FOUND_VERSION: Final = 6  # DescribeGroups, KIP-1043

CLASSIC: Final = "classic"


def describe_groups(context: GroupContext, call: RequestReceived[DescribeGroupsRequest]) -> None:
    """Answer with a description of every requested group, in the order of the request (R113, R116)."""
    operations = ALL_OPERATIONS if call.request.include_authorized_operations else OPERATIONS_NOT_REQUESTED
    context.reply(
        call,
        DescribeGroupsResponse(
            groups=[
                _describe_group(_find_written_group(context, group_id), call.version, operations)
                for group_id in call.request.groups
            ]
        ),
    )


def _find_written_group(context: GroupContext, group_id: str) -> ClassicGroup:
    """Return the group if Kafka would have written it to the log, else a Dead group (R176)."""
    group = context.coordinator.find(group_id)
    return group if group.written else ClassicGroup(group_id)


def _describe_group(group: ClassicGroup, version: int, operations: int) -> DescribedGroup:
    """Return the description of a group in one version of DescribeGroups (R113, R114, R115)."""
    is_not_found = group.state is ClassicGroupState.DEAD and version >= _NOT_FOUND_VERSION
    is_stable = group.state is ClassicGroupState.STABLE
    return DescribedGroup(
        error_code=ErrorCode.GROUP_ID_NOT_FOUND if is_not_found else ErrorCode.NONE,
        error_message=f"Group {group.group_id} not found." if is_not_found else None,
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if is_stable else "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(group.protocol_name) if is_stable else b"",
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ],
        authorized_operations=OPERATIONS_NOT_REQUESTED if is_not_found else operations,
    )


def list_groups(context: GroupContext, call: RequestReceived[ListGroupsRequest]) -> None:
    """Answer with the groups that match the state and type filters (R118, R119, R122).

    An empty filter matches every group.
    """
    states = {state.strip().lower() for state in call.request.states_filter}
    types = {group_type.strip().lower() for group_type in call.request.types_filter}
    context.reply(
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
                for group in context.coordinator.groups.values()
                if group.written
                and (not states or group.state.value.lower() in states)
                and (not types or CLASSIC in types)
            ],
        ),
    )

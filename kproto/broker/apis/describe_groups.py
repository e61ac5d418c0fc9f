"""DescribeGroups (key 15)."""

from __future__ import annotations

from ...error_codes import ErrorCode
from ...messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from ..broker import Broker
from ..call import Call, Result
from ..security.acls import Operation, Resource
from .api import Api
from .authorization import GROUP_FAILED, Access, Authorization, Authorized, group_requirement
from .group_coordinator import errors_of_other_groups, send_to_coordinator
from .repeated_names import repeat_as_named


def handle_describe_groups(broker: Broker, call: Call) -> Result:
    """Pass the request to the group coordinator; groups that other nodes coordinate get an error.

    A group that the request names twice is described twice. If all repetitions together are larger than
    `MAX_REPEATED` bytes, each group is described once.
    """
    request = call.request
    assert isinstance(request, DescribeGroupsRequest)
    group_ids = list(dict.fromkeys(request.groups))
    errors = errors_of_other_groups(broker, call, group_ids)
    if errors or len(group_ids) < len(request.groups):

        def add_refusals_and_repetitions(response: DescribeGroupsResponse) -> None:
            refusals = (_refuse_group(group_id, error) for group_id, error in errors.items())
            described = {group.group_id: group for group in (*response.groups, *refusals)}
            response.groups = repeat_as_named(described, request.groups, _approximate_size)

        own_groups = [group_id for group_id in group_ids if group_id not in errors]
        call = broker.replace_call(call.with_fields(groups=own_groups), add_refusals_and_repetitions)
    return send_to_coordinator(broker, call)


def _approximate_size(group: DescribedGroup) -> int:
    """Return the approximate size, in bytes, of the group in a response."""
    return 100 + sum(
        200 + len(member.member_metadata) + len(member.member_assignment) for member in group.members
    )


def _refuse_group(group_id: str, error: ErrorCode) -> DescribedGroup:
    return DescribedGroup(
        error_code=error, group_id=group_id, group_state="", protocol_type="", protocol_data="", members=[]
    )


def _authorize(access: Access, request: DescribeGroupsRequest) -> Authorized:
    denied = [
        group_id for group_id in request.groups if not access.allows_group(Operation.DESCRIBE, group_id)
    ]

    def restrict_operations_and_add_refusals(response: DescribeGroupsResponse) -> None:
        for group in response.groups:
            group.authorized_operations = access.authorized_operations(
                group.authorized_operations, Resource.GROUP, group.group_id
            )
        response.groups.extend(_refuse_group(group_id, GROUP_FAILED) for group_id in denied)

    denied_ids = set(denied)
    permitted = [group_id for group_id in request.groups if group_id not in denied_ids]
    return access.narrow(restrict_operations_and_add_refusals, groups=permitted)


API = Api(
    request=DescribeGroupsRequest,
    handle=handle_describe_groups,
    authorization=Authorization((group_requirement(Operation.DESCRIBE),), _authorize),
    divided=("groups",),
    unique=True,
)

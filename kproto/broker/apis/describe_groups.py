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


def handle_describe_groups(broker: Broker, call: Call) -> Result:
    """Pass the request to the group coordinator; groups of other nodes are answered with an error.

    A group that the request names twice is described once: the response may have megabytes for each group.
    """
    request = call.request
    assert isinstance(request, DescribeGroupsRequest)
    call = call.with_fields(groups=list(dict.fromkeys(request.groups)))
    errors = errors_of_other_groups(broker, call, request.groups)
    if errors:
        refusals = [_refuse_group(group_id, error) for group_id, error in errors.items()]
        own_groups = [group_id for group_id in dict.fromkeys(request.groups) if group_id not in errors]
        call = broker.replace_call(
            call.with_fields(groups=own_groups),
            lambda response: response.groups.extend(refusals),
        )
    return send_to_coordinator(broker, call)


def _refuse_group(group_id: str, error: ErrorCode) -> DescribedGroup:
    return DescribedGroup(
        error_code=error, group_id=group_id, group_state="", protocol_type="", protocol_data="", members=[]
    )


def _authorize(access: Access, request: DescribeGroupsRequest) -> Authorized:
    denied = dict.fromkeys(
        group_id for group_id in request.groups if not access.allows_group(Operation.DESCRIBE, group_id)
    )

    def add_refusals(response: DescribeGroupsResponse) -> None:
        for group in response.groups:
            group.authorized_operations = access.authorized_operations(
                group.authorized_operations, Resource.GROUP, group.group_id
            )
        response.groups.extend(_refuse_group(group_id, GROUP_FAILED) for group_id in denied)

    permitted = [group_id for group_id in request.groups if group_id not in denied]
    return access.narrow(add_refusals, groups=permitted)


API = Api(
    request=DescribeGroupsRequest,
    handle=handle_describe_groups,
    authorization=Authorization((group_requirement(Operation.DESCRIBE),), _authorize),
    divided=("groups",),
    unique=True,
)

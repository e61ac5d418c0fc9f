"""DeleteGroups (key 42)."""

from __future__ import annotations

from ...error_codes import ErrorCode
from ...messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest
from ..broker import Broker
from ..call import Call, Result
from ..security.acls import Operation
from .api import Api
from .authorization import GROUP_FAILED, Access, Authorization, Authorized, group_requirement
from .group_coordinator import errors_of_other_groups, send_to_coordinator


def handle_delete_groups(broker: Broker, call: Call) -> Result:
    """Pass the request to the group coordinator; groups that other nodes coordinate get an error."""
    request = call.request
    assert isinstance(request, DeleteGroupsRequest)
    errors = errors_of_other_groups(broker, call, request.groups_names)
    if errors:
        refusals = [_refuse_group(group_id, error) for group_id, error in errors.items()]
        own_groups = [group_id for group_id in request.groups_names if group_id not in errors]
        call = broker.replace_call(
            call.with_fields(groups_names=own_groups),
            lambda response: response.results.extend(refusals),
        )
    return send_to_coordinator(broker, call)


def _refuse_group(group_id: str, error: ErrorCode) -> DeletableGroupResult:
    return DeletableGroupResult(group_id=group_id, error_code=error)


def _authorize(access: Access, request: DeleteGroupsRequest) -> Authorized:
    denied = dict.fromkeys(
        group_id for group_id in request.groups_names if not access.allows_group(Operation.DELETE, group_id)
    )
    refusals = [_refuse_group(group_id, GROUP_FAILED) for group_id in denied]
    permitted = [group_id for group_id in request.groups_names if group_id not in denied]
    return access.narrow(lambda response: response.results.extend(refusals), groups_names=permitted)


API = Api(
    request=DeleteGroupsRequest,
    handle=handle_delete_groups,
    authorization=Authorization((group_requirement(Operation.DELETE),), _authorize),
    divided=("results",),
    unique=True,
)

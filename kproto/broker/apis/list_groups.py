"""ListGroups (key 16): the groups of this node, or an error while the node loads one of them."""

from __future__ import annotations

from ...error_codes import ErrorCode
from ...messages.list_groups import ListGroupsRequest, ListGroupsResponse
from ..broker import Broker
from ..call import Call, Result
from ..security.acls import Operation, Resource
from .api import Api
from .authorization import Access, Authorization, Authorized, omission
from .group_coordinator import send_to_coordinator


def handle_list_groups(broker: Broker, call: Call) -> Result:
    """Pass the request to the group coordinator.

    The response lists only the groups that this node coordinates. While the node loads one of them, the
    response is COORDINATOR_LOAD_IN_PROGRESS.
    """
    cluster, node_id = broker.cluster, broker.node.id
    if cluster.needs_routing:
        loading_ids = [group_id for group_id, loaded_at in cluster.loading.items() if loaded_at > call.now]
        if any(cluster.group_coordinator_of(group_id) == node_id for group_id in loading_ids):
            return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, groups=[])

        def keep_own_groups(response: ListGroupsResponse) -> None:
            response.groups = [
                group for group in response.groups if cluster.group_coordinator_of(group.group_id) == node_id
            ]

        call = broker.replace_call(call, keep_own_groups)
    return send_to_coordinator(broker, call)


def _authorize(access: Access, request: ListGroupsRequest) -> Authorized:
    """Authorize every caller; list only the groups that the caller may describe.

    A caller with DESCRIBE on the cluster may describe all groups. Any other caller may describe only the
    groups on which it has DESCRIBE.
    """
    if access.allows_cluster(Operation.DESCRIBE):
        return access.call

    def remove_denied(response: ListGroupsResponse) -> None:
        response.groups = [
            group for group in response.groups if access.allows_group(Operation.DESCRIBE, group.group_id)
        ]

    return access.narrow(remove_denied)


API = Api(
    request=ListGroupsRequest,
    handle=handle_list_groups,
    authorization=Authorization(
        (omission(Operation.DESCRIBE, Resource.CLUSTER), omission(Operation.DESCRIBE, Resource.GROUP)),
        _authorize,
    ),
)

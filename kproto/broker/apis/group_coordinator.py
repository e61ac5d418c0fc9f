"""The routing of requests to the group coordinator, and errors for groups that other nodes coordinate.

Rules on a cluster of several nodes, as in Kafka's GroupCoordinatorService:

* A request for a single group that another node coordinates is answered with NOT_COORDINATOR.

* For a request for several groups, only the results of the groups that another node coordinates contain
  NOT_COORDINATOR.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from ...error_codes import ErrorCode
from ...group.protocol import GroupRequest
from ...machine import RequestReceived
from ..broker import Broker
from ..call import PARKED, Call, Result


def handle_group_request(broker: Broker, call: Call) -> Result:
    """Pass a request for one group to the coordinator, or reject it if another node coordinates the group."""
    if broker.cluster.needs_routing:
        group_id = cast("GroupRequest", call.request).group_id
        error = broker.cluster.coordinator_error(group_id, broker.node.id, call.now)
        if error is not ErrorCode.NONE:
            return call.refuse(error)
    return send_to_coordinator(broker, call)


def errors_of_other_groups(broker: Broker, call: Call, group_ids: Iterable[str]) -> dict[str, ErrorCode]:
    """Return the error for each group that another node coordinates, or that this node is still loading."""
    if not broker.cluster.needs_routing:
        return {}
    errors = {
        group_id: broker.cluster.coordinator_error(group_id, broker.node.id, call.now)
        for group_id in group_ids
    }
    return {group_id: error for group_id, error in errors.items() if error is not ErrorCode.NONE}


def send_to_coordinator(broker: Broker, call: Call) -> Result:
    """Pass a request to the group coordinator, which sends the response.

    The coordinator may respond later. For example, it responds to JoinGroup when the join phase completes.
    """
    event = RequestReceived(
        token=call.conn,
        request=call.request,
        version=call.version,
        client_id=call.envelope.header.client_id or "",
        # DescribeGroups shows the host as Java formats an InetAddress without a host name: `/127.0.0.1`.
        client_host=f"/{call.host}",
        random_id=str(call.random_id),
    )
    broker.step_group_coordinator(event, call.now)
    return PARKED

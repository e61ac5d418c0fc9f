"""Heartbeat (key 12), which also succeeds while the coordinator loads the group (R69).

Clients do not expect COORDINATOR_LOAD_IN_PROGRESS in a Heartbeat response: Java's AbstractCoordinator reports
it as an unexpected error.
"""

from __future__ import annotations

from ...error_codes import ErrorCode
from ...messages.heartbeat import HeartbeatRequest
from ..broker import Broker
from ..call import Call, Result
from ..security.acls import Operation
from .api import Api
from .authorization import on_group
from .group_coordinator import handle_group_request


def handle_heartbeat(broker: Broker, call: Call) -> Result:
    """Respond with NONE while the group is loading, as Kafka's GroupCoordinatorService does."""
    request = call.request
    assert isinstance(request, HeartbeatRequest)
    error = broker.cluster.coordinator_error(request.group_id, broker.node.id, call.now)
    if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        return call.refuse(ErrorCode.NONE)
    return handle_group_request(broker, call)


API = Api(
    request=HeartbeatRequest,
    handle=handle_heartbeat,
    authorization=on_group(Operation.READ),
)

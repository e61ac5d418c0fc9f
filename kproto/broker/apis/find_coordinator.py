"""FindCoordinator (key 10): find the coordinator of a group or of a transactional id (R7, R170)."""

from __future__ import annotations

from typing import Any, Final

from ...error_codes import ErrorCode
from ...messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ..broker import Broker
from ..call import Call, Node, Result
from ..security.acls import Operation, Resource
from .api import Api
from .authorization import (
    AUTHORIZATION_FAILED,
    GROUP_FAILED,
    TRANSACTIONAL_ID_FAILED,
    Access,
    Authorization,
    Authorized,
    group_requirement,
    transactional_id_requirement,
)

# FindCoordinatorRequest.CoordinatorType
GROUP: Final = 0
TRANSACTION: Final = 1
BATCHED_SINCE: Final = 4  # The first version whose requests may have several keys (KIP-699).


def handle_find_coordinator(broker: Broker, call: Call) -> Result:
    """Find the coordinators of all keys of the request."""
    request = call.request
    assert isinstance(request, FindCoordinatorRequest)
    type_error: str | None = None
    if request.key_type not in (GROUP, TRANSACTION):
        type_error = f"there is no coordinator of type {request.key_type} on this broker"
    if call.version >= BATCHED_SINCE:
        return FindCoordinatorResponse(
            coordinators=[
                _find_coordinator(broker, call, key, request.key_type, type_error)
                for key in request.coordinator_keys
            ]
        )
    if type_error is not None:
        return _refuse_single(ErrorCode.INVALID_REQUEST, type_error)
    node = _coordinator_node(broker, request.key, request.key_type)
    if node is None:
        return _refuse_single(ErrorCode.COORDINATOR_NOT_AVAILABLE, None)
    host, port = node.address(call.listener)
    # The error message of a successful response: Kafka sends "NONE" up to v3, and an empty string from v4 on.
    return FindCoordinatorResponse(error_message="NONE", node_id=node.id, host=host, port=port)


def _coordinator_node(broker: Broker, key: str, key_type: int) -> Node | None:
    """Return the node that coordinates a group or transactional id, or None if that node is down."""
    cluster = broker.cluster
    if key_type == TRANSACTION:
        return cluster.nodes.get(cluster.transaction_coordinator_of(key))
    return cluster.nodes.get(cluster.group_coordinator_of(key))


def _find_coordinator(
    broker: Broker, call: Call, key: str, key_type: int, type_error: str | None
) -> Coordinator:
    """Return the result of one key. `type_error` is the message for an unknown `key_type`."""
    if type_error is not None:
        return _refuse_key(key, ErrorCode.INVALID_REQUEST, type_error)
    node = _coordinator_node(broker, key, key_type)
    if node is None:
        return _refuse_key(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, None)
    host, port = node.address(call.listener)
    return Coordinator(key=key, node_id=node.id, host=host, port=port, error_code=0, error_message="")


def _refuse_key(key: str, error: ErrorCode, message: str | None) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=error, error_message=message)


def _refuse_single(error: ErrorCode, message: str | None) -> FindCoordinatorResponse:
    """Return an error response in the format of versions below 4, whose requests have one key."""
    return FindCoordinatorResponse(error_code=error, error_message=message, node_id=-1, host="", port=-1)


def _authorize(access: Access, request: FindCoordinatorRequest) -> Authorized:
    """Refuse keys for which the caller lacks DESCRIBE. The handler rejects unknown key types."""
    resource = Resource.GROUP if request.key_type == GROUP else Resource.TRANSACTIONAL_ID
    error = GROUP_FAILED if request.key_type == GROUP else TRANSACTIONAL_ID_FAILED
    keys = request.coordinator_keys if access.call.version >= BATCHED_SINCE else [request.key]
    denied = {key for key in keys if not access.allows(Operation.DESCRIBE, resource, key)}
    if not denied or request.key_type not in (GROUP, TRANSACTION):
        return access.call
    if access.call.version < BATCHED_SINCE:
        return _refuse_single(error, AUTHORIZATION_FAILED)

    def add_refusals(response: Any) -> None:
        response.coordinators.extend(_refuse_key(key, error, AUTHORIZATION_FAILED) for key in denied)

    return access.narrow(add_refusals, coordinator_keys=[key for key in keys if key not in denied])


API = Api(
    request=FindCoordinatorRequest,
    handle=handle_find_coordinator,
    authorization=Authorization(
        (group_requirement(Operation.DESCRIBE), transactional_id_requirement(Operation.DESCRIBE)), _authorize
    ),
    divided=("coordinators",),
    unique=True,
)

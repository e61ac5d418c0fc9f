"""FindCoordinator (key 10): who coordinates a group, or the transactions of an id."""

from __future__ import annotations

from typing import Final

from ...error_codes import ErrorCode
from ...messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ..broker import Broker
from ..call import Call, Node, Result

GROUP: Final = 0
TRANSACTION: Final = 1
BATCHED_SINCE: Final = 4  # KIP-699: many keys in one request


def find_coordinator(broker: Broker, call: Call) -> Result:
    """Who coordinates a group, or the transactions of an id."""
    request = call.envelope.request
    assert isinstance(request, FindCoordinatorRequest)
    refused: str | None = None
    if request.key_type not in (GROUP, TRANSACTION):
        refused = f"there is no coordinator of type {request.key_type} on this broker"
    if call.version >= BATCHED_SINCE:
        return FindCoordinatorResponse(
            coordinators=[
                _coordinator(broker, call, key, request.key_type, refused) for key in request.coordinator_keys
            ]
        )
    if refused is not None:
        return FindCoordinatorResponse(
            error_code=ErrorCode.INVALID_REQUEST, error_message=refused, node_id=-1, host="", port=-1
        )
    node = _node(broker, request.key, request.key_type)
    if node is None:
        why = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return FindCoordinatorResponse(error_code=why, error_message=None, node_id=-1, host="", port=-1)
    host, port = node.at(call.listener)
    # Kafka's old answers have the word NONE where the new ones have nothing.
    return FindCoordinatorResponse(error_message="NONE", node_id=node.id, host=host, port=port)


def _node(broker: Broker, key: str, kind: int) -> Node | None:
    cluster = broker.cluster
    return cluster.nodes.get(
        cluster.transaction_coordinator_of(key) if kind == TRANSACTION else cluster.group_coordinator_of(key)
    )


def _coordinator(broker: Broker, call: Call, key: str, kind: int, refused: str | None) -> Coordinator:
    if refused is not None:
        return Coordinator(
            key=key, node_id=-1, host="", port=-1, error_code=ErrorCode.INVALID_REQUEST, error_message=refused
        )
    node = _node(broker, key, kind)
    if node is None:
        why = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=why, error_message=None)
    host, port = node.at(call.listener)
    return Coordinator(key=key, node_id=node.id, host=host, port=port, error_code=0, error_message="")

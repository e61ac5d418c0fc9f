"""DescribeCluster (key 60): the nodes of the cluster."""

from __future__ import annotations

from typing import Final

from ...error_codes import ErrorCode
from ...messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from ..broker import Broker
from ..call import Call, Result
from ..security.acls import Operation, Resource
from .api import Api
from .authorization import (
    CLUSTER_OPERATIONS,
    OPERATIONS_NOT_REQUESTED,
    Access,
    Authorization,
    Authorized,
    omission,
    restrict_cluster_operations,
)

# EndpointType
BROKERS: Final = 1
CONTROLLERS: Final = 2


def handle_describe_cluster(broker: Broker, call: Call) -> Result:
    """Describe the brokers of the cluster; reject a request for any other endpoint type."""
    request = call.request
    assert isinstance(request, DescribeClusterRequest)
    if request.endpoint_type != BROKERS:
        error = (
            ErrorCode.MISMATCHED_ENDPOINT_TYPE
            if request.endpoint_type == CONTROLLERS
            else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        )
        return DescribeClusterResponse(
            throttle_time_ms=0,
            error_code=error,
            error_message="The request was sent to an endpoint of type BROKER.",
            cluster_id="",
            brokers=[],
        )
    nodes = broker.cluster.nodes.values()
    return DescribeClusterResponse(
        throttle_time_ms=0,
        error_code=0,
        cluster_id=broker.cluster_id,
        controller_id=min(node.id for node in nodes),
        brokers=[
            DescribeClusterBroker(broker_id=node.id, host=host, port=port, rack=node.rack)
            for node in nodes
            for host, port in [node.address(call.listener)]
        ],
        cluster_authorized_operations=CLUSTER_OPERATIONS
        if request.include_cluster_authorized_operations
        else OPERATIONS_NOT_REQUESTED,
    )


def _authorize(access: Access, request: DescribeClusterRequest) -> Authorized:
    """Authorize every caller; without DESCRIBE, the bit field of authorized operations is empty."""
    return access.narrow(lambda response: restrict_cluster_operations(access, response))


API = Api(
    request=DescribeClusterRequest,
    handle=handle_describe_cluster,
    authorization=Authorization((omission(Operation.DESCRIBE, Resource.CLUSTER),), _authorize),
)

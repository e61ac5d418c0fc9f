"""ListConfigResources (key 74): the resources that have configs (KIP-1142).

This broker has neither configs of groups nor broker loggers, so it lists no resources of these types.
"""

from __future__ import annotations

from ...error_codes import ErrorCode
from ...messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from ..broker import Broker
from ..call import Call, Result
from ..security.acls import Operation
from .api import Api
from .authorization import on_cluster
from .configs import ResourceType


def handle_list_config_resources(broker: Broker, call: Call) -> Result:
    """List the resources of the requested types, or of all types; v0 lists client metrics only."""
    request = call.request
    assert isinstance(request, ListConfigResourcesRequest)
    names_by_type = {
        ResourceType.CLIENT_METRICS: broker.cluster.client_metrics.names(),
        ResourceType.BROKER_LOGGER: [],
        ResourceType.BROKER: [str(node_id) for node_id in broker.cluster.nodes],
        ResourceType.TOPIC: [topic.name for topic in broker.topics],
        ResourceType.GROUP: [],
    }
    # An empty set requests all types.
    requested_types = set(request.resource_types)
    if call.version == 0:
        requested_types = {int(ResourceType.CLIENT_METRICS)}
    if not requested_types <= {*names_by_type}:
        return refuse(request, ErrorCode.UNSUPPORTED_VERSION, call.version)
    return ListConfigResourcesResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        config_resources=[
            ConfigResource(resource_name=name, resource_type=resource_type)
            for resource_type, names in names_by_type.items()
            if resource_type in requested_types or not requested_types
            for name in names
        ],
    )


def refuse(
    request: ListConfigResourcesRequest, error: ErrorCode, version: int
) -> ListConfigResourcesResponse:
    """Return a response with this error and without resources."""
    return ListConfigResourcesResponse(throttle_time_ms=0, error_code=error, config_resources=[])


API = Api(
    request=ListConfigResourcesRequest,
    handle=handle_list_config_resources,
    authorization=on_cluster(Operation.DESCRIBE_CONFIGS),
    refuse=refuse,
)

"""AlterConfigs (key 33): replace all configs of topics, brokers and client metrics."""

from __future__ import annotations

from collections.abc import Iterable

from ...error_codes import ErrorCode
from ...messages import incremental_alter_configs as incremental
from ...messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from ..broker import Broker
from ..call import Call, Result
from ..security.acls import Operation
from .api import Api
from .authorization import AUTHORIZATION_FAILED, Access, Authorization, Authorized
from .config_changes import ChangeType, alter_resources, are_refused_before_authorization
from .configs import ResourceType, config_error, config_requirements


def handle_alter_configs(broker: Broker, call: Call) -> Result:
    """Replace the configs of each resource; with `validate_only`, only check the new configs."""
    request = call.request
    assert isinstance(request, AlterConfigsRequest)
    changes = [_incremental_changes(broker, resource) for resource in request.resources]
    outcomes = alter_resources(broker, changes, validate_only=request.validate_only)
    return AlterConfigsResponse(
        throttle_time_ms=0,
        responses=[
            _resource_response(resource, error, message)
            for resource, (error, message) in zip(request.resources, outcomes, strict=True)
        ],
    )


def _incremental_changes(broker: Broker, resource: AlterConfigsResource) -> incremental.AlterConfigsResource:
    """Return the incremental changes after which a resource has exactly the requested configs."""
    if resource.resource_type == ResourceType.BROKER:
        current_names: Iterable[str] = broker.cluster.dynamic.values(resource.resource_name)
    elif resource.resource_type == ResourceType.CLIENT_METRICS:
        current_names = broker.cluster.client_metrics.configs(resource.resource_name)
    else:
        topic = broker.topics.named(resource.resource_name)
        current_names = topic.configs if topic is not None else ()
    removed_names = sorted({*current_names} - {config.name for config in resource.configs})
    return incremental.AlterConfigsResource(
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[
            *(_change(config.name, ChangeType.SET, config.value) for config in resource.configs),
            *(_change(name, ChangeType.DELETE, None) for name in removed_names),
        ],
    )


def _change(name: str, change_type: ChangeType, value: str | None) -> incremental.AlterableConfig:
    return incremental.AlterableConfig(name=name, config_operation=change_type, value=value)


def _resource_response(
    resource: AlterConfigsResource, error: ErrorCode, message: str | None
) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=error,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _authorize(access: Access, request: AlterConfigsRequest) -> Authorized:
    """Return the call without the resources that the ACLs deny.

    The call keeps the resources that Kafka refuses before it checks the ACLs. `handle_alter_configs`
    refuses them.
    """
    permitted: list[AlterConfigsResource] = []
    refusals: list[AlterConfigsResourceResponse] = []
    refused = are_refused_before_authorization(access.broker, request.resources, legacy=True)
    for resource, is_refused in zip(request.resources, refused, strict=True):
        error = None
        if not is_refused:
            error = config_error(access, Operation.ALTER_CONFIGS, resource)
        if error is None:
            permitted.append(resource)
        else:
            refusals.append(_resource_response(resource, error, AUTHORIZATION_FAILED))
    return access.narrow(lambda response: response.responses.extend(refusals), resources=permitted)


API = Api(
    request=AlterConfigsRequest,
    handle=handle_alter_configs,
    authorization=Authorization(config_requirements(Operation.ALTER_CONFIGS), _authorize),
    divided=("responses",),
)

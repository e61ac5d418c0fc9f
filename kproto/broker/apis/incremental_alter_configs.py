"""IncrementalAlterConfigs (key 44): change individual configs of a resource (KIP-339)."""

from __future__ import annotations

from ...error_codes import ErrorCode
from ...messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ..broker import Broker
from ..call import Call, Result
from ..security.acls import Operation
from .api import Api
from .authorization import AUTHORIZATION_FAILED, Access, Authorization, Authorized
from .config_changes import alter_resources, are_refused_before_authorization
from .configs import config_error, config_requirements


def handle_incremental_alter_configs(broker: Broker, call: Call) -> Result:
    """Apply the changes of each resource; with `validate_only`, only check them."""
    request = call.request
    assert isinstance(request, IncrementalAlterConfigsRequest)
    outcomes = alter_resources(broker, request.resources, validate_only=request.validate_only)
    return IncrementalAlterConfigsResponse(
        throttle_time_ms=0,
        responses=[
            _resource_response(resource, error, message)
            for resource, (error, message) in zip(request.resources, outcomes, strict=True)
        ],
    )


def _resource_response(
    resource: AlterConfigsResource, error: ErrorCode, message: str | None
) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=error,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _authorize(access: Access, request: IncrementalAlterConfigsRequest) -> Authorized:
    """Refuse resources without permission.

    A resource that the handler rejects regardless of permissions counts as permitted.
    """
    permitted: list[AlterConfigsResource] = []
    refusals: list[AlterConfigsResourceResponse] = []
    refused = are_refused_before_authorization(access.broker, request.resources, legacy=False)
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
    request=IncrementalAlterConfigsRequest,
    handle=handle_incremental_alter_configs,
    authorization=Authorization(config_requirements(Operation.ALTER_CONFIGS), _authorize),
    divided=("responses",),
)

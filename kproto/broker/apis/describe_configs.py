"""DescribeConfigs (key 32): the configs of topics, brokers and client metrics."""

from __future__ import annotations

from ...error_codes import ErrorCode
from ...java_numbers import trimmed
from ...messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from ..broker import Broker
from ..call import Call, Result
from ..client_metrics_configs import CLIENT_METRICS_CONFIGS
from ..dynamic_config import DYNAMIC
from ..security.acls import Operation
from ..topic_configs import TOPIC_CONFIGS
from ..topics import bad_name
from .api import Api
from .authorization import AUTHORIZATION_FAILED, Access, Authorization, Authorized
from .configs import (
    ResourceType,
    broker_name_fault,
    config_error,
    config_requirements,
    describe_broker_configs,
    describe_client_metrics,
    describe_topic_configs,
)


def handle_describe_configs(broker: Broker, call: Call) -> Result:
    """Describe the configs of each resource; an unknown resource type fails the whole request."""
    request = call.request
    assert isinstance(request, DescribeConfigsRequest)
    if _has_unknown_type(request):
        return call.refuse(ErrorCode.INVALID_REQUEST)
    results = [_describe_resource(broker, resource) for resource in request.resources]
    for result in results:
        for config in result.configs:
            if not request.include_synonyms:
                config.synonyms = []
            if request.include_documentation:
                config.documentation = _config_documentation(result.resource_type, config.name)
    return DescribeConfigsResponse(throttle_time_ms=0, results=results)


def _has_unknown_type(request: DescribeConfigsRequest) -> bool:
    return any(resource.resource_type not in {*ResourceType} for resource in request.resources)


def _config_documentation(resource_type: int, name: str) -> str:
    """Return the documentation of a config.

    The documentation of a broker config says when a change takes effect. The documentation of a topic config
    says whether the config has an effect on this broker.
    """
    if resource_type == ResourceType.BROKER:
        return (
            "A change takes effect immediately."
            if name in DYNAMIC
            else "The broker reads it only when it starts."
        )
    if resource_type == ResourceType.CLIENT_METRICS:
        return CLIENT_METRICS_CONFIGS[name].documentation
    if TOPIC_CONFIGS[name].acts:
        return "It has the same effect as in Kafka."
    return "It is stored and described, but has no effect on this broker."


def _describe_resource(broker: Broker, resource: DescribeConfigsResource) -> DescribeConfigsResult:
    """Return the requested configs of a resource, or an error. The caller adds the documentation."""
    resource_type, name = resource.resource_type, resource.resource_name
    error, message, configs = ErrorCode.NONE, "", list[DescribeConfigsResourceResult]()
    topic = broker.topics.named(name)
    if resource_type == ResourceType.TOPIC and topic is not None:
        configs = describe_topic_configs(broker, topic)
        for config in configs:
            if config.value is not None:
                config.value = TOPIC_CONFIGS[config.name].type.shown(trimmed(config.value))
    elif resource_type == ResourceType.TOPIC:
        message = bad_name(name) or ""
        error = ErrorCode.INVALID_TOPIC_EXCEPTION if message else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    elif resource_type == ResourceType.BROKER:
        message = broker_name_fault(broker, name) or ""
        error = ErrorCode.INVALID_REQUEST if message else ErrorCode.NONE
        configs = [] if message else describe_broker_configs(broker, name)
    elif resource_type == ResourceType.CLIENT_METRICS:
        message = "" if name else "Client metrics subscription name must not be empty"
        error = ErrorCode.INVALID_REQUEST if message else ErrorCode.NONE
        configs = [] if message else describe_client_metrics(broker, name)
    else:
        error, message = ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource_type}"
    if resource.configuration_keys:  # A request for all configs has null or an empty list instead of names.
        configs = [config for config in configs if config.name in resource.configuration_keys]
    return DescribeConfigsResult(
        error_code=error,
        error_message=message,
        resource_type=resource_type,
        resource_name=name,
        configs=configs,
    )


def _refuse_resource(
    resource: DescribeConfigsResource, error: ErrorCode, message: str
) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=error,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[],
    )


def refuse(request: DescribeConfigsRequest, error: ErrorCode, version: int) -> DescribeConfigsResponse:
    """Return the same error for every resource, as Kafka does if one resource has an unknown type."""
    results = [
        _refuse_resource(resource, error, "Unexpected resource type") for resource in request.resources
    ]
    return DescribeConfigsResponse(throttle_time_ms=0, results=results)


def _authorize(access: Access, request: DescribeConfigsRequest) -> Authorized:
    if _has_unknown_type(request):
        return access.call
    permitted: list[DescribeConfigsResource] = []
    refusals: list[DescribeConfigsResult] = []
    for resource in request.resources:
        error = config_error(access, Operation.DESCRIBE_CONFIGS, resource)
        if error is None:
            permitted.append(resource)
        else:
            refusals.append(_refuse_resource(resource, error, AUTHORIZATION_FAILED))
    return access.narrow(lambda response: response.results.extend(refusals), resources=permitted)


API = Api(
    request=DescribeConfigsRequest,
    handle=handle_describe_configs,
    authorization=Authorization(config_requirements(Operation.DESCRIBE_CONFIGS), _authorize),
    refuse=refuse,
    divided=("results",),
)

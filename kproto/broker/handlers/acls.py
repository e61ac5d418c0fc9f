"""DescribeAcls (29), CreateAcls (30) and DeleteAcls (31): see `security.acls`."""

from __future__ import annotations

from ...error_codes import ErrorCode
from ...messages.create_acls import AclCreation, AclCreationResult, CreateAclsRequest, CreateAclsResponse
from ...messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from ...messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from ..broker import Broker
from ..call import Call, Closing, Result
from ..security.acls import CLUSTER_NAME, Acl, AclFilter, Operation, Pattern, Permission, Resource

UNKNOWN = "the request has UNKNOWN elements"
NO_AUTHORIZER = "No Authorizer is configured on the broker."


def describe_acls(broker: Broker, call: Call) -> Result:
    request = call.envelope.request
    assert isinstance(request, DescribeAclsRequest)
    if _strange(request):
        return Closing(UNKNOWN)
    if broker.acls is None:
        return DescribeAclsResponse(
            throttle_time_ms=0,
            error_code=ErrorCode.SECURITY_DISABLED,
            error_message=NO_AUTHORIZER,
            resources=[],
        )
    found: dict[tuple[int, str, int], list[AclDescription]] = {}
    for acl in broker.acls.matching(_filter(request)):
        found.setdefault((acl.resource, acl.name, acl.pattern), []).append(
            AclDescription(
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
        )
    return DescribeAclsResponse(
        throttle_time_ms=0,
        error_code=0,
        error_message=None,
        resources=[
            DescribeAclsResource(resource_type=kind, resource_name=name, pattern_type=pattern, acls=acls)
            for (kind, name, pattern), acls in found.items()
        ],
    )


def create_acls(broker: Broker, call: Call) -> Result:
    request = call.envelope.request
    assert isinstance(request, CreateAclsRequest)
    if any(
        _unknown(one.resource_type, one.resource_pattern_type, one.operation, one.permission_type)
        for one in request.creations
    ):
        return Closing(UNKNOWN)
    results: list[AclCreationResult] = []
    for wanted in request.creations:
        code, why = ErrorCode.NONE, None
        if broker.acls is None:
            code, why = ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER
        elif (wrong := _wrong(wanted)) is not None:
            code, why = ErrorCode.INVALID_REQUEST, wrong
        else:
            broker.acls.add(
                Acl(
                    wanted.resource_type,
                    wanted.resource_name,
                    wanted.resource_pattern_type,
                    wanted.principal,
                    wanted.host,
                    wanted.operation,
                    wanted.permission_type,
                )
            )
        results.append(AclCreationResult(error_code=code, error_message=why))
    return CreateAclsResponse(throttle_time_ms=0, results=results)


def delete_acls(broker: Broker, call: Call) -> Result:
    request = call.envelope.request
    assert isinstance(request, DeleteAclsRequest)
    if any(_strange(one) for one in request.filters):
        return Closing(UNKNOWN)
    results: list[DeleteAclsFilterResult] = []
    for wanted in request.filters:
        if broker.acls is None:
            code, why = ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER
            results.append(DeleteAclsFilterResult(error_code=code, error_message=why, matching_acls=[]))
            continue
        found = broker.acls.matching(_filter(wanted))
        broker.acls.remove(found)
        matching = [
            DeleteAclsMatchingAcl(
                error_code=0,
                error_message=None,
                resource_type=acl.resource,
                resource_name=acl.name,
                pattern_type=acl.pattern,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in found
        ]
        results.append(DeleteAclsFilterResult(error_code=0, error_message=None, matching_acls=matching))
    return DeleteAclsResponse(throttle_time_ms=0, filter_results=results)


def _strange(wanted: DescribeAclsRequest | DeleteAclsFilter) -> bool:
    kind, pattern = wanted.resource_type_filter, wanted.pattern_type_filter
    return _unknown(kind, pattern, wanted.operation, wanted.permission_type)


def _unknown(kind: int, pattern: int, operation: int, permission: int) -> bool:
    """Does one say UNKNOWN? Kafka reads no such request, but one with a number that nobody knows."""
    return 0 in (kind, pattern, operation, permission)


def _filter(wanted: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    return AclFilter(
        wanted.resource_type_filter,
        wanted.resource_name_filter,
        wanted.pattern_type_filter,
        wanted.principal_filter,
        wanted.host_filter,
        wanted.operation,
        wanted.permission_type,
    )


def _wrong(wanted: AclCreation) -> str | None:
    """Why there can be no such rule; None when there can."""
    if wanted.resource_type == Resource.CLUSTER and wanted.resource_name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not wanted.resource_name:
        return "Invalid empty resource name"
    if wanted.resource_type not in {*Resource} - {Resource.ANY}:
        return "Invalid resource type"
    if wanted.resource_pattern_type not in (Pattern.LITERAL, Pattern.PREFIXED):
        return "Invalid pattern type"
    if wanted.operation not in {*Operation} - {Operation.ANY}:
        return "Invalid operation"
    if wanted.permission_type not in (Permission.ALLOW, Permission.DENY):
        return "Invalid permission type"
    kind, colon, _ = wanted.principal.partition(":")
    return None if kind and colon else f"Could not parse principal from `{wanted.principal}`"

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
from ..call import Call, CloseConnection, Result
from ..security.acls import CLUSTER_NAME, Acl, AclFilter, Operation, Pattern, Permission, Resource

ANY = 1  # of each of the enums
UNKNOWN = "the request has UNKNOWN elements"
NO_AUTHORIZER = "No Authorizer is configured on the broker."


def describe_acls(broker: Broker, call: Call) -> Result:
    request = call.envelope.request
    assert isinstance(request, DescribeAclsRequest)
    if _strange(request):
        return CloseConnection(UNKNOWN)
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
        error_message="",
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
        return CloseConnection(UNKNOWN)
    if broker.acls is not None and any(map(_for_filters, request.creations)):
        no = [
            AclCreationResult(error_code=ErrorCode.UNKNOWN_SERVER_ERROR, error_message=None)
            for _ in request.creations
        ]
        return CreateAclsResponse(throttle_time_ms=0, results=no)
    results: list[AclCreationResult] = []
    for wanted in request.creations:
        code, why = ErrorCode.NONE, ""
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
        return CloseConnection(UNKNOWN)
    results: list[DeleteAclsFilterResult] = []
    removed: list[Acl] = []
    for wanted in request.filters:
        code, why = ErrorCode.INVALID_REQUEST, _unknown_filter(wanted)
        if broker.acls is None:
            code, why = ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER
        if broker.acls is None or why is not None:
            results.append(DeleteAclsFilterResult(error_code=code, error_message=why, matching_acls=[]))
            continue
        found = broker.acls.matching(_filter(wanted))
        removed.extend(found)
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
    if broker.acls is not None:
        broker.acls.remove(removed)  # behind all filters: a rule is told by each that means it
    return DeleteAclsResponse(throttle_time_ms=0, filter_results=results)


def _strange(wanted: DescribeAclsRequest | DeleteAclsFilter) -> bool:
    kind, pattern = wanted.resource_type_filter, wanted.pattern_type_filter
    return _unknown(kind, pattern, wanted.operation, wanted.permission_type)


def _unknown(kind: int, pattern: int, operation: int, permission: int) -> bool:
    """Does one say UNKNOWN? Kafka reads no such request, but one with a number that nobody knows."""
    return 0 in (kind, pattern, operation, permission)


def _unknown_filter(wanted: DeleteAclsFilter) -> str | None:
    """Why nothing is deleted by such a filter; None where it can be. To describe, it just finds nothing."""
    if wanted.resource_type_filter not in {*Resource} or wanted.pattern_type_filter not in {*Pattern}:
        return "Unknown patternFilter."
    known = wanted.operation in {*Operation} and wanted.permission_type in {*Permission}
    return None if known else "Unknown entryFilter."


def _for_filters(wanted: AclCreation) -> bool:
    """Does a rule say what only filters say? Kafka makes none of the request's rules then."""
    kind, pattern = wanted.resource_type, wanted.resource_pattern_type
    return pattern in (Pattern.ANY, Pattern.MATCH) or ANY in (kind, wanted.operation, wanted.permission_type)


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
    if wanted.resource_type not in {*Resource}:
        return "Invalid resourceType UNKNOWN"
    if wanted.resource_pattern_type not in {*Pattern}:
        return "Invalid patternType UNKNOWN"
    if wanted.operation not in {*Operation}:
        return "Invalid operation UNKNOWN"
    if wanted.permission_type not in {*Permission}:
        return "Invalid permissionType UNKNOWN"
    if ":" in wanted.principal:
        return None
    missing = "no colon is present separating the principal type from the principal name"
    return f"Could not parse principal from `{wanted.principal}` ({missing})"

"""DeleteAcls (key 31)."""

from __future__ import annotations

from ...error_codes import ErrorCode
from ...messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from ..broker import Broker
from ..call import Call, CloseWithoutResponse, Result
from ..security.acls import Acl, Operation, PatternType, Permission, Resource
from .acl_filters import NO_AUTHORIZER, UNKNOWN_ELEMENTS, acl_filter, is_unparsable_filter
from .api import Api
from .authorization import AUTHORIZATION_FAILED, on_cluster


def handle_delete_acls(broker: Broker, call: Call) -> Result:
    """Delete the ACLs that match the filters.

    An ACL that matches several filters is reported in the result of each of these filters.
    """
    request = call.request
    assert isinstance(request, DeleteAclsRequest)
    if any(map(is_unparsable_filter, request.filters)):
        return CloseWithoutResponse(UNKNOWN_ELEMENTS)
    if broker.acls is None:
        return refuse(request, ErrorCode.SECURITY_DISABLED, call.version, NO_AUTHORIZER)
    results: list[DeleteAclsFilterResult] = []
    removed: list[Acl] = []
    for requested_filter in request.filters:
        fault = _filter_fault(requested_filter)
        if fault is not None:
            results.append(_refuse_filter(ErrorCode.INVALID_REQUEST, fault))
            continue
        matching = broker.acls.matching(acl_filter(requested_filter))
        removed.extend(matching)
        results.append(
            DeleteAclsFilterResult(
                error_code=0, error_message=None, matching_acls=[_matching_acl(acl) for acl in matching]
            )
        )
    broker.acls.remove(removed)
    return DeleteAclsResponse(throttle_time_ms=0, filter_results=results)


def refuse(
    request: DeleteAclsRequest, error: ErrorCode, version: int, message: str = AUTHORIZATION_FAILED
) -> DeleteAclsResponse:
    """Return a response with an error for every filter of the request."""
    results = [_refuse_filter(error, message) for _ in request.filters]
    return DeleteAclsResponse(throttle_time_ms=0, filter_results=results)


def _refuse_filter(error: ErrorCode, message: str) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(error_code=error, error_message=message, matching_acls=[])


def _matching_acl(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
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


def _filter_fault(requested_filter: DeleteAclsFilter) -> str | None:
    """Return Kafka's message for a filter with an undefined enum value, such as 99; otherwise None.

    Kafka rejects filters with undefined enum values only in DeleteAcls. DescribeAcls accepts them.
    """
    resource_type, pattern_type = requested_filter.resource_type_filter, requested_filter.pattern_type_filter
    if resource_type not in {*Resource} or pattern_type not in {*PatternType}:
        return "Unknown patternFilter."
    operation, permission = requested_filter.operation, requested_filter.permission_type
    if operation not in {*Operation} or permission not in {*Permission}:
        return "Unknown entryFilter."
    return None


API = Api(
    request=DeleteAclsRequest,
    handle=handle_delete_acls,
    authorization=on_cluster(Operation.ALTER),
    refuse=refuse,
)

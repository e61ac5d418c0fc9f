"""CreateAcls (key 30)."""

from __future__ import annotations

from typing import Final

from ...error_codes import ErrorCode
from ...messages.create_acls import AclCreation, AclCreationResult, CreateAclsRequest, CreateAclsResponse
from ..broker import Broker
from ..call import Call, CloseWithoutResponse, Result
from ..security.acls import CLUSTER_NAME, Acl, Operation, PatternType, Permission, Resource
from .acl_filters import NO_AUTHORIZER, UNKNOWN_ELEMENTS, has_unknown
from .api import Api
from .authorization import AUTHORIZATION_FAILED, on_cluster

_ANY: Final = 1  # The value ANY of ResourceType, AclOperation and AclPermissionType.


def handle_create_acls(broker: Broker, call: Call) -> Result:
    """Create the requested ACLs, and return a result for each of them.

    If one ACL has a value that only filters may have (ANY or MATCH), no ACL is created, as in Kafka. Each
    result then has the same error.
    """
    request = call.request
    assert isinstance(request, CreateAclsRequest)
    if any(map(_is_unparsable, request.creations)):
        return CloseWithoutResponse(UNKNOWN_ELEMENTS)
    if broker.acls is not None and any(map(_has_filter_value, request.creations)):
        return refuse(request, ErrorCode.UNKNOWN_SERVER_ERROR, call.version, None)
    return CreateAclsResponse(
        throttle_time_ms=0, results=[_create_acl(broker, creation) for creation in request.creations]
    )


def _create_acl(broker: Broker, creation: AclCreation) -> AclCreationResult:
    if broker.acls is None:
        return AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    fault = _acl_fault(creation)
    if fault is not None:
        return AclCreationResult(error_code=ErrorCode.INVALID_REQUEST, error_message=fault)
    broker.acls.add(
        Acl(
            resource=creation.resource_type,
            name=creation.resource_name,
            pattern=creation.resource_pattern_type,
            principal=creation.principal,
            host=creation.host,
            operation=creation.operation,
            permission=creation.permission_type,
        )
    )
    return AclCreationResult(error_code=ErrorCode.NONE, error_message="")


def refuse(
    request: CreateAclsRequest, error: ErrorCode, version: int, message: str | None = AUTHORIZATION_FAILED
) -> CreateAclsResponse:
    """Return a response with an error for every ACL of the request."""
    results = [AclCreationResult(error_code=error, error_message=message) for _ in request.creations]
    return CreateAclsResponse(throttle_time_ms=0, results=results)


def _is_unparsable(creation: AclCreation) -> bool:
    return has_unknown(
        creation.resource_type, creation.resource_pattern_type, creation.operation, creation.permission_type
    )


def _has_filter_value(creation: AclCreation) -> bool:
    """Return whether an ACL to create has the value ANY or MATCH, which only filters may have."""
    if creation.resource_pattern_type in (PatternType.ANY, PatternType.MATCH):
        return True
    return _ANY in (creation.resource_type, creation.operation, creation.permission_type)


def _acl_fault(creation: AclCreation) -> str | None:
    """Return Kafka's message for an invalid ACL; None if the ACL is valid."""
    if creation.resource_type == Resource.CLUSTER and creation.resource_name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not creation.resource_name:
        return "Invalid empty resource name"
    if creation.resource_type not in {*Resource}:
        return "Invalid resourceType UNKNOWN"
    if creation.resource_pattern_type not in {*PatternType}:
        return "Invalid patternType UNKNOWN"
    if creation.operation not in {*Operation}:
        return "Invalid operation UNKNOWN"
    if creation.permission_type not in {*Permission}:
        return "Invalid permissionType UNKNOWN"
    if ":" in creation.principal:
        return None
    missing = "no colon is present separating the principal type from the principal name"
    return f"Could not parse principal from `{creation.principal}` ({missing})"


API = Api(
    request=CreateAclsRequest,
    handle=handle_create_acls,
    authorization=on_cluster(Operation.ALTER),
    refuse=refuse,
)

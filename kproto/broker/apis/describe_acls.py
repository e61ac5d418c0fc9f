"""DescribeAcls (key 29)."""

from __future__ import annotations

from ...error_codes import ErrorCode
from ...messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from ..broker import Broker
from ..call import Call, CloseWithoutResponse, Result
from ..security.acls import Operation
from .acl_filters import NO_AUTHORIZER, UNKNOWN_ELEMENTS, acl_filter, is_unparsable_filter
from .api import Api
from .authorization import AUTHORIZATION_FAILED, on_cluster


def handle_describe_acls(broker: Broker, call: Call) -> Result:
    """Return the ACLs that match the filter, grouped by resource."""
    request = call.request
    assert isinstance(request, DescribeAclsRequest)
    if is_unparsable_filter(request):
        return CloseWithoutResponse(UNKNOWN_ELEMENTS)
    if broker.acls is None:
        return refuse(request, ErrorCode.SECURITY_DISABLED, call.version, NO_AUTHORIZER)
    by_resource: dict[tuple[int, str, int], list[AclDescription]] = {}
    for acl in broker.acls.matching(acl_filter(request)):
        by_resource.setdefault((acl.resource, acl.name, acl.pattern), []).append(
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
            DescribeAclsResource(
                resource_type=resource_type, resource_name=name, pattern_type=pattern, acls=acls
            )
            for (resource_type, name, pattern), acls in by_resource.items()
        ],
    )


def refuse(
    request: DescribeAclsRequest, error: ErrorCode, version: int, message: str = AUTHORIZATION_FAILED
) -> DescribeAclsResponse:
    """Refuse the whole request."""
    return DescribeAclsResponse(throttle_time_ms=0, error_code=error, error_message=message, resources=[])


API = Api(
    request=DescribeAclsRequest,
    handle=handle_describe_acls,
    authorization=on_cluster(Operation.DESCRIBE),
    refuse=refuse,
)

"""Helpers for ACL requests: filters, and checks of enum values."""

from __future__ import annotations

from typing import Final

from ...messages.delete_acls import DeleteAclsFilter
from ...messages.describe_acls import DescribeAclsRequest
from ..security.acls import AclFilter

# The reason for closing the connection if a request contains the enum value UNKNOWN. Kafka cannot parse such
# a request.
UNKNOWN_ELEMENTS: Final = "the request has UNKNOWN elements"
NO_AUTHORIZER: Final = "No Authorizer is configured on the broker."
_UNKNOWN: Final = 0  # The value UNKNOWN of ResourceType, PatternType, AclOperation and AclPermissionType.


def acl_filter(requested: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    """Build an ACL filter from the fields of a request."""
    return AclFilter(
        requested.resource_type_filter,
        requested.resource_name_filter,
        requested.pattern_type_filter,
        requested.principal_filter,
        requested.host_filter,
        requested.operation,
        requested.permission_type,
    )


def is_unparsable_filter(requested: DescribeAclsRequest | DeleteAclsFilter) -> bool:
    """Return whether a filter contains the enum value UNKNOWN (0): Kafka cannot parse such a request."""
    return has_unknown(
        requested.resource_type_filter,
        requested.pattern_type_filter,
        requested.operation,
        requested.permission_type,
    )


def has_unknown(*enum_values: int) -> bool:
    """Return whether one of a filter's enum values is UNKNOWN (0).

    Numbers without a meaning in Kafka, such as 99, do not count as UNKNOWN: Kafka rejects a request only for
    the number 0.
    """
    return _UNKNOWN in enum_values

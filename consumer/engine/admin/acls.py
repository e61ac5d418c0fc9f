"""Admin operations that create, describe and delete access control lists (ACLs)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

import msgspec

from kproto.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from kproto.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from kproto.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

from ..error_actions import ADMIN
from ..metadata.cluster import ClusterView
from ..network.call import Call
from .configs import name_of
from .fanout import Answer, ask_broker, fan_out, to_any_broker
from .plan import Plan, expect_response
from .topic_descriptions import OPERATIONS

# The names of Kafka's codes (ResourceType, PatternType and AclPermissionType). "any" and "match" are for
# filters only.
RESOURCE_TYPES: Final = {
    "any": 1,
    "topic": 2,
    "group": 3,
    "cluster": 4,
    "transactional_id": 5,
    "delegation_token": 6,
    "user": 7,
}
PATTERN_TYPES: Final = {"any": 1, "match": 2, "literal": 3, "prefixed": 4}
PERMISSIONS: Final = {"any": 1, "deny": 2, "allow": 3}


class AclBinding(msgspec.Struct, frozen=True, order=True):
    """One ACL: whether a principal may perform an operation on a resource. Java: AclBinding.

    `resource_type` is "topic", "group", "cluster", "transactional_id", "delegation_token" or "user".

    `resource_name` is "kafka-cluster" for the type "cluster". The literal name "*" matches every resource of
    the type.

    `pattern_type` is "literal" or "prefixed".

    `principal` is "User:NAME", or "User:*" for every user. `host` is an IP address, or "*" for every host.

    `operation` is "all", "read", "write", "create", "delete", "alter", "describe", "cluster_action",
    "describe_configs", "alter_configs", "idempotent_write", "create_tokens", "describe_tokens" or
    "two_phase_commit".

    `permission` is "allow" or "deny".
    """

    resource_type: str
    resource_name: str
    principal: str
    operation: str
    permission: str = "allow"
    host: str = "*"
    pattern_type: str = "literal"

    def __str__(self) -> str:
        pattern = "prefix " if self.pattern_type == "prefixed" else ""
        resource = f"{self.resource_type} {pattern}{self.resource_name!r}"
        return f"{self.permission} {self.operation} on {resource} for {self.principal} from {self.host}"


class AclBindingFilter(msgspec.Struct, frozen=True):
    """A filter for ACLs: each field matches one value of that field in `AclBinding`, or any value.

    In a field of a filter, None and "any" match all values. Java: AclBindingFilter.

    The pattern type "match" finds every ACL that applies to `resource_name`: an ACL with this name, with "*",
    or with a prefix of this name.
    """

    resource_type: str = "any"
    resource_name: str | None = None
    principal: str | None = None
    operation: str = "any"
    permission: str = "any"
    host: str | None = None
    pattern_type: str = "any"


def create_acls(
    view: ClusterView, acls: Collection[AclBinding], clock: Callable[[], int]
) -> Plan[dict[AclBinding, None]]:
    """Create these ACLs. An existing ACL counts as created, as in Kafka."""

    def request(items: Sequence[AclBinding]) -> CreateAclsRequest:
        return CreateAclsRequest(
            creations=[
                AclCreation(
                    resource_type=RESOURCE_TYPES[acl.resource_type],
                    resource_name=acl.resource_name,
                    resource_pattern_type=PATTERN_TYPES[acl.pattern_type],
                    principal=acl.principal,
                    host=acl.host,
                    operation=OPERATIONS[acl.operation],
                    permission_type=PERMISSIONS[acl.permission],
                )
                for acl in items
            ]
        )

    def read(call: Call, items: Sequence[AclBinding]) -> Iterator[Answer[AclBinding, None]]:
        # The results are in the order of the items in the request. If the response has fewer results, the
        # last items have no answer, and `fan_out` sends them again.
        results = expect_response(CreateAclsResponse, call).results
        for acl, result in zip(items, results, strict=False):
            yield Answer(acl, None, result.error_code, result.error_message)

    return (yield from fan_out(acls, to_any_broker(view, clock), "CreateAcls", ADMIN, request, read))


def describe_acls(
    view: ClusterView, acl_filter: AclBindingFilter, clock: Callable[[], int]
) -> Plan[list[AclBinding]]:
    """Return the ACLs that match a filter, sorted."""

    def read(call: Call) -> tuple[int, str | None, list[AclBinding]]:
        response = expect_response(DescribeAclsResponse, call)
        acls = [
            AclBinding(
                name_of(resource.resource_type, RESOURCE_TYPES),
                resource.resource_name,
                acl.principal,
                name_of(acl.operation, OPERATIONS),
                name_of(acl.permission_type, PERMISSIONS),
                acl.host,
                name_of(resource.pattern_type, PATTERN_TYPES),
            )
            for resource in response.resources
            for acl in resource.acls
        ]
        return response.error_code, response.error_message, sorted(acls)

    request = DescribeAclsRequest(
        resource_type_filter=RESOURCE_TYPES[acl_filter.resource_type],
        resource_name_filter=acl_filter.resource_name,
        pattern_type_filter=PATTERN_TYPES[acl_filter.pattern_type],
        principal_filter=acl_filter.principal,
        host_filter=acl_filter.host,
        operation=OPERATIONS[acl_filter.operation],
        permission_type=PERMISSIONS[acl_filter.permission],
    )
    return (yield from ask_broker(to_any_broker(view, clock), "DescribeAcls", ADMIN, request, read))


def delete_acls(
    view: ClusterView, filters: Collection[AclBindingFilter], clock: Callable[[], int]
) -> Plan[dict[AclBindingFilter, list[AclBinding]]]:
    """Delete the ACLs that match each filter, and return them, sorted.

    A filter fails if one of the ACLs that it matches cannot be deleted.
    """

    def request(items: Sequence[AclBindingFilter]) -> DeleteAclsRequest:
        return DeleteAclsRequest(
            filters=[
                DeleteAclsFilter(
                    resource_type_filter=RESOURCE_TYPES[item.resource_type],
                    resource_name_filter=item.resource_name,
                    pattern_type_filter=PATTERN_TYPES[item.pattern_type],
                    principal_filter=item.principal,
                    host_filter=item.host,
                    operation=OPERATIONS[item.operation],
                    permission_type=PERMISSIONS[item.permission],
                )
                for item in items
            ]
        )

    def read(
        call: Call, items: Sequence[AclBindingFilter]
    ) -> Iterator[Answer[AclBindingFilter, list[AclBinding]]]:
        results = expect_response(DeleteAclsResponse, call).filter_results
        for item, result in zip(items, results, strict=False):
            failed = next((acl for acl in result.matching_acls if acl.error_code), None)
            code, message = result.error_code, result.error_message
            if failed is not None and not code:
                code, message = failed.error_code, f"{_matched_acl(failed)}: {failed.error_message or ''}"
            yield Answer(item, sorted(map(_matched_acl, result.matching_acls)), code, message)

    return (yield from fan_out(filters, to_any_broker(view, clock), "DeleteAcls", ADMIN, request, read))


def _matched_acl(acl: DeleteAclsMatchingAcl) -> AclBinding:
    return AclBinding(
        name_of(acl.resource_type, RESOURCE_TYPES),
        acl.resource_name,
        acl.principal,
        name_of(acl.operation, OPERATIONS),
        name_of(acl.permission_type, PERMISSIONS),
        acl.host,
        name_of(acl.pattern_type, PATTERN_TYPES),
    )

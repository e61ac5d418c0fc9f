"""Access control lists, as in Kafka's StandardAuthorizer.

    acl = Acl(Resource.TOPIC, "t", PatternType.LITERAL, "User:alice", "*", Operation.READ, Permission.ALLOW)
    acls.add(acl)
    acls.allows("User:alice", "10.0.0.7", Operation.DESCRIBE, Resource.TOPIC, "t") -> True

Rules:

* An ACL covers one name (LITERAL), all names with a prefix (PREFIXED), or all names (LITERAL with *).

* A DENY has precedence over every ALLOW.

* An ALLOW of READ, WRITE, DELETE or ALTER implies an ALLOW of DESCRIBE. An ALLOW of ALTER_CONFIGS implies an
  ALLOW of DESCRIBE_CONFIGS. A DENY implies no other DENY.

* Super users may do everything. On a resource without ACLs, other users may do everything if
  `allow.everyone.if.no.acl.found` is true, and nothing otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

CLUSTER_NAME: Final = "kafka-cluster"
ALL_USERS: Final = "User:*"


class Resource(IntEnum):
    """Kafka's ResourceType; ANY is for filters only."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """Kafka's PatternType; ANY and MATCH are for filters only."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """Kafka's AclOperation; ANY is for filters only."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    """Kafka's AclPermissionType; ANY is for filters only."""

    ANY = 1
    DENY = 2
    ALLOW = 3


_IMPLIED_BY: Final = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}


class Acl(NamedTuple):
    """One ACL, with the codes of `Resource`, `PatternType`, `Operation` and `Permission`."""

    resource: int
    name: str
    pattern: int
    principal: str
    host: str
    operation: int
    permission: int

    def covers(self, resource: int, name: str) -> bool:
        """Return whether the ACL covers this resource."""
        if self.resource != resource:
            return False
        if self.pattern == PatternType.PREFIXED:
            return name.startswith(self.name)
        # As in StandardAuthorizer, an ACL for the literal * does not cover names that begin with *.
        return self.name == name or (self.name == "*" and not name.startswith("*"))

    def applies_to(self, principal: str, host: str) -> bool:
        """Return whether the ACL applies to this principal on this host."""
        return self.principal in (ALL_USERS, principal) and self.host in ("*", host)

    def decides(self, operation: int) -> bool:
        """Return whether the ACL applies to this operation, explicitly or by implication."""
        if self.operation in (Operation.ALL, operation):
            return True
        implying = _IMPLIED_BY.get(Operation(operation), set[Operation]())
        return self.permission == Permission.ALLOW and self.operation in implying


@dataclass(frozen=True, slots=True)
class AclFilter:
    """A filter of ACLs.

    A field that is None or ANY matches every value. The pattern type MATCH selects every ACL that covers
    `name`.
    """

    resource: int
    name: str | None
    pattern: int
    principal: str | None
    host: str | None
    operation: int
    permission: int

    def matches(self, acl: Acl) -> bool:
        """Return whether an ACL passes the filter."""
        return (
            self.resource in (Resource.ANY, acl.resource)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self._matches_name(acl)
        )

    def _matches_name(self, acl: Acl) -> bool:
        """Return whether the pattern type and the resource name of an ACL pass the filter."""
        if self.pattern not in (PatternType.ANY, PatternType.MATCH, acl.pattern):
            return False
        if self.name is None or self.name == acl.name:
            return True
        return self.pattern == PatternType.MATCH and (
            (acl.pattern == PatternType.LITERAL and acl.name == "*") or acl.covers(acl.resource, self.name)
        )


class Acls:
    """The ACLs and super users of a broker, and the checks of permissions."""

    def __init__(self, super_users: Iterable[str] = (), *, allow_everyone: bool = False) -> None:
        self._super_users = frozenset(super_users)
        self._allow_everyone = allow_everyone
        self._acls: dict[Acl, None] = {}
        # The number of calls of `add` and `remove` so far.
        self.version = 0

    def add(self, acl: Acl) -> None:
        """Add an ACL."""
        self.version += 1
        self._acls[acl] = None

    def matching(self, acl_filter: AclFilter) -> list[Acl]:
        """Return the ACLs that pass the filter."""
        return [acl for acl in self._acls if acl_filter.matches(acl)]

    def remove(self, acls: Iterable[Acl]) -> None:
        """Remove these ACLs; ACLs that do not exist are ignored."""
        self.version += 1
        for acl in acls:
            self._acls.pop(acl, None)

    def allows(self, principal: str, host: str, operation: int, resource: int, name: str) -> bool:
        """Return whether `principal` on `host` may perform an operation on a resource."""
        if principal in self._super_users:
            return True
        covering_acls = [acl for acl in self._acls if acl.covers(resource, name)]
        if not covering_acls:
            return self._allow_everyone
        permissions = {
            acl.permission
            for acl in covering_acls
            if acl.applies_to(principal, host) and acl.decides(operation)
        }
        return Permission.ALLOW in permissions and Permission.DENY not in permissions

    def allows_any(self, principal: str, host: str, operation: int, resource: int) -> bool:
        """Return whether `principal` may perform an operation on at least one resource of a type."""
        if principal in self._super_users:
            return True
        deciding_acls = [
            acl
            for acl in self._acls
            if acl.resource == resource and acl.applies_to(principal, host) and acl.decides(operation)
        ]
        deny_acls = [acl for acl in deciding_acls if acl.permission == Permission.DENY]
        if any(acl.pattern == PatternType.LITERAL and acl.name == "*" for acl in deny_acls):
            return False
        if self._allow_everyone:
            return True
        return any(
            acl.permission == Permission.ALLOW and not any(_dominates(deny, acl) for deny in deny_acls)
            for acl in deciding_acls
        )


def _dominates(deny: Acl, allow: Acl) -> bool:
    """Return whether a DENY covers every name that an ALLOW covers."""
    if deny.pattern == PatternType.PREFIXED:
        return allow.name.startswith(deny.name) and allow.name != "*"
    return allow.pattern == PatternType.LITERAL and allow.name == deny.name

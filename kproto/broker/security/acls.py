"""Access rules and who may do what by them, as Kafka's StandardAuthorizer.

    rule = Acl(Resource.TOPIC, "t", Pattern.LITERAL, "User:alice", "*", Operation.READ, Permission.ALLOW)
    acls.add(rule)
    acls.allows("User:alice", "10.0.0.7", Operation.DESCRIBE, Resource.TOPIC, "t") -> True

Rules that hold here:

* A rule is about a name, about all that begin with one (PREFIXED), or about all (LITERAL with *).
* One that forbids wins over all that allow. Who may READ, WRITE, DELETE or ALTER may DESCRIBE, too, and who
  may ALTER_CONFIGS may DESCRIBE_CONFIGS; forbidding implies nothing.
* Super users may do everything. Where no rule is about the resource at all, nobody else may, unless
  `allow.everyone.if.no.acl.found`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

CLUSTER_NAME: Final = "kafka-cluster"
ANYBODY: Final = "User:*"


class Resource(IntEnum):
    """ResourceType."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class Pattern(IntEnum):
    """PatternType; ANY and MATCH are for filters only."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """AclOperation."""

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
    """AclPermissionType."""

    ANY = 1
    DENY = 2
    ALLOW = 3


_IMPLIED_BY: Final = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}


class Acl(NamedTuple):
    """One rule; the numbers are those of the enums above."""

    resource: int
    name: str
    pattern: int
    principal: str
    host: str
    operation: int
    permission: int

    def covers(self, resource: int, name: str) -> bool:
        """Is it about this resource?"""
        if self.resource != resource:
            return False
        if self.pattern == Pattern.PREFIXED:
            return name.startswith(self.name)
        # StandardAuthorizer's search takes * for a prefix of what begins so, and passes it over.
        return self.name == name or (self.name == "*" and not name.startswith("*"))

    def about(self, principal: str, host: str) -> bool:
        return self.principal in (ANYBODY, principal) and self.host in ("*", host)

    def decides(self, operation: int) -> bool:
        """Does it say something about this operation?"""
        if self.operation in (Operation.ALL, operation):
            return True
        implying = _IMPLIED_BY.get(Operation(operation), set[Operation]())
        return self.permission == Permission.ALLOW and self.operation in implying


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Which rules are meant; None and ANY match all, and MATCH all that are about the name."""

    resource: int
    name: str | None
    pattern: int
    principal: str | None
    host: str | None
    operation: int
    permission: int

    def matches(self, acl: Acl) -> bool:
        return (
            self.resource in (Resource.ANY, acl.resource)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self._names(acl)
        )

    def _names(self, acl: Acl) -> bool:
        if self.pattern not in (Pattern.ANY, Pattern.MATCH, acl.pattern):
            return False
        if self.name is None or self.name == acl.name:
            return True
        return self.pattern == Pattern.MATCH and (
            (acl.pattern == Pattern.LITERAL and acl.name == "*") or acl.covers(acl.resource, self.name)
        )


class Acls:
    """All rules of a broker."""

    def __init__(self, super_users: Iterable[str] = (), *, allow_everyone: bool = False) -> None:
        self._super_users = frozenset(super_users)
        self._allow_everyone = allow_everyone
        self._rules: dict[Acl, None] = {}
        self.version = 0
        """Grows with each change."""

    def add(self, acl: Acl) -> None:
        self.version += 1
        self._rules[acl] = None

    def matching(self, wanted: AclFilter) -> list[Acl]:
        return [acl for acl in self._rules if wanted.matches(acl)]

    def remove(self, acls: Iterable[Acl]) -> None:
        self.version += 1
        for acl in acls:
            self._rules.pop(acl, None)

    def allows(self, principal: str, host: str, operation: int, resource: int, name: str) -> bool:
        """May `principal`, who comes from `host`, do this?"""
        if principal in self._super_users:
            return True
        covering = [acl for acl in self._rules if acl.covers(resource, name)]
        if not covering:
            return self._allow_everyone
        found = {acl.permission for acl in covering if acl.about(principal, host) and acl.decides(operation)}
        return Permission.ALLOW in found and Permission.DENY not in found

    def allows_any(self, principal: str, host: str, operation: int, resource: int) -> bool:
        """Is there any resource of this type with which `principal` may do this?"""
        if principal in self._super_users:
            return True
        known = [acl for acl in self._rules if acl.resource == resource and acl.about(principal, host)]
        known = [acl for acl in known if acl.decides(operation)]
        denied = [acl for acl in known if acl.permission == Permission.DENY]
        if any(acl.pattern == Pattern.LITERAL and acl.name == "*" for acl in denied):
            return False
        if self._allow_everyone:
            return True
        return any(
            acl.permission == Permission.ALLOW and not any(_dominates(deny, acl) for deny in denied)
            for acl in known
        )


def _dominates(deny: Acl, allow: Acl) -> bool:
    """Does the one leave nothing of the other?"""
    if deny.pattern == Pattern.PREFIXED:
        return allow.name.startswith(deny.name) and allow.name != "*"
    return allow.pattern == Pattern.LITERAL and allow.name == deny.name

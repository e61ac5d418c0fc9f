"""ACLs allow and deny operations, and filters find ACLs, as in Kafka's StandardAuthorizer."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproto.broker.security.acls import Acl, AclFilter, Acls, PatternType, Permission, Resource
from kproto.broker.security.acls import Operation as Op

BOB, HOST = "User:bob", "10.0.0.7"


ALLOW, DENY = Permission.ALLOW, Permission.DENY


def rule(name: str = "t", operation: int = Op.READ, permission: int = ALLOW, **more: Any) -> Acl:
    fields = {
        "resource": Resource.TOPIC,
        "pattern": PatternType.LITERAL,
        "principal": BOB,
        "host": "*",
        **more,
    }
    return Acl(name=name, operation=operation, permission=permission, **fields)


def allows(operation: int, *rules: Acl, name: str = "t", who: str = BOB, **settings: Any) -> bool:
    acls = Acls(**settings)
    for acl in rules:
        acls.add(acl)
    return acls.allows(who, HOST, operation, Resource.TOPIC, name)


def test_an_operation_without_an_acl_is_denied() -> None:
    assert not allows(Op.READ)
    assert not allows(Op.WRITE, rule())
    assert not allows(Op.READ, rule(), name="other")
    assert not allows(Op.READ, rule(), who="User:eve")
    assert not allows(Op.READ, rule(host="10.0.0.8"))


def test_an_allowed_operation_is_permitted() -> None:
    assert allows(Op.READ, rule())
    assert allows(Op.READ, rule(host=HOST))
    assert allows(Op.READ, rule("*"))
    assert allows(Op.READ, rule(principal="User:*"))
    assert allows(Op.READ, rule("t-", pattern=PatternType.PREFIXED), name="t-1")
    assert allows(Op.WRITE, rule(operation=Op.ALL))


def test_deny_has_precedence_over_allow() -> None:
    for deny in (
        rule(permission=DENY),
        rule("*", Op.ALL, DENY),
        rule("", permission=DENY, pattern=PatternType.PREFIXED),
    ):
        assert not allows(Op.READ, rule(), rule("*", Op.ALL), deny)


@pytest.mark.parametrize("operation", [Op.READ, Op.WRITE, Op.DELETE, Op.ALTER])
def test_read_write_delete_and_alter_imply_describe(operation: Op) -> None:
    assert allows(Op.DESCRIBE, rule(operation=operation))
    assert allows(Op.DESCRIBE, rule(operation=Op.DESCRIBE), rule(operation=operation, permission=DENY))


def test_alter_configs_implies_describe_configs() -> None:
    assert allows(Op.DESCRIBE_CONFIGS, rule(operation=Op.ALTER_CONFIGS))
    assert not allows(Op.DESCRIBE, rule(operation=Op.ALTER_CONFIGS))


def test_super_users_may_do_everything() -> None:
    assert allows(Op.READ, rule(permission=DENY), super_users=[BOB])
    assert allows(Op.READ, allow_everyone=True)
    assert not allows(Op.READ, rule(principal="User:eve"), allow_everyone=True)


def test_a_match_filter_finds_all_acls_that_cover_a_name() -> None:
    acls = Acls()
    known = [rule(), rule("*"), rule("t", pattern=PatternType.PREFIXED), rule("other")]
    for acl in known:
        acls.add(acl)
    everything = {"principal": None, "host": None, "operation": Op.ANY, "permission": Permission.ANY}
    match = AclFilter(Resource.TOPIC, "t", PatternType.MATCH, **everything)
    assert acls.matching(match) == known[:3]
    assert acls.matching(AclFilter(Resource.TOPIC, "t", PatternType.ANY, **everything)) == [
        known[0],
        known[2],
    ]
    assert acls.matching(AclFilter(Resource.ANY, None, PatternType.ANY, **everything)) == known
    assert acls.matching(AclFilter(Resource.GROUP, None, PatternType.ANY, **everything)) == []


RULES = st.builds(
    rule,
    st.sampled_from(["t", "*", "other", ""]),
    st.sampled_from([Op.ALL, Op.READ, Op.WRITE, Op.DESCRIBE]),
    st.sampled_from([ALLOW, DENY]),
    pattern=st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    principal=st.sampled_from([BOB, "User:*", "User:eve"]),
)


@given(
    st.lists(RULES),
    RULES.map(lambda entry: entry._replace(permission=DENY)),
    st.sampled_from([Op.READ, Op.WRITE]),
)
def test_another_deny_never_permits_more(rules: list[Acl], deny: Acl, operation: Op) -> None:
    assert allows(operation, *rules, deny) <= allows(operation, *rules)


def test_a_wildcard_acl_skips_names_that_begin_with_a_star() -> None:
    assert not allows(Op.READ, rule("*"), name="*t")
    assert allows(Op.READ, rule("*"), name="*")
    assert allows(Op.READ, rule("*"), rule("*", permission=DENY, pattern=PatternType.PREFIXED), name="t")

"""`kproto acls` lists, adds and removes ACLs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kproto.broker.server import Server, running
from kproto.broker.settings import AUTHORIZER
from tests.cli.stage import Shell


@pytest.fixture(scope="module")
def broker() -> Iterator[Server]:
    """A broker with an authorizer, for which every client is a super user."""
    settings = {"authorizer.class.name": AUTHORIZER, "super.users": "User:ANONYMOUS"}
    with running(settings=settings) as server:
        yield server


def test_acls_are_added_listed_and_removed(shell: Shell) -> None:
    shell("acls add --topic flights --operation read --operation write --principal User:alice")
    shell(
        "acls add --group app --pattern prefixed --operation read --principal User:bob --deny --host 10.0.0.1"
    )
    pattern = "ResourcePattern(resourceType=TOPIC, name=flights, patternType=LITERAL)"
    assert shell("acls list --topic flights") == [
        f"Current ACLs for resource `{pattern}`: ",
        " \t(principal=User:alice, host=*, operation=READ, permissionType=ALLOW)",
        " \t(principal=User:alice, host=*, operation=WRITE, permissionType=ALLOW)",
        "",
    ]
    assert shell.json("acls list --principal User:bob") == [
        {
            "resourceType": "group",
            "name": "app",
            "patternType": "prefixed",
            "principal": "User:bob",
            "host": "10.0.0.1",
            "operation": "read",
            "permissionType": "deny",
        }
    ]
    assert len(shell.json("acls remove --topic flights --operation read")) == 1
    assert shell.errors == "no ACL was removed; add --execute to do it\n"
    assert len(shell.json("acls list")) == 3
    assert len(shell.json("acls remove --topic flights --operation read --execute")) == 1
    assert [acl["operation"] for acl in shell.json("acls list --topic flights")] == ["write"]


def test_an_acl_needs_a_resource_and_a_known_operation(shell: Shell) -> None:
    shell("acls add --operation read --principal User:alice", code=1)
    assert "name a resource: --topic, --group, --transactional-id, --user or --cluster" in shell.errors
    shell("acls add --cluster --operation fly --principal User:alice", code=2)
    assert "fly" in shell.errors

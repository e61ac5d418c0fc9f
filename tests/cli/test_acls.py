"""`kproto acls` lists, adds and removes ACLs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kproto.broker.server import Server, running
from kproto.broker.settings import AUTHORIZER
from tests.cli.stage import Shell


@pytest.fixture(scope="module")
def broker() -> Iterator[Server]:
    """A broker with an authorizer that treats every client as a super user."""
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
    shell("acls add --cluster --operation create --principal User:carl")
    (acl,) = shell.json("acls list --cluster")
    assert (acl["resourceType"], acl["name"], acl["operation"]) == ("cluster", "kafka-cluster", "create")
    shell("acls remove --cluster --execute")
    assert len(shell.json("acls remove --topic flights --operation read")) == 1
    assert shell.errors == "no ACL was removed; add --execute to do it\n"
    assert len(shell.json("acls list")) == 3
    assert len(shell.json("acls remove --topic flights --operation read --execute")) == 1
    assert [acl["operation"] for acl in shell.json("acls list --topic flights")] == ["write"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "--operation read --principal User:alice",
            "add one of --topic, --group, --transactional-id, --user",
        ),
        ("--cluster --operation fly --principal User:alice", "--operation: invalid choice: 'fly'"),
        ("--cluster --operation read --principal alice", "'alice' is not TYPE:NAME, such as User:alice"),
    ],
)
def test_invalid_arguments_exit_with_2_and_say_what_is_allowed(
    words: str, message: str, shell: Shell
) -> None:
    shell(f"acls add {words}", code=2)
    assert message in shell.errors

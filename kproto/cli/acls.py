"""`kproto acls`: list, add and remove ACLs."""

from __future__ import annotations

import argparse
from itertools import groupby
from typing import TYPE_CHECKING

from ..errors import ConfigError, KprotoError
from .arguments import Subparsers, principal
from .connection import (
    add_execute,
    add_verb,
    add_verbs,
    admin_client,
    exit_code,
    say_not_executed,
    succeeded,
)
from .tables import cell, print_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from consumer.engine.admin.acls import AclBinding

# Options that name a resource -> its type.
_RESOURCES = {
    "topic": "topic",
    "group": "group",
    "transactional_id": "transactional_id",
    "user": "user",
}
_OPERATIONS = (
    "read",
    "write",
    "create",
    "delete",
    "alter",
    "describe",
    "cluster_action",
    "describe_configs",
    "alter_configs",
    "idempotent_write",
    "create_tokens",
    "describe_tokens",
    "two_phase_commit",
    "all",
)


def add(commands: Subparsers) -> None:
    verbs = add_verbs(
        commands,
        "acls",
        help_text="list, add and remove ACLs",
        description="Manage the ACLs of a cluster. The list is that of kafka-acls.",
    )
    listing = add_verb(verbs, "list", _list_acls, "print the ACLs, by resource")
    _add_resource_options(listing, "of this")
    listing.add_argument(
        "--principal", metavar="PRINCIPAL", help="only of this principal, such as User:alice"
    )

    create = add_verb(
        verbs,
        "add",
        _create_acls,
        "allow or deny operations on resources",
        epilog="Example: kproto acls add --topic flights --operation read --principal User:alice "
        "--bootstrap localhost:9092",
    )
    _add_resource_options(create, "on this")
    _add_right_options(create)

    delete = add_verb(verbs, "remove", _delete_acls, "remove ACLs")
    _add_resource_options(delete, "on this")
    delete.add_argument("--principal", metavar="PRINCIPAL", help="only of this principal, such as User:alice")
    delete.add_argument(
        "--operation", choices=_OPERATIONS, metavar="OPERATION", default="any", help="only for this operation"
    )
    add_execute(delete, "remove the ACLs")


def _add_resource_options(parser: argparse.ArgumentParser, help_prefix: str) -> None:
    group = parser.add_mutually_exclusive_group()
    for option in _RESOURCES:
        name = option.replace("_", " ")
        group.add_argument(
            f"--{name.replace(' ', '-')}", metavar="NAME", help=f"{help_prefix} {name}; * is every one"
        )
    group.add_argument("--cluster", action="store_true", help=f"{help_prefix} cluster")
    parser.add_argument(
        "--pattern",
        choices=("literal", "prefixed", "any", "match"),
        metavar="TYPE",
        help="whether NAME is a name or a prefix; list and remove also take any and match",
    )


def _add_right_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--principal",
        required=True,
        action="append",
        type=principal,
        metavar="PRINCIPAL",
        help="a user, such as User:alice; User:* is every user",
    )
    parser.add_argument(
        "--operation",
        required=True,
        action="append",
        choices=_OPERATIONS,
        metavar="OPERATION",
        help=f"any of {', '.join(_OPERATIONS)}",
    )
    parser.add_argument("--host", default="*", metavar="HOST", help="the client's IP address; default: all")
    parser.add_argument("--deny", action="store_true", help="deny the operations; default: allow them")


def _selected_resource(options: argparse.Namespace) -> tuple[str, str | None]:
    """Return the type and the name of the resource in the options; ("any", None) if no option names one."""
    if options.cluster:
        return "cluster", "kafka-cluster"
    for option, resource_type in _RESOURCES.items():
        if (name := getattr(options, option)) is not None:
            return resource_type, name
    return "any", None


def _list_acls(options: argparse.Namespace) -> int:
    from consumer.engine.admin.acls import AclBindingFilter

    resource_type, name = _selected_resource(options)
    acl_filter = AclBindingFilter(
        resource_type, name, options.principal, pattern_type=options.pattern or "any"
    )
    with admin_client(options) as admin:
        _print_acls(admin.describe_acls(acl_filter), as_json=options.json)
    return 0


def _print_acls(acls: Iterable[AclBinding], *, as_json: bool) -> None:
    """Print each resource on a line, followed by its ACLs, as kafka-acls does."""

    def resource_key(acl: AclBinding) -> tuple[str, str, str]:
        return acl.resource_type, acl.resource_name, acl.pattern_type

    for (resource_type, name, pattern), bindings in groupby(sorted(acls, key=resource_key), resource_key):
        if as_json:
            print_json(
                {
                    "resourceType": resource_type,
                    "name": name,
                    "patternType": pattern,
                    "principal": acl.principal,
                    "host": acl.host,
                    "operation": acl.operation,
                    "permissionType": acl.permission,
                }
                for acl in bindings
            )
            continue
        resource_text = (
            f"resourceType={resource_type.upper()}, name={cell(name)}, patternType={pattern.upper()}"
        )
        print(f"Current ACLs for resource `ResourcePattern({resource_text})`: ")
        for acl in bindings:
            rights = f"operation={acl.operation.upper()}, permissionType={acl.permission.upper()}"
            print(f" \t(principal={cell(acl.principal)}, host={cell(acl.host)}, {rights})")
        print()


def _create_acls(options: argparse.Namespace) -> int:
    from consumer.engine.admin.acls import AclBinding

    resource_type, name = _selected_resource(options)
    if name is None:
        resources = ", ".join(f"--{option.replace('_', '-')}" for option in _RESOURCES)
        raise ConfigError("--topic", "", f"the ACL needs a resource: add one of {resources} or --cluster")
    permission = "deny" if options.deny else "allow"
    failures: list[KprotoError] = []
    acls = [
        AclBinding(
            resource_type, name, principal, operation, permission, options.host, options.pattern or "literal"
        )
        for principal in options.principal
        for operation in options.operation
    ]
    with admin_client(options) as admin:
        created = succeeded(lambda: admin.create_acls(acls), failures)
    _print_acls(created if failures else acls, as_json=options.json)
    return exit_code("acls add", failures)


def _delete_acls(options: argparse.Namespace) -> int:
    from consumer.engine.admin.acls import AclBindingFilter

    resource_type, name = _selected_resource(options)
    acl_filter = AclBindingFilter(
        resource_type, name, options.principal, options.operation, pattern_type=options.pattern or "literal"
    )
    failures: list[KprotoError] = []
    with admin_client(options) as admin:
        if not options.execute:
            _print_acls(admin.describe_acls(acl_filter), as_json=options.json)
            return say_not_executed("no ACL was removed")
        removed = succeeded(lambda: admin.delete_acls([acl_filter]), failures)
    _print_acls([acl for acls in removed.values() for acl in acls], as_json=options.json)
    return exit_code("acls remove", failures)

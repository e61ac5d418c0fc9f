"""`kproto users`: the SCRAM credentials of users."""

from __future__ import annotations

import argparse
from functools import partial

from ..errors import ConfigError, KprotoError
from .arguments import Subparsers, positive, read_secret
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

_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_PASSWORD_VARIABLE = "KPROTO_NEW_PASSWORD"


def add(commands: Subparsers) -> None:
    verbs = add_verbs(
        commands,
        "users",
        help_text="list, set and delete SCRAM credentials of users",
        description="Manage the SCRAM credentials of users.",
    )
    describe = add_verb(verbs, "list", _list, "print the mechanisms of users with SCRAM credentials")
    describe.add_argument("users", nargs="*", metavar="USER", help="default: all users")
    change = add_verb(
        verbs,
        "set",
        _set,
        "set the password of a user",
        description="Set the password of a user. The password is read from the terminal, from the first "
        f"line of stdin, or from the environment variable {_PASSWORD_VARIABLE}; it is sent salted.",
    )
    change.add_argument("user", metavar="USER")
    change.add_argument(
        "--mechanism",
        choices=_MECHANISMS,
        default="SCRAM-SHA-512",
        metavar="NAME",
        help=f"{' or '.join(_MECHANISMS)}; default: SCRAM-SHA-512",
    )
    change.add_argument("--iterations", type=positive, default=8192, metavar="N", help="default: 8192")
    delete = add_verb(verbs, "delete", _delete, "delete SCRAM credentials of a user")
    delete.add_argument("user", metavar="USER")
    delete.add_argument(
        "--mechanism", choices=_MECHANISMS, metavar="NAME", help="default: both mechanisms, if they are set"
    )
    add_execute(delete, "delete the credentials")


def _list(options: argparse.Namespace) -> int:
    failures: list[KprotoError] = []
    with admin_client(options) as admin:
        users = succeeded(lambda: admin.describe_user_scram_credentials(options.users or None), failures)
    for user, credentials in sorted(users.items()):
        if options.json:
            print_json(
                {"user": user, "mechanism": credential.mechanism, "iterations": credential.iterations}
                for credential in credentials
            )
        else:
            credentials_text = ", ".join(
                f"{each.mechanism}=iterations={each.iterations}" for each in credentials
            )
            print(f"SCRAM credential configs for user-principal '{cell(user)}' are {credentials_text}")
    return exit_code("users list", failures)


def _set(options: argparse.Namespace) -> int:
    from consumer.engine.admin.credentials import UserScramCredentialUpsertion

    change = UserScramCredentialUpsertion(
        options.user, options.mechanism, _read_password(), options.iterations
    )
    failures: list[KprotoError] = []
    with admin_client(options) as admin:
        succeeded(lambda: admin.alter_user_scram_credentials([change]), failures)
    if not failures:
        _print_done(options, "set", f"Completed updating config for user {cell(options.user)}.")
    return exit_code("users set", failures)


def _read_password() -> str:
    """Return the new password. It is never read from the command line, which other users can see."""
    password = read_secret(_PASSWORD_VARIABLE, "new password: ")
    if not password:
        allowed = f"allowed: a password on the first line of stdin, or in {_PASSWORD_VARIABLE}"
        raise ConfigError("the password", "", allowed)
    return password


def _delete(options: argparse.Namespace) -> int:
    from consumer.engine.admin.credentials import UserScramCredentialDeletion

    failures: list[KprotoError] = []
    with admin_client(options) as admin:
        existing = admin.describe_user_scram_credentials([options.user])[options.user]
        mechanisms = [each.mechanism for each in existing if options.mechanism in (None, each.mechanism)]
        if not mechanisms:
            detail = f"user {options.user!r} has no credential for {options.mechanism}"
            return exit_code("users delete", [KprotoError(detail)])
        if not options.execute:
            print(f"delete {' and '.join(mechanisms)} of user {cell(options.user)}")
            return say_not_executed("nothing was deleted")
        for mechanism in mechanisms:  # In one request, Kafka accepts at most one change per user.
            deletion = UserScramCredentialDeletion(options.user, mechanism)
            succeeded(partial(admin.alter_user_scram_credentials, [deletion]), failures)
    if not failures:
        _print_done(options, "deleted", f"Deleted {' and '.join(mechanisms)} of user {cell(options.user)}.")
    return exit_code("users delete", failures)


def _print_done(options: argparse.Namespace, done: str, text: str) -> None:
    if options.json:
        print_json([{"user": options.user, "done": done}])
    else:
        print(text)

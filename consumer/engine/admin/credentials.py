"""Admin operations that set, delete and describe the SCRAM credentials of users (KIP-554)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final, TypeAlias

import msgspec

from kproto.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kproto.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
    UserName,
)
from kproto.security.scram import LEAST_ITERATIONS, salted

from ..error_actions import CONTROLLER
from ..metadata.cluster import ClusterView
from ..network.call import Call
from .configs import name_of
from .fanout import Answer, ask_broker, fan_out, to_any_broker, to_controller
from .plan import Plan, expect_response

MECHANISMS: Final = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
# Kafka's limit (ScramMechanism.maxIterations).
MAX_ITERATIONS: Final = 16384


class ScramCredentialInfo(msgspec.Struct, frozen=True, order=True):
    """A SCRAM credential of a user, without the password, which no broker knows. Java: ScramCredentialInfo.

    `mechanism` is "SCRAM-SHA-256" or "SCRAM-SHA-512".
    """

    mechanism: str
    iterations: int


class UserScramCredentialUpsertion(msgspec.Struct, frozen=True):
    """A new or changed SCRAM credential of a user. Java: UserScramCredentialUpsertion.

    `mechanism` is "SCRAM-SHA-256" or "SCRAM-SHA-512". The client sends only the salted password.

    If `salt` is None, a random salt is used.
    """

    user: str
    mechanism: str
    password: str
    iterations: int = LEAST_ITERATIONS
    salt: bytes | None = None

    def __repr__(self) -> str:
        """Return a representation without the password."""
        return f"UserScramCredentialUpsertion({self.user!r}, {self.mechanism!r}, ...)"


class UserScramCredentialDeletion(msgspec.Struct, frozen=True):
    """A SCRAM credential of a user to delete. Java: UserScramCredentialDeletion."""

    user: str
    mechanism: str


ScramAlteration: TypeAlias = UserScramCredentialUpsertion | UserScramCredentialDeletion


def alter_user_scram_credentials(
    view: ClusterView,
    alterations: Collection[ScramAlteration],
    clock: Callable[[], int],
    new_salt: Callable[[], bytes],
) -> Plan[dict[str, None]]:
    """Set and delete credentials.

    If a request changes the same user twice, even for different mechanisms, Kafka rejects both changes with
    the error DUPLICATE_RESOURCE.

    `new_salt` creates the salt of an upsertion whose `salt` is None.
    """
    upsertions = [change for change in alterations if isinstance(change, UserScramCredentialUpsertion)]
    deletions = [change for change in alterations if isinstance(change, UserScramCredentialDeletion)]
    # Hashing a password takes milliseconds, so each password is hashed once, not once per request.
    salted_upsertions = {change: _salted_upsertion(change, new_salt) for change in upsertions}

    def request(users: Sequence[str]) -> AlterUserScramCredentialsRequest:
        return AlterUserScramCredentialsRequest(
            deletions=[
                ScramCredentialDeletion(name=change.user, mechanism=MECHANISMS[change.mechanism])
                for change in deletions
                if change.user in users
            ],
            upsertions=[salted_upsertions[change] for change in upsertions if change.user in users],
        )

    def read(call: Call, users: Sequence[str]) -> Iterator[Answer[str, None]]:
        for result in expect_response(AlterUserScramCredentialsResponse, call).results:
            yield Answer(result.user, None, result.error_code, result.error_message)

    changed_users = [change.user for change in alterations]
    router = to_controller(view, clock)
    return (
        yield from fan_out(
            changed_users, router, "AlterUserScramCredentials", CONTROLLER, request, read, name=_user_label
        )
    )


def _salted_upsertion(
    change: UserScramCredentialUpsertion, new_salt: Callable[[], bytes]
) -> ScramCredentialUpsertion:
    """Return the entry of an AlterUserScramCredentials request that sets a credential. The entry contains the
    salted password.
    """
    salt = new_salt() if change.salt is None else change.salt
    return ScramCredentialUpsertion(
        name=change.user,
        mechanism=MECHANISMS[change.mechanism],
        iterations=change.iterations,
        salt=salt,
        salted_password=salted(change.mechanism, change.password, salt, change.iterations),
    )


def describe_user_scram_credentials(
    view: ClusterView, users: Collection[str] | None, clock: Callable[[], int]
) -> Plan[dict[str, tuple[ScramCredentialInfo, ...]]]:
    """Return the credentials of these users, or of every user with credentials if `users` is None."""
    router = to_any_broker(view, clock)
    api = "DescribeUserScramCredentials"
    if users is None:

        def read_all(call: Call) -> tuple[int, str | None, dict[str, tuple[ScramCredentialInfo, ...]]]:
            response = expect_response(DescribeUserScramCredentialsResponse, call)
            infos_by_user = {
                result.user: _credential_infos(result) for result in response.results if not result.error_code
            }
            return response.error_code, response.error_message, dict(sorted(infos_by_user.items()))

        request_for_all = DescribeUserScramCredentialsRequest(users=None)
        return (yield from ask_broker(router, api, CONTROLLER, request_for_all, read_all))

    def request(names: Sequence[str]) -> DescribeUserScramCredentialsRequest:
        return DescribeUserScramCredentialsRequest(users=[UserName(name=name) for name in names])

    def read(call: Call, names: Sequence[str]) -> Iterator[Answer[str, tuple[ScramCredentialInfo, ...]]]:
        response = expect_response(DescribeUserScramCredentialsResponse, call)
        if response.error_code:
            for name in names:
                yield Answer(name, (), response.error_code, response.error_message)
            return
        for result in response.results:
            yield Answer(result.user, _credential_infos(result), result.error_code, result.error_message)

    return (yield from fan_out(users, router, api, CONTROLLER, request, read, name=_user_label))


def _credential_infos(result: DescribeUserScramCredentialsResult) -> tuple[ScramCredentialInfo, ...]:
    infos = (
        ScramCredentialInfo(name_of(info.mechanism, MECHANISMS), info.iterations)
        for info in result.credential_infos
    )
    return tuple(sorted(infos))


def _user_label(name: str) -> str:
    return f"user {name!r}"

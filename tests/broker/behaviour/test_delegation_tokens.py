"""Delegation tokens (KIP-48): logins with tokens, and the permissions to create or describe the tokens of
other owners.

A client that logs in with a token acts as the token's owner.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from kproto.broker.machine import ClientConnected
from kproto.broker.security.acls import Acl, Operation, PatternType, Permission, Resource
from kproto.error_codes import ErrorCode as E
from kproto.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from kproto.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from kproto.messages.expire_delegation_token import ExpireDelegationTokenRequest
from kproto.messages.renew_delegation_token import RenewDelegationTokenRequest
from kproto.security.scram import ScramClient
from tests.broker.security.stage import LoginStage

BOB = "User:bob"


def stage(principal: str = BOB, **settings: str) -> LoginStage:
    """Return a broker with an authorizer, and a connection with a certificate of `principal`."""
    named = {"delegation_token_secret_key": "key", **settings}
    logins = LoginStage("PLAINTEXT", authorizer_class_name="StandardAuthorizer", users=None, **named)
    connect(logins, principal)
    return logins


def connect(logins: LoginStage, principal: str) -> None:
    logins.step(ClientConnected(1, "10.0.0.7", "SSL", principal))


def allow(logins: LoginStage, operation: Operation, resource: Resource, name: str) -> None:
    assert logins.broker.acls is not None
    logins.broker.acls.add(Acl(resource, name, PatternType.LITERAL, BOB, "*", operation, Permission.ALLOW))


def create(logins: LoginStage, owner: str = "", *, renewer_type: str = "User", version: int = 3) -> Any:
    owner_type = "User" if owner else ""
    renewer = CreatableRenewers(principal_type=renewer_type, principal_name="carol")
    request = CreateDelegationTokenRequest(
        owner_principal_type=owner_type,
        owner_principal_name=owner,
        renewers=[renewer],
        max_lifetime_ms=-1,
    )
    return logins.ask(request, version)


def describe(logins: LoginStage, *owners: str) -> tuple[int, list[str]]:
    wanted = [DescribeDelegationTokenOwner(principal_type="User", principal_name=owner) for owner in owners]
    response = logins.ask(DescribeDelegationTokenRequest(owners=wanted or None), 3)
    return response.error_code, [token.principal_name for token in response.tokens]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_token_belongs_to_its_requester(version: int) -> None:
    logins = stage()
    token = create(logins, version=version)
    assert (token.error_code, token.principal_type, token.principal_name) == (0, "User", "bob")
    assert token.token_requester_principal_name == ("bob" if version == 3 else "")
    assert len(bytes(token.hmac)) == 64
    assert describe(logins) == (0, ["bob"])
    assert describe(logins, "carol") == (0, ["bob"])
    assert describe(logins, "eve") == (0, [])
    response = logins.ask(RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=10), 2)
    assert response.expiry_timestamp_ms == token.issue_timestamp_ms + 10
    response = logins.ask(ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=-1), 2)
    assert response.error_code == 0
    assert describe(logins) == (0, [])


@pytest.mark.parametrize(
    ("principal", "settings", "error"),
    [
        ("User:ANONYMOUS", {}, E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED),
        (BOB, {"delegation_token_secret_key": ""}, E.DELEGATION_TOKEN_AUTH_DISABLED),
    ],
)
def test_requests_need_a_login_and_a_key(principal: str, settings: dict[str, str], error: E) -> None:
    logins = stage(principal, **settings)
    assert create(logins).error_code == error
    assert describe(logins) == (error, [])
    assert logins.ask(RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=1), 2).error_code == error
    assert logins.ask(ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=1), 2).error_code == error


def test_the_renewers_are_users() -> None:
    assert create(stage(), renewer_type="Group").error_code == E.INVALID_PRINCIPAL_TYPE


def test_a_token_of_another_owner_needs_a_permission() -> None:
    logins = stage()
    assert create(logins, "dora").error_code == E.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    allow(logins, Operation.CREATE_TOKENS, Resource.USER, "User:dora")
    token = create(logins, "dora")
    assert (token.error_code, token.principal_name, token.token_requester_principal_name) == (
        0,
        "dora",
        "bob",
    )


@pytest.mark.parametrize("permission", [None, "owner", "token"])
def test_tokens_of_others_are_described_with_a_permission_only(permission: str | None) -> None:
    logins = stage("User:dora")
    token = create(logins)
    connect(logins, BOB)
    if permission == "owner":
        allow(logins, Operation.DESCRIBE_TOKENS, Resource.USER, "User:dora")
    elif permission == "token":
        allow(logins, Operation.DESCRIBE, Resource.DELEGATION_TOKEN, token.token_id)
    assert describe(logins) == (0, [] if permission is None else ["dora"])


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_client_logs_in_with_a_token_as_its_owner(mechanism: str) -> None:
    logins = stage()
    token = create(logins)
    password = b64encode(bytes(token.hmac)).decode()
    logins.step(ClientConnected(1, "10.0.0.7", "SASL_SSL"))
    client = ScramClient(mechanism, token.token_id, password, "nonce", by_token=True)
    response = logins.log_in(client)
    assert (response.error_code, response.session_lifetime_ms) == (
        0,
        token.expiry_timestamp_ms - token.issue_timestamp_ms,
    )
    assert describe(logins) == (E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, [])
    connection = logins.broker.cluster.connections[1]
    assert connection.principal == BOB


@pytest.mark.parametrize("fault", ["another password", "unknown", "expired", "no extension"])
def test_a_login_with_a_wrong_token_is_rejected(fault: str) -> None:
    logins = stage()
    token = create(logins)
    password = "x" if fault == "another password" else b64encode(bytes(token.hmac)).decode()
    token_id = "unknown" if fault == "unknown" else token.token_id
    if fault == "expired":
        logins.now += 86_400_001
    logins.step(ClientConnected(1, "10.0.0.7", "SASL_SSL"))
    response = logins.log_in(
        ScramClient("SCRAM-SHA-256", token_id, password, "nonce", by_token=fault != "no extension")
    )
    assert response is None  # The broker delays its response to a failed login.
    assert logins.broker.cluster.connections[1].principal == "User:ANONYMOUS"

"""Admin operations that create, renew, expire and describe delegation tokens (KIP-48)."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Collection

import msgspec

from kproto.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from kproto.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from kproto.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from kproto.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from kproto.wire.message import Message

from ..error_actions import ADMIN
from ..metadata.cluster import ClusterView
from ..network.call import Call, Prepared
from .fanout import ask_broker, to_any_broker
from .plan import Plan, expect_response, require_version


class DelegationToken(msgspec.Struct, frozen=True):
    """A delegation token: a client can authenticate with it instead of its own credentials.

    A client logs in by SCRAM with `token_id` as the user name, `hmac_as_base64` as the password, and SCRAM's
    extension tokenauth=true. kproto's clients send the extension if `sasl_token_auth` is set.

    `owner`, `token_requester` and `renewers` are principals such as "User:alice".

    Times are in ms since 1970. A token expires at `expiry_timestamp` if it is not renewed, and at
    `max_timestamp` in any case.

    Java: DelegationToken and TokenInformation.
    """

    token_id: str
    owner: str
    token_requester: str
    renewers: tuple[str, ...]
    issue_timestamp: int
    expiry_timestamp: int
    max_timestamp: int
    hmac: bytes

    @property
    def hmac_as_base64(self) -> str:
        """The password of the token, in base64."""
        return b64encode(self.hmac).decode()

    def __repr__(self) -> str:
        """Return a representation without the password."""
        return f"DelegationToken({self.token_id!r}, {self.owner!r}, ...)"


def create_delegation_token(
    view: ClusterView,
    clock: Callable[[], int],
    *,
    renewers: Collection[str],
    owner: str | None,
    max_lifetime_ms: int | None,
) -> Plan[DelegationToken]:
    """Create a token for `owner`, or for the client's own principal if `owner` is None."""

    def build(version: int) -> CreateDelegationTokenRequest:
        request = CreateDelegationTokenRequest(
            renewers=[
                CreatableRenewers(principal_type=principal_type, principal_name=name)
                for principal_type, name in map(_split_principal, renewers)
            ],
            max_lifetime_ms=-1 if max_lifetime_ms is None else max_lifetime_ms,
        )
        if owner is not None:
            require_version("CreateDelegationToken", version, 3, "3.3", "to name an owner (KIP-373)")
            request.owner_principal_type, request.owner_principal_name = _split_principal(owner)
        return request

    def read(call: Call) -> tuple[int, str | None, DelegationToken]:
        response = expect_response(CreateDelegationTokenResponse, call)
        token_owner = _format_principal(response.principal_type, response.principal_name)
        requester = _format_principal(
            response.token_requester_principal_type, response.token_requester_principal_name
        )
        token = DelegationToken(
            response.token_id,
            token_owner,
            requester or token_owner,
            tuple(renewers),
            response.issue_timestamp_ms,
            response.expiry_timestamp_ms,
            response.max_timestamp_ms,
            bytes(response.hmac),
        )
        return response.error_code, None, token

    request = Prepared(CreateDelegationTokenRequest, build)
    return (yield from ask_broker(to_any_broker(view, clock), "CreateDelegationToken", ADMIN, request, read))


def renew_delegation_token(
    view: ClusterView, hmac: bytes, clock: Callable[[], int], *, renew_period_ms: int | None
) -> Plan[int]:
    """Extend the lifetime of a token. Returns the time of expiry in ms since 1970."""
    request = RenewDelegationTokenRequest(
        hmac=hmac, renew_period_ms=-1 if renew_period_ms is None else renew_period_ms
    )
    return (yield from _change_expiry(view, clock, request, RenewDelegationTokenResponse))


def expire_delegation_token(
    view: ClusterView, hmac: bytes, clock: Callable[[], int], *, expiry_period_ms: int | None
) -> Plan[int]:
    """Make a token expire after `expiry_period_ms`, or immediately if this argument is None.

    Returns the time of expiry in ms since 1970.
    """
    request = ExpireDelegationTokenRequest(
        hmac=hmac, expiry_time_period_ms=-1 if expiry_period_ms is None else expiry_period_ms
    )
    return (yield from _change_expiry(view, clock, request, ExpireDelegationTokenResponse))


def _change_expiry(
    view: ClusterView,
    clock: Callable[[], int],
    request: Message,
    response_type: type[RenewDelegationTokenResponse] | type[ExpireDelegationTokenResponse],
) -> Plan[int]:
    """Send a request that renews or expires a token, and return the new time of expiry in ms since 1970."""

    def read(call: Call) -> tuple[int, str | None, int]:
        response = expect_response(response_type, call)
        return response.error_code, None, response.expiry_timestamp_ms

    api = type(request).__name__.removesuffix("Request")
    return (yield from ask_broker(to_any_broker(view, clock), api, ADMIN, request, read))


def describe_delegation_token(
    view: ClusterView, owners: Collection[str] | None, clock: Callable[[], int]
) -> Plan[list[DelegationToken]]:
    """Return the tokens of `owners` (None: of all owners) that the client may describe, sorted by id."""

    def read(call: Call) -> tuple[int, str | None, list[DelegationToken]]:
        response = expect_response(DescribeDelegationTokenResponse, call)
        tokens = map(_described_token, response.tokens)
        return response.error_code, None, sorted(tokens, key=lambda token: token.token_id)

    owner_entries = None
    if owners is not None:
        owner_entries = [
            DescribeDelegationTokenOwner(principal_type=principal_type, principal_name=name)
            for principal_type, name in map(_split_principal, owners)
        ]
    request = DescribeDelegationTokenRequest(owners=owner_entries)
    router = to_any_broker(view, clock)
    return (yield from ask_broker(router, "DescribeDelegationToken", ADMIN, request, read))


def _described_token(token: DescribedDelegationToken) -> DelegationToken:
    owner = _format_principal(token.principal_type, token.principal_name)
    requester = _format_principal(token.token_requester_principal_type, token.token_requester_principal_name)
    return DelegationToken(
        token.token_id,
        owner,
        requester or owner,
        tuple(
            _format_principal(renewer.principal_type, renewer.principal_name) for renewer in token.renewers
        ),
        token.issue_timestamp,
        token.expiry_timestamp,
        token.max_timestamp,
        bytes(token.hmac),
    )


def _split_principal(principal: str) -> tuple[str, str]:
    """Return the type and the name of a principal such as "User:alice"."""
    principal_type, _, name = principal.partition(":")
    return principal_type, name


def _format_principal(principal_type: str, name: str) -> str:
    """Return a principal such as "User:alice", or "" if the response contains no principal."""
    return f"{principal_type}:{name}" if principal_type else ""

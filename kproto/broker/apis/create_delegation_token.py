"""CreateDelegationToken (key 38): create a token for the caller, or for another owner (KIP-48, KIP-373)."""

from __future__ import annotations

from base64 import urlsafe_b64encode

from ...error_codes import ErrorCode
from ...messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from ..broker import Broker
from ..call import Call, Result
from ..delegation_tokens import DelegationToken
from ..security.acls import Operation, Resource
from .api import Api
from .authorization import Access, Authorization, Authorized, Requirement
from .token_requests import NO_TIME, caller_error, principal_of, split_principal

_FAILED = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
# The first version whose response names the requester (KIP-373).
_WITH_REQUESTER = 3


def handle_create_delegation_token(broker: Broker, call: Call) -> Result:
    """Create a token, and return it; the token is the caller's unless the request names another owner."""
    request = call.request
    assert isinstance(request, CreateDelegationTokenRequest)
    owner = _owner_principal(call, request)
    if error := caller_error(call):
        return _create_response(call, owner, error, None)
    renewers = [principal_of(renewer.principal_type, renewer.principal_name) for renewer in request.renewers]
    if any(renewer.principal_type != "User" for renewer in request.renewers):
        return _create_response(call, owner, ErrorCode.INVALID_PRINCIPAL_TYPE, None)
    tokens = broker.cluster.delegation_tokens
    if not tokens.is_enabled:
        return _create_response(call, owner, ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, None)
    token_id = urlsafe_b64encode(call.random_id.bytes).decode().rstrip("=")
    token = tokens.create(
        token_id, owner, call.principal, renewers, request.max_lifetime_ms, broker.wall_clock
    )
    return _create_response(call, owner, ErrorCode.NONE, token)


def _owner_principal(call: Call, request: CreateDelegationTokenRequest) -> str:
    if not request.owner_principal_name:
        return call.principal
    return principal_of(request.owner_principal_type or "", request.owner_principal_name)


def _create_response(
    call: Call, owner: str, error: ErrorCode, token: DelegationToken | None
) -> CreateDelegationTokenResponse:
    owner_type, owner_name = split_principal(owner)
    requester_type, requester_name = split_principal(call.principal)
    has_requester = call.version >= _WITH_REQUESTER
    return CreateDelegationTokenResponse(
        error_code=error,
        principal_type=owner_type,
        principal_name=owner_name,
        token_requester_principal_type=requester_type if has_requester else "",
        token_requester_principal_name=requester_name if has_requester else "",
        issue_timestamp_ms=NO_TIME if token is None else token.issued_at,
        expiry_timestamp_ms=NO_TIME if token is None else token.expires_at,
        max_timestamp_ms=NO_TIME if token is None else token.ends_at,
        token_id="" if token is None else token.token_id,
        hmac=b"" if token is None else token.hmac,
        throttle_time_ms=0,
    )


def _authorize(access: Access, request: CreateDelegationTokenRequest) -> Authorized:
    """Require CREATE_TOKENS on the owner, unless the caller is the owner."""
    call = access.call
    owner = _owner_principal(call, request)
    if caller_error(call) or owner == call.principal:
        return call
    if access.allows(Operation.CREATE_TOKENS, Resource.USER, owner):
        return call
    return _create_response(call, owner, _FAILED, None)


def refuse(
    request: CreateDelegationTokenRequest, error: ErrorCode, version: int
) -> CreateDelegationTokenResponse:
    """Refuse the whole request."""
    return CreateDelegationTokenResponse(
        error_code=error,
        principal_type="",
        principal_name="",
        issue_timestamp_ms=NO_TIME,
        expiry_timestamp_ms=NO_TIME,
        max_timestamp_ms=NO_TIME,
        token_id="",
        hmac=b"",
        throttle_time_ms=0,
    )


API = Api(
    request=CreateDelegationTokenRequest,
    handle=handle_create_delegation_token,
    authorization=Authorization((Requirement(Operation.CREATE_TOKENS, Resource.USER, _FAILED),), _authorize),
    refuse=refuse,
)

"""DescribeDelegationToken (key 41): list the tokens that the caller may describe (KIP-48, KIP-373)."""

from __future__ import annotations

from collections.abc import Callable

from ...error_codes import ErrorCode
from ...messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from ..broker import Broker
from ..call import Call, Result
from ..delegation_tokens import DelegationToken
from ..security.acls import Operation, Resource
from .api import Api
from .authorization import Access, Authorization, Authorized, omission
from .token_requests import caller_error, principal_of, split_principal

# The first version whose response names the requester (KIP-373).
_WITH_REQUESTER = 3


def handle_describe_delegation_token(broker: Broker, call: Call) -> Result:
    """Describe the tokens of the requested owners; null means all owners."""
    request = call.request
    assert isinstance(request, DescribeDelegationTokenRequest)
    tokens = broker.cluster.delegation_tokens
    error = caller_error(call)
    if not error and not tokens.is_enabled:
        error = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    if error:
        return _response(error, [])
    described = tokens.described(_token_filter(broker, call, request), broker.wall_clock)
    return _response(ErrorCode.NONE, [_describe_token(token, call.version) for token in described])


def _token_filter(
    broker: Broker, call: Call, request: DescribeDelegationTokenRequest
) -> Callable[[DelegationToken], bool]:
    """Return a predicate that is true for the requested tokens that the caller may describe.

    A caller may describe a token if it is the owner, the requester or a renewer. Any other caller needs
    DESCRIBE on the token, or DESCRIBE_TOKENS on its owner (DelegationTokenManager.filterToken).
    """
    owners: list[str] | None = None
    if request.owners is not None:
        owners = [principal_of(owner.principal_type, owner.principal_name) for owner in request.owners]
    access = Access(broker, call)

    def is_included(token: DelegationToken) -> bool:
        if owners is not None and not any(map(token.has_right, owners)):
            return False
        return (
            token.has_right(call.principal)
            or access.allows(Operation.DESCRIBE, Resource.DELEGATION_TOKEN, token.token_id)
            or access.allows(Operation.DESCRIBE_TOKENS, Resource.USER, token.owner)
        )

    return is_included


def _describe_token(token: DelegationToken, version: int) -> DescribedDelegationToken:
    owner_type, owner = split_principal(token.owner)
    requester_type, requester = split_principal(token.requester)
    has_requester = version >= _WITH_REQUESTER
    renewers = [split_principal(renewer) for renewer in token.renewers]
    return DescribedDelegationToken(
        principal_type=owner_type,
        principal_name=owner,
        token_requester_principal_type=requester_type if has_requester else "",
        token_requester_principal_name=requester if has_requester else "",
        issue_timestamp=token.issued_at,
        expiry_timestamp=token.expires_at,
        max_timestamp=token.ends_at,
        token_id=token.token_id,
        hmac=token.hmac,
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=renewer_type, principal_name=renewer)
            for renewer_type, renewer in renewers
        ],
    )


def _response(error: ErrorCode, tokens: list[DescribedDelegationToken]) -> DescribeDelegationTokenResponse:
    return DescribeDelegationTokenResponse(error_code=error, tokens=tokens, throttle_time_ms=0)


def refuse(
    request: DescribeDelegationTokenRequest, error: ErrorCode, version: int
) -> DescribeDelegationTokenResponse:
    """Refuse the whole request."""
    return _response(error, [])


def _authorize(access: Access, request: DescribeDelegationTokenRequest) -> Authorized:
    """Pass every request to the handler, which checks the permissions on each token."""
    return access.call


API = Api(
    request=DescribeDelegationTokenRequest,
    handle=handle_describe_delegation_token,
    authorization=Authorization(
        (
            omission(Operation.DESCRIBE, Resource.DELEGATION_TOKEN),
            omission(Operation.DESCRIBE_TOKENS, Resource.USER),
        ),
        _authorize,
    ),
    refuse=refuse,
)

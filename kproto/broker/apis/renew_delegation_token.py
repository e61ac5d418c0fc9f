"""RenewDelegationToken (key 39): extend the lifetime of a token (KIP-48)."""

from __future__ import annotations

from ...error_codes import ErrorCode
from ...messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from ..broker import Broker
from ..call import Call, Result
from .api import Api
from .token_requests import NO_TIME, UNRESTRICTED, caller_error


def handle_renew_delegation_token(broker: Broker, call: Call) -> Result:
    """Renew the token, and respond with its new expiration."""
    request = call.request
    assert isinstance(request, RenewDelegationTokenRequest)
    if error := caller_error(call):
        return _response(error, NO_TIME)
    tokens = broker.cluster.delegation_tokens
    if not tokens.is_enabled:
        return _response(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, 0)
    period_ms = request.renew_period_ms
    return _response(*tokens.renew(bytes(request.hmac), call.principal, period_ms, broker.wall_clock))


def _response(error: ErrorCode, expires_at: int) -> RenewDelegationTokenResponse:
    return RenewDelegationTokenResponse(error_code=error, expiry_timestamp_ms=expires_at, throttle_time_ms=0)


def refuse(
    request: RenewDelegationTokenRequest, error: ErrorCode, version: int
) -> RenewDelegationTokenResponse:
    """Refuse the whole request."""
    return _response(error, NO_TIME)


API = Api(
    request=RenewDelegationTokenRequest,
    handle=handle_renew_delegation_token,
    authorization=UNRESTRICTED,
    refuse=refuse,
)

"""ExpireDelegationToken (key 40): set when a token expires, or expire it immediately (KIP-48)."""

from __future__ import annotations

from ...error_codes import ErrorCode
from ...messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from ..broker import Broker
from ..call import Call, Result
from .api import Api
from .token_requests import NO_TIME, UNRESTRICTED, caller_error


def handle_expire_delegation_token(broker: Broker, call: Call) -> Result:
    """Set the expiration of the token, and respond with the new expiration."""
    request = call.request
    assert isinstance(request, ExpireDelegationTokenRequest)
    if error := caller_error(call):
        return _response(error, NO_TIME)
    tokens = broker.cluster.delegation_tokens
    if not tokens.is_enabled:
        return _response(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, expires_at=0)
    token_hmac, period_ms = bytes(request.hmac), request.expiry_time_period_ms
    token_error, expires_at = tokens.expire(token_hmac, call.principal, period_ms, broker.wall_clock)
    return _response(token_error, expires_at)


def _response(error: ErrorCode, expires_at: int) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(error_code=error, expiry_timestamp_ms=expires_at, throttle_time_ms=0)


def refuse(
    request: ExpireDelegationTokenRequest, error: ErrorCode, version: int
) -> ExpireDelegationTokenResponse:
    """Refuse the whole request."""
    return _response(error, NO_TIME)


API = Api(
    request=ExpireDelegationTokenRequest,
    handle=handle_expire_delegation_token,
    authorization=UNRESTRICTED,
    refuse=refuse,
)

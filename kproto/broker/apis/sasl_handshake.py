"""SaslHandshake (key 17): select a SASL mechanism; see `security.authenticator`."""

from __future__ import annotations

from ...error_codes import ErrorCode
from ...messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ...wire.message import Message
from ..broker import Broker
from ..call import Call, CloseWithoutResponse, RespondThenClose, Result
from ..security.authenticator import SaslState
from .api import Api


def handle_sasl_handshake(broker: Broker, call: Call) -> Result:
    """Select the SASL mechanism.

    A handshake on an authenticated connection starts a re-authentication, which is allowed only if the
    session can expire.
    """
    request = call.request
    assert isinstance(request, SaslHandshakeRequest)
    authenticator = broker.connections[call.conn].authenticator
    if authenticator is None or not authenticator.is_handshake_allowed(call.now):
        refusal = SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
        if authenticator is None or authenticator.state is not SaslState.AUTHENTICATE:
            return refusal
        return fail_login(broker, call, refusal)
    mechanisms = list(authenticator.mechanisms)
    is_reauthentication = authenticator.state is SaslState.COMPLETE
    # After a handshake of version 0, the SASL messages are sent without SaslAuthenticate.
    is_raw = call.version == 0
    if not authenticator.select_mechanism(request.mechanism, call.random_id.hex, call.now, raw=is_raw):
        reason = f"a mechanism that is not enabled: {request.mechanism[:50]!r}"
        if is_reauthentication:
            return CloseWithoutResponse(reason)
        refusal = SaslHandshakeResponse(
            error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=mechanisms
        )
        return RespondThenClose(refusal, reason, call.now)
    return SaslHandshakeResponse(error_code=0, mechanisms=mechanisms)


def fail_login(broker: Broker, call: Call, refusal: Message) -> RespondThenClose:
    """Return the result for a request that interrupts an authentication.

    After a delay, the broker sends the error response `refusal`, and closes the connection.
    """
    delay = broker.settings.connection_failed_authentication_delay_ms
    return RespondThenClose(refusal, "a request that interrupts a login", call.now + delay)


API = Api(request=SaslHandshakeRequest, handle=handle_sasl_handshake)

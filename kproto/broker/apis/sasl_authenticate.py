"""SaslAuthenticate (key 36): one message of the SASL mechanism.

See `security.authenticator`.
"""

from __future__ import annotations

from ...error_codes import ErrorCode
from ...messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ...security.exchange import Accepted, Rejected
from ..broker import Broker
from ..call import Call, RespondThenClose, Result
from .api import Api


def handle_sasl_authenticate(broker: Broker, call: Call) -> Result:
    """Pass the message of the client to the SASL mechanism of its connection.

    If authentication fails, the error response is delayed, and the connection is closed after the response.
    """
    request = call.request
    assert isinstance(request, SaslAuthenticateRequest)
    authenticator = broker.connections[call.conn].authenticator
    if authenticator is None or authenticator.server is None:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE,
            error_message="SaslAuthenticate request received after successful authentication",
            auth_bytes=b"",
        )
    message = bytes(request.auth_bytes)
    step = authenticator.authenticate(message, call.now, broker.cluster.wall_clock_offset)
    if isinstance(step, Rejected):
        response = SaslAuthenticateResponse(
            error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=step.message, auth_bytes=b""
        )
        delay = broker.settings.connection_failed_authentication_delay_ms
        return RespondThenClose(response, f"failed authentication: {step.reason}", call.now + delay)
    lifetime = authenticator.session_lifetime_ms(call.now) if isinstance(step, Accepted) else 0
    return SaslAuthenticateResponse(
        error_code=0, error_message="", auth_bytes=step.data, session_lifetime_ms=lifetime
    )


API = Api(request=SaslAuthenticateRequest, handle=handle_sasl_authenticate)

"""UnregisterBroker (key 64): remove the registration of a broker (KIP-631).

Here only a stopped broker stays unregistered: a running broker registers itself again immediately. In Kafka,
by contrast, a running broker stays unregistered until it is restarted.
"""

from __future__ import annotations

from ...error_codes import ErrorCode
from ...messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from ..broker import Broker
from ..call import Call, Result
from ..security.acls import Operation
from .api import Api
from .authorization import AUTHORIZATION_FAILED, on_cluster


def handle_unregister_broker(broker: Broker, call: Call) -> Result:
    """Remove the registration, or return BROKER_ID_NOT_REGISTERED."""
    request = call.request
    assert isinstance(request, UnregisterBrokerRequest)
    if broker.cluster.unregister(request.broker_id):
        return UnregisterBrokerResponse(throttle_time_ms=0, error_code=0, error_message=None)
    return UnregisterBrokerResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.BROKER_ID_NOT_REGISTERED,
        error_message=f"Broker ID {request.broker_id} is not currently registered",
    )


def refuse(request: UnregisterBrokerRequest, error: ErrorCode, version: int) -> UnregisterBrokerResponse:
    """Refuse the whole request."""
    return UnregisterBrokerResponse(throttle_time_ms=0, error_code=error, error_message=AUTHORIZATION_FAILED)


API = Api(
    request=UnregisterBrokerRequest,
    handle=handle_unregister_broker,
    authorization=on_cluster(Operation.ALTER),
    refuse=refuse,
)

"""PushTelemetry (key 72): metrics of a client, which the broker keeps for inspection (KIP-714)."""

from __future__ import annotations

from ...error_codes import ErrorCode
from ...messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from ...records.compression import CODECS
from ..broker import Broker
from ..call import Call, Result
from ..client_metrics import RESERVED_IDS, ClientMetricsInstance
from .api import Api
from .authorization import WITHOUT_PERMISSION
from .get_telemetry_subscriptions import client_attributes


def handle_push_telemetry(broker: Broker, call: Call) -> Result:
    """Check a push, in the same order as Kafka's ClientMetricsManager, and keep its payload."""
    request = call.request
    assert isinstance(request, PushTelemetryRequest)
    if request.client_instance_id in RESERVED_IDS:
        return refuse(request, ErrorCode.INVALID_REQUEST, call.version)
    attributes = client_attributes(broker, call)
    instance = broker.client_metrics.instance(request.client_instance_id, call.conn, attributes, call.now)
    error = _push_error(request, instance, broker.settings.telemetry_max_bytes, call.now)
    # As in Kafka, the push that follows a push with `terminating` fails, even if the push with `terminating`
    # was rejected.
    instance.is_terminating = request.terminating
    if error is ErrorCode.NONE and request.metrics:
        broker.client_metrics.receive(request, attributes)
    instance.last_error = error
    return refuse(request, error, call.version)


def _push_error(
    request: PushTelemetryRequest, instance: ClientMetricsInstance, max_bytes: int, now: int
) -> ErrorCode:
    """Return the error for a push, or NONE if the push is accepted."""
    if instance.is_terminating:
        return ErrorCode.INVALID_REQUEST
    if not instance.accepts_push(now) and not request.terminating:
        return ErrorCode.THROTTLING_QUOTA_EXCEEDED
    if request.subscription_id != instance.subscription_id:
        return ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    if not 0 <= request.compression_type < len(CODECS):
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    if len(request.metrics) > max_bytes:
        return ErrorCode.TELEMETRY_TOO_LARGE
    return ErrorCode.NONE


def refuse(request: PushTelemetryRequest, error: ErrorCode, version: int) -> PushTelemetryResponse:
    """Return a response with this error code, which may be NONE."""
    return PushTelemetryResponse(throttle_time_ms=0, error_code=error)


API = Api(
    request=PushTelemetryRequest,
    handle=handle_push_telemetry,
    authorization=WITHOUT_PERMISSION,
    refuse=refuse,
)

"""GetTelemetrySubscriptions (key 71): the metrics that the broker requests from a client (KIP-714)."""

from __future__ import annotations

from typing import Final
from uuid import UUID, uuid5

from ...error_codes import ErrorCode
from ...messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from ...records.compression import has_codec
from ..broker import Broker
from ..call import Call, Result
from .api import Api
from .authorization import WITHOUT_PERMISSION

# The codecs in Kafka's order of preference: zstd, lz4, gzip, snappy.
_PREFERRED_CODECS: Final = (4, 3, 1, 2)


def client_attributes(broker: Broker, call: Call) -> dict[str, str]:
    """Return the client attributes by which subscriptions select clients.

    If the client's port is unknown, the attribute client_source_port is omitted, as in Kafka's
    ClientMetricsInstanceMetadata.
    """
    connection = broker.connections[call.conn]
    attributes = {
        "client_id": call.envelope.header.client_id or "",
        "client_software_name": connection.software_name,
        "client_software_version": connection.software_version,
        "client_source_address": connection.host,
    }
    if connection.port:
        attributes["client_source_port"] = str(connection.port)
    return attributes


def handle_get_telemetry_subscriptions(broker: Broker, call: Call) -> Result:
    """Return the merged subscription of a client, and a new instance id if the request has none."""
    request = call.request
    assert isinstance(request, GetTelemetrySubscriptionsRequest)
    instance_id = request.client_instance_id
    if instance_id == UUID(int=0):
        instance_id = uuid5(call.random_id, "client instance")
    instance = broker.client_metrics.instance(
        instance_id, call.conn, client_attributes(broker, call), call.now
    )
    if not instance.accepts_get(call.now):
        return refuse(request, ErrorCode.THROTTLING_QUOTA_EXCEEDED, call.version)
    instance.last_error = ErrorCode.NONE
    return GetTelemetrySubscriptionsResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        client_instance_id=instance_id,
        subscription_id=instance.subscription_id,
        accepted_compression_types=[codec for codec in _PREFERRED_CODECS if has_codec(codec)],
        push_interval_ms=instance.push_interval_ms,
        telemetry_max_bytes=broker.settings.telemetry_max_bytes,
        delta_temporality=True,
        requested_metrics=list(instance.metrics),
    )


def refuse(
    request: GetTelemetrySubscriptionsRequest, error: ErrorCode, version: int
) -> GetTelemetrySubscriptionsResponse:
    """Return a response with this error and without a subscription."""
    return GetTelemetrySubscriptionsResponse(
        throttle_time_ms=0,
        error_code=error,
        client_instance_id=UUID(int=0),
        subscription_id=0,
        accepted_compression_types=[],
        push_interval_ms=0,
        telemetry_max_bytes=0,
        delta_temporality=False,
        requested_metrics=[],
    )


API = Api(
    request=GetTelemetrySubscriptionsRequest,
    handle=handle_get_telemetry_subscriptions,
    authorization=WITHOUT_PERMISSION,
    refuse=refuse,
)

"""Metrics and spans of kproto's clients for OpenTelemetry. Needs the extra `otel`.

The application configures OpenTelemetry and its exporters; kproto needs only `opentelemetry-api`.
"""

from kproto.errors import MissingExtra

try:
    from .metrics import ClientInstruments
    from .traces import ConsumerTracing, ProducerTracing
except ImportError as error:
    raise MissingExtra("consumer.opentelemetry", "opentelemetry-api", "otel") from error

__all__ = ["ClientInstruments", "ConsumerTracing", "ProducerTracing"]

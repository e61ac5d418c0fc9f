"""Spans for the records of clients, according to OpenTelemetry's semantic conventions for messaging.

    producer = Producer("localhost:9092", interceptors=[ProducerTracing()])

    tracing = ConsumerTracing(group="billing")
    consumer = Consumer("localhost:9092", group_id="billing", interceptors=[tracing])
    for record in consumer.poll(1):
        with tracing.process(record):
            ...

Rules:

* The span "send" of a record is a child of the current span. The context of the span "send" is added to the
  record's headers, by default as `traceparent` and `tracestate` (W3C). If the headers already contain a
  context, that context is replaced.

* The span "send" ends when the record is queued, as with OpenTelemetry's interceptors for Java's clients,
  because an interceptor cannot match an acknowledgement to the record that was sent.

* Each poll that returns records has one span "poll" for each topic, with links to the spans of its records.

* The span "process" of a record continues the producer's trace, or begins a new trace if the record carries
  no context. It is the current span while `process` runs.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

import msgspec
from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import Getter, Setter, TextMapPropagator
from opentelemetry.trace import Link, Span, SpanKind, TracerProvider

from kproto.version import __version__

from ..interceptors import ConsumerInterceptor, ProducerInterceptor, ProducerRecord
from ..records import ConsumerRecord

# Every span has this attribute.
KAFKA: Final = {"messaging.system": "kafka"}
Attributes: TypeAlias = dict[str, str | int | bool]


class _Setter(Setter[dict[str, str]]):
    """Adds a header to a carrier."""

    def set(self, carrier: dict[str, str], key: str, value: str) -> None:
        carrier[key] = value


class _Getter(Getter[dict[str, str]]):
    """Reads the headers of a carrier."""

    def get(self, carrier: dict[str, str], key: str) -> list[str] | None:
        return [carrier[key]] if key in carrier else None

    def keys(self, carrier: dict[str, str]) -> list[str]:
        return list(carrier)


class ProducerTracing(ProducerInterceptor):
    """Creates a span for each record that is sent, and adds the span's context to the record's headers.

    `client_id` is an attribute of each span. The tracer provider and the propagator are by default the global
    ones.
    """

    def __init__(
        self,
        *,
        client_id: str = "",
        tracer_provider: TracerProvider | None = None,
        propagator: TextMapPropagator | None = None,
    ) -> None:
        self._tracer = trace.get_tracer("kproto", __version__, tracer_provider)
        self._propagator = propagator
        self._attributes = _fixed_attributes("send", "send", client_id=client_id)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Return the record with the context of its span in the headers."""
        attributes = self._attributes | _record_attributes(
            record.topic, record.partition, record.key, record.value
        )
        span = self._tracer.start_span(f"send {record.topic}", kind=SpanKind.PRODUCER, attributes=attributes)
        carrier: dict[str, str] = {}
        propagator = self._propagator or propagate.get_global_textmap()
        propagator.inject(carrier, trace.set_span_in_context(span), _Setter())
        span.end()
        headers = [header for header in record.headers if header[0] not in carrier]
        headers += [(name, text.encode()) for name, text in carrier.items()]
        return msgspec.structs.replace(record, headers=headers)


class ConsumerTracing(ConsumerInterceptor):
    """Creates the spans of polls that return records. `process` creates the span of a processed record.

    `group` and `client_id` are attributes of each span. The tracer provider and the propagator default to the
    global ones.
    """

    def __init__(
        self,
        *,
        group: str = "",
        client_id: str = "",
        tracer_provider: TracerProvider | None = None,
        propagator: TextMapPropagator | None = None,
    ) -> None:
        self._tracer = trace.get_tracer("kproto", __version__, tracer_provider)
        self._propagator = propagator
        self._poll_attributes = _fixed_attributes("poll", "receive", group=group, client_id=client_id)
        self._process_attributes = _fixed_attributes("process", "process", group=group, client_id=client_id)

    def on_consume(self, records: list[ConsumerRecord[Any, Any]]) -> list[ConsumerRecord[Any, Any]]:
        """Create the spans of a poll, and return the records unchanged."""
        records_by_topic: dict[str, list[ConsumerRecord[Any, Any]]] = {}
        for record in records:
            records_by_topic.setdefault(record.topic, []).append(record)
        for topic, topic_records in records_by_topic.items():
            attributes = self._poll_attributes | {
                "messaging.destination.name": topic,
                "messaging.batch.message_count": len(topic_records),
            }
            span_contexts = [
                trace.get_current_span(self.context(record)).get_span_context() for record in topic_records
            ]
            links = [Link(context) for context in span_contexts if context.is_valid]
            self._tracer.start_span(
                f"poll {topic}", kind=SpanKind.CLIENT, attributes=attributes, links=links
            ).end()
        return records

    def context(self, record: ConsumerRecord[Any, Any]) -> Context:
        """Return the context in the record's headers, or an empty context if they contain none."""
        propagator = self._propagator or propagate.get_global_textmap()
        carrier = {
            name: content.decode(errors="replace")
            for name, content in record.headers
            if content is not None and name in propagator.fields
        }
        return propagator.extract(carrier, Context(), _Getter())

    @contextmanager
    def process(self, record: ConsumerRecord[Any, Any]) -> Generator[Span, None, None]:
        """Create the span in which a record is processed.

        An exception in the `with` block sets the span's status to ERROR, and is raised again.
        """
        attributes = self._process_attributes | _record_attributes(
            record.topic, record.partition, record.key, record.value
        )
        attributes["messaging.kafka.offset"] = record.offset
        with self._tracer.start_as_current_span(
            f"process {record.topic}",
            context=self.context(record),
            kind=SpanKind.CONSUMER,
            attributes=attributes,
        ) as span:
            try:
                yield span
            except Exception as error:
                span.set_attribute("error.type", type(error).__qualname__)
                raise


def _fixed_attributes(name: str, operation_type: str, *, group: str = "", client_id: str = "") -> Attributes:
    """Return the attributes that all spans of one operation have."""
    attributes: Attributes = {
        **KAFKA,
        "messaging.operation.name": name,
        "messaging.operation.type": operation_type,
    }
    if group:
        attributes["messaging.consumer.group.name"] = group
    if client_id:
        attributes["messaging.client.id"] = client_id
    return attributes


def _record_attributes(topic: str, partition: int | None, key: object, value: object) -> Attributes:
    """Return the attributes of one record. They include the key if the key is a str, or bytes in UTF-8."""
    attributes: Attributes = {"messaging.destination.name": topic}
    if partition is not None:
        attributes["messaging.destination.partition.id"] = str(partition)
    if isinstance(key, bytes):
        try:
            key = key.decode()
        except UnicodeDecodeError:
            key = None
    if isinstance(key, str):
        attributes["messaging.kafka.message.key"] = key
    if value is None:
        attributes["messaging.kafka.message.tombstone"] = True
    elif isinstance(value, bytes):
        attributes["messaging.message.body.size"] = len(value)
    return attributes

"""The spans that OpenTelemetry's SDK collects link the processing of a record to its send."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk")

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from consumer import Consumer, ConsumerRecord, Producer, TopicPartition
from consumer.interceptors import ProducerRecord
from consumer.opentelemetry import ConsumerTracing, ProducerTracing
from kproto import running


class Spans:
    """A tracer provider, and the spans that have ended."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.producer = ProducerTracing(client_id="p", tracer_provider=self.provider)
        self.consumer = ConsumerTracing(group="g", client_id="c", tracer_provider=self.provider)

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]

    def only(self, name: str) -> Any:
        [span] = self.named(name)
        return span

    def sent(self, **fields: Any) -> ProducerRecord:
        """Pass a record to the producer's interceptor, and return what the interceptor returns."""
        values: dict[str, Any] = {
            "value": b"x",
            "key": None,
            "partition": None,
            "timestamp": 0,
            "headers": (),
        }
        return self.producer.on_send(ProducerRecord(topic="t", **values | fields))


def received(sent: ProducerRecord, offset: int = 0) -> ConsumerRecord[Any, Any]:
    return ConsumerRecord("t", 0, offset, 0, "CreateTime", sent.key, sent.value, tuple(sent.headers))


def test_a_trace_goes_from_the_producer_to_the_processing_of_the_record() -> None:
    spans = Spans()
    tracer = spans.provider.get_tracer("test")
    with running(topics={"t": 1}) as server:
        with (
            Producer(server.bootstrap, interceptors=[spans.producer]) as producer,
            tracer.start_as_current_span("request"),
        ):
            producer.send("t", b"value", b"key")
        with Consumer(
            server.bootstrap, auto_offset_reset="earliest", interceptors=[spans.consumer]
        ) as consumer:
            consumer.assign([TopicPartition("t", 0)])
            [record] = consumer.poll(5)
            with spans.consumer.process(record):
                trace.get_current_span().set_attribute("app", "yes")
    request, send, poll, process = map(spans.only, ("request", "send t", "poll t", "process t"))
    assert send.parent.span_id == request.context.span_id
    assert process.parent.span_id == send.context.span_id
    assert process.context.trace_id == request.context.trace_id
    assert [link.context.span_id for link in poll.links] == [send.context.span_id]
    assert (send.kind, poll.kind, process.kind) == (SpanKind.PRODUCER, SpanKind.CLIENT, SpanKind.CONSUMER)
    assert dict(send.attributes) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.client.id": "p",
        "messaging.destination.name": "t",
        "messaging.kafka.message.key": "key",
        "messaging.message.body.size": 5,
    }
    assert dict(process.attributes) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.consumer.group.name": "g",
        "messaging.client.id": "c",
        "messaging.destination.name": "t",
        "messaging.destination.partition.id": "0",
        "messaging.kafka.message.key": "key",
        "messaging.kafka.offset": 0,
        "messaging.message.body.size": 5,
        "app": "yes",
    }
    assert poll.attributes["messaging.batch.message_count"] == 1


def test_a_context_in_the_headers_is_replaced_and_other_headers_stay() -> None:
    spans = Spans()
    record = spans.sent(headers=[("a", b"1"), ("traceparent", b"old"), ("b", None)])
    names = [name for name, _ in record.headers]
    assert names == ["a", "b", "traceparent"]
    context = dict(record.headers)["traceparent"] or b""
    assert format(spans.only("send t").context.trace_id, "032x") in context.decode()


@pytest.mark.parametrize("headers", [(), (("traceparent", b"malformed"),), (("traceparent", None),)])
def test_a_record_without_a_context_begins_a_new_trace(headers: Any) -> None:
    spans = Spans()
    record = ConsumerRecord("t", 0, 0, 0, "CreateTime", None, b"x", headers)
    with spans.provider.get_tracer("test").start_as_current_span("other"), spans.consumer.process(record):
        pass
    assert spans.only("process t").parent is None


def test_an_exception_sets_the_status_of_the_span_and_is_raised() -> None:
    spans = Spans()
    with pytest.raises(ValueError, match="wrong"), spans.consumer.process(received(spans.sent())):
        raise ValueError("wrong")
    span = spans.only("process t")
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes["error.type"] == "ValueError"


def test_a_poll_has_one_span_per_topic_with_a_link_to_each_record() -> None:
    spans = Spans()
    records = [received(spans.sent(), offset) for offset in range(3)]
    unrelated = ConsumerRecord("u", 0, 0, 0, "CreateTime", None, b"x")
    assert spans.consumer.on_consume([*records, unrelated]) == [*records, unrelated]
    assert len(spans.only("poll t").links) == 3
    assert spans.only("poll u").links == ()


def test_tombstones_and_keys_that_are_not_text() -> None:
    spans = Spans()
    spans.sent(value=None, key=b"\xff", partition=3)
    attributes = spans.only("send t").attributes
    assert attributes["messaging.kafka.message.tombstone"] is True
    assert attributes["messaging.destination.partition.id"] == "3"
    assert "messaging.kafka.message.key" not in attributes
    assert "messaging.message.body.size" not in attributes

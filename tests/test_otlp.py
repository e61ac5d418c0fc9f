"""OpenTelemetry's own classes read kproto's OTLP metrics, and malformed payloads are rejected."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproto.errors import DecodeError
from kproto.otlp import MetricPoint, Temporality, decode, encode

_TEXTS = st.text(max_size=8)
_NANOSECONDS = st.integers(0, (1 << 64) - 1)
_ATTRIBUTES = st.dictionaries(
    _TEXTS,
    _TEXTS | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.floats(allow_nan=False),
    max_size=3,
)


@st.composite
def points(draw: st.DrawFn) -> MetricPoint:
    temporality = draw(st.none() | st.sampled_from(Temporality))
    return MetricPoint(
        draw(_TEXTS),
        draw(st.integers(-(1 << 63), (1 << 63) - 1) | st.floats(allow_nan=False)),
        draw(_ATTRIBUTES),
        draw(_NANOSECONDS),
        draw(_NANOSECONDS),
        temporality,
        temporality is not None and draw(st.booleans()),
    )


@given(st.lists(points(), max_size=4), _ATTRIBUTES)
def test_decode_returns_what_encode_wrote(metrics: list[MetricPoint], resource: dict[str, str]) -> None:
    decoded = decode(encode(metrics, resource))
    assert decoded == [metric._replace(resource=resource) for metric in metrics]
    assert [type(metric.value) for metric in decoded] == [type(metric.value) for metric in metrics]


@pytest.mark.thorough
@given(st.lists(points(), max_size=4), _ATTRIBUTES)
def test_opentelemetry_reads_our_bytes(metrics: list[MetricPoint], resource: dict[str, str]) -> None:
    metrics_pb2 = pytest.importorskip("opentelemetry.proto.metrics.v1.metrics_pb2")
    parsed = metrics_pb2.MetricsData.FromString(encode(metrics, resource))
    [resource_metrics] = parsed.resource_metrics
    assert plain(resource_metrics.resource.attributes) == resource
    [scope] = resource_metrics.scope_metrics
    assert len(scope.metrics) == len(metrics)
    for theirs, ours in zip(scope.metrics, metrics, strict=True):
        kind = "gauge" if ours.temporality is None else "sum"
        assert (theirs.name, theirs.WhichOneof("data")) == (ours.name, kind)
        data = getattr(theirs, kind)
        if kind == "sum":
            assert (data.aggregation_temporality, data.is_monotonic) == (ours.temporality, ours.is_monotonic)
        [point] = data.data_points
        assert getattr(point, point.WhichOneof("value")) == ours.value
        assert point.WhichOneof("value") == ("as_double" if isinstance(ours.value, float) else "as_int")
        assert (point.time_unix_nano, point.start_time_unix_nano) == (ours.time_ns, ours.start_ns)
        assert plain(point.attributes) == ours.attributes


@pytest.mark.thorough
@given(st.lists(points(), max_size=4), _ATTRIBUTES)
def test_bytes_of_opentelemetry_are_read(metrics: list[MetricPoint], resource: dict[str, str]) -> None:
    metrics_pb2 = pytest.importorskip("opentelemetry.proto.metrics.v1.metrics_pb2")
    theirs = metrics_pb2.MetricsData.FromString(encode(metrics, resource))
    # Add a histogram and fields that kproto does not write, which `decode` must ignore.
    for resource_metrics in theirs.resource_metrics:
        resource_metrics.schema_url = "x"
        resource_metrics.resource.dropped_attributes_count = 1
        scope = resource_metrics.scope_metrics[0]
        scope.scope.name = "kafka"
        scope.metrics.add(name="h").histogram.data_points.add(count=1, explicit_bounds=[1.0])
        for metric in scope.metrics[:-1]:
            metric.unit, metric.description = "ms", "d"
            data = getattr(metric, metric.WhichOneof("data"))
            data.data_points[0].flags = 1
    assert decode(theirs.SerializeToString()) == [metric._replace(resource=resource) for metric in metrics]


def plain(attributes: object) -> dict[str, object]:
    """Return the attributes of OpenTelemetry's classes as a dictionary."""
    return {item.key: getattr(item.value, item.value.WhichOneof("value")) for item in attributes}  # type: ignore[attr-defined]


def test_a_value_of_zero_is_written() -> None:
    [point] = decode(encode([MetricPoint("m", 0.0)], {}))
    assert isinstance(point.value, float)


def test_nan_is_kept() -> None:
    [point] = decode(encode([MetricPoint("m", math.nan)], {}))
    assert math.isnan(point.value)


@given(st.binary(max_size=64))
def test_decode_raises_only_decode_error(data: bytes) -> None:
    try:
        result = decode(data)
    except DecodeError:
        return
    assert isinstance(result, list)


@pytest.mark.parametrize(
    ("data", "detail"),
    [
        (b"\x0a", "the bytes end too early"),
        (b"\x0a\x05\x00", "the bytes end too early"),
        (b"\x09\x00", "the bytes end too early"),
        (b"\x80" * 11, "more than ten bytes"),
        (b"\x0b", "unsupported wire type 3"),
        (b"\x02\x00", "at least 1"),
        (b"\x0a\x06\x0a\x04\x0a\x02\x0a\x09", "the bytes end too early"),
        (b"\x0a\x07\x12\x05\x12\x03\x0a\x01\xff", "the text is not UTF-8"),
    ],
)
def test_malformed_payloads_are_rejected(data: bytes, detail: str) -> None:
    with pytest.raises(DecodeError, match=detail):
        decode(data)


def test_the_offset_of_an_error_counts_from_the_start_of_the_payload() -> None:
    with pytest.raises(DecodeError) as caught:
        decode(b"\x0a\x07\x12\x05\x12\x03\x0a\x01\xff")
    assert caught.value.offset == 8

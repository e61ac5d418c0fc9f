"""OpenTelemetry's MetricsData (OTLP metrics v1): the payload of PushTelemetry (KIP-714).

A payload has gauges and sums, the only kinds of metrics that KIP-714 allows.

Clients push metrics by default, but the protobuf package is only an optional dependency of kproto. So this
module reads and writes the seven protobuf messages of a payload itself.

Rules:

* `encode` writes one ResourceMetrics. Kafka's Java clients write one for each metric, all with the same
  resource.

* `decode` accepts one or several ResourceMetrics. It ignores unknown fields, kinds of metrics and types of
  attributes.

* `decode` raises only DecodeError. Its cost is linear in the size of the payload.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

from .errors import DecodeError

AttributeValue: TypeAlias = str | bool | int | float


class Temporality(IntEnum):
    """AggregationTemporality: whether a sum counts from the previous data point, or from a fixed start."""

    UNSPECIFIED = 0
    DELTA = 1
    CUMULATIVE = 2


class MetricPoint(NamedTuple):
    """One data point of a gauge or sum."""

    name: str
    value: int | float
    attributes: Mapping[str, AttributeValue] = {}
    # The time of the value, in nanoseconds since 1970.
    time_ns: int = 0
    # The start of the interval of a sum, in nanoseconds since 1970; 0 if unknown.
    start_ns: int = 0
    # None for a gauge.
    temporality: Temporality | None = None
    is_monotonic: bool = False
    # The attributes of the client, such as group_id.
    resource: Mapping[str, AttributeValue] = {}


# Encoding.

_VARINT: Final = 0
_FIXED64: Final = 1
_BYTES: Final = 2
_FIXED32: Final = 5

# The numbers of the fields of a Metric that contain its data points.
_GAUGE: Final = 5
_SUM: Final = 7

_double: Final = struct.Struct("<d")
_fixed64: Final = struct.Struct("<Q")
_signed64: Final = struct.Struct("<q")


def encode(points: Iterable[MetricPoint], resource: Mapping[str, AttributeValue]) -> bytes:
    """Encode `points` as MetricsData; `resource` contains the attributes of the client.

    The field `resource` of the points is ignored.
    """
    resource_attributes = b"".join(
        _encode_bytes_field(1, _encode_attribute(*item)) for item in resource.items()
    )
    metrics = b"".join(_encode_bytes_field(2, _encode_metric(point)) for point in points)
    return _encode_bytes_field(
        1, _encode_bytes_field(1, resource_attributes) + _encode_bytes_field(2, metrics)
    )


def _encode_metric(point: MetricPoint) -> bytes:
    """Encode a Metric with this single data point. A literal such as 0x11 is the tag of a field."""
    value = _double.pack(point.value) if isinstance(point.value, float) else _signed64.pack(point.value)
    data_point = b"".join(
        (
            b"\x11" + _fixed64.pack(point.start_ns) if point.start_ns else b"",
            b"\x19" + _fixed64.pack(point.time_ns),
            (b"\x21" if isinstance(point.value, float) else b"\x31") + value,
            *(_encode_bytes_field(7, _encode_attribute(*item)) for item in point.attributes.items()),
        )
    )
    data = _encode_bytes_field(1, data_point)
    name = _encode_bytes_field(1, point.name.encode())
    if point.temporality is None:
        return name + _encode_bytes_field(_GAUGE, data)
    monotonic = b"\x18\x01" if point.is_monotonic else b""
    return name + _encode_bytes_field(_SUM, data + bytes((0x10, point.temporality)) + monotonic)


def _encode_attribute(key: str, value: AttributeValue) -> bytes:
    """Encode a KeyValue."""
    if isinstance(value, bool):
        encoded = bytes((0x10, value))
    elif isinstance(value, str):
        encoded = _encode_bytes_field(1, value.encode("utf-8", "replace"))
    elif isinstance(value, int):
        encoded = b"\x18" + _encode_varint(value % (1 << 64))
    else:
        encoded = b"\x21" + _double.pack(value)
    return _encode_bytes_field(1, key.encode()) + _encode_bytes_field(2, encoded)


def _encode_bytes_field(number: int, value: bytes) -> bytes:
    return bytes((number << 3 | _BYTES,)) + _encode_varint(len(value)) + value


def _encode_varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


# Decoding.

# Number of payload bits of the longest varint, which has ten bytes.
_MAX_VARINT_BITS: Final = 70
_MESSAGE_NAME: Final = "MetricsData"


class _Field(NamedTuple):
    number: int
    wire_type: int
    # The value of a varint field. A field of another wire type has its bytes in `data` instead.
    value: int
    data: bytes
    # The position of the field's data in the payload.
    offset: int


def decode(data: bytes) -> list[MetricPoint]:
    """Return the data points of MetricsData, in their order. Raises DecodeError for malformed bytes."""
    points: list[MetricPoint] = []
    for resource_metrics in _submessages(_parse_fields(data, 0), 1):
        fields = list(_parse_fields(resource_metrics.data, resource_metrics.offset))
        resource: dict[str, AttributeValue] = {}
        for field in _submessages(fields, 1):
            resource |= _decode_attributes(_parse_fields(field.data, field.offset), 1)
        for scope_metrics in _submessages(fields, 2):
            for metric in _submessages(_parse_fields(scope_metrics.data, scope_metrics.offset), 2):
                points += _decode_metric(metric, resource)
    return points


def _decode_metric(metric: _Field, resource: Mapping[str, AttributeValue]) -> Iterator[MetricPoint]:
    fields = list(_parse_fields(metric.data, metric.offset))
    name = "".join([_decode_text(field) for field in _submessages(fields, 1)][-1:])
    for gauge_or_sum in fields:
        if gauge_or_sum.wire_type == _BYTES and gauge_or_sum.number in (_GAUGE, _SUM):
            yield from _decode_data_points(name, gauge_or_sum, resource)


def _decode_data_points(
    name: str, gauge_or_sum: _Field, resource: Mapping[str, AttributeValue]
) -> Iterator[MetricPoint]:
    """Yield the data points in the field of a Metric that contains its gauge or sum."""
    fields = list(_parse_fields(gauge_or_sum.data, gauge_or_sum.offset))
    varints = {field.number: field.value for field in fields if field.wire_type == _VARINT}
    temporality = None
    if gauge_or_sum.number == _SUM:
        code = varints.get(2, 0)
        temporality = Temporality(code) if code in {*Temporality} else Temporality.UNSPECIFIED
    for data_point in _submessages(fields, 1):
        point_fields = list(_parse_fields(data_point.data, data_point.offset))
        value: int | float = 0
        # Field number -> the start of the interval (2), and the time of the value (3).
        times = {2: 0, 3: 0}
        for field in point_fields:
            if field.wire_type == _FIXED64 and field.number in times:
                [times[field.number]] = _fixed64.unpack(field.data)
            elif field.wire_type == _FIXED64 and field.number == 4:
                [value] = _double.unpack(field.data)
            elif field.wire_type == _FIXED64 and field.number == 6:
                [value] = _signed64.unpack(field.data)
        yield MetricPoint(
            name,
            value,
            attributes=_decode_attributes(point_fields, 7),
            time_ns=times[3],
            start_ns=times[2],
            temporality=temporality,
            is_monotonic=gauge_or_sum.number == _SUM and bool(varints.get(3, 0)),
            resource=resource,
        )


def _decode_attributes(fields: Iterable[_Field], number: int) -> dict[str, AttributeValue]:
    """Return the attributes in the fields with this number, each of them a KeyValue."""
    attributes: dict[str, AttributeValue] = {}
    for attribute in _submessages(fields, number):
        key, value = "", None
        for field in _parse_fields(attribute.data, attribute.offset):
            if field.wire_type == _BYTES and field.number == 1:
                key = _decode_text(field)
            elif field.wire_type == _BYTES and field.number == 2:
                value = _decode_attribute_value(field)
        if value is not None:
            attributes[key] = value
    return attributes


def _decode_attribute_value(any_value: _Field) -> AttributeValue | None:
    """Return the value of an attribute; None for arrays, maps and bytes, which KIP-714 does not use."""
    value: AttributeValue | None = None
    for field in _parse_fields(any_value.data, any_value.offset):
        if field.wire_type == _BYTES and field.number == 1:
            value = _decode_text(field)
        elif field.wire_type == _VARINT and field.number == 2:
            value = bool(field.value)
        elif field.wire_type == _VARINT and field.number == 3:
            value = field.value - ((field.value >> 63 & 1) << 64)
        elif field.wire_type == _FIXED64 and field.number == 4:
            [value] = _double.unpack(field.data)
    return value


def _submessages(fields: Iterable[_Field], number: int) -> list[_Field]:
    """Return the fields with this number that have the wire type of a message or a text."""
    return [field for field in fields if field.number == number and field.wire_type == _BYTES]


def _decode_text(field: _Field) -> str:
    try:
        return field.data.decode()
    except UnicodeDecodeError:
        raise DecodeError(
            _MESSAGE_NAME, -1, str(field.number), field.offset, "the text is not UTF-8"
        ) from None


def _parse_fields(data: bytes, offset: int) -> Iterator[_Field]:
    """Yield the fields of the message `data`, which begins at position `offset` in the payload."""
    at = 0
    while at < len(data):
        tag, at = _read_varint(data, at, offset)
        number, wire_type = tag >> 3, tag & 7
        value = 0
        if wire_type == _VARINT:
            value, end = _read_varint(data, at, offset)
        elif wire_type == _BYTES:
            size, at = _read_varint(data, at, offset)
            end = at + size
        elif wire_type in (_FIXED64, _FIXED32):
            end = at + (8 if wire_type == _FIXED64 else 4)
        else:
            raise DecodeError(
                _MESSAGE_NAME, -1, str(number), offset + at, f"unsupported wire type {wire_type}"
            )
        if number == 0:
            raise DecodeError(_MESSAGE_NAME, -1, "0", offset + at, "a field number must be at least 1")
        if end > len(data):
            raise DecodeError(_MESSAGE_NAME, -1, str(number), offset + at)
        yield _Field(number, wire_type, value, data[at:end], offset + at)
        at = end


def _read_varint(data: bytes, at: int, offset: int) -> tuple[int, int]:
    """Return a varint of at most 64 bits, and the position after it."""
    number = shift = 0
    while at < len(data) and shift < _MAX_VARINT_BITS:
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number & (1 << 64) - 1, at
        shift += 7
    detail = "" if shift < _MAX_VARINT_BITS else "a varint has more than ten bytes"
    raise DecodeError(_MESSAGE_NAME, -1, "", offset + at, detail)

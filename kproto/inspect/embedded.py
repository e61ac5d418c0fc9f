"""Decode the messages inside bytes fields: subscriptions, assignments, user data, and requests in envelopes.

    for content in contents(JoinGroupRequest, reading.spans, data):
        print(content.path, content.message, content.reading)

Two earlier fields of a group's message decide how a bytes field is decoded: the protocol type and the
protocol name. If the protocol type is not `consumer`, the field is not decoded.

If the message has no protocol type, the bytes field is decoded only if it is a valid subscription or
assignment.

User data is decoded if the protocol name is sticky or cooperative-sticky, or if the user data begins with
kproto's magic bytes (`InitialCounts`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, cast

from ..group.classic.member.leadership import MAGIC, InitialCounts
from ..group.subscription import NEWEST_VERSION, StickyUserData
from ..messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from ..messages.headers import RequestHeader, request_header_version
from ..messages.index import API_NAMES, request_class
from ..wire.message import Message, field
from ..wire.spans import AnnotatedMessage, FieldSpan, annotate
from ..wire.types import Int32


class EmbeddedMessage(NamedTuple):
    """A message inside the bytes field `path` of another message.

    Offsets in the spans are relative to the start of the data that was passed to `contents`. `first` has the
    fields that precede the message in the bytes field, such as the message's version.

    `end` is the offset of the end of the bytes field. The message may end before this offset.
    """

    path: tuple[str, ...]
    message: type[Message]
    version: int
    first: tuple[FieldSpan, ...]
    reading: AnnotatedMessage[Message]
    end: int


class CooperativeUserData(Message, versions="0"):
    """User data of Java's CooperativeStickyAssignor: the generation of the owned partitions.

    The user data has no version number.
    """

    generation: Int32 = field(default=-1)


# Maps (message, bytes field) to (class of the message in the bytes field, field with the protocol name). The
# field with the protocol name is in the same struct as the bytes field, or in an enclosing one.
_PROTOCOLS: dict[tuple[str, str], tuple[type[Message], str]] = {
    ("JoinGroupRequest", "metadata"): (ConsumerProtocolSubscription, "name"),
    ("JoinGroupResponse", "metadata"): (ConsumerProtocolSubscription, "protocol_name"),
    ("SyncGroupRequest", "assignment"): (ConsumerProtocolAssignment, "protocol_name"),
    ("SyncGroupResponse", "assignment"): (ConsumerProtocolAssignment, "protocol_name"),
    ("DescribeGroupsResponse", "member_metadata"): (ConsumerProtocolSubscription, "protocol_data"),
    ("DescribeGroupsResponse", "member_assignment"): (ConsumerProtocolAssignment, "protocol_data"),
    ("GroupMetadataValue", "subscription"): (ConsumerProtocolSubscription, "protocol"),
    ("GroupMetadataValue", "assignment"): (ConsumerProtocolAssignment, "protocol"),
}


def contents(message: type[Message], spans: tuple[FieldSpan, ...], data: bytes) -> Iterator[EmbeddedMessage]:
    """Yield the messages inside the bytes fields of a message, each followed by the messages inside it."""
    values: dict[tuple[str, ...], object] = {}
    for span in spans:
        values[span.path] = span.value
        if span.type == "bytes" and isinstance(span.value, bytes) and span.value:
            yield from _decode_content(message.__name__, span, values, data[: span.end])


def _decode_content(
    name: str, span: FieldSpan, values: dict[tuple[str, ...], object], data: bytes
) -> Iterator[EmbeddedMessage]:
    """Yield the messages inside the bytes field `span` of the message `name`.

    `values` maps the paths of the earlier fields to their values. `data` ends with the bytes field.
    """
    assert isinstance(span.value, bytes)
    start = span.end - len(span.value)
    if (name, span.path[-1]) == ("EnvelopeRequest", "request_data"):
        yield from _decode_envelope(span.path, data, start)
    # Without a JoinGroup or SyncGroup around it, a subscription or assignment does not name its assignor. So
    # only user data that begins with kproto's magic bytes is decoded.
    if name in ("ConsumerProtocolSubscription", "ConsumerProtocolAssignment"):
        yield from _decode_user_data(span.path, data, start, "")
    message, name_field = _PROTOCOLS.get((name, span.path[-1]), (None, ""))
    protocol_type = _find_enclosing_field(span.path, "protocol_type", values) or ""
    version = int.from_bytes(data[start : start + 2], "big", signed=True)
    if message is None or protocol_type not in ("consumer", "") or version < 0 or len(span.value) < 2:
        return
    # A newer version is decoded as the newest known one. The newer version may have more fields, so bytes may
    # remain after the known fields.
    known_version = min(version, NEWEST_VERSION)
    reading = annotate(message, data, start + 2, known_version)
    is_valid = reading.error is None and (reading.end == span.end or version > known_version)
    if not (protocol_type or is_valid):
        return
    first = FieldSpan(("version",), "int16", start, start + 2, version)
    yield EmbeddedMessage(span.path, message, known_version, (first,), reading, span.end)
    protocol = _find_enclosing_field(span.path, name_field, values)
    for inner in reading.spans:
        if inner.path == ("user_data",) and isinstance(inner.value, bytes):
            path = (*span.path, "user_data")
            inner_start = inner.end - len(inner.value)
            yield from _decode_user_data(path, data[: inner.end], inner_start, str(protocol or ""))


def _find_enclosing_field(path: tuple[str, ...], name: str, values: dict[tuple[str, ...], object]) -> object:
    """Return the field `name` of the innermost struct on `path` that has it; None if no struct has it."""
    for depth in range(len(path) - 1, -1, -1):
        if (*path[:depth], name) in values:
            return values[(*path[:depth], name)]
    return None


def _decode_user_data(
    path: tuple[str, ...], data: bytes, start: int, assignor: str
) -> Iterator[EmbeddedMessage]:
    """Yield the user data, decoded in the first known format that consumes all of its bytes.

    Nothing is yielded if no format consumes all bytes. The user data is `data[start:]`.
    """
    # The formats to try, as (class of the message, version, number of bytes before the message).
    formats: list[tuple[type[Message], int, int]] = []
    if data[start:].startswith(MAGIC):
        formats = [(InitialCounts, 0, len(MAGIC))]
    elif assignor in ("sticky", "cooperative-sticky"):
        formats = [(StickyUserData, version, prefix) for prefix in (0, 2) for version in (1, 0)]
        if assignor == "cooperative-sticky":
            formats.insert(0, (CooperativeUserData, 0, 0))
    for body, version, prefix in formats:
        message_start = start + prefix
        reading = annotate(body, data, message_start, version)
        if reading.error is None and reading.end == len(data):
            version_field = int.from_bytes(data[start:message_start], "big", signed=True)
            prefix_fields = {
                0: (),
                2: (FieldSpan(("version",), "int16", start, message_start, version_field),),
                len(MAGIC): (FieldSpan(("magic",), "bytes", start, message_start, MAGIC),),
            }
            yield EmbeddedMessage(path, body, version, prefix_fields[prefix], reading, len(data))
            return


def _decode_envelope(path: tuple[str, ...], data: bytes, start: int) -> Iterator[EmbeddedMessage]:
    """Yield the header and the body of the request in an EnvelopeRequest.

    Nothing is yielded for an unknown API or version.
    """
    key, version = (int.from_bytes(data[at : at + 2], "big", signed=True) for at in (start, start + 2))
    if key not in API_NAMES or version not in (body := request_class(key)).__versions__:
        return
    header_version = request_header_version(body, version)
    header = annotate(cast("type[Message]", RequestHeader), data, start, header_version)
    header_end = len(data) if header.error else header.end
    yield EmbeddedMessage(path, RequestHeader, header_version, (), header, header_end)
    if header.error is None:
        yield EmbeddedMessage(path, body, version, (), annotate(body, data, header.end, version), len(data))

"""What is inside of bytes fields: subscriptions, assignments, user data, and requests in envelopes.

    for part in inside(JoinGroupRequest, reading.spans, data):
        print(part.path, part.title, part.spans)

What the bytes are is not said beside them: it hangs on the protocol's type and name that the message has
before them. `consumer` is the type of all groups of consumers; of other types (`connect`) nothing is opened.
Where the message doesn't say its type, bytes that aren't what consumers write are left as they are.
User data is opened for the assignors whose form is known: sticky, cooperative-sticky, and our own.
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


class Inside(NamedTuple):
    """One message inside of the field at `path`. `spans` are places in the bytes that the field is in, and
    `first` is what stands in front of the message: its version, say. `end` is that of the field, so that what
    is left behind the message is known."""

    path: tuple[str, ...]
    message: type[Message]
    version: int
    first: tuple[FieldSpan, ...]
    reading: AnnotatedMessage[Message]
    end: int


class CooperativeUserData(Message, versions="0"):
    """Java's CooperativeStickyAssignor: only the generation of what is owned. No version is written."""

    generation: Int32 = field(default=-1)


# (message, field) -> what it holds, and the field that names the protocol: in the same struct or above.
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


def inside(message: type[Message], spans: tuple[FieldSpan, ...], data: bytes) -> Iterator[Inside]:
    """What the bytes fields of a message hold, in their order; what is inside of that comes behind it."""
    said: dict[tuple[str, ...], object] = {}
    for span in spans:
        said[span.path] = span.value
        if span.type == "bytes" and isinstance(span.value, bytes) and span.value:
            yield from _opened(message.__name__, span, said, data[: span.end])


def _opened(name: str, span: FieldSpan, said: dict[tuple[str, ...], object], data: bytes) -> Iterator[Inside]:
    assert isinstance(span.value, bytes)
    start = span.end - len(span.value)
    if (name, span.path[-1]) == ("EnvelopeRequest", "request_data"):
        yield from _request(span.path, data, start)
    if name in ("ConsumerProtocolSubscription", "ConsumerProtocolAssignment"):  # these bytes alone
        yield from _user_data(span.path, data, start, "")
    body, named = _PROTOCOLS.get((name, span.path[-1]), (None, ""))
    kind = _above(span.path, "protocol_type", said) or ""
    version = int.from_bytes(data[start : start + 2], "big", signed=True)
    if body is None or kind not in ("consumer", "") or version < 0 or len(span.value) < 2:
        return
    known = min(version, NEWEST_VERSION)
    reading = annotate(body, data, start + 2, known)
    fits = reading.error is None and (reading.end == span.end or version > known)
    if not (kind or fits):
        return
    first = FieldSpan(("version",), "int16", start, start + 2, version)
    yield Inside(span.path, body, known, (first,), reading, span.end)
    protocol = _above(span.path, named, said)
    for one in reading.spans:
        if one.path == ("user_data",) and isinstance(one.value, bytes):
            path = (*span.path, "user_data")
            yield from _user_data(path, data[: one.end], one.end - len(one.value), str(protocol or ""))


def _above(path: tuple[str, ...], name: str, said: dict[tuple[str, ...], object]) -> object:
    """The field of this name of the same struct, or of the nearest around it; None if no struct has it."""
    for depth in range(len(path) - 1, -1, -1):
        if (*path[:depth], name) in said:
            return said[(*path[:depth], name)]
    return None


def _user_data(path: tuple[str, ...], data: bytes, start: int, assignor: str) -> Iterator[Inside]:
    """The forms that `kproto.group.subscription` tells of, each only where it takes all bytes."""
    forms: list[tuple[type[Message], int, int]] = []  # message, version, how many bytes stand in front
    if data[start:].startswith(MAGIC):
        forms = [(InitialCounts, 0, len(MAGIC))]
    elif assignor in ("sticky", "cooperative-sticky"):
        forms = [(StickyUserData, version, front) for front in (0, 2) for version in (1, 0)]
        if assignor == "cooperative-sticky":
            forms.insert(0, (CooperativeUserData, 0, 0))
    for body, version, front in forms:
        at = start + front
        reading = annotate(body, data, at, version)
        if reading.error is None and reading.end == len(data):
            number = int.from_bytes(data[start:at], "big", signed=True)
            first = {
                0: (),
                2: (FieldSpan(("version",), "int16", start, at, number),),
                len(MAGIC): (FieldSpan(("magic",), "bytes", start, at, MAGIC),),
            }
            yield Inside(path, body, version, first[front], reading, len(data))
            return


def _request(path: tuple[str, ...], data: bytes, start: int) -> Iterator[Inside]:
    """The request that a broker passes on in an envelope: its header, and its body."""
    key, version = (int.from_bytes(data[at : at + 2], "big", signed=True) for at in (start, start + 2))
    if key not in API_NAMES or version not in (body := request_class(key)).__versions__:
        return
    header = request_header_version(body, version)
    head = annotate(cast("type[Message]", RequestHeader), data, start, header)
    yield Inside(path, RequestHeader, header, (), head, len(data) if head.error else head.end)
    if head.error is None:
        yield Inside(path, body, version, (), annotate(body, data, head.end, version), len(data))

"""Decode a message and report which bytes belong to which field.

    annotated = annotate(JoinGroupRequest, data, 0, 9)
    for span in annotated.spans:
        print(span.start, data[span.start:span.end].hex(" "), span.path, span.value)

The spans cover every byte that was read, in order and without overlap.

A span is one of the following: a value with its length, if it has one; the count of an array; the marker of a
nullable struct; or a part of a tag section.

If decoding fails, `spans` contains the spans before the failure, and `error` says where it failed and why.
"""

from __future__ import annotations

import base64
import json
import uuid
from typing import Any, Generic, TypeVar

import msgspec

from ..errors import DecodeError
from ..printable import escape_unprintable
from .interpreter import Reader
from .message import Message, check_version
from .types import Primitive

M = TypeVar("M", bound=Message)


class FieldSpan(msgspec.Struct, frozen=True):
    """The bytes from `start` to `end` of the data, which encode a value of the field `path`.

    `type` is one of Kafka's primitive types, or "count", "marker", "tag count", "tag", "tag size" or "tagged
    bytes".
    """

    path: tuple[str, ...]
    type: str
    start: int
    end: int
    value: object


class AnnotatedMessage(msgspec.Struct, Generic[M], frozen=True):
    """The spans of a message, and the result of decoding it: either the message or the error.

    `end` is the offset of the message's end. If decoding failed, `message` is None, and `end` is the offset
    at which decoding stopped.
    """

    spans: tuple[FieldSpan, ...]
    message: M | None
    end: int
    error: DecodeError | None


def annotate(message: type[M], data: bytes, offset: int, version: int) -> AnnotatedMessage[M]:
    """Decode `message` at `offset` of `data` and record the bytes of each field.

    Raises only UnsupportedVersion. Malformed bytes are reported in the result's `error`.
    """
    check_version(message, version)
    reader = _Annotator(message.__name__, data, offset, version, version in message.__flexible__)
    try:
        value: M = reader.struct(message)
    except DecodeError as error:
        return AnnotatedMessage(tuple(reader.spans), None, reader.at, error)
    return AnnotatedMessage(tuple(reader.spans), value, reader.at, None)


# Maps the label of an unsigned varint of a tag section to the type of its span.
_TAG_SPAN_TYPES = {
    "the count of tagged fields": "tag count",
    "a tag": "tag",
    "the size of a tagged field": "tag size",
}


class _Annotator(Reader):
    """A `Reader` that records a span for each value that it reads."""

    def __init__(self, message: str, data: bytes, at: int, version: int, flexible: bool) -> None:
        super().__init__(message, data, at, version, flexible)
        self.spans: list[FieldSpan] = []

    def _add_span(self, type_: str, start: int, value: object) -> None:
        self.spans.append(FieldSpan(tuple(self.path), type_, start, self.at, value))

    def primitive(self, kind: Primitive, nullable: bool, flexible: bool) -> Any:
        start = self.at
        value = super().primitive(kind, nullable, flexible)
        self._add_span(kind.name, start, value)
        return value

    def length(self, code: str, flexible: bool, label: str) -> int:
        start = self.at
        value = super().length(code, flexible, label)
        if label == "the count of an array":
            self._add_span("count", start, None if value < 0 else value)
        return value

    def fixed(self, code: str, label: str) -> Any:
        start = self.at
        value = super().fixed(code, label)
        if label == "the marker of a nullable struct":
            self._add_span("marker", start, None if value < 0 else value)
        return value

    def uvarint(self, label: str) -> int:
        start = self.at
        value = super().uvarint(label)
        if label in _TAG_SPAN_TYPES:
            self._add_span(_TAG_SPAN_TYPES[label], start, value)
        return value

    def read_bytes(self, size: int, label: str) -> bytes:
        start = self.at
        value = super().read_bytes(size, label)
        if label == "this tagged field":
            self._add_span("tagged bytes", start, value)
        return value


def value_text(value: object) -> str:
    """Format a value as one short line, with text quoted as in JSON and UUIDs in Kafka's format."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return _quoted(value if len(value) <= 60 else value[:57] + "...")
    if isinstance(value, bytes):
        if not value:
            return "0 bytes"
        head = value[:16]
        is_text = head.isascii() and head.decode().isprintable()
        text = _quoted(head.decode("ascii")) if is_text else head.hex()
        return f"{len(value)} bytes {text}{'...' if len(value) > 16 else ''}"
    if isinstance(value, uuid.UUID):
        return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")
    return str(value)


def _quoted(text: str) -> str:
    """Quote `text` as JSON does, and also escape unprintable characters and direction marks."""
    return escape_unprintable(json.dumps(text, ensure_ascii=False))

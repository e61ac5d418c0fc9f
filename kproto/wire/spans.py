"""Which bytes of a message are which field: the slow codec, reading aloud.

    reading = annotate(JoinGroupRequest, data, 0, 9)
    for span in reading.spans:
        print(span.start, data[span.start:span.end].hex(" "), span.path, span.value)

The spans cover every byte that was read, in order and without overlap: each value with its length in front,
each array's count, each nullable struct's marker, each part of the tag sections. Where reading fails, the
spans before the failure are there, and `error` says where and why.
"""

from __future__ import annotations

import base64
import json
import uuid
from typing import Any, Generic, TypeVar

import msgspec

from ..errors import DecodeError
from .interpreter import Reader
from .message import Message, check_version
from .types import Primitive

M = TypeVar("M", bound=Message)


class FieldSpan(msgspec.Struct, frozen=True):
    """The bytes from `start` to `end` are `path`'s: its value, or what `type` says.

    `type` is a basic type of Kafka, or "count", "marker", "tag count", "tag", "tag size", "tagged bytes".
    """

    path: tuple[str, ...]
    type: str
    start: int
    end: int
    value: object


class AnnotatedMessage(msgspec.Struct, Generic[M], frozen=True):
    """What was read: the message and the offset behind it, or the error that ended the reading."""

    spans: tuple[FieldSpan, ...]
    message: M | None
    end: int
    error: DecodeError | None


def annotate(message: type[M], data: bytes, offset: int, version: int) -> AnnotatedMessage[M]:
    """Read `message` at `offset` of `data`. Raises UnsupportedVersion only; anything else is in `error`."""
    check_version(message, version)
    reader = _Annotator(message.__name__, data, offset, version, version in message.__flexible__)
    try:
        value: M = reader.struct(message)
    except DecodeError as error:
        return AnnotatedMessage(tuple(reader.spans), None, reader.at, error)
    return AnnotatedMessage(tuple(reader.spans), value, reader.at, None)


_WORDS = {
    "the count of tagged fields": "tag count",
    "a tag": "tag",
    "the size of a tagged field": "tag size",
}


class _Annotator(Reader):
    """Notes what each read took. The words that `Reader` reads with say what they were."""

    def __init__(self, message: str, data: bytes, at: int, version: int, flexible: bool) -> None:
        super().__init__(message, data, at, version, flexible)
        self.spans: list[FieldSpan] = []

    def _note(self, type_: str, start: int, value: object) -> None:
        self.spans.append(FieldSpan(tuple(self.path), type_, start, self.at, value))

    def primitive(self, kind: Primitive, nullable: bool, flexible: bool) -> Any:
        start = self.at
        value = super().primitive(kind, nullable, flexible)
        self._note(kind.name, start, value)
        return value

    def length(self, code: str, flexible: bool, what: str) -> int:
        start = self.at
        value = super().length(code, flexible, what)
        if what == "the count of an array":
            self._note("count", start, None if value < 0 else value)
        return value

    def fixed(self, code: str, what: str) -> Any:
        start = self.at
        value = super().fixed(code, what)
        if what == "the marker of a nullable struct":
            self._note("marker", start, None if value < 0 else value)
        return value

    def uvarint(self, what: str) -> int:
        start = self.at
        value = super().uvarint(what)
        if what in _WORDS:
            self._note(_WORDS[what], start, value)
        return value

    def read_bytes(self, size: int, what: str) -> bytes:
        start = self.at
        value = super().read_bytes(size, what)
        if what == "this tagged field":
            self._note("tagged bytes", start, value)
        return value


def value_text(value: object) -> str:
    """A value in one short line: text as JSON has it, a uuid as Kafka prints it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return _quoted(value if len(value) <= 60 else value[:57] + "...")
    if isinstance(value, bytes):
        head = value[:16]
        text = _quoted(head.decode("ascii")) if head.isascii() and head.decode().isprintable() else head.hex()
        return f"{len(value)} bytes {text}{'...' if len(value) > 16 else ''}" if value else "0 bytes"
    if isinstance(value, uuid.UUID):
        return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")
    return str(value)


def _quoted(text: str) -> str:
    """Text in quotes; what doesn't print, or turns the line around, is escaped."""
    return escape_unprintable(json.dumps(text, ensure_ascii=False))


def escape_unprintable(line: str) -> str:
    """A line as it may go to a terminal: what doesn't print, or turns or ends the line, is escaped."""
    return line if line.isprintable() else "".join(c if c.isprintable() else _escaped(c) for c in line)


def _escaped(character: str) -> str:
    return json.dumps(character)[1:-1] if not character.isascii() else f"\\u{ord(character):04x}"

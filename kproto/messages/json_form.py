"""Convert messages to and from the JSON that Kafka's brokers write to their request logs.

    to_json(request, 9)                         # {"groupId": "g", "sessionTimeoutMs": 45000, ...}
    from_json(JoinGroupRequest, data, 9)
    one_line(to_json(request, 9))               # for JSON lines
    write_one_line(to_json(request, 9, binary=Base64), sys.stdout.write)    # the same, in little memory

The JSON follows Kafka's generated ``JsonConverter`` classes:

* Names are Kafka's, with a lower-case first letter: ``k_raft_version`` becomes ``kRaftVersion``.

* Bytes are base64. A UUID is URL-safe base64 without padding.

* An int64 is a JSON number, even above 2**53. The floats NaN and infinity are the strings "NaN", "Infinity"
  and "-Infinity", because JSON has no such numbers.

* A field that the version lacks is not written. A tagged field is written only if it differs from its
  default. Any other field is always written.

Unlike the JSON of Kafka's classes, this JSON contains all data. Kafka's classes log only the size of the
records and omit unknown tagged fields. This JSON encodes the bytes of records as base64, and adds unknown
tagged fields as ``"_unknownTaggedFields": [{"tag": 7, "data": "AQ=="}]`` to their struct.

`to_json` and `from_json` raise the same errors as `encode`: for an integer out of range, for null in a field
that is not nullable, and for a value of a non-ignorable field that the version lacks.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
import uuid
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple, TypeVar, cast

from ..errors import EncodeError
from ..printable import escape_unprintable
from ..wire.interpreter import short_repr
from ..wire.message import Array, Field, Message, Struct, encode_pieces
from ..wire.types import Primitive

M = TypeVar("M", bound=Message)

UNKNOWN_TAGS = "_unknownTaggedFields"
# The strings that Jackson, Kafka's JSON library, writes for the floats that JSON numbers cannot express.
NOT_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
# The number of bytes per piece of base64. It is a multiple of 3, so that only the last piece has padding.
PIECE = 3 << 16


class Base64(NamedTuple):
    """Bytes that `write_one_line` writes as base64."""

    content: bytes


def base64_text(data: bytes) -> str:
    """Return base64 of `data`, with padding."""
    return base64.b64encode(data).decode()


def to_json(
    message: Message, version: int, *, binary: Callable[[bytes], object] = base64_text
) -> dict[str, Any]:
    """Convert a message to dicts, lists, str, int, float, bool and None, ready for `json.dumps`.

    `binary` converts the values of fields that contain bytes, by default to base64 text.

    Raises EncodeError and UnsupportedVersion exactly when `message.encode(version)` does.
    """
    encode_pieces(message, version)
    return _struct_to_json(message, version, version in message.__flexible__, binary)


def from_json(cls: type[M], data: object, version: int) -> M:
    """Build a message from its JSON form, as `json.loads` returns it. The keys may be in any order.

    Raises EncodeError, with the path of the field, for a missing or unknown key, a wrong type, or a value
    that `encode` would reject. Raises UnsupportedVersion for a version that the message does not have.
    """
    message: M = _Reader(cls, version).struct(cls, data)
    message.encode(version)
    return message


def one_line(value: object) -> str:
    """Format a value as one line of JSON. Unprintable characters and lone surrogates are escaped."""
    return escape_unprintable(_encode(value))


_encode = json.JSONEncoder(ensure_ascii=False).encode


def write_one_line(value: object, write: Callable[[str], object]) -> None:
    """Write the text of `one_line` piece by piece, so that a large `Base64` value needs little memory."""
    if isinstance(value, dict):
        separator = "{"
        for key, item in cast("dict[str, object]", value).items():
            write(f"{separator}{one_line(key)}: ")
            write_one_line(item, write)
            separator = ", "
        write("}" if value else "{}")
    elif isinstance(value, list):
        separator = "["
        for item in cast("list[object]", value):
            write(separator)
            write_one_line(item, write)
            separator = ", "
        write("]" if value else "[]")
    elif isinstance(value, Base64):
        write('"')
        content = memoryview(value.content)
        for start in range(0, len(content), PIECE):
            write(base64_text(content[start : start + PIECE]))  # type: ignore[arg-type]
        write('"')
    else:
        write(one_line(value))


@cache
def json_name(name: str) -> str:
    """Return the JSON key of a field: ``k_raft_version`` becomes ``kRaftVersion``."""
    first, *other_words = name.split("_")
    return first + "".join(part.capitalize() for part in other_words)


# To JSON


def _struct_to_json(
    value: Struct, version: int, flexible: bool, binary: Callable[[bytes], object]
) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for f in type(value).__fields__:
        if version in f.versions:
            item = f.get(value)
            if not (flexible and version in f.tagged) or item != f.initial():
                out[json_name(f.name)] = _to_json(f.kind, item, version, flexible, binary)
    if value.__unknown_tags__:
        out[UNKNOWN_TAGS] = [
            {"tag": tag, "data": binary(content)} for tag, content in sorted(value.__unknown_tags__.items())
        ]
    return out


def _to_json(
    kind: Primitive | Array | type[Struct],
    value: Any,
    version: int,
    flexible: bool,
    binary: Callable[[bytes], object],
) -> Any:
    if value is None:
        return None
    if isinstance(kind, Array):
        return [_to_json(kind.element, item, version, flexible, binary) for item in value]
    if isinstance(kind, type):
        return _struct_to_json(value, version, flexible, binary)
    if kind.name in ("bytes", "records"):
        return binary(value)
    if kind.name == "uuid":
        return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")
    if kind.name == "float64":
        return _float_to_json(float(value))
    return value


def _float_to_json(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


# From JSON


class _Reader:
    """Builds structs from their JSON form, and tracks the path of the field that is being read."""

    def __init__(self, message: type[Message], version: int) -> None:
        self.message = message
        self.version = version
        self.flexible = version in message.__flexible__
        self.path: list[str] = []

    def error(self, detail: str) -> EncodeError:
        return EncodeError(self.message.__name__, self.version, ".".join(self.path), detail)

    def struct(self, cls: type[Struct], data: object) -> Any:
        if not isinstance(data, Mapping):
            raise self.error(f"{short_repr(data)} is not an object")
        keys = cast("Mapping[str, Any]", data)
        values: dict[str, Any] = {}
        for f in cls.__fields__:
            self.path.append(f.name)
            values[f.name] = self.field(f, keys)
            self.path.pop()
        unknown = set(keys) - {json_name(f.name) for f in cls.__fields__} - {UNKNOWN_TAGS}
        if unknown:
            raise self.error(f"{cls.__name__} has no keys {', '.join(sorted(map(str, unknown)))}")
        value = cls(**values)
        if UNKNOWN_TAGS in keys:
            value.__unknown_tags__ = self.unknown_tags(keys[UNKNOWN_TAGS])
        return value

    def field(self, f: Field, keys: Mapping[str, Any]) -> Any:
        name = json_name(f.name)
        if name in keys:
            return None if keys[name] is None else self.value(f.kind, keys[name])
        if self.version in f.versions and not (self.flexible and self.version in f.tagged):
            raise self.error(f"the key {name} is missing")
        return f.initial()

    def value(self, kind: Primitive | Array | type[Struct], data: Any) -> Any:
        if isinstance(kind, Array):
            return self.array(kind, data)
        if isinstance(kind, type):
            return self.struct(kind, data)
        if kind.name in ("bytes", "records"):
            return self.binary(data)
        if kind.name == "uuid":
            return self.identifier(data)
        if kind.name == "float64" and isinstance(data, str) and data in NOT_NUMBERS:
            return NOT_NUMBERS[data]
        expected = {"string": str, "bool": bool, "float64": int | float}.get(kind.name, int)
        if not isinstance(data, expected) or (isinstance(data, bool) and kind.name != "bool"):
            raise self.error(f"{short_repr(data)} is not a value of {kind.name}")
        if kind.name != "float64":
            return data
        try:
            return float(data)
        except OverflowError:
            raise self.error(f"{short_repr(data)} is not a value of float64") from None

    def array(self, kind: Array, data: object) -> list[Any]:
        if not isinstance(data, list):
            raise self.error(f"{short_repr(data)} is not a list")
        name = self.path[-1]
        values: list[Any] = []
        for index, item in enumerate(cast("list[object]", data)):
            self.path[-1] = f"{name}[{index}]"
            values.append(self.value(kind.element, item))
        self.path[-1] = name
        return values

    def binary(self, data: object) -> bytes:
        try:
            if isinstance(data, str):
                return base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            pass
        raise self.error(f"{short_repr(data)} is not base64")

    def identifier(self, data: object) -> uuid.UUID:
        if isinstance(data, str) and re.fullmatch("[A-Za-z0-9_-]{22}", data):
            return uuid.UUID(bytes=base64.urlsafe_b64decode(data + "=="))
        raise self.error(f"{short_repr(data)} is not a UUID: it needs 22 characters of url-safe base64")

    def unknown_tags(self, data: object) -> dict[int, bytes]:
        self.path.append(UNKNOWN_TAGS)
        tags: dict[int, bytes] = {}
        for entry in cast("list[object]", data) if isinstance(data, list) else [None]:
            keys = cast("Mapping[str, Any]", entry)
            if not isinstance(entry, Mapping) or set(keys) != {"tag", "data"}:
                raise self.error('not a list of {"tag": number, "data": base64}')
            tag = keys["tag"]
            if not isinstance(tag, int) or isinstance(tag, bool) or tag in tags:
                raise self.error(f"{short_repr(tag)} is not an integer, or appears twice as a tag")
            tags[tag] = self.binary(keys["data"])
        self.path.pop()
        return tags

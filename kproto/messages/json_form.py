"""Messages as JSON, in the form in which Kafka's brokers print them into their request logs.

    to_json(request, 9)                         # {"groupId": "g", "sessionTimeoutMs": 45000, ...}
    from_json(JoinGroupRequest, data, 9)
    one_line(to_json(request, 9))               # for JSON lines

The form is that of Kafka's generated ``JsonConverter`` classes:

* Names are Kafka's with a small first letter: ``k_raft_version`` is ``kRaftVersion``.
* Bytes are base64; a uuid is url-safe base64 without padding; an int64 is a number, however large. Floats
  that are no numbers are the strings "NaN", "Infinity" and "-Infinity", since JSON has nothing else.
* A field that the version lacks isn't there. A tagged field is there when it differs from its default, any
  other field always.

Two things Kafka's classes leave out, so that nothing is lost on the way there and back: the bytes of records
(base64), and tagged fields that nobody here knows (``"_unknownTaggedFields": [{"tag": 7, "data": "AQ=="}]``
in the struct that has them).

Whatever `encode` refuses, both directions refuse in the same words: an integer out of its range, null where
it is not allowed, a value for a field that the version lacks and that is not ignorable.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
import uuid
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar, cast

from ..errors import EncodeError
from ..wire.interpreter import short_repr
from ..wire.message import Array, Field, Message, Struct
from ..wire.types import Primitive

M = TypeVar("M", bound=Message)

UNKNOWN_TAGS = "_unknownTaggedFields"
# As Jackson writes them, and so Kafka.
NOT_NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def to_json(message: Message, version: int) -> dict[str, Any]:
    """The JSON form of a message: dicts, lists, str, int, float, bool and None, ready for `json.dumps`.

    Raises EncodeError and UnsupportedVersion for exactly what `message.encode(version)` raises them for.
    """
    message.encode(version)
    return _struct_to_json(message, version, version in message.__flexible__)


def from_json(cls: type[M], data: object, version: int) -> M:
    """Build a message from its JSON form, as `json.loads` returns it. The order of the keys has no meaning.

    Raises EncodeError, with the path of the field, for anything that is not this form: a missing or
    unknown key, a wrong type, a value that `encode` would refuse. Raises UnsupportedVersion if the message
    has no such version.
    """
    message: M = _Reader(cls, version).struct(cls, data)
    message.encode(version)
    return message


def one_line(value: object) -> str:
    """A value as one line of JSON, in UTF-8.

    Escaped is what has no UTF-8 form (half a surrogate pair), and what other readers than JSON's take for the
    end of a line.
    """
    text = _encode(value)
    return text if text.isascii() else text.translate(_ENDS).encode("utf-8", "backslashreplace").decode()


_encode = json.JSONEncoder(ensure_ascii=False).encode
_ENDS = {ord(end): f"\\u{ord(end):04x}" for end in "\x85\u2028\u2029"}


@cache
def json_name(name: str) -> str:
    """The key of a field: ``k_raft_version`` is ``kRaftVersion``."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


# To JSON


def _struct_to_json(value: Struct, version: int, flexible: bool) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for f in type(value).__fields__:
        if version in f.versions:
            item = getattr(value, f.name)
            if not (flexible and version in f.tagged) or item != f.initial():
                out[json_name(f.name)] = _to_json(f.kind, item, version, flexible)
    if value.__unknown_tags__:
        out[UNKNOWN_TAGS] = [
            {"tag": tag, "data": _base64(content)} for tag, content in sorted(value.__unknown_tags__.items())
        ]
    return out


def _to_json(kind: Primitive | Array | type[Struct], value: Any, version: int, flexible: bool) -> Any:
    if value is None:
        return None
    if isinstance(kind, Array):
        return [_to_json(kind.element, item, version, flexible) for item in value]
    if isinstance(kind, type):
        return _struct_to_json(value, version, flexible)
    if kind.name in ("bytes", "records"):
        return _base64(value)
    if kind.name == "uuid":
        return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")
    if kind.name == "float64":
        return _float_to_json(float(value))
    return value


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _float_to_json(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


# From JSON


class _Reader:
    """Builds structs from their JSON form, and remembers the path of the field being read."""

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
            raise self.error(f"{cls.__name__} has no {', '.join(sorted(map(str, unknown)))}")
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
        raise self.error(f"{short_repr(data)} is not a uuid: 22 characters of url-safe base64")

    def unknown_tags(self, data: object) -> dict[int, bytes]:
        self.path.append(UNKNOWN_TAGS)
        tags: dict[int, bytes] = {}
        for entry in cast("list[object]", data) if isinstance(data, list) else [None]:
            keys = cast("Mapping[str, Any]", entry)
            if not isinstance(entry, Mapping) or set(keys) != {"tag", "data"}:
                raise self.error('not a list of {"tag": number, "data": base64}')
            tag = keys["tag"]
            if not isinstance(tag, int) or isinstance(tag, bool) or tag in tags:
                raise self.error(f"{short_repr(tag)} is not a tag, or is there twice")
            tags[tag] = self.binary(keys["data"])
        self.path.pop()
        return tags

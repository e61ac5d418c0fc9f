"""The interpreting codec: encodes and decodes messages field by field, according to their declarations.

The compiler is tested against this codec.

The interpreter also reports errors. A compiled function only detects malformed input. The interpreter then
processes the same input, and reports the field, the offset and the reason.

The wire format (Kafka's protocol guide, KIP-482; nulls as in Kafka's generated readers):

    kind              before flexible versions          in flexible versions
    string            int16 length, -1 null             varint length + 1, 0 null
    bytes, records    int32 length, -1 null             varint length + 1, 0 null
    array             int32 count, -1 null              varint count + 1, 0 null
    nullable struct   int8 (negative: null), then the struct, in both
      as tagged field                                   varint (0: null), then the struct
    end of a struct   nothing                           varint count, then (varint tag, varint size, value)*

* Any negative length means null. Null in a field that is not nullable is an error.

* Tags are read in any order. If a tag occurs twice, the last value applies, as in Kafka's reader. Tags are
  written in ascending order.

* The size that precedes a known tagged field must be the size of its value.

* A varint has at most 5 bytes and is below 2**31. A string has at most 32767 bytes, even in flexible
  versions.

* An array cannot have more elements than the remaining bytes can hold. So the memory that decoding allocates
  is at most a fixed multiple of the input.
"""

from __future__ import annotations

import struct
import uuid
from typing import Any, TypeVar, cast

from ..errors import DecodeError, EncodeError
from .message import Array, Field, Message, Struct, check_version
from .types import Primitive

M = TypeVar("M", bound=Message)

# The largest length, count or tag, because Java reads each of them as an int.
VARINT_MAX = 0x7FFF_FFFF

# The largest size of a string in bytes: the maximum of an int16, even where a varint encodes the length.
STRING_MAX = 0x7FFF


def decode(
    message: type[M], data: bytes | bytearray | memoryview, offset: int, version: int
) -> tuple[M, int]:
    """Decode `message` at `offset` of `data`; return it and the offset of its end.

    Raises as `Message.decode` does.
    """
    check_version(message, version)
    reader = Reader(message.__name__, bytes(data), offset, version, version in message.__flexible__)
    value: M = reader.struct(message)
    return value, reader.at


def encode(message: Message, version: int) -> bytes:
    """Encode `message` in `version`. Raises the same errors as `Message.encode`."""
    cls = type(message)
    check_version(cls, version)
    writer = _Writer(cls.__name__, version, version in cls.__flexible__)
    writer.struct(cls, message)
    return b"".join(writer.pieces)


def decode_tags(target: Struct, data: bytes, at: int, message: str, version: int) -> int:
    """Read the tag section at `at` into `target` and return the offset of its end.

    Before the call, the tagged fields of `target` must have their default values.
    """
    reader = Reader(message, data, at, version, True)
    reader.tags(type(target), target)
    return reader.at


def minimum_size(kind: Primitive | Array | type[Struct], version: int, flexible: bool) -> int:
    """Return the smallest encoded size, in bytes, of a value of `kind` that is not null."""
    if isinstance(kind, Primitive):
        return kind.size or (1 if flexible else 2 if kind.name == "string" else 4)
    if isinstance(kind, Array):
        return 1 if flexible else 4
    total = 1 if flexible else 0
    for f in kind.__fields__:
        if version in f.versions and not (flexible and version in f.tagged):
            has_marker = isinstance(f.kind, type) and version in f.nullable  # a nullable struct: one byte
            total += 1 if has_marker else minimum_size(f.kind, version, flexible and not f.always_rigid)
    return total


def uvarint(value: int) -> bytes:
    """Encode `value` as an unsigned varint: 7 bits per byte, the least significant bits first.

    The top bit of a byte is set if more bytes follow.
    """
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class Reader:
    """Reads values from the data, and tracks the position and the path of the current field."""

    def __init__(self, message: str, data: bytes, at: int, version: int, flexible: bool) -> None:
        self.message = message
        self.data = data
        self.at = at
        self.end = len(data)
        self.version = version
        self.flexible = flexible
        self.path: list[str] = []

    def error(self, detail: str, at: int) -> DecodeError:
        return DecodeError(self.message, self.version, _join_path(self.path), at, detail)

    def read_bytes(self, size: int, label: str) -> bytes:
        remaining = self.end - self.at
        if size > remaining:
            raise self.error(f"{label} takes {size} bytes, but only {remaining} are left", self.at)
        self.at += size
        return self.data[self.at - size : self.at]

    def fixed(self, code: str, label: str) -> Any:
        """Read a value of the `struct` code `code`. `label` names the value in the error message."""
        return struct.unpack(">" + code, self.read_bytes(struct.calcsize(">" + code), label))[0]

    def uvarint(self, label: str) -> int:
        start, value = self.at, 0
        for shift in range(0, 35, 7):
            byte: int = self.fixed("B", label)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value > VARINT_MAX:
                    raise self.error(f"{label}: the varint {value} is above 2**31-1", start)
                return value
        raise self.error(f"{label}: the varint has more than 5 bytes", start)

    def length(self, code: str, flexible: bool, label: str) -> int:
        """Read a length or count; -1 stands for null."""
        return self.uvarint(label) - 1 if flexible else max(self.fixed(code, label), -1)

    def struct(self, cls: type[Any]) -> Any:
        """Read a struct, with its tag section in flexible versions."""
        values: dict[str, Any] = {}
        for f in cls.__fields__:
            if self.version in f.versions and not (self.flexible and self.version in f.tagged):
                self.path.append(f.name)
                values[f.name] = self.field(f)
                self.path.pop()
        value = cls(**values)
        if self.flexible:
            self.tags(cls, value)
        return value

    def field(self, f: Field, tagged: bool = False) -> Any:
        """Read the value of a field. `tagged` means that the field is in a tag section."""
        nullable = self.version in f.nullable
        flexible = self.flexible and not f.always_rigid
        if isinstance(f.kind, type):
            label = "the marker of a nullable struct"
            if nullable and (self.uvarint(label) == 0 if tagged else self.fixed("b", label) < 0):
                return None
            return self.struct(f.kind)
        if isinstance(f.kind, Array):
            return self.array(f.kind, nullable, flexible)
        return self.primitive(f.kind, nullable, flexible)

    def primitive(self, kind: Primitive, nullable: bool, flexible: bool) -> Any:
        if kind.code:
            value = self.fixed(kind.code, kind.name)
            return uuid.UUID(bytes=value) if kind.name == "uuid" else value
        start = self.at
        length = self.length("h" if kind.name == "string" else "i", flexible, f"the length of {kind.name}")
        if length < 0:
            if nullable:
                return None
            raise self.error("null, but the field is not nullable", start)
        if kind.name == "string" and length > STRING_MAX:
            raise self.error(f"a string of {length} bytes; at most {STRING_MAX} are allowed", start)
        value = self.read_bytes(length, f"this {kind.name}")
        if kind.name != "string":
            return value
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise self.error(f"not UTF-8: {error.reason}", self.at - length + error.start) from None

    def array(self, kind: Array, nullable: bool, flexible: bool) -> list[Any] | None:
        start = self.at
        count = self.length("i", flexible, "the count of an array")
        if count < 0:
            if nullable:
                return None
            raise self.error("null, but the field is not nullable", start)
        element_size = max(1, minimum_size(kind.element, self.version, flexible))
        max_count = (self.end - self.at) // element_size
        if count > max_count:
            raise self.error(
                f"an array of {count} elements, but the remaining bytes hold at most {max_count}", start
            )
        values: list[Any] = []
        name = self.path[-1]
        for index in range(count):
            self.path[-1] = f"{name}[{index}]"
            if isinstance(kind.element, type):
                values.append(self.struct(kind.element))
            else:
                values.append(self.primitive(kind.element, False, flexible))
        self.path[-1] = name
        return values

    def tags(self, cls: type[Any], value: Any) -> None:
        """Read a tag section into `value`: declared tags into fields, other tags into `__unknown_tags__`."""
        declared = {f.tag: f for f in cls.__fields__ if f.tagged}
        self.path.append("(tags)")
        count = self.uvarint("the count of tagged fields")
        for _ in range(count):
            self.path[-1] = "(tags)"
            start = self.at
            tag = self.uvarint("a tag")
            self.path[-1] = f"(tag {tag})"
            size = self.uvarint("the size of a tagged field")
            f = declared.get(tag)
            if f is None:
                content = self.read_bytes(size, "this tagged field")
                value.__unknown_tags__[tag] = content
                continue
            self.path[-1] = f.name
            if self.version not in f.tagged:
                raise self.error(f"tag {tag} is not valid in this version", start)
            self.tagged_field(value, f, size)
        self.path.pop()

    def tagged_field(self, value: Any, f: Field, size: int) -> None:
        """Read a declared tagged field. Its value must take exactly `size` bytes."""
        start, outer_end = self.at, self.end
        remaining = outer_end - start
        if size > remaining:
            raise self.error(f"this tagged field takes {size} bytes, but only {remaining} are left", start)
        self.end = start + size
        setattr(value, f.name, self.field(f, tagged=True))
        if self.at != self.end:
            raise self.error(
                f"the tagged field has a size of {size} bytes, but its value takes {self.at - start}", start
            )
        self.end = outer_end


class _Writer:
    """Writes values, and tracks the pieces written so far and the path of the current field."""

    def __init__(self, message: str, version: int, flexible: bool) -> None:
        self.message = message
        self.version = version
        self.flexible = flexible
        self.pieces: list[bytes] = []
        self.path: list[str] = []

    def error(self, detail: str) -> EncodeError:
        return EncodeError(self.message, self.version, _join_path(self.path), detail)

    def length(self, code: str, flexible: bool, length: int) -> None:
        """Write a length or count. -1 stands for null."""
        if code == "h" and length > STRING_MAX:
            raise self.error(f"{length} bytes; a string has at most {STRING_MAX}")
        if flexible:
            self.pieces.append(uvarint(length + 1))
        else:
            self.pieces.append(struct.pack(">" + code, length))

    def struct(self, cls: type[Struct], value: Any) -> None:
        """Write a struct, with its tag section in flexible versions.

        Raises EncodeError if a field that this version lacks is set, unless the field is ignorable.
        """
        for f in cls.__fields__:
            self.path.append(f.name)
            try:
                item = getattr(value, f.name)
            except AttributeError:
                raise self.error(
                    f"{short_repr(value)} is not a {cls.__name__}: it lacks this field"
                ) from None
            if self.version not in f.versions:
                if not f.ignorable and _differs(item, f.initial()):
                    raise self.error(
                        f"{short_repr(item)} cannot be encoded: this version lacks the field "
                        f"(versions {f.versions}); leave it at {short_repr(f.initial())}"
                    )
            elif not (self.flexible and self.version in f.tagged):
                self.field(f, item)
            self.path.pop()
        if not hasattr(value, "_tags"):
            raise self.error(
                f"{short_repr(value)} is not a {cls.__name__}: it lacks the dict of unknown tagged fields"
            )
        if self.flexible:
            self.tags(cls, value)
        elif value._tags:
            self.path.append("(tags)")
            raise self.error("tagged fields are set, but this version is not flexible")

    def field(self, f: Field, value: Any, tagged: bool = False) -> None:
        """Write the value of a field. `tagged` means that the field is in a tag section."""
        nullable = self.version in f.nullable
        flexible = self.flexible and not f.always_rigid
        if value is None and not nullable:
            raise self.error("None, but the field is not nullable in this version")
        if isinstance(f.kind, type):
            if nullable:
                self.pieces.append(b"\x01" if value is not None else b"\x00" if tagged else b"\xff")
            if value is not None:
                self.struct(f.kind, value)
        elif isinstance(f.kind, Array):
            self.array(f.kind, value, flexible)
        else:
            self.primitive(f.kind, value, flexible)

    def primitive(self, kind: Primitive, value: Any, flexible: bool) -> None:
        if kind.code:
            self.fixed(kind, value)
            return
        code = "h" if kind.name == "string" else "i"
        if value is None:
            self.length(code, flexible, -1)
            return
        if kind.name == "string":
            if not isinstance(value, str):
                raise self.error(f"{short_repr(value)} is not a str")
            try:
                content = value.encode()
            except UnicodeEncodeError as error:
                raise self.error(f"{short_repr(value)} cannot be encoded as UTF-8: {error.reason}") from None
        else:
            content = self.content(value)
        self.length(code, flexible, len(content))
        self.pieces.append(content)

    def content(self, value: object) -> bytes:
        """Return the bytes of `value`.

        Raises EncodeError if `value` is not bytes-like, or is a released memoryview.
        """
        buffer = value
        try:
            if isinstance(buffer, bytes | bytearray | memoryview):
                return bytes(cast("bytes | bytearray", buffer))
        except ValueError:  # The memoryview was released.
            pass
        raise self.error(f"{short_repr(value)} is not bytes")

    def fixed(self, kind: Primitive, value: Any) -> None:
        """Write a value of fixed size."""
        try:
            if kind.name == "uuid":
                content = value.bytes
                if not (isinstance(content, bytes) and len(content) == 16):
                    raise TypeError("a UUID has 16 bytes")
            elif kind.name == "bool":
                # The lookup accepts 0 and 1. It raises KeyError or TypeError for other values.
                content = b"\x01" if {False: False, True: True}[value] else b"\x00"
            else:
                content = struct.pack(">" + kind.code, value)
        except (struct.error, TypeError, KeyError, AttributeError, OverflowError):
            raise self.error(f"{short_repr(value)} is not a value of {kind.name}") from None
        self.pieces.append(content)

    def array(self, kind: Array, values: Any, flexible: bool) -> None:
        if values is None:
            self.length("i", flexible, -1)
            return
        if not isinstance(values, list | tuple):
            raise self.error(f"{short_repr(values)} is not a list")
        values = cast("list[Any]", values)
        self.length("i", flexible, len(values))
        name = self.path[-1]
        for index, value in enumerate(values):
            self.path[-1] = f"{name}[{index}]"
            if value is None:
                raise self.error("None, but elements of arrays are not nullable")
            if isinstance(kind.element, type):
                self.struct(kind.element, value)
            else:
                self.primitive(kind.element, value, flexible)
        self.path[-1] = name

    def tags(self, cls: type[Struct], value: Any) -> None:
        """Write a tag section: the declared fields that are set and the unknown tags, in ascending order."""
        contents = self.declared_tags(cls, value)
        contents.update(self.unknown_tags(cls, value))
        self.pieces.append(uvarint(len(contents)))
        for tag in sorted(contents):
            self.pieces += (uvarint(tag), uvarint(len(contents[tag])), contents[tag])

    def declared_tags(self, cls: type[Struct], value: Any) -> dict[int, bytes]:
        """Encode the tagged fields that differ from their defaults, as tag -> content."""
        contents: dict[int, bytes] = {}
        for f in cls.__fields__:
            item = getattr(value, f.name)
            if self.version in f.versions and self.version in f.tagged and _differs(item, f.initial()):
                self.path.append(f.name)
                inner = _Writer(self.message, self.version, True)
                inner.path = self.path
                inner.field(f, item, tagged=True)
                contents[f.tag] = b"".join(inner.pieces)
                self.path.pop()
        return contents

    def unknown_tags(self, cls: type[Struct], value: Any) -> dict[int, bytes]:
        """Return the unknown tags of `value` and their bytes.

        Raises EncodeError if a tag is invalid, or belongs to a field of `cls`.
        """
        contents: dict[int, bytes] = {}
        names = {f.tag: f.name for f in cls.__fields__ if f.tagged}
        unknown: Any = value._tags or {}
        if not isinstance(unknown, dict):
            self.path.append("(tags)")
            raise self.error(f"the unknown tags are {short_repr(unknown)}, not a dict")
        unknown = cast("dict[object, object]", unknown)
        for tag, content in unknown.items():
            self.path.append(f"(tag {short_repr(tag)})")
            if tag in names:
                raise self.error(f"this tag belongs to the field {names[tag]}")
            if not (isinstance(tag, int) and 0 <= tag <= VARINT_MAX):
                raise self.error("a tag must be an int from 0 to 2**31-1")
            contents[tag] = self.content(content)
            self.path.pop()
        return contents


def _join_path(path: list[str]) -> str:
    return ".".join(path)


def _differs(value: Any, initial: object) -> bool:
    """Return whether `value` differs from `initial`, or cannot be compared with it."""
    try:
        return bool(value != initial)
    except Exception:
        return True


def short_repr(value: object) -> str:
    """Shorten the repr of a value to at most 60 characters, for an error message."""
    try:
        text = repr(value)
    except Exception:  # repr() fails for huge ints and for objects with unset attributes.
        text = f"this {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."

"""Declare messages. One declaration describes all versions of a message.

    class FetchRequest(Message, api_key=1, versions="4-18", flexible="12+"):
        cluster_id: String | None = field("12+", tag=0, default=None, ignorable=True)
        max_wait_ms: Int32
        session_epoch: Int32 = field("7+", default=-1, ignorable=True)
        topics: list[FetchTopic]
        replica_state: ReplicaState = field("15+", tag=1, default=FRESH)

    class FetchTopic(Struct): ...

Rules of a declaration:

* Fields are declared in wire order. A field without a version range exists in all versions. A field without
  a default is required.

* A field that some versions of the message lack has a default. For such a version, `decode` sets the default,
  and `encode` raises for any other value, unless the field is `ignorable`.

* `X | None` is nullable in all versions of the field, unless `nullable="7+"` limits these versions.

* `tag=3` declares a tagged field, which is not written if it equals its default. If the field has no tag in
  older versions, `tagged="12+"` names the versions in which it has the tag.

* The default `[]` gives every object its own new list.

* The default `FRESH` is a new struct. Each field of this struct has its declared default, or Kafka's zero (0,
  "", b"", [], ...) if the field declares none.

* Structs and messages are keyword-only, slotted, mutable and comparable. They do not store their version.

* Structs and messages are `msgspec.Struct`s, because these are fast to create.

* Decoders create structs and messages from positional values in declared order. In other code, type checkers
  reject positional values.

* The garbage collector does not track structs and messages (`gc=False`). They cannot form cycles, because no
  declaration contains itself.

* Annotations are strings that are resolved at first use. So a struct may be declared below the struct that
  uses it, and importing a message is cheap.

The declarations have the same content as the message JSON that Kafka's `MessageGenerator` reads. KIP-482
describes flexible versions and tags.
"""

from __future__ import annotations

import struct
import sys
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self, SupportsIndex, TypeVar, dataclass_transform

import msgspec

from ..errors import DecodeError, UnsupportedVersion
from ..lazy_imports import render_html
from .codecs import Compiled, Decoder, Encoder, registered
from .fields import FRESH, LAZY, REQUIRED, FieldOptions, explain_arguments, field
from .types import ALL_VERSIONS, NO_VERSIONS, Primitive, Versions

__all__ = [
    "FRESH",
    "UNREADABLE",
    "Array",
    "Field",
    "Message",
    "Struct",
    "check_version",
    "decode_from",
    "decode_views",
    "encode_pieces",
    "field",
    "fresh",
]

# The exceptions that a compiled decoder raises on malformed bytes. UnicodeDecodeError is a ValueError.
UNREADABLE = (struct.error, ValueError, IndexError, DecodeError)


class Array(msgspec.Struct, frozen=True):
    """The `kind` of a field that is a list. `element` is the kind of the list's elements."""

    element: Primitive | type[Struct]


class Field(msgspec.Struct, frozen=True):
    """A field of a declaration, as the codecs use it: annotation and version ranges are resolved."""

    name: str
    kind: Primitive | Array | type[Struct]
    versions: Versions
    nullable: Versions
    tagged: Versions
    tag: int
    default: object
    ignorable: bool
    map_key: bool
    # Whether the field keeps its int16 or int32 length in flexible versions.
    always_rigid: bool

    @property
    def is_lazy(self) -> bool:
        """Whether the slot of the field holds LAZY until the field is first read; see `_lazy_struct`."""
        return self.default is FRESH

    @property
    def slot(self) -> str:
        """The name of the attribute that holds the field's value, or LAZY until the field is first read."""
        return f"_{self.name}" if self.is_lazy else self.name

    def get(self, struct: Struct) -> Any:
        """Return the value of this field in `struct`."""
        return getattr(struct, self.name)

    def initial(self) -> Any:
        """Return the value of an unset field: its default, or else the zero value of its type."""
        if self.default is FRESH:
            assert isinstance(self.kind, type)
            return fresh(self.kind)
        if self.default == []:
            return []
        if self.default is not REQUIRED:
            return self.default
        if isinstance(self.kind, Primitive):
            return self.kind.zero
        return [] if isinstance(self.kind, Array) else fresh(self.kind)


class _ResolvedFields:
    """The fields of a struct in declared order. Raises TypeError for an invalid declaration."""

    def __get__(self, instance: object, cls: type[Struct]) -> tuple[Field, ...]:
        if cls.__resolved__ is None:
            cls.__resolved__ = _resolve_fields(cls, outer=())
        return cls.__resolved__


class _LazyDocstring(str):
    """The docstring of a declaration, with its fields and the fields' comments.

    The object is a descriptor: reading `__doc__` of the class builds the text. The object is also a str,
    because pydoc takes it from the class's dict and calls `expandtabs` on it.
    """

    owner: type[Struct]

    def __set_name__(self, owner: type[Struct], name: str) -> None:
        self.owner = owner

    def __get__(self, instance: object, owner: type[Struct]) -> str:
        text: str = registered[0].describe(owner, str(self))
        return text

    def expandtabs(self, tabsize: SupportsIndex = 8) -> str:
        return self.__get__(None, self.owner)


class _MessageMeta(msgspec.StructMeta):
    """The metaclass of messages. A call with invalid arguments raises an error that lists the fields."""

    __options__: Mapping[str, FieldOptions]

    def __call__(cls, *values: Any, **named: Any) -> Any:
        try:
            return super().__call__(*values, **named)
        except TypeError as error:
            raise TypeError(
                explain_arguments(cls.__name__, cls.__options__, values, named) or str(error)
            ) from None


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class _DeclarationMeta(msgspec.StructMeta):
    """The metaclass of `Struct` and `Message`: turns declarations into `msgspec.Struct`s.

    In Python 3.11, calling a class takes 1.5 times as long if its metaclass is written in Python. So the
    classes that this metaclass makes are not instances of it: their bases are plain copies of `Struct` and
    `Message`. `isinstance` and `issubclass` work as usual. Only messages have a metaclass written in Python,
    `_MessageMeta`. Its cost is small, because decoding a response creates just one message.
    """

    __plain__: Any

    def __new__(mcs, name: str, bases: tuple[Any, ...], namespace: dict[str, Any], **keywords: Any) -> Any:
        plain_bases = tuple(base.__plain__ if isinstance(base, _DeclarationMeta) else base for base in bases)
        if namespace["__module__"] == __name__:  # `Struct` and `Message` themselves
            declaring = super().__new__(mcs, name, bases, namespace)
            declaring.__plain__ = msgspec.StructMeta(name, plain_bases, namespace)
            return declaring
        options: dict[str, FieldOptions] = {}
        annotations: dict[str, Any] = {}
        for key, annotation in namespace.get("__annotations__", {}).items():
            if key.startswith("_") or str(annotation).startswith("ClassVar"):
                continue
            value = namespace.get(key, REQUIRED)
            options[key] = value if isinstance(value, FieldOptions) else field(default=value)
            annotations[key] = annotation
            namespace[key] = _msgspec_default(name, key, options[key].default)
        annotations["_tags"] = "dict[int, bytes] | None"
        namespace |= {"_tags": None, "__annotations__": annotations}
        namespace["__doc__"] = _LazyDocstring(namespace.get("__doc__", ""))
        namespace |= {"__options__": options, "__resolved__": None}
        metaclass = _MessageMeta if keywords else msgspec.StructMeta
        cls: Any = metaclass(name, plain_bases, namespace, gc=False)
        cls.__make__ = msgspec.StructMeta.__call__.__get__(cls) if keywords else cls
        if keywords:
            _set_versions(cls, **keywords)
        for key, value in options.items():
            if value.default is FRESH:
                setattr(cls, f"_{key}", getattr(cls, key))
                setattr(cls, key, _lazy_struct(key))
        return cls

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, cls.__plain__)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, cls.__plain__)


def _msgspec_default(struct: str, name: str, default: object) -> object:
    """Return the default of a field in the form that msgspec expects.

    msgspec allows no required field after a field with a default. So each required field gets a default
    factory, which raises TypeError if the caller omits the field.
    """

    def refuse() -> object:
        raise TypeError(f"{struct}() missing 1 required keyword-only argument: {name!r}")

    if default is REQUIRED:
        return msgspec.field(default_factory=refuse)
    return LAZY if default is FRESH else default


def _lazy_struct(name: str) -> property:
    """Return a property for a field with the default FRESH.

    The struct is created when the field is first read.

    Most of these structs are never read: a fetch response has three of them per partition. The slot holds
    LAZY until the first read.
    """
    slot = f"_{name}"

    def get_value(self: Struct) -> object:
        value: object = getattr(self, slot)
        if value is LAZY:
            value = next(f.initial() for f in type(self).__fields__ if f.name == name)
            setattr(self, slot, value)
        return value

    def set_value(self: Struct, value: object) -> None:
        setattr(self, slot, value)

    def delete_value(self: Struct) -> None:
        delattr(self, slot)

    return property(get_value, set_value, delete_value)


if typing.TYPE_CHECKING:

    class _Slots:
        """Replaces `msgspec.Struct` for type checkers, which would otherwise apply msgspec's rules for
        fields.
        """

        _tags: dict[int, bytes] | None

else:
    _Slots = msgspec.Struct


class Struct(_Slots, metaclass=_DeclarationMeta):
    """A struct inside a message. A subclass declares its fields with annotations."""

    __fields__ = _ResolvedFields()
    __options__: ClassVar[dict[str, FieldOptions]]
    __resolved__: ClassVar[tuple[Field, ...] | None]
    # The constructor for decoders. It takes values in declared order, and its errors do not list the fields.
    __make__: ClassVar[Callable[..., Any]]

    def __init_subclass__(cls) -> None:
        if any(vars(base).get("__options__") for base in cls.__bases__):
            raise TypeError(
                f"{cls.__name__}: a struct with fields cannot be subclassed; declare the fields again"
            )

    @property
    def __unknown_tags__(self) -> dict[int, bytes]:
        """Maps the tag of each unknown tagged field to the field's bytes.

        `encode` writes them unchanged.
        """
        if self._tags is None:
            self._tags = {}
        return self._tags

    @__unknown_tags__.setter
    def __unknown_tags__(self, tags: dict[int, bytes]) -> None:
        self._tags = tags

    def __eq__(self, other: Any) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in type(self).__options__) and (
            (self._tags or None) == (other._tags or None)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        parts = [f"{name}={getattr(self, name)!r}" for name in type(self).__options__]
        if self._tags:
            parts.append(f"__unknown_tags__={self._tags!r}")
        return f"{type(self).__qualname__}({', '.join(parts)})"


class Message(Struct):
    """A whole message: a request, a response or a data message.

    A message is declared with class keywords: `versions="0-9"`; `flexible="6+"`, or "none" (the default);
    `api_key=11` for requests and responses.
    """

    __api_key__: ClassVar[int | None] = None
    __versions__: ClassVar[Versions] = NO_VERSIONS
    __flexible__: ClassVar[Versions] = NO_VERSIONS
    __decoders__: ClassVar[Mapping[int, Decoder]]
    __encoders__: ClassVar[Mapping[int, Encoder]]
    __view_decoders__: ClassVar[Mapping[int, Decoder]]
    __piece_encoders__: ClassVar[Mapping[int, Callable[[Any], list[bytes]]]]

    if typing.TYPE_CHECKING:

        def __init_subclass__(
            cls, *, versions: str, flexible: str = "none", api_key: int | None = None
        ) -> None: ...

    def _repr_html_(self) -> str:
        """Return an HTML view of the fields and their bytes, for notebooks."""
        return render_html("kproto.inspect.notebook:message", self)

    def encode(self, version: int) -> bytes:
        """Encode this message in `version`, without a header.

        Raises EncodeError, with the path of the field, if a value does not fit the field or the version.
        Raises UnsupportedVersion if the message does not have this version.
        """
        try:
            return type(self).__encoders__[version](self)
        except Exception:
            # The interpreter encodes the message again and raises the error, which names the field.
            pass
        return registered[0].write(self, version)

    @classmethod
    def decode(cls, data: bytes | bytearray | memoryview, version: int) -> Self:
        """Read a message from the start of `data`. Bytes after the message are ignored, as in Kafka.

        Raises DecodeError, with the path of the field and the offset, if the bytes are not this message.
        Raises UnsupportedVersion if the message does not have this version.
        """
        buffer = data if type(data) is bytes else bytes(memoryview(data))
        try:
            message: Self = cls.__decoders__[version](buffer, 0)[0]
            return message
        except UNREADABLE:
            pass
        # The interpreter decodes the message again and raises the error, which names the field and the
        # offset.
        message = registered[0].read(cls, buffer, 0, version)[0]
        return message


def _set_versions(
    cls: type[Message], versions: str, flexible: str = "none", api_key: int | None = None
) -> None:
    """Apply the class keywords, which msgspec does not pass to `__init_subclass__`."""
    cls.__api_key__ = api_key
    cls.__versions__ = Versions.parse(versions)
    cls.__flexible__ = Versions.parse(flexible)
    cls.__decoders__ = Compiled(cls, "decoder")
    cls.__encoders__ = Compiled(cls, "encoder")
    cls.__view_decoders__ = Compiled(cls, "view_decoder")
    cls.__piece_encoders__ = Compiled(cls, "piece_encoder")


M = TypeVar("M", bound=Message)


def decode_from(
    message: type[M], data: bytes | bytearray | memoryview, offset: int, version: int
) -> tuple[M, int]:
    """Read a message that starts at `offset` of `data`; return it and the offset of its end.

    Raises the errors of `Message.decode`. The offset in a DecodeError is relative to the start of `data`.
    """
    buffer = data if type(data) is bytes else bytes(memoryview(data))
    try:
        return message.__decoders__[version](buffer, offset)
    except UNREADABLE:
        pass
    return registered[0].read(message, buffer, offset, version)


def decode_views(message: type[M], data: bytes | bytearray, offset: int, version: int) -> tuple[M, int]:
    """Read a message as `decode_from` does, but return records as memoryviews of `data` instead of copies.

    `data` must not change while these views are used. Only large fields of type `Records` are views. Type
    checkers see them as `bytes`.
    """
    try:
        return message.__view_decoders__[version](data, offset)
    except UNREADABLE:
        pass
    return registered[0].read(message, bytes(data), offset, version)


def encode_pieces(message: Message, version: int) -> list[bytes]:
    """Encode a message as `Message.encode` does, but return pieces, so that records are not copied."""
    try:
        return type(message).__piece_encoders__[version](message)
    except Exception:  # as in `Message.encode`
        pass
    return [registered[0].write(message, version)]


def check_version(message: type[Message], version: int) -> None:
    """Raise UnsupportedVersion unless `message` has `version`."""
    if version not in message.__versions__:
        allowed = str(message.__versions__)
        # The text of UnsupportedVersion does not name version -1, which usually means that the broker
        # supports no version. Here the caller has requested version -1, so `allowed` names it.
        if version == -1:
            allowed = f"version -1 is not supported; allowed: {allowed}"
        raise UnsupportedVersion(message.__name__, version, allowed)


def fresh(struct: type[Struct]) -> Any:
    """Return a new struct with the default of every field.

    A field without a default has the zero value that Kafka uses for its type.
    """
    return struct(**{f.name: f.initial() for f in struct.__fields__})


# Resolution of declarations.


def _resolve_fields(cls: type[Struct], outer: tuple[type[Struct], ...]) -> tuple[Field, ...]:
    """Resolve the fields of `cls`, and of the structs in it; `outer` are the structs that contain `cls`."""
    if cls in outer:
        raise TypeError(f"{cls.__name__} contains itself; Kafka's messages are not recursive")
    scope = vars(sys.modules[cls.__module__])
    annotations = cls.__annotations__
    fields: list[Field] = []
    for name, options in cls.__options__.items():
        annotation = annotations[name]
        try:
            hint = eval(annotation, dict(scope)) if isinstance(annotation, str) else annotation
            resolved = _resolve_field(name, options, hint)
        except (NameError, TypeError, ValueError) as error:
            raise TypeError(f"{cls.__name__}.{name}: {annotation}: {error}") from error
        inner = resolved.kind.element if isinstance(resolved.kind, Array) else resolved.kind
        if isinstance(inner, type) and inner.__resolved__ is None:
            inner.__resolved__ = _resolve_fields(inner, (*outer, cls))
        fields.append(resolved)
    tags = [f.tag for f in fields if f.tagged]
    if len(tags) != len(set(tags)):
        raise TypeError(f"{cls.__name__}: two fields have the same tag")
    return tuple(fields)


def _resolve_field(name: str, options: FieldOptions, hint: Any) -> Field:
    """Return the field that `options` and the annotation `hint` declare.

    Raises TypeError or ValueError if `options` is invalid or contradicts `hint`.
    """
    kind, may_be_null = _split_annotation(hint)
    if options.nullable is not None and not may_be_null:
        raise TypeError("nullable= needs an annotation with | None")
    if options.versions is not None and options.default is REQUIRED:
        raise TypeError("the field exists only in some versions, so it needs a default")
    if options.default is None and not may_be_null:
        raise TypeError("a default of None needs an annotation with | None")
    if options.default is FRESH and not isinstance(kind, type):
        raise TypeError("only a struct can have the default FRESH")
    if options.tagged is not None and options.tag is None:
        raise TypeError("tagged= needs tag=")
    if options.tag is not None and options.default is REQUIRED:
        raise TypeError("a tagged field needs a default")
    if options.flexible not in (None, "none"):
        raise ValueError("flexible= of a field can only be 'none'")
    versions = ALL_VERSIONS if options.versions is None else Versions.parse(options.versions)
    nullable = versions if may_be_null else NO_VERSIONS
    tagged = NO_VERSIONS if options.tag is None else versions
    return Field(
        name=name,
        kind=kind,
        versions=versions,
        nullable=nullable if options.nullable is None else Versions.parse(options.nullable),
        tagged=tagged if options.tagged is None else Versions.parse(options.tagged),
        tag=-1 if options.tag is None else options.tag,
        default=options.default,
        ignorable=options.ignorable,
        map_key=options.map_key,
        always_rigid=options.flexible == "none",
    )


def _split_annotation(hint: Any) -> tuple[Primitive | Array | type[Struct], bool]:
    """Split an annotation into the kind of the value and whether it may be None."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        inner = [part for part in typing.get_args(hint) if part is not type(None)]
        if len(inner) == 1:
            return _split_annotation(inner[0])[0], True
    if typing.get_origin(hint) is typing.Annotated and isinstance(hint.__metadata__[0], Primitive):
        return hint.__metadata__[0], False
    if isinstance(hint, type) and issubclass(hint, Struct):
        return hint, False
    if typing.get_origin(hint) is list:
        element, may_be_null = _split_annotation(typing.get_args(hint)[0])
        if not isinstance(element, Array) and not may_be_null:
            return Array(element), False
    raise TypeError("not a type of kproto.wire.types, a struct, or a list of one of them")

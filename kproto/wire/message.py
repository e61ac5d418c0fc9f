"""How a message is declared: once, for all of its versions.

    class FetchRequest(Message, api_key=1, versions="4-18", flexible="12+"):
        cluster_id: String | None = field("12+", tag=0, default=None, ignorable=True)
        max_wait_ms: Int32
        session_epoch: Int32 = field("7+", default=-1, ignorable=True)
        topics: list[FetchTopic]
        replica_state: ReplicaState = field("15+", tag=1, default=FRESH)

    class FetchTopic(Struct): ...

The rules:

* Fields stand in wire order. One without a range exists in every version; one without a default has to be
  given. A range that ends or begins inside the message's versions always has a default: it is what `decode`
  fills in where the version lacks the field, and the only value that `encode` then lets pass, unless the
  field is `ignorable`.
* `X | None` may be null wherever the field exists; `nullable="7+"` narrows that.
* `tag=3` makes a tagged field, left out of the bytes while it equals its default. `tagged="12+"` is needed
  only when the field is older than its tag.
* A default of `[]` is a new list for every object. `FRESH` is a new struct of the field's class, with every
  part at its default, or at Kafka's zero (0, "", b"", [], ...) where it has none.
* Structs and messages are keyword-only, slotted, mutable, comparable, and know nothing of versions.
* They are `msgspec.Struct`s for the speed with which these are made: from values in declared order, which
  type checkers allow to nobody but is how the decoders do it. The garbage collector doesn't visit them: no
  declaration contains itself, so no message can, and the lists in it are visited as all lists are.
* Annotations are strings and are resolved at the first use, so a part may be declared below its whole and
  importing a message costs next to nothing.

Classes follow `org.apache.kafka.message.MessageGenerator`; see KIP-482 for flexible versions and tags.
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

# All that a compiled decoder raises on malformed bytes. UnicodeDecodeError is a ValueError.
UNREADABLE = (struct.error, ValueError, IndexError, DecodeError)


class Array(msgspec.Struct, frozen=True):
    """The kind of a field that is a list of `element`."""

    element: Primitive | type[Struct]


class Field(msgspec.Struct, frozen=True):
    """A field as the codecs see it: everything resolved."""

    name: str
    kind: Primitive | Array | type[Struct]
    versions: Versions
    nullable: Versions
    tagged: Versions
    tag: int
    default: object
    ignorable: bool
    map_key: bool
    # The field keeps its int16 or int32 length in flexible versions.
    always_rigid: bool

    @property
    def is_lazy(self) -> bool:
        """The object holds LAZY until somebody looks at the field; see `_lazy_struct`."""
        return self.default is FRESH

    @property
    def slot(self) -> str:
        """The attribute that holds the value, or LAZY."""
        return f"_{self.name}" if self.is_lazy else self.name

    def initial(self) -> Any:
        """A new value for a field that nobody set: its default, or Kafka's zero of its type."""
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
    """The fields of a struct in declared order. Raises TypeError for a declaration that makes no sense."""

    def __get__(self, instance: object, cls: type[Struct]) -> tuple[Field, ...]:
        if cls.__resolved__ is None:
            cls.__resolved__ = _resolve(cls, ())
        return cls.__resolved__


class _LazyDocstring(str):
    """The docstring of a declaration, with the fields and the comments beside them: made when somebody asks.

    Asked through the class it is a descriptor. pydoc looks into the class's dict for a text, and expands the
    tabs of what it finds there.
    """

    owner: type[Struct]

    def __set_name__(self, owner: type[Struct], name: str) -> None:
        self.owner = owner

    def __get__(self, instance: object, owner: type[Struct]) -> str:
        told: str = registered[0].describe(owner, str(self))
        return told

    def expandtabs(self, tabsize: SupportsIndex = 8) -> str:
        return self.__get__(None, self.owner)


class _MessageMeta(msgspec.StructMeta):
    """The class of messages: who calls one with what it can't take is told its name and its fields."""

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
    """The class of `Struct` and `Message`: makes msgspec's structs out of the declarations that extend them.

    What it makes isn't of this class itself, nor does it have such classes among its bases, but a plain twin
    of them: in Python 3.11 a call of a class is half as slow again if the class of that class is written in
    Python, and decoding is mostly such calls. `isinstance` and `issubclass` don't notice. Only messages are
    `_MessageMeta`: there is one of them in an answer, and who writes them by hand begins with them.
    """

    __plain__: Any

    def __new__(mcs, name: str, bases: tuple[Any, ...], namespace: dict[str, Any], **keywords: Any) -> Any:
        plain = tuple(base.__plain__ if isinstance(base, _DeclarationMeta) else base for base in bases)
        if namespace["__module__"] == __name__:
            declaring = super().__new__(mcs, name, bases, namespace)
            declaring.__plain__ = msgspec.StructMeta(name, plain, namespace)
            return declaring
        options: dict[str, FieldOptions] = {}
        annotations: dict[str, Any] = {}
        for key, text in namespace.get("__annotations__", {}).items():
            if key.startswith("_") or str(text).startswith("ClassVar"):
                continue
            given = namespace.get(key, REQUIRED)
            options[key] = given if isinstance(given, FieldOptions) else field(default=given)
            annotations[key] = text
            namespace[key] = _default(name, key, options[key].default)
        annotations["_tags"] = "dict[int, bytes] | None"
        namespace |= {"_tags": None, "__annotations__": annotations}
        namespace["__doc__"] = _LazyDocstring(namespace.get("__doc__", ""))
        namespace |= {"__options__": options, "__resolved__": None}
        kind = _MessageMeta if keywords else msgspec.StructMeta
        cls: Any = kind(name, plain, namespace, gc=False)
        cls.__make__ = msgspec.StructMeta.__call__.__get__(cls) if keywords else cls
        if keywords:
            _set_versions(cls, **keywords)
        for key, given in options.items():
            if given.default is FRESH:
                setattr(cls, f"_{key}", getattr(cls, key))
                setattr(cls, key, _lazy_struct(key))
        return cls

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, cls.__plain__)

    def __subclasscheck__(cls, other: type) -> bool:
        return issubclass(other, cls.__plain__)


def _default(struct: str, name: str, default: object) -> object:
    """What msgspec is told: a field can stand behind one with a default only if it seems to have one too."""

    def refuse() -> object:
        raise TypeError(f"{struct}() missing 1 required keyword-only argument: {name!r}")

    if default is REQUIRED:
        return msgspec.field(default_factory=refuse)
    return LAZY if default is FRESH else default


def _lazy_struct(name: str) -> property:
    """A field with a fresh struct as its default, which is made when somebody looks at it.

    Most are never looked at, and a fetch response has three of them for each partition. The slot holds LAZY
    until then.
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
        """What type checkers see of `msgspec.Struct`: not its own idea of fields."""

        _tags: dict[int, bytes] | None

else:
    _Slots = msgspec.Struct


class Struct(_Slots, metaclass=_DeclarationMeta):
    """A part of a message. Subclass it with annotated fields."""

    __fields__ = _ResolvedFields()
    __options__: ClassVar[dict[str, FieldOptions]]
    __resolved__: ClassVar[tuple[Field, ...] | None]
    # What decoders call, with values in declared order; it explains nothing.
    __make__: ClassVar[Callable[..., Any]]

    def __init_subclass__(cls) -> None:
        if any(vars(base).get("__options__") for base in cls.__bases__):
            raise TypeError(f"{cls.__name__}: a struct with fields can't be extended; declare them again")

    @property
    def __unknown_tags__(self) -> dict[int, bytes]:
        """Tagged fields that the declaration doesn't know, tag -> bytes: `encode` writes them back."""
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

    Class keywords: `versions="0-9"`; `flexible="6+"`, or "none" (the default); `api_key=11` for requests
    and responses.
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

    def encode(self, version: int) -> bytes:
        """The bytes of this message in `version`, without a header.

        Raises EncodeError, with the path of the field, if a value doesn't fit the message or the version;
        UnsupportedVersion if the message has no such version.
        """
        try:
            return type(self).__encoders__[version](self)
        except Exception:  # whatever it is, the slow codec finds the field and says what is wrong with it
            pass
        return registered[0].write(self, version)

    @classmethod
    def decode(cls, data: bytes | bytearray | memoryview, version: int) -> Self:
        """Read a message from the start of `data`; bytes behind its end are ignored, as Kafka's reader does.

        Raises DecodeError, with the path of the field and the offset, on anything that is not this message;
        UnsupportedVersion if the message has no such version.
        """
        buffer = data if type(data) is bytes else bytes(memoryview(data))
        try:
            message: Self = cls.__decoders__[version](buffer, 0)[0]
            return message
        except UNREADABLE:
            pass
        message = registered[0].read(cls, buffer, 0, version)[0]  # which says what is wrong, and where
        return message


def _set_versions(
    cls: type[Message], versions: str, flexible: str = "none", api_key: int | None = None
) -> None:
    """Do what the class keywords say: msgspec doesn't hand them on to `__init_subclass__`."""
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
    """Read a message that starts at `offset` of `data`; return it and the offset behind it.

    Raises as `Message.decode` does. The offset in a DecodeError counts from the start of `data`.
    """
    buffer = data if type(data) is bytes else bytes(memoryview(data))
    try:
        return message.__decoders__[version](buffer, offset)
    except UNREADABLE:
        pass
    return registered[0].read(message, buffer, offset, version)


def decode_views(message: type[M], data: bytes | bytearray, offset: int, version: int) -> tuple[M, int]:
    """`decode_from` without a copy of `data` or of records: large fields of type `Records` are memoryviews.

    `data` must not change as long as these are used. For readers that know what they got; to others, and to
    type checkers, records are bytes.
    """
    try:
        return message.__view_decoders__[version](data, offset)
    except UNREADABLE:
        pass
    return registered[0].read(message, bytes(data), offset, version)


def encode_pieces(message: Message, version: int) -> list[bytes]:
    """`Message.encode` without a copy of what is large: pieces, to be joined with what stands before them."""
    try:
        return type(message).__piece_encoders__[version](message)
    except Exception:  # as in `Message.encode`
        pass
    return [registered[0].write(message, version)]


def check_version(message: type[Message], version: int) -> None:
    """Raise UnsupportedVersion unless `message` has `version`."""
    if version not in message.__versions__:
        allowed = str(message.__versions__)
        if version == -1:  # which stands for no version at all, elsewhere
            allowed = f"version -1 is not supported; allowed: {allowed}"
        raise UnsupportedVersion(message.__name__, version, allowed)


def fresh(struct: type[Struct]) -> Any:
    """A new struct with every field at its default, or at Kafka's zero where it has none."""
    return struct(**{f.name: f.initial() for f in struct.__fields__})


# Resolving a declaration


def _resolve(cls: type[Struct], outer: tuple[type[Struct], ...]) -> tuple[Field, ...]:
    if cls in outer:
        raise TypeError(f"{cls.__name__} contains itself; Kafka's messages don't nest without end")
    scope = vars(sys.modules[cls.__module__])
    annotations = cls.__annotations__
    fields: list[Field] = []
    for name, options in cls.__options__.items():
        text = annotations[name]
        try:
            hint = eval(text, dict(scope)) if isinstance(text, str) else text
            found = _field(name, options, hint)
        except (NameError, TypeError, ValueError) as error:
            raise TypeError(f"{cls.__name__}.{name}: {text}: {error}") from error
        part = found.kind.element if isinstance(found.kind, Array) else found.kind
        if isinstance(part, type) and part.__resolved__ is None:
            part.__resolved__ = _resolve(part, (*outer, cls))
        fields.append(found)
    tags = [f.tag for f in fields if f.tagged]
    if len(tags) != len(set(tags)):
        raise TypeError(f"{cls.__name__}: two fields have the same tag")
    return tuple(fields)


def _field(name: str, options: FieldOptions, hint: Any) -> Field:
    kind, may_be_null = _kind(hint)
    if options.nullable is not None and not may_be_null:
        raise TypeError("nullable= needs an annotation with | None")
    if options.versions is not None and options.default is REQUIRED:
        raise TypeError("a field with a range needs a default")
    if options.default is None and not may_be_null:
        raise TypeError("a default of None needs an annotation with | None")
    if options.default is FRESH and not isinstance(kind, type):
        raise TypeError("FRESH is the default of structs")
    if options.tagged is not None and options.tag is None:
        raise TypeError("tagged= needs tag=")
    if options.tag is not None and options.default is REQUIRED:
        raise TypeError("a tagged field needs a default")
    if options.flexible not in (None, "none"):
        raise ValueError("flexible= can only be 'none'")
    versions = ALL_VERSIONS if options.versions is None else Versions.parse(options.versions)
    nullable = versions if may_be_null else NO_VERSIONS
    tagged = NO_VERSIONS if options.tag is None else versions
    return Field(
        name,
        kind,
        versions,
        nullable if options.nullable is None else Versions.parse(options.nullable),
        tagged if options.tagged is None else Versions.parse(options.tagged),
        -1 if options.tag is None else options.tag,
        options.default,
        options.ignorable,
        options.map_key,
        options.flexible == "none",
    )


def _kind(hint: Any) -> tuple[Primitive | Array | type[Struct], bool]:
    """Split an annotation into the kind of the value and whether it may be None."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        inner = [part for part in typing.get_args(hint) if part is not type(None)]
        if len(inner) == 1:
            return _kind(inner[0])[0], True
    if typing.get_origin(hint) is typing.Annotated and isinstance(hint.__metadata__[0], Primitive):
        return hint.__metadata__[0], False
    if isinstance(hint, type) and issubclass(hint, Struct):
        return hint, False
    if typing.get_origin(hint) is list:
        element, may_be_null = _kind(typing.get_args(hint)[0])
        if not isinstance(element, Array) and not may_be_null:
            return Array(element), False
    raise TypeError("not a type of kproto.wire.types, a struct, or a list of one of them")

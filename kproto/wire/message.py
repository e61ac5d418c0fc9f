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
* Annotations are strings and are resolved at the first use, so a part may be declared below its whole and
  importing a message costs next to nothing.

Classes follow `org.apache.kafka.message.MessageGenerator`; see KIP-482 for flexible versions and tags.
"""

from __future__ import annotations

import inspect
import struct
import sys
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeVar, dataclass_transform, overload

from ..errors import DecodeError, UnsupportedVersion
from .source import build
from .types import ALL_VERSIONS, NO_VERSIONS, Primitive, Versions

T = TypeVar("T")

UNREADABLE = (struct.error, ValueError, IndexError, DecodeError)
"""All that a compiled decoder raises on malformed bytes. UnicodeDecodeError is a ValueError."""


class _Marker:
    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


REQUIRED = _Marker("REQUIRED")
_NULL = _Marker("None")
FRESH: Any = _Marker("FRESH")
"""The default of a struct field: a new struct, all of its parts at their defaults."""


@dataclass(frozen=True, slots=True)
class _Options:
    """What `field()` was called with, until the annotations are resolved."""

    versions: str | None
    default: object
    nullable: str | None
    tag: int | None
    tagged: str | None
    ignorable: bool
    map_key: bool
    flexible: str | None


@overload
def field(
    versions: str | None = None,
    *,
    default: T,
    nullable: str | None = None,
    tag: int | None = None,
    tagged: str | None = None,
    ignorable: bool = False,
    map_key: bool = False,
    flexible: str | None = None,
) -> T: ...
@overload
def field(
    versions: str | None = None,
    *,
    nullable: str | None = None,
    tag: int | None = None,
    tagged: str | None = None,
    ignorable: bool = False,
    map_key: bool = False,
    flexible: str | None = None,
) -> Any: ...
def field(
    versions: str | None = None,
    *,
    default: Any = REQUIRED,
    nullable: str | None = None,
    tag: int | None = None,
    tagged: str | None = None,
    ignorable: bool = False,
    map_key: bool = False,
    flexible: str | None = None,
) -> Any:
    """Declare what the annotation of a field can't say; the module docstring has the rules.

    `versions`, `nullable` and `tagged` are ranges such as "5+". `map_key` marks the fields that Kafka keys
    its collections by; it is kept for readers and doesn't change the bytes. `flexible="none"` keeps the
    field in its old form in flexible versions (only RequestHeader.client_id does that).
    """
    return _Options(versions, default, nullable, tag, tagged, ignorable, map_key, flexible)


@dataclass(frozen=True, slots=True)
class Array:
    """The kind of a field that is a list of `element`."""

    element: Primitive | StructType


@dataclass(frozen=True, slots=True)
class Field:
    """A field as the codecs see it: everything resolved."""

    name: str
    kind: Primitive | Array | StructType
    versions: Versions
    nullable: Versions
    tagged: Versions
    tag: int
    default: object
    ignorable: bool
    map_key: bool
    always_rigid: bool
    """The field keeps its int16 or int32 length in flexible versions."""

    @property
    def is_made_late(self) -> bool:
        """The object holds None until somebody looks at the field; see `_made_late`."""
        return self.default is FRESH and not self.nullable

    @property
    def slot(self) -> str:
        """The attribute that holds the value. Writing a value other than None to it is always right."""
        return f"_{self.name}" if self.is_made_late else self.name

    def initial(self) -> Any:
        """A new value for a field that nobody set: its default, or Kafka's zero of its type."""
        if self.default is FRESH:
            assert isinstance(self.kind, StructType)
            return fresh(self.kind)
        if self.default == []:
            return []
        if self.default is not REQUIRED:
            return self.default
        if isinstance(self.kind, Primitive):
            return self.kind.zero
        return [] if isinstance(self.kind, Array) else fresh(self.kind)


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class StructType(type):
    """The class of structs: turns annotations into slots, and resolves them when they are first needed."""

    __options__: dict[str, _Options]
    __resolved__: tuple[Field, ...] | None

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **keywords: Any
    ) -> StructType:
        annotations: dict[str, Any] = {
            key: text
            for key, text in namespace.get("__annotations__", {}).items()
            if not (key.startswith("_") or str(text).startswith("ClassVar"))
        }
        if annotations and any(base.__dict__.get("__options__") for base in bases):
            raise TypeError(f"{name}: a struct with fields can't be extended; declare the fields again")
        options: dict[str, _Options] = {}
        for key in annotations:
            given = namespace.pop(key, REQUIRED)
            options[key] = given if isinstance(given, _Options) else field(default=given)
        late = {
            key for key, given in options.items() if given.default is FRESH and "None" not in annotations[key]
        }
        namespace.setdefault("__slots__", tuple(f"_{key}" if key in late else key for key in annotations))
        namespace |= {key: _made_late(key) for key in late}
        namespace["__options__"] = options
        namespace["__resolved__"] = None
        return super().__new__(mcs, name, bases, namespace, **keywords)

    @property
    def __fields__(cls) -> tuple[Field, ...]:
        """The fields in declared order. Raises TypeError for a declaration that makes no sense."""
        if cls.__resolved__ is None:
            cls.__resolved__ = _resolve(cls, ())
        return cls.__resolved__


def _made_late(name: str) -> property:
    """A field with a fresh struct as its default, which is made when somebody looks at it.

    Most are never looked at, and a fetch response has three of them for each partition. The slot holds None
    until then, and `_NULL` for a None that was really set (which `encode` refuses).
    """
    slot = f"_{name}"

    def get(self: Struct) -> object:
        value: object = getattr(self, slot)
        if value is None:
            value = next(f.initial() for f in type(self).__fields__ if f.name == name)
            setattr(self, slot, value)
        return None if value is _NULL else value

    def put(self: Struct, value: object) -> None:
        setattr(self, slot, _NULL if value is None else value)

    return property(get, put)


class _Tags:
    """Room for the tagged fields that the declaration doesn't know; apart, so that it is no field."""

    __slots__ = ("_tags",)
    _tags: dict[int, bytes] | None


class Struct(_Tags, metaclass=StructType):
    """A part of a message. Subclass it with annotated fields."""

    __slots__ = ()

    def __init__(self, **values: Any) -> None:
        cls = type(self)
        initialise = _initialiser(cls)
        type.__setattr__(cls, "__init__", initialise)
        initialise(self, **values)

    @property
    def __unknown_tags__(self) -> dict[int, bytes]:
        """Tagged fields that the declaration doesn't know, tag -> bytes: `encode` writes them back."""
        if self._tags is None:
            self._tags = {}
        return self._tags

    @__unknown_tags__.setter
    def __unknown_tags__(self, tags: dict[int, bytes]) -> None:
        self._tags = tags

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Struct) or type(other) is not type(self):
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


class _Decoders(dict[int, Callable[[bytes, int], tuple[Any, int]]]):
    """version -> compiled decoder, made at its first use."""

    def __init__(self, message: type[Message]) -> None:
        self.message = message

    def __missing__(self, version: int) -> Callable[[bytes, int], tuple[Any, int]]:
        from .compile import decoder

        self[version] = decode = decoder(self.message, version)
        return decode


class _Encoders(dict[int, Callable[[Any], bytes]]):
    """version -> compiled encoder, made at its first use."""

    def __init__(self, message: type[Message]) -> None:
        self.message = message

    def __missing__(self, version: int) -> Callable[[Any], bytes]:
        from .compile import encoder

        self[version] = encode = encoder(self.message, version)
        return encode


class Message(Struct):
    """A whole message: a request, a response or a data message.

    Class keywords: `versions="0-9"`; `flexible="6+"`, or "none" (the default); `api_key=11` for requests
    and responses.
    """

    __slots__ = ()
    __api_key__: ClassVar[int | None] = None
    __versions__: ClassVar[Versions] = NO_VERSIONS
    __flexible__: ClassVar[Versions] = NO_VERSIONS
    __decoders__: ClassVar[_Decoders]
    __encoders__: ClassVar[_Encoders]

    def __init_subclass__(cls, *, versions: str, flexible: str = "none", api_key: int | None = None) -> None:
        super().__init_subclass__()
        cls.__api_key__ = api_key
        cls.__versions__ = Versions.parse(versions)
        cls.__flexible__ = Versions.parse(flexible)
        cls.__decoders__ = _Decoders(cls)
        cls.__encoders__ = _Encoders(cls)

    def encode(self, version: int) -> bytes:
        """The bytes of this message in `version`, without a header.

        Raises EncodeError, with the path of the field, if a value doesn't fit the message or the version;
        UnsupportedVersion if the message has no such version.
        """
        try:
            return type(self).__encoders__[version](self)
        except Exception:  # whatever it is, the slow codec finds the field and says what is wrong with it
            pass
        from . import interpret

        return interpret.encode(self, version)

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
        return _locate_error(cls, buffer, 0, version)[0]


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
    return _locate_error(message, buffer, offset, version)


def _locate_error(message: type[M], buffer: bytes, offset: int, version: int) -> tuple[M, int]:
    """Let the slow codec say what is wrong, and where."""
    from . import interpret

    return interpret.decode(message, buffer, offset, version)


def check_version(message: type[Message], version: int) -> None:
    """Raise UnsupportedVersion unless `message` has `version`."""
    if version not in message.__versions__:
        raise UnsupportedVersion(message.__name__, version, str(message.__versions__))


def fresh(struct: StructType) -> Any:
    """A new struct with every field at its default, or at Kafka's zero where it has none."""
    return struct(**{f.name: f.initial() for f in struct.__fields__})


# Resolving a declaration


def _resolve(cls: StructType, outer: tuple[StructType, ...]) -> tuple[Field, ...]:
    if cls in outer:
        raise TypeError(f"{cls.__name__} contains itself; Kafka's messages don't nest without end")
    scope = vars(sys.modules[cls.__module__])
    annotations = inspect.get_annotations(cls)
    fields: list[Field] = []
    for name, options in cls.__options__.items():
        text = annotations[name]
        try:
            hint = eval(text, dict(scope)) if isinstance(text, str) else text
            found = _field(name, options, hint)
        except (NameError, TypeError, ValueError) as error:
            raise TypeError(f"{cls.__name__}.{name}: {text}: {error}") from error
        part = found.kind.element if isinstance(found.kind, Array) else found.kind
        if isinstance(part, StructType) and part.__resolved__ is None:
            part.__resolved__ = _resolve(part, (*outer, cls))
        fields.append(found)
    tags = [f.tag for f in fields if f.tagged]
    if len(tags) != len(set(tags)):
        raise TypeError(f"{cls.__name__}: two fields have the same tag")
    return tuple(fields)


def _field(name: str, options: _Options, hint: Any) -> Field:
    kind, may_be_null = _kind(hint)
    if options.nullable is not None and not may_be_null:
        raise TypeError("nullable= needs an annotation with | None")
    if options.versions is not None and options.default is REQUIRED:
        raise TypeError("a field with a range needs a default")
    if options.default is None and not may_be_null:
        raise TypeError("a default of None needs an annotation with | None")
    if options.default is FRESH and not isinstance(kind, StructType):
        raise TypeError("FRESH is the default of structs")
    if options.default != [] and type(options.default) is list:
        raise TypeError("the default of a list is [] or None")
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


def _kind(hint: Any) -> tuple[Primitive | Array | StructType, bool]:
    """Split an annotation into the kind of the value and whether it may be None."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        inner = [part for part in typing.get_args(hint) if part is not type(None)]
        if len(inner) == 1:
            return _kind(inner[0])[0], True
    if typing.get_origin(hint) is typing.Annotated and isinstance(hint.__metadata__[0], Primitive):
        return hint.__metadata__[0], False
    if isinstance(hint, StructType):
        return hint, False
    if typing.get_origin(hint) is list:
        element, may_be_null = _kind(typing.get_args(hint)[0])
        if not isinstance(element, Array) and not may_be_null:
            return Array(element), False
    raise TypeError("not a type of kproto.wire.types, a struct, or a list of one of them")


def _initialiser(cls: StructType) -> Callable[..., None]:
    """The keyword-only `__init__` of a struct, made at its first construction."""
    parameters: list[str] = []
    body: list[str] = ["    self._tags = None"]
    names: dict[str, object] = {"_fresh": fresh, "_missing": REQUIRED}
    for f in cls.__fields__:
        value = f.name
        if f.default is REQUIRED:
            parameters.append(f.name)
        elif f.is_made_late:
            parameters.append(f"{f.name}=_missing")
            body.append(f"    if {f.name} is _missing: self.{f.slot} = None")
            body.append(f"    else: self.{f.name} = {f.name}")
            continue
        elif f.default is FRESH or f.default == []:
            # A new one each time, so the parameter's default can only say that nothing was given.
            parameters.append(f"{f.name}=_missing")
            names[f"_class_{f.name}"] = f.kind
            new = "[]" if f.default is not FRESH else f"_fresh(_class_{f.name})"
            value = f"{new} if {f.name} is _missing else {f.name}"
        else:
            parameters.append(f"{f.name}=_default_{f.name}")
            names[f"_default_{f.name}"] = f.default
        body.append(f"    self.{f.name} = {value}")
    signature = ", ".join(["self", "*", *parameters] if parameters else ["self"])
    source = "\n".join([f"def __init__({signature}):", *body, ""])
    filename = f"<kproto {cls.__module__}.{cls.__qualname__}.__init__>"
    initialise: Callable[..., None] = build(source, filename, names)["__init__"]
    initialise.__qualname__ = f"{cls.__qualname__}.__init__"
    return initialise

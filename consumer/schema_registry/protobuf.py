"""Protobuf with a schema registry: keys and values as messages, with the id of their schema before the bytes.

    registry = Registry.at("http://localhost:8081")
    Producer("localhost:9092", value_serializer=ProtobufSerializer(registry, Flight))
    Consumer("localhost:9092", value_deserializer=ProtobufDeserializer(Flight))

Rules:

* The bytes, the subjects and the defaults are the same as in Confluent's ProtobufSerializer and
  ProtobufDeserializer. Google's package encodes and decodes messages (the extra `protobuf`).

* The message indexes after the schema id identify the message type in its schema. As in Java, the nested
  messages that protoc generates for map fields are not counted. confluent-kafka counts them.

* The files that a message's file imports are registered, too, under their names. Google's and Confluent's own
  files are not registered.

* Each schema is requested once. The classes with the prefix Async request it in a thread, so the event loop
  does not wait for the registry. Use these classes with the asyncio clients.

* A deserializer accepts the schema id either before the value or in a header of the record.
"""

from __future__ import annotations

import base64
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, cast

from kproto.errors import ConfigError, MissingExtra

from ..serializers import RecordHeaders
from .protobuf_schema import (
    SERIALIZED,
    descriptor_pool,
    is_builtin,
    message_indexes,
    message_names,
    registered_files,
)
from .registry import Reference, Registry, Schema, SchemaId
from .subjects import (
    RequestedOnce,
    SubjectNameStrategy,
    checked_part,
    record_name,
    subject_of,
    topic_name,
)
from .wire_format import encoded_id, encoded_indexes, split_indexed

if TYPE_CHECKING:
    # Only type checkers see the default, because type variables have no defaults before Python 3.13.
    from typing_extensions import TypeVar

    M = TypeVar("M", default=Any)
else:
    from typing import TypeVar

    M = TypeVar("M")

# The key of a serializer's cache: a topic, and the subject of the schema for this topic.
_TopicAndSubject: TypeAlias = tuple[str, str]
# The key of a deserializer's cache: a schema id, and the indexes of a message type in this schema.
_IdAndIndexes: TypeAlias = tuple[SchemaId, tuple[int, ...]]


class _Decoder(Generic[M]):
    """Decodes messages of a given class, or of the classes that the schemas in the registry describe."""

    def __init__(
        self, message_type: type[M] | None = None, *, registry: Registry | None = None, part: str = "value"
    ) -> None:
        require_protobuf()
        if (message_type is None) == (registry is None):
            raise ConfigError(
                "message_type",
                message_type,
                "set either message_type, or registry (to create the classes from the registered schemas)",
            )
        self._message_type = None if message_type is None else _checked_type(message_type)
        # None if `message_type` is set: no schema is requested then.
        self._registry = cast("Registry", registry)
        self._part = checked_part(part)
        self._message_types: RequestedOnce[_IdAndIndexes, Any] = RequestedOnce(self._request_message_type)

    def _request_message_type(self, id_and_indexes: _IdAndIndexes) -> Any:
        """Request a schema, and return the class of one of its messages.

        Raises RegistryFailed if the registry does not return the schema. Raises ValueError if the schema does
        not have the message.
        """
        schema_id, indexes = id_and_indexes
        schema = self._registry.schema(schema_id, SERIALIZED)
        names = message_names(schema)
        if indexes not in names:
            raise ValueError(f"schema {schema_id} has no message with the indexes {list(indexes)}")
        return message_type_of(schema, names[indexes])

    def _decode(self, message_type: Any, data: bytes) -> M:
        message = message_type()
        message.ParseFromString(data)
        return cast("M", message)


class ProtobufDeserializer(_Decoder[M]):
    """Converts Protobuf to messages.

    `ProtobufDeserializer(Flight)` needs no registry, and returns instances of Flight, a class that protoc has
    generated.

    `ProtobufDeserializer(registry=registry)` builds the message classes from the registered schemas.

    For keys, set `part` to "key". Needs the extra `protobuf`.
    """

    def deserialize(self, topic: str, data: bytes, headers: RecordHeaders) -> M:
        """Return the message. Raises RegistryFailed, and DecodeError if the message is malformed.

        Raises ValueError if the schema id is missing, or if the message indexes are invalid.
        """
        schema_id, indexes, encoded = split_indexed(self._part, data, headers)
        return self._decode(self._message_type or self._message_types.get((schema_id, indexes)), encoded)


class AsyncProtobufDeserializer(_Decoder[M]):
    """`ProtobufDeserializer` for an `AsyncConsumer`: the event loop does not wait for the registry."""

    async def deserialize(self, topic: str, data: bytes, headers: RecordHeaders) -> M:
        """Return the message; see `ProtobufDeserializer.deserialize`."""
        schema_id, indexes, encoded = split_indexed(self._part, data, headers)
        message_type = self._message_type or await self._message_types.get_async((schema_id, indexes))
        return self._decode(message_type, encoded)


class _Encoder:
    """Encodes messages of one class."""

    def __init__(
        self,
        registry: Registry,
        message_type: type[Any],
        *,
        part: str = "value",
        subject_name_strategy: SubjectNameStrategy = topic_name,
        reference_subject_name_strategy: SubjectNameStrategy = record_name,
        auto_register_schemas: bool = True,
        normalize_schemas: bool = False,
        use_latest_version: bool = False,
    ) -> None:
        require_protobuf()
        self._message_type = _checked_type(message_type)
        self._descriptor: Any = self._message_type.DESCRIPTOR
        self._registry = registry
        self._part = checked_part(part)
        self._subject_name_strategy = subject_name_strategy
        self._reference_subject_name_strategy = reference_subject_name_strategy
        self._auto_register = auto_register_schemas
        self._normalize_schemas = normalize_schemas
        self._use_latest_version = use_latest_version
        # The encoded schema ids and message indexes, which precede the messages.
        self._prefixes: RequestedOnce[_TopicAndSubject, bytes] = RequestedOnce(self._request_prefix)

    def _topic_and_subject(self, topic: str) -> _TopicAndSubject:
        return topic, subject_of(self._subject_name_strategy, topic, self._part, self._descriptor.full_name)

    def _request_prefix(self, topic_and_subject: _TopicAndSubject) -> bytes:
        """Look up or register the schema, and return its id and the message indexes, encoded.

        Raises NoSuchSchema or RegistryFailed if the lookup or the registration fails, and ValueError if the
        latest schema does not define the message.
        """
        topic, subject = topic_and_subject
        if self._use_latest_version:
            schema_id, schema = self._registry.latest_id(subject, SERIALIZED)
            indexes_by_name = {name: indexes for indexes, name in message_names(schema).items()}
            name = self._descriptor.full_name
            if name not in indexes_by_name:
                raise ValueError(f"the latest schema of {subject} has no message {name}")
            return encoded_id(schema_id) + encoded_indexes(indexes_by_name[name])
        file = self._descriptor.file
        schema_id = self._registry.id_of(
            subject, _descriptor_text(file), self._request_references(topic, file),
            kind="PROTOBUF", register=self._auto_register, normalize=self._normalize_schemas,
        )  # fmt: skip
        return encoded_id(schema_id) + encoded_indexes(message_indexes(self._descriptor))

    def _request_references(self, topic: str, file: Any) -> list[Reference]:
        """Look up or register the files that `file` imports, and return references to them."""
        references: list[Reference] = []
        for imported in file.dependencies:
            if is_builtin(imported.name):
                continue
            subject = subject_of(self._reference_subject_name_strategy, topic, self._part, imported.name)
            version = self._registry.version_of(
                subject, _descriptor_text(imported), self._request_references(topic, imported),
                kind="PROTOBUF", register=self._auto_register, normalize=self._normalize_schemas,
            )  # fmt: skip
            references.append(Reference(imported.name, subject, version))
        return references

    def _encode(self, prefix: bytes, message: Any) -> bytes:
        return prefix + cast("bytes", message.SerializeToString())

    def _check_type(self, message: Any) -> None:
        if not isinstance(message, self._message_type):
            raise TypeError(
                f"a message of the type {self._descriptor.full_name} is needed, not {message!r:.80}"
            )


class ProtobufSerializer(_Encoder):
    """Serializes messages of the class `message_type`, which protoc has generated.

    By default the .proto file of the message is registered under the subject TOPIC-value. The subjects of
    imported files are those that `reference_subject_name_strategy` returns for (topic, part, file name).

    With `auto_register_schemas=False`, all files must be registered already. With `use_latest_version`, the
    newest schema of the subject replaces the .proto file, and nothing is registered.

    For keys, set `part` to "key". Needs the extra `protobuf`.
    """

    def serialize(self, topic: str, value: Any, headers: RecordHeaders) -> bytes:
        """Return the schema id and the message indexes, followed by the encoded message.

        Raises TypeError for a message of another class. Also raises RegistryFailed and protobuf's errors.
        """
        self._check_type(value)
        return self._encode(self._prefixes.get(self._topic_and_subject(topic)), value)


class AsyncProtobufSerializer(_Encoder):
    """`ProtobufSerializer` for an `AsyncProducer`: the event loop does not wait for the registry."""

    async def serialize(self, topic: str, value: Any, headers: RecordHeaders) -> bytes:
        """Return the encoded message; see `ProtobufSerializer.serialize`."""
        self._check_type(value)
        return self._encode(await self._prefixes.get_async(self._topic_and_subject(topic)), value)


def _descriptor_text(file: Any) -> str:
    """Return the descriptor of a .proto file in base64, as the registry expects it."""
    return base64.b64encode(file.serialized_pb).decode()


def _checked_type(message_type: Any) -> Any:
    """Return a class that protoc has generated. Raises ConfigError for other arguments."""
    descriptor = getattr(message_type, "DESCRIPTOR", None)
    if not isinstance(message_type, type) or not hasattr(descriptor, "full_name"):
        raise ConfigError("message_type", message_type, "a class that protoc has generated")
    return cast("Any", message_type)


def message_type_of(schema: Schema, name: str) -> Any:
    """Return the class of the message `name`, made from the descriptors in `schema`.

    Raises ValueError if the schema is not Protobuf, and InvalidSchema if a file of the schema is invalid.
    """
    factory: Any = import_module("google.protobuf.message_factory")
    pool = descriptor_pool(registered_files(schema))
    return factory.GetMessageClass(pool.FindMessageTypeByName(name))


def require_protobuf() -> None:
    """Raise MissingExtra if the package protobuf is missing."""
    try:
        import_module("google.protobuf.message")
    except ImportError:
        raise MissingExtra("consumer.schema_registry.protobuf", "protobuf", "protobuf") from None

"""Hypothesis strategies for all valid messages in all versions, and for all valid record batches.

    from kproto.testing.strategies import from_message, record_batches, requests, versioned

    @given(from_message(JoinGroupRequest, version=9))
    def test_my_broker_reads_any_join(request): ...

    @given(versioned(JoinGroupRequest))          # a version, and a message that this version can encode
    def test_my_codec(drawn):
        version, request = drawn

    @given(requests())                           # of any API; `responses(["Fetch"], versions=[17])` of one
    def test_my_broker_answers_any_request(drawn):
        api_key, version, request = drawn        # kproto.messages.headers.encode_request makes a frame of it

    @given(record_batches())                     # what a producer sends, or a log contains
    def test_my_consumer_reads_any_batch(batch):
        assert my_consumer.read(batch.data) == batch.records

Drawn messages are always valid: `message.encode(version)` does not raise, and decoding returns an equal
message.

A field that exists in the version takes any value of its type. Other fields keep their defaults.

Kafka can read every drawn record batch, and reads exactly the records in its `records`.

Examples shrink towards zeros, empty strings and lists, and missing tagged fields. Batches shrink towards one
empty record at offset 0, without compression, producer id or offset gaps.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from typing import Any, Final, NamedTuple, TypeVar

from msgspec.structs import replace

from ..errors import ConfigError, MissingExtra
from ..validation import Rule, checked, has_attributes

try:
    from hypothesis import strategies as st
except ImportError as error:
    raise MissingExtra("kproto.testing.strategies", "hypothesis", "testing") from error

from ..messages.index import API_NAMES, request_class, response_class
from ..records import encode_batch
from ..records.compression import CODECS
from ..records.legacy import encode_messages
from ..records.record import Headers, Record
from ..wire.message import Array, Field, Message, Struct, check_version
from ..wire.types import ZERO_UUID, Primitive, Versions

M = TypeVar("M", bound=Message)

# Lengths around 127, the first length whose compact form (length + 1) is encoded in two bytes.
LONG = (126, 127, 128, 300)

INTEGERS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint16": (0, 2**16 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
}

# Surrogates are excluded, because UTF-8 cannot encode them.
_characters = st.characters(exclude_categories=["Cs"])
_text = st.text(_characters, max_size=12)
_binary = st.binary(max_size=12)

PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    **{name: st.integers(low, high) for name, (low, high) in INTEGERS.items()},
    "bool": st.booleans(),
    "float64": st.floats(allow_nan=False),  # NaN is excluded, because it is not equal to itself.
    "uuid": st.just(ZERO_UUID) | st.uuids(),
    "string": _text
    | st.builds(operator.mul, st.text(_characters, min_size=1, max_size=2), st.sampled_from(LONG)),
    "bytes": _binary | st.builds(operator.mul, st.binary(min_size=1, max_size=2), st.sampled_from(LONG)),
    "records": _binary,
}


# Rules of arguments.
_MESSAGE_CLASS: Final = Rule(
    has_attributes("__versions__", "__fields__"), "the class of a message, as FetchRequest"
)


def from_message(
    cls: type[M], version: int | None = None, *, unknown_tags: bool = False
) -> st.SearchStrategy[M]:
    """Draw messages of `cls` that `version` can encode. The default is the newest version.

    With `unknown_tags`, structs at every depth may also have undeclared tagged fields, if the version is
    flexible.

    Raises UnsupportedVersion for a version in which `cls` does not exist.
    """
    if not _is_message(cls):
        raise ConfigError("cls", cls, "a message class such as FetchRequest; `requests` takes names")
    chosen = cls.__versions__.max if version is None else version
    check_version(cls, chosen)
    strategy: st.SearchStrategy[M] = _struct_strategy(cls, chosen, chosen in cls.__flexible__, unknown_tags)
    return strategy


def _is_message(cls: object) -> bool:
    return isinstance(cls, type) and issubclass(cls, Message)


@checked(cls=_MESSAGE_CLASS)
def versions(cls: type[Message]) -> st.SearchStrategy[int]:
    """Draw versions of a message. They shrink towards the oldest version."""
    return st.integers(cls.__versions__.min, cls.__versions__.max)


@checked(cls=_MESSAGE_CLASS)
def versioned(cls: type[M], *, unknown_tags: bool = False) -> st.SearchStrategy[tuple[int, M]]:
    """Draw pairs of a version and a message that this version can encode."""
    return versions(cls).flatmap(
        lambda version: st.tuples(st.just(version), from_message(cls, version, unknown_tags=unknown_tags))
    )


class Drawn(NamedTuple):
    """A drawn request or response, with its API key and version."""

    api_key: int
    version: int
    message: Message


def requests(
    apis: Iterable[int | str] | None = None,
    *,
    versions: Collection[int] | None = None,
    unknown_tags: bool = False,
) -> st.SearchStrategy[Drawn]:
    """Draw requests of these APIs and versions; the default is all.

    APIs are given by their keys, or by Kafka's names, such as "Fetch".

    Raises ConfigError for an unknown API, or if no API has any of the versions.
    """
    return _messages_of_apis(request_class, apis, versions, unknown_tags)


def responses(
    apis: Iterable[int | str] | None = None,
    *,
    versions: Collection[int] | None = None,
    unknown_tags: bool = False,
) -> st.SearchStrategy[Drawn]:
    """Draw responses. Takes the arguments of `requests`."""
    return _messages_of_apis(response_class, apis, versions, unknown_tags)


def _messages_of_apis(
    class_of: Any, apis: Any, versions: Any, unknown_tags: bool
) -> st.SearchStrategy[Drawn]:
    """Draw messages of these APIs and versions. `class_of` returns the message class of an API key."""
    keys: dict[int | str, int] = {name: key for key, name in API_NAMES.items()} | {
        key: key for key in API_NAMES
    }
    if isinstance(apis, str) or not isinstance(apis, Iterable | None):
        raise ConfigError("apis", apis, f"give a list: [{apis!r}]")
    if isinstance(versions, str | int | float | bytes):
        raise ConfigError("versions", versions, f"give a list: [{versions!r}]")
    apis_requested: list[Any] = list(API_NAMES if apis is None else apis)  # pyright: ignore[reportUnknownArgumentType]
    if not apis_requested:
        raise ConfigError("apis", apis_requested, "name at least one API, or give None for all APIs")
    if unknown := [api for api in apis_requested if api not in keys]:
        name = str(unknown[0]).removesuffix("Request").removesuffix("Response")
        similar = get_close_matches(name, API_NAMES.values()) or ["Fetch"]
        raise ConfigError(
            "apis",
            unknown[0],
            f"Kafka has no API of this name; its APIs have names such as {', '.join(similar)}",
        )
    keys_requested = [keys[api] for api in apis_requested]
    classes_and_versions = [
        (cls, matching)
        for cls in map(class_of, keys_requested)
        if (matching := [v for v in _version_range(cls.__versions__) if versions is None or v in versions])
    ]
    if not classes_and_versions:
        raise ConfigError("versions", versions, "none of these APIs has such a version")

    def draw_version(cls: type[Message], version: int) -> st.SearchStrategy[Drawn]:
        messages = from_message(cls, version, unknown_tags=unknown_tags)
        key = st.just(cls.__api_key__ or 0)
        return st.builds(Drawn, api_key=key, version=st.just(version), message=messages)

    return (
        st.sampled_from(classes_and_versions)
        .flatmap(
            lambda class_and_versions: st.tuples(
                st.just(class_and_versions[0]), st.sampled_from(class_and_versions[1])
            )
        )
        .flatmap(lambda pair: draw_version(*pair))
    )


def _version_range(versions: Versions) -> range:
    return range(versions.min, versions.max + 1)


@cache
def _struct_strategy(
    cls: type[Struct], version: int, flexible: bool, unknown_tags: bool
) -> st.SearchStrategy[Any]:
    # A field that does not exist in every version has a default, so it may be left out.
    values = {
        f.name: _field_strategy(f, version, flexible, unknown_tags)
        for f in cls.__fields__
        if version in f.versions
    }
    structs: st.SearchStrategy[Any] = st.builds(cls, **values)
    if not (flexible and unknown_tags):
        return structs
    declared_tags = {f.tag for f in cls.__fields__ if f.tagged != Versions.parse("none")}
    return st.builds(_set_unknown_tags, structs, _unknown_tags_strategy(declared_tags))


def _field_strategy(f: Field, version: int, flexible: bool, unknown_tags: bool) -> st.SearchStrategy[Any]:
    values = _kind_strategy(f.kind, version, flexible, unknown_tags)
    if version in f.nullable:
        values = st.none() | values
    if version in f.tagged and flexible:
        values = _initial_strategy(f) | values
    return values


def _initial_strategy(f: Field) -> st.SearchStrategy[Any]:
    return st.builds(f.initial)


def _kind_strategy(
    kind: Primitive | Array | type[Struct], version: int, flexible: bool, unknown_tags: bool
) -> st.SearchStrategy[Any]:
    if isinstance(kind, Primitive):
        return PRIMITIVES[kind.name]
    if isinstance(kind, type):
        return _struct_strategy(kind, version, flexible, unknown_tags)
    elements = _kind_strategy(kind.element, version, flexible, unknown_tags)
    short = st.lists(elements, max_size=3)
    if isinstance(kind.element, type) or not kind.element.code:
        return short
    return short | st.builds(operator.mul, st.lists(elements, min_size=1, max_size=1), st.sampled_from(LONG))


def _unknown_tags_strategy(declared: set[int]) -> st.SearchStrategy[dict[int, bytes]]:
    # The tag 2**31-1 is not drawn: Kafka's classes can read it, but cannot write it.
    tags = st.integers(0, 200) | st.integers(0, 2**31 - 2)
    return st.dictionaries(tags.filter(lambda tag: tag not in declared), st.binary(max_size=5), max_size=2)


def _set_unknown_tags(struct: Any, tags: dict[int, bytes]) -> Any:
    if tags:
        struct.__unknown_tags__ = tags
    return struct


# --- records ------------------------------------------------------------------------------------------------

NOW = 1_700_000_000_000  # A time in ms since 1970, near which most timestamps are drawn.

# Keys and values: null, at most 12 bytes, or longer. The varint of a length takes two bytes from length 64
# on, and three bytes from length 8192 on.
contents = (
    st.none()
    | st.binary(max_size=12)
    | st.builds(
        operator.mul, st.binary(min_size=1, max_size=1), st.sampled_from([63, 64, 100, 8191, 8192, 20000])
    )
)

# Timestamps in ms. -1 stands for no timestamp; Kafka's builder accepts it.
timestamps = st.integers(NOW, NOW + 300) | st.sampled_from(
    [-1, 0, NOW - 9000, NOW + 9000, NOW + (1 << 21), NOW + (1 << 35)]
)

headers: st.SearchStrategy[Headers] = st.lists(
    st.tuples(st.text(_characters, max_size=6), st.none() | st.binary(max_size=6) | st.just(b"x" * 200)),
    max_size=3,
).map(tuple)

_offset_steps = st.integers(1, 3) | st.sampled_from([70, 9000, 1 << 21])
_rarely = st.integers(0, 4).map(lambda number: number == 4)  # shrinks towards False
_BASE_OFFSETS = (0, 7, 1 << 40, (1 << 63) - (1 << 30))
# A record set ends before a batch whose last offset reaches this limit.
_OFFSET_LIMIT = (1 << 63) - (1 << 26)
# The keys of transaction markers: int16 version, int16 type (0 abort, 1 commit).
_MARKER_KEYS = (b"\0\0\0\0", b"\0\0\0\1")


@dataclass(frozen=True)
class RecordBatch:
    """A drawn record batch. `data` contains its bytes, and `records` the records that a reader finds in them.

    Magic 0 and 1 without compression have no batches; `data` then consists of single messages.
    """

    # The records, with the timestamps that the producer has set.
    written: Sequence[Record]
    # The header: arguments of `encode_batch`, or of `encode_messages` for magic 0 and 1.
    header: dict[str, Any] = field(default_factory=dict[str, Any])
    magic: int = 2

    @property
    def data(self) -> bytes:
        """The encoded batch."""
        if self.magic == 2:
            return encode_batch(self.written, **self.header)
        return encode_messages(self.written, self.magic, **self.header)

    @property
    def records(self) -> list[Record]:
        """The records that a reader finds, including those of a control batch.

        With LogAppendTime all records have the same timestamp.
        """
        if self.header.get("timestamp_type") != "LogAppendTime":
            return list(self.written)
        timestamp = self.header.get(
            "max_timestamp", max((record.timestamp for record in self.written), default=-1)
        )
        return [replace(record, timestamp=timestamp) for record in self.written]

    @property
    def base_offset(self) -> int:
        """The first offset of the batch, even if compaction has removed its record."""
        return int(self.header.get("base_offset", self.written[0].offset if self.written else 0))

    @property
    def last_offset(self) -> int:
        """The last offset of the batch. A reader continues at the next offset."""
        return int(self.header.get("last_offset", self.written[-1].offset if self.written else 0))

    def moved(self, base_offset: int) -> RecordBatch:
        """Return this batch with another base offset."""
        distance = base_offset - self.base_offset
        offsets = {
            name: self.header[name] + distance
            for name in ("base_offset", "last_offset")
            if name in self.header
        }
        written = [replace(record, offset=record.offset + distance) for record in self.written]
        return RecordBatch(written, self.header | offsets, self.magic)


@st.composite
def record_batches(
    draw: st.DrawFn,
    magic: int = 2,
    *,
    codecs: Sequence[str] = CODECS,
    keys: st.SearchStrategy[bytes | None] = contents,
    values: st.SearchStrategy[bytes | None] = contents,
    headers: st.SearchStrategy[Headers] = headers,
    timestamps: st.SearchStrategy[int] = timestamps,
    max_records: int = 12,
    compacted: bool = True,
    control: bool = True,
) -> RecordBatch:
    """Draw record batches of this magic with up to `max_records` records. Each is compressed with one of
    `codecs`.

    `compacted` allows offset gaps, batches without records, and delete horizons. These exist only in logs,
    not in requests of producers. `control` allows transaction markers.

    Batches of magic 0 and 1 may have offset gaps, but no other property of compacted batches. They have no
    headers and no producer ids, and do not use zstd.

    The first draw raises ConfigError if the magic or a codec is unknown, if the magic supports none of
    `codecs`, or if `max_records` is below 1.
    """
    if magic not in (0, 1, 2):
        raise ConfigError("magic", magic, "only 0, 1 and 2 exist")
    allowed_codecs = [name for name in codecs if name in CODECS and (magic == 2 or name != "zstd")]
    if max_records < 1:
        raise ConfigError(
            "max_records", max_records, "at least 1; compacted=True also draws batches without records"
        )
    if not allowed_codecs or not set(codecs) <= set(CODECS):
        raise ConfigError("codecs", codecs, f"for magic {magic} one of {', '.join(CODECS[: 4 + magic // 2])}")
    header: dict[str, Any] = {"compression": draw(st.sampled_from(allowed_codecs))}
    base = draw(st.sampled_from(_BASE_OFFSETS))
    gaps = compacted and draw(st.booleans())
    if magic and draw(st.booleans()):
        header["timestamp_type"] = "LogAppendTime"
    if magic == 2:
        if "timestamp_type" in header:
            header["max_timestamp"] = draw(timestamps)
        if compacted and draw(_rarely):
            header["delete_horizon_ms"] = draw(timestamps.map(lambda timestamp: max(timestamp, 0)))
        if draw(_rarely):
            header["partition_leader_epoch"] = draw(st.integers(0, 2**31 - 1))
        if draw(st.booleans()):
            header["producer_id"] = draw(st.sampled_from([0, 1, 2, 2**63 - 1]))
            header["producer_epoch"] = draw(st.integers(0, 2**15 - 1))
            header["base_sequence"] = draw(st.integers(0, 2**31 - 1))
            header["is_transactional"] = draw(st.booleans())
    if control and "producer_id" in header and draw(_rarely):
        marker_key = draw(st.sampled_from(_MARKER_KEYS))
        marker_value = bytes(6)  # int16 version, int32 coordinator epoch
        header |= {"compression": "none", "base_offset": base, "last_offset": base, "base_sequence": -1}
        header |= {"is_transactional": True, "is_control": True}
        return RecordBatch([Record(base, draw(timestamps), marker_key, marker_value)], header)
    no_headers: st.SearchStrategy[Headers] = st.just(())
    record = st.tuples(
        _offset_steps if gaps else st.just(1),
        timestamps if magic else st.just(-1),
        keys,
        values,
        st.one_of(no_headers, no_headers, no_headers, headers) if magic == 2 else no_headers,
    )
    last_offset = base - 1
    written: list[Record] = []
    if not (gaps and magic == 2 and draw(_rarely)):
        drawn_records = draw(st.lists(record, min_size=1, max_size=max_records))
        for step, timestamp, key, value, record_headers in drawn_records:
            last_offset += step
            written.append(Record(last_offset, timestamp, key, value, record_headers))
    if magic == 2:
        # The last offset of the batch may be higher than the offset of its last record. A batch without
        # records has at least one offset.
        gap = draw(_offset_steps) - bool(written) if gaps else 0
        header |= {"base_offset": base, "last_offset": last_offset + gap}
    elif "timestamp_type" in header and header["compression"] == "none":
        # Give all messages the same timestamp, as a broker with LogAppendTime does.
        for message in written:
            message.timestamp = written[0].timestamp
    return RecordBatch(written, header, magic)


@st.composite
def record_sets(
    draw: st.DrawFn, batches: st.SearchStrategy[RecordBatch] | None = None, *, max_size: int = 5
) -> list[RecordBatch]:
    """Draw up to `max_size` consecutive batches, as in a log, with or without offset gaps between them.

    `b"".join(batch.data for batch in drawn)` is the content of a `records` field. Pass
    ``st.integers(0, 2).flatmap(record_batches)`` as `batches` to mix magics.
    """
    moved_batches: list[RecordBatch] = []
    for batch in draw(st.lists(record_batches() if batches is None else batches, max_size=max_size)):
        if moved_batches:
            next_offset = moved_batches[-1].last_offset + 1
            gap = draw(_offset_steps) if draw(_rarely) else 0
            batch = batch.moved(next_offset + gap)
            if batch.last_offset >= _OFFSET_LIMIT:
                break
        moved_batches.append(batch)
    return moved_batches

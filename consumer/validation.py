"""Checks of the arguments of public methods.

Each error names the argument, its value, and the allowed values.

A check takes an option's name and its value. It returns the value to use, or raises ConfigError. Methods
check their arguments first, so an invalid call changes nothing.

`kproto.validation` contains the checks that other packages also use.

`send` may be called 100,000 times per second. So it accepts common values itself, and calls the checks of the
section "one record" only for other values.
"""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar, cast

from kproto.errors import ConfigError
from kproto.group.subscription import TopicPartition
from kproto.patterns import compiled
from kproto.validation import (
    UnencodableText,
    any_text,
    encodable_text,
    flag,
    is_whole,
    one_of,
    whole_number,
)
from kproto.wire.message import Message

from .engine.network.call import Prepared
from .engine.requests import ALLOWED_TIMESTAMPS, ISOLATION_LEVELS, ROUTES, CommittedOffset, timestamp_of
from .listener import RebalanceListener
from .records import GroupMetadata

__all__ = ["any_text", "flag", "whole_number"]

T = TypeVar("T")
Check = Callable[[str, Any], T]

# Maximum timeout (s): 2^31 - 1 ms, or about 24 days. Longer timeouts are reduced to this one.
MAX_TIMEOUT_S: Final = (2**31 - 1) / 1000
MAX_OFFSET: Final = 2**63 - 1
MAX_PARTITION: Final = 2**31 - 1

# Descriptions of the allowed values, for errors.
_ALLOWED_PARTITION = 'a TopicPartition, as in TopicPartition("flights", 0)'
_ALLOWED_PARTITIONS = 'a list, each a TopicPartition: [TopicPartition("flights", 0)]'
_ALLOWED_OFFSET = "an offset: a whole number that is not negative; see seek_to for places"
_ALLOWED_OFFSETS = '{TopicPartition: offset, (offset, "metadata") or CommittedOffset}'
_ALLOWED_BATCH = (
    "one encoded record batch, as bytes: see kproto.records.encode_batch; call again for the next one"
)

# Sizes in bytes. The prefix of a record batch consists of the base offset and the batch length. The header
# includes this prefix.
_BATCH_PREFIX_SIZE: Final = 12
_BATCH_HEADER_SIZE: Final = 61


# ---- single values


def optional(check: Check[T], name: str, value: Any) -> T | None:
    """Return None for None, and the result of `check` for any other value."""
    return None if value is None else check(name, value)


def seconds(name: str, value: Any) -> float:
    """Check a timeout in seconds, and limit it to `MAX_TIMEOUT_S`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:  # nan is not
        raise ConfigError(name, value, "a number of seconds, 0 or more")
    return float(min(value, MAX_TIMEOUT_S))


def replication_factor(name: str, value: Any) -> int:
    if not is_whole(value) or not (value == -1 or 1 <= value < 2**15):
        raise ConfigError(name, value, "a number of replicas, 1 or more, or -1 for the cluster's default")
    return value


def acks(name: str, value: Any) -> int:
    if not is_whole(value) or value not in (-1, 1):
        raise ConfigError(name, value, "-1 (all replicas in sync) or 1 (the leader)")
    return value


def offset(name: str, value: Any) -> int:
    if not is_whole(value) or not 0 <= value <= MAX_OFFSET:
        raise ConfigError(name, value, _ALLOWED_OFFSET)
    return value


def seek_offset(name: str, value: Any) -> tuple[int, int | None]:
    """Check an offset or a CommittedOffset. Return (offset, leader epoch or None if unknown)."""
    if not isinstance(value, CommittedOffset):
        return offset(name, value), None
    epoch: Any = value.leader_epoch
    if epoch is not None and (not is_whole(epoch) or not 0 <= epoch < 2**31):
        raise ConfigError(f"{name}.leader_epoch", epoch, "None, or a whole number that is not negative")
    return offset(f"{name}.offset", value.offset), epoch


def _non_blank_text(name: str, value: Any, meaning: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(name, value, f"{meaning}: a string that is not empty")
    return encodable_text(name, value)


def topic(name: str, value: Any) -> str:
    return _non_blank_text(name, value, "a topic's name")


def group(name: str, value: Any) -> str:
    return _non_blank_text(name, value, "a group's id")


def record_batch(name: str, value: Any) -> bytes:
    """Check that the bytes are one encoded batch.

    More than one batch is rejected: if a Produce request contains two batches of one partition, the broker
    answers it with INVALID_RECORD.
    """
    if not isinstance(value, bytes | bytearray | memoryview):
        raise ConfigError(name, value, _ALLOWED_BATCH)
    data = bytes(cast("bytearray", value))
    batch_length = int.from_bytes(data[8:_BATCH_PREFIX_SIZE], "big", signed=True)
    first_size = _BATCH_PREFIX_SIZE + batch_length
    if len(data) < _BATCH_HEADER_SIZE or first_size != len(data):
        has_more = _BATCH_HEADER_SIZE <= first_size < len(data)
        problem = "more than one batch" if has_more else "not one whole batch"
        raise ConfigError(name, data, f"{problem}: {_ALLOWED_BATCH}")
    return data


def pattern(name: str, value: Any) -> str:
    """Check a regular expression for `subscribe`. It is matched against whole topic names."""
    if not isinstance(value, str):
        raise ConfigError(name, value, "a str with a regular expression for whole topic names")
    try:
        compiled(value)
    except re.error as error:
        raise ConfigError(
            name, value, f"a str with a regular expression for whole topic names ({error})"
        ) from None
    return value


def isolation(name: str, value: Any) -> str:
    level: str = one_of(name, value, ISOLATION_LEVELS)
    return level


def place(name: str, value: Any) -> Any:
    """Check a position for `list_offsets`, such as "earliest", "latest" or a time in milliseconds.

    Warns about a time that seems to be in seconds.
    """
    warn_if_seconds(name, timestamp_of(value, name))
    return value


def seek_place(name: str, value: Any) -> Any:
    """Check a position of `seek_to`: "committed", or a position of `list_offsets`."""
    if not isinstance(value, str) or value != "committed":
        warn_if_seconds(name, timestamp_of(value, name, f"committed, {ALLOWED_TIMESTAMPS}"))
    return value


def partition(name: str, value: Any) -> TopicPartition:
    if not isinstance(value, TopicPartition):
        raise ConfigError(name, value, _ALLOWED_PARTITION)
    topic_name: Any = value.topic
    index: Any = value.partition
    is_index = is_whole(index) and 0 <= index <= MAX_PARTITION
    if not isinstance(topic_name, str) or not topic_name or not is_index:
        raise ConfigError(name, value, f"{_ALLOWED_PARTITION}: a topic's name, and a partition of 0 or more")
    plain_name = encodable_text(name, topic_name)  # If `topic_name` is an enum, an equal plain str.
    return value if plain_name is topic_name else TopicPartition(plain_name, index)


def topic_partition(topic_name: Any, index: Any) -> TopicPartition:
    """Check a topic's name and a partition's number."""
    return TopicPartition(topic("topic", topic_name), whole_number("partition", index, 0))


def committed_offset(name: str, value: Any) -> Any:
    """Check an offset to commit, alone or with metadata. Return `value` unchanged."""
    allowed = 'an offset, a pair (offset, "metadata") or a CommittedOffset'
    offset_and_metadata: tuple[Any, ...] = (value, "")
    if isinstance(value, CommittedOffset):
        offset_and_metadata = (value.offset, value.metadata)
    elif isinstance(value, tuple):
        offset_and_metadata = value  # pyright: ignore[reportUnknownVariableType]
    if len(offset_and_metadata) != 2 or not isinstance(offset_and_metadata[1], str):
        raise ConfigError(name, cast("object", value), allowed)
    number, metadata = offset_and_metadata
    encodable_text("metadata", metadata)
    if not is_whole(number) or not 0 <= number <= MAX_OFFSET:
        raise ConfigError(name, number, f"{allowed}; offsets are not negative")
    return cast("Any", value)


def listener(name: str, value: Any, *, coroutines: bool) -> RebalanceListener:
    """Check a rebalance listener. Its methods may be coroutine functions only if `coroutines` is set."""
    allowed = "an object of a class that extends RebalanceListener, with methods assigned, revoked, lost"
    if not isinstance(value, RebalanceListener):
        raise ConfigError(name, value, allowed)
    foreign_methods = sorted(method for method in dir(value) if method.startswith("on_partitions_"))
    if foreign_methods:
        foreign = f"{foreign_methods[0]} is another library's name for the method"
        raise ConfigError(name, value, f"{foreign}; {allowed}")
    for method in ("assigned", "revoked", "lost"):
        if not coroutines and inspect.iscoroutinefunction(getattr(value, method, None)):
            allowed = f"{method}() is a coroutine, which only an AsyncConsumer can await"
            raise ConfigError(name, value, allowed)
    return value


def event_callback(name: str, value: Any) -> Any:
    if not callable(value) or inspect.iscoroutinefunction(value):
        raise ConfigError(name, value, "a plain function that takes a GroupChange")
    return value


def group_member(name: str, value: Any) -> GroupMetadata:
    """Check the argument that names a group: its name, or the metadata of one of its members.

    For a group's name, returns metadata without a member: the generation is -1 and the member id is empty.
    """
    if isinstance(value, str) and value.strip():
        return GroupMetadata(group_id=value, generation=-1, member_id="", group_instance_id=None)
    if not isinstance(value, GroupMetadata):
        raise ConfigError(name, value, "a group's name, or consumer.group_metadata()")
    return value


def plan(name: str, value: Any) -> Any:
    if not isinstance(value, Generator):
        raise ConfigError(name, value, "a plan, as the functions of consumer.engine.admin return it")
    return value  # pyright: ignore[reportUnknownVariableType]


def request(name: str, value: Any) -> Message | Prepared:
    if isinstance(value, Prepared):
        return value
    is_request = isinstance(value, Message) and type(value).__name__.endswith("Request")
    if not is_request or value.__api_key__ is None:
        raise ConfigError(name, value, "a request, such as MetadataRequest(topics=[]); see kproto.messages")
    return cast("Message", value)


def route(name: str, value: Any) -> Any:
    """Check the argument that selects the broker for a request: one of the forms in `ROUTES`."""
    match value:
        case None | str("controller") | (str("leader"), str(), int()):
            return value
        case (str("group" | "transaction" | "share"), str()):
            return value
        case int() if is_whole(value):
            return value
        case _:
            raise ConfigError(name, value, ROUTES)


# ---- lists and mappings


def list_of(name: str, value: Any, check: Check[T], allowed: str, *, mapping: bool = False) -> list[T]:
    """Check each item of a list or another iterable. A str, bytes or a single partition is rejected.

    `allowed` describes the whole list, and appears in the error for an invalid item. UnencodableText is
    raised unchanged, because it already says what is wrong with the item.

    If `mapping` is true, a mapping is accepted as well: the list of its keys is returned.
    """
    rejected = (str, bytes, TopicPartition) if mapping else (str, bytes, TopicPartition, Mapping)
    if isinstance(value, rejected) or not isinstance(value, Iterable):
        raise ConfigError(name, cast("object", value), allowed)
    items: list[Any] = list(value)  # pyright: ignore[reportUnknownArgumentType]
    for index, item in enumerate(items):
        try:
            items[index] = check(name, item)
        except UnencodableText:
            raise
        except ConfigError as error:
            # If the error's value is not the item itself, the error is about a part of the item.
            detail = "" if error.value is item else f"; {error.allowed}"
            raise ConfigError(name, item, f"{allowed}{detail}") from None
    return items


def dict_of(
    name: str, value: Any, check_key: Check[Any], check_value: Check[T], allowed: str
) -> dict[Any, T]:
    """Check a mapping, and each of its keys and values.

    `allowed` describes the whole mapping, and appears in the error for an invalid entry.
    """
    if not isinstance(value, Mapping):
        raise ConfigError(name, value, allowed)
    entries: dict[Any, Any] = dict(value)  # pyright: ignore[reportUnknownArgumentType]
    checked: dict[Any, T] = {}
    for key, item in entries.items():
        try:
            checked[check_key(name, key)] = check_value(name, item)
        except UnencodableText:
            raise
        except ConfigError:
            raise ConfigError(name, {key: item}, allowed) from None
    return checked


def partitions(name: str, value: Any) -> list[TopicPartition]:
    return list_of(name, value, partition, _ALLOWED_PARTITIONS, mapping=True)


def one_or_more_partitions(name: str, value: Any) -> list[TopicPartition]:
    """Check a list of partitions. A single partition is accepted in place of a list."""
    return [partition(name, value)] if isinstance(value, TopicPartition) else partitions(name, value)


def assignment(name: str, value: Any) -> dict[TopicPartition, int | None]:
    """Check the partitions of `assign`: a list, or a mapping with start offsets."""
    if isinstance(value, Mapping):
        allowed = "{TopicPartition: offset, or None to start where the group or the reset policy says}"
        return dict_of(name, value, partition, lambda name, start: optional(offset, name, start), allowed)
    if isinstance(value, TopicPartition):
        raise ConfigError(name, value, "a list of partitions, or {TopicPartition: offset}")
    return dict.fromkeys(partitions(name, value))


def topics(name: str, value: Any) -> list[str]:
    return list_of(name, value, topic, "names of topics: texts that are not empty")


def subscribed_topics(name: str, value: Any) -> list[str]:
    """Check topics for `subscribe`. A single name is accepted in place of a list."""
    names = [topic(name, value)] if isinstance(value, str) else topics(name, value)
    for topic_name in names:
        # No topic name can begin with "^". In librdkafka, a name that does is a regular expression.
        if topic_name.startswith("^"):
            allowed = f"names of topics; a regular expression, for whole names, is pattern={topic_name[1:]!r}"
            raise ConfigError(name, topic_name, allowed)
    return names


def groups(name: str, value: Any) -> list[str]:
    return list_of(name, value, group, "names of groups: texts that are not empty")


def partition_counts(name: str, value: Any) -> dict[str, int]:
    allowed = '{"flights": 3}: names to numbers of partitions'
    return dict_of(name, value, topic, lambda name, count: whole_number(name, count, 1), allowed)


def topic_configs(name: str, value: Any) -> dict[str, str]:
    allowed = '{"retention.ms": "60000"}: texts to texts'
    return dict_of(name, value, lambda name, key: _non_blank_text(name, key, "a name"), any_text, allowed)


def offsets(name: str, value: Any) -> dict[TopicPartition, Any]:
    return dict_of(name, value, partition, committed_offset, _ALLOWED_OFFSETS)


def fetch_offsets(name: str, value: Any) -> dict[TopicPartition, int]:
    return dict_of(name, value, partition, offset, "{TopicPartition: offset}")


def places(name: str, value: Any) -> dict[TopicPartition, Any]:
    return dict_of(name, value, partition, place, f"{{TopicPartition: {ALLOWED_TIMESTAMPS}}}")


# ---- one record

Buffer = bytes | bytearray | memoryview
Headers = Sequence[tuple[str, bytes | None]]

NO_HEADERS: Headers = ()
MAX_TIMESTAMP: Final = 2**63 - 1
# Timestamps between these two limits are probably in seconds, from 2001 to 2096. In milliseconds they would
# be in early 1970.
_FIRST_SECONDS, LAST_SECONDS = 10**9, 4 * 10**9
_OUR_PACKAGE = __name__.partition(".")[0]
_ALLOWED_HEADERS = 'a list of pairs, as [("name", b"value")]'


def record_bytes(name: str, data: object) -> bytes | None:
    """Check a key, a value or a header value of a record. Return it as bytes or None."""
    if data is None or isinstance(data, bytes):
        return data
    if isinstance(data, bytearray | memoryview):
        return bytes(cast("bytearray", data))
    serializer = f", or give the producer a {name}_serializer" if name in ("key", "value") else ""
    raise ConfigError(name, data, f"bytes or None; encode it first{serializer}")


def topic_name(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigError("topic", value, "the name of a topic, a str that is not empty")
    return encodable_text("topic", value)


def timestamp_ms(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_TIMESTAMP:
        allowed = "a whole number of milliseconds since 1970, as int(time.time() * 1000)"
        raise ConfigError("timestamp", value, allowed)
    warn_if_seconds("timestamp", value)
    return int(value)


def warn_if_seconds(name: str, time_ms: int) -> None:
    """Warn about a time that seems to be in seconds. Such a time is allowed, but nearly always a mistake.

    Python shows the same message only once for each line of the application. So the message does not contain
    the time: otherwise Python would show it again for every other time.
    """
    if not _FIRST_SECONDS <= time_ms < LAST_SECONDS:
        return
    # The warning names the line of the application, which is the first frame outside of this package.
    frame, level = inspect.currentframe(), 1
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _OUR_PACKAGE:
        frame, level = frame.f_back, level + 1
    warnings.warn(
        f"{name} is in milliseconds since 1970, and this looks like seconds: it is read as a day of early "
        "1970. Now is int(time.time() * 1000)",
        stacklevel=level,
    )


def partition_index(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_PARTITION:
        raise ConfigError(
            "partition",
            value,
            "a whole number, 0 or more, or None to let the partitioner select one",
        )
    return int(value)


def header_pairs(headers: object) -> Headers:
    """Check headers, which are pairs (str, bytes or None). Return a tuple of tuples."""
    if headers is None:
        return ()
    if isinstance(headers, Mapping):
        if not headers:
            return ()
        raise ConfigError("headers", cast("object", headers), f"{_ALLOWED_HEADERS}: list(headers.items())")
    if not isinstance(headers, list | tuple):
        raise ConfigError("headers", headers, _ALLOWED_HEADERS)
    pairs: list[tuple[str, bytes | None]] = []
    for index, pair in enumerate(cast("Sequence[Any]", headers)):
        if not isinstance(pair, list | tuple) or len(cast("Sequence[Any]", pair)) != 2:
            raise ConfigError(f"headers[{index}]", cast("object", pair), 'a pair, such as ("name", b"value")')
        key, value = cast("tuple[object, object]", pair)
        # Surrogates cannot be encoded.
        if not isinstance(key, str) or any("\ud800" <= character <= "\udfff" for character in key):
            raise ConfigError(f"headers[{index}][0]", key, "a str that can be encoded as UTF-8")
        pairs.append((key, record_bytes(f"headers[{index}][1]", value)))
    return tuple(pairs)

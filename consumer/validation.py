"""What may stand in the arguments of the public methods: one table, by the argument's name.

Each rule takes (name, value) and returns the value to go on with, or raises ConfigError, which says what was
given and what is allowed. So a wrong argument is refused at the door, before anything changed. Where one name
means two things, the table has it with its annotation: "topics: Mapping[str, int]". An argument whose
annotation ends in "| None" may be None.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any, TypeGuard, cast

from kproto.errors import ConfigError
from kproto.group.subscription import TopicPartition
from kproto.patterns import compiled
from kproto.wire.message import Message

from .door import Unsayable, sayable, told_if_seconds
from .engine.network.connection import Prepared
from .engine.requests import ISOLATION, PLACES, CommittedOffset, timestamp_of
from .listener import RebalanceListener
from .records import GroupMetadata

Rule = Callable[[str, Any], Any]

# Timeouts above are cut to this: int32 milliseconds, 24 days.
LONGEST = (2**31 - 1) / 1000
MOST = 2**63 - 1

_PARTITION = 'a TopicPartition, as in TopicPartition("flights", 0)'
_OFFSET = "an offset: a whole number that is not negative; see seek_to for places"
_BATCH = "one encoded record batch, as bytes: see kproto.records.encode_batch; call again for the next one"
_OFFSETS = '{TopicPartition: offset, (offset, "metadata") or CommittedOffset}'


def rule_of(name: str, annotation: str) -> Rule:
    """The rule for an argument as it is declared; KeyError for one that the table doesn't know."""
    bare = annotation.removesuffix(" | None")
    rule = TABLE[f"{name}: {bare}"] if f"{name}: {bare}" in TABLE else TABLE[name]
    if bare == annotation:
        return rule

    def optional(name: str, value: Any) -> Any:
        return None if value is None else rule(name, value)

    return optional


# ---- single values


def whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _seconds(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:  # nan is not
        raise ConfigError(name, value, "a number of seconds, 0 or more")
    return float(min(value, LONGEST))


def _from(least: int, most: int = 2**31 - 1) -> Rule:
    def check(name: str, value: Any) -> int:
        if not whole(value) or not least <= value <= most:
            raise ConfigError(name, value, f"a whole number from {least} to {most}")
        return value

    return check


def _replication(name: str, value: Any) -> int:
    if not whole(value) or not (value == -1 or 1 <= value < 2**15):
        raise ConfigError(name, value, "a number of replicas, 1 or more, or -1 for the cluster's default")
    return value


def _acks(name: str, value: Any) -> int:
    if not whole(value) or value not in (-1, 1):
        raise ConfigError(name, value, "-1 (all replicas in sync) or 1 (the leader)")
    return value


def _offset(name: str, value: Any) -> int:
    if not whole(value) or not 0 <= value <= MOST:
        raise ConfigError(name, value, _OFFSET)
    return value


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(name, value, "True or False")
    return value


def _text(what: str) -> Rule:
    def check(name: str, value: Any) -> str:
        if not isinstance(value, str) or not value.strip():
            raise ConfigError(name, value, f"{what}: a text that is not empty")
        return sayable(name, value)

    return check


def _any_text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ConfigError(name, value, "a text")
    return sayable(name, value)


def _batch(name: str, value: Any) -> bytes:
    """Brokers take one batch for each partition of a request, and refuse two as INVALID_RECORD."""
    if not isinstance(value, bytes | bytearray | memoryview):
        raise ConfigError(name, value, _BATCH)
    data = bytes(cast("bytearray", value))
    size = 12 + int.from_bytes(data[8:12], "big", signed=True)
    if len(data) < 61 or size != len(data):
        found = "more than one batch" if 61 <= size < len(data) else "not one whole batch"
        raise ConfigError(name, data, f"{found}: {_BATCH}")
    return data


def _pattern(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ConfigError(name, value, "a regular expression for whole names, as a text")
    try:
        compiled(value)
    except re.error as error:
        raise ConfigError(name, value, f"a regular expression for whole names, as a text ({error})") from None
    return value


def _level(name: str, value: Any) -> str:
    if not isinstance(value, str) or value not in ISOLATION:
        raise ConfigError(name, value, f"allowed: {', '.join(map(repr, ISOLATION))}")
    return value


def _place(name: str, value: Any) -> Any:
    told_if_seconds(name, timestamp_of(value, name))
    return value


def _where(name: str, value: Any) -> Any:
    if not isinstance(value, str) or value != "committed":
        told_if_seconds(name, timestamp_of(value, name, f"committed, {PLACES}"))
    return value


def _partition(name: str, value: Any) -> TopicPartition:
    if not isinstance(value, TopicPartition):
        raise ConfigError(name, value, _PARTITION)
    topic: Any = value.topic
    index: Any = value.partition
    if not isinstance(topic, str) or not topic or not whole(index) or not 0 <= index < 2**31:
        raise ConfigError(name, value, f"{_PARTITION}: a topic's name, and a partition from 0 on")
    said = sayable(name, topic)
    return value if said is topic else TopicPartition(said, index)


def _commit(name: str, value: Any) -> Any:
    allowed = 'an offset, a pair (offset, "metadata") or a CommittedOffset'
    said: tuple[Any, ...] = (value, "")
    if isinstance(value, CommittedOffset):
        said = (value.offset, value.metadata)
    elif isinstance(value, tuple):
        said = value  # pyright: ignore[reportUnknownVariableType]
    if len(said) != 2 or not isinstance(said[1], str):
        raise ConfigError(name, cast("object", value), allowed)
    offset, metadata = said
    sayable("metadata", metadata)
    if not whole(offset) or not 0 <= offset <= MOST:
        raise ConfigError(name, offset, f"{allowed}; offsets are not negative")
    return cast("Any", value)


def _listener(name: str, value: Any) -> RebalanceListener:
    allowed = "an object of a class that extends RebalanceListener, with methods assigned, revoked, lost"
    if not isinstance(value, RebalanceListener):
        raise ConfigError(name, value, allowed)
    foreign = sorted(name for name in dir(value) if name.startswith("on_partitions_"))
    if foreign:
        raise ConfigError(name, value, f"{foreign[0]} is another library's name for it; {allowed}")
    return value


def _callback(name: str, value: Any) -> Any:
    from inspect import iscoroutinefunction

    if not callable(value) or iscoroutinefunction(value):
        raise ConfigError(name, value, "a plain function that takes a GroupChange")
    return value


def _member(name: str, value: Any) -> GroupMetadata:
    """A group's member; with a group's name somebody who is none."""
    if isinstance(value, str) and value.strip():
        return GroupMetadata(value, -1, "", None)
    if not isinstance(value, GroupMetadata):
        raise ConfigError(name, value, "a group's name, or consumer.group_metadata()")
    return value


def _plan(name: str, value: Any) -> Any:
    if not isinstance(value, Generator):
        raise ConfigError(name, value, "a plan: what a function of consumer.engine.admin returns")
    return value  # pyright: ignore[reportUnknownVariableType]


def _request(name: str, value: Any) -> Message | Prepared:
    if isinstance(value, Prepared):
        return value
    if not isinstance(value, Message) or value.__api_key__ is None or not _asks(value):
        raise ConfigError(name, value, "a request, as in MetadataRequest(topics=[]); see kproto.messages")
    return value


def _asks(message: Message) -> bool:
    return type(message).__name__.endswith("Request")


def _route(name: str, value: Any) -> Any:
    match value:
        case None | str("controller") | (str("group"), str()) | (str("leader"), str(), int()):
            return value
        case int() if whole(value):
            return value
        case _:
            allowed = 'None, a node id, "controller", ("group", name) or ("leader", topic, partition)'
            raise ConfigError(name, value, allowed)


# ---- several


def _several(inner: Rule, allowed: str, *, mapping: bool = False) -> Rule:
    """A list of what passes `inner`; from what can be iterated, but no text, bytes or partition, and no
    mapping unless its keys are meant."""
    single = (str, bytes, TopicPartition) if mapping else (str, bytes, TopicPartition, Mapping)

    def check(name: str, value: Any) -> list[Any]:
        if isinstance(value, single) or not isinstance(value, Iterable):
            raise ConfigError(name, cast("object", value), allowed)
        found: list[Any] = list(value)  # pyright: ignore[reportUnknownArgumentType]
        for at, each in enumerate(found):
            try:
                found[at] = inner(name, each)
            except Unsayable:
                raise
            except ConfigError:
                raise ConfigError(name, each, allowed) from None
        return found

    return check


def _mapped(key: Rule, inner: Rule, allowed: str) -> Rule:
    def check(name: str, value: Any) -> dict[Any, Any]:
        if not isinstance(value, Mapping):
            raise ConfigError(name, value, allowed)
        given: dict[Any, Any] = dict(value)  # pyright: ignore[reportUnknownArgumentType]
        found: dict[Any, Any] = {}
        for each, what in given.items():
            try:
                found[key(name, each)] = inner(name, what)
            except Unsayable:
                raise
            except ConfigError:
                raise ConfigError(name, {each: what}, allowed) from None
        return found

    return check


def _optional(inner: Rule) -> Rule:
    return lambda name, value: None if value is None else inner(name, value)


_PARTITIONS = 'a list, each a TopicPartition: [TopicPartition("flights", 0)]'
_partitions = _several(_partition, _PARTITIONS, mapping=True)
_name = _text("a topic's name")
_names = _several(_name, "names of topics: texts that are not empty")


def _one_or_more(name: str, value: Any) -> list[TopicPartition]:
    return [_partition(name, value)] if isinstance(value, TopicPartition) else _partitions(name, value)


def _assigned(name: str, value: Any) -> Any:
    """For `assign`, which also says where to start."""
    if isinstance(value, Mapping):
        allowed = "{TopicPartition: offset, or None to start where the group or the reset policy says}"
        return _mapped(_partition, _optional(_offset), allowed)(name, value)
    if isinstance(value, TopicPartition):
        raise ConfigError(name, value, "a list of partitions, or {TopicPartition: offset}")
    return _partitions(name, value)


def _subscribed(name: str, value: Any) -> list[str]:
    topics = [_name(name, value)] if isinstance(value, str) else _names(name, value)
    for topic in topics:
        if topic.startswith("^"):  # which no topic may; librdkafka means a regular expression by it
            allowed = f"names of topics; a regular expression, for whole names, is pattern={topic[1:]!r}"
            raise ConfigError(name, topic, allowed)
    return topics


# ---- the table

TABLE: dict[str, Rule] = {
    "acks": _acks,
    "batch": lambda name, value: value,
    "callback": _callback,
    "client_id": _any_text,
    "configs": _mapped(_text("a name"), _any_text, '{"retention.ms": "60000"}: texts to texts'),
    "error": lambda name, value: value,
    "exist_ok": _flag,
    "group": _text("a group's id"),
    "group: str | GroupMetadata": _member,
    "isolation": _level,
    "leave": _flag,
    "lent": _flag,
    "listener": _listener,
    "max_bytes": _from(0),
    "max_records": _from(1),
    "max_wait_ms": _from(0),
    "min_bytes": _from(0),
    "names": _several(_text("a group's id"), "names of groups: texts that are not empty"),
    "node": _route,
    "offset": _offset,
    "offsets": _mapped(_partition, _commit, _OFFSETS),
    "partition": _partition,
    "partition: int": _from(0),
    "partition_max_bytes": _from(0),
    "partitions": _one_or_more,
    "partitions: Iterable[TopicPartition]": _partitions,
    "partitions: Iterable[TopicPartition] | Mapping[TopicPartition, int | None]": _assigned,
    "pattern": _pattern,
    "plan": _plan,
    "reason": _any_text,
    "records": _batch,
    "replication_factor": _replication,
    "request": _request,
    "request_timeout_ms": _from(1),
    "timeout": _seconds,
    "topic": _name,
    "topics: Iterable[str]": _names,
    "topics: Iterable[str] | str": _subscribed,
    "topics: Mapping[str, int]": _mapped(_name, _from(1), '{"flights": 3}: names to numbers of partitions'),
    "topics: Sequence[str]": _names,
    "totals": _mapped(_name, _from(1), '{"flights": 3}: names to numbers of partitions'),
    "wants: Mapping[TopicPartition, int]": _mapped(_partition, _offset, "{TopicPartition: offset}"),
    "wants: Mapping[TopicPartition, str | int]": _mapped(_partition, _place, f"{{TopicPartition: {PLACES}}}"),
    "where": _where,
}

"""The options of ``format("kproto")``, parsed and checked before anything is planned.

The names are those of Spark's own Kafka source, so that a query moves over by changing one word. Rules:

* Spark hands option names over in lower case; names are compared without case and shown as documented here.
* Everything is checked in `parse`, which the data source calls in its constructor: a wrong value surfaces
  at ``load()``, with the option, the value and what is allowed. What only makes sense for a batch, a
  stream or a sink is checked by `Options.for_batch`, `Options.for_stream` and `Options.for_sink`.
* An option that doesn't exist is refused, with the nearest name that does: a misspelt
  ``maxOffsetPerTrigger`` that is silently ignored is a query without a limit.
* What Spark's own source ignores with a warning, as a stream's limits in a batch, is ignored with one here: a
  program moves over whole.
* ``kafka.*`` goes to our own client; what is about TLS and SASL to `access`. What would change the meaning of
  a read (``auto.offset.reset``, deserializers, ``enable.auto.commit``) is refused; what belongs to membership
  of a group, which this source doesn't use, is accepted and has no effect.
"""

from __future__ import annotations

import difflib
import json
import logging
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

from kproto.errors import ConfigError
from kproto.group.subscription import TopicPartition

from ..security.names import shown
from . import values as decoding
from .access import PLAINTEXT, PREFIXES, Access
from .java_regex import matcher

log = logging.getLogger(__name__)

Edge: TypeAlias = Literal["earliest", "latest"]


@dataclass(frozen=True, slots=True)
class Everywhere:
    """Every partition from (or to) the same edge of its log."""

    edge: Edge


@dataclass(frozen=True, slots=True)
class Each:
    """Every partition from (or to) its own offset, or edge of its log. Must name exactly the partitions
    read.
    """

    offsets: Mapping[TopicPartition, int | Edge]


@dataclass(frozen=True, slots=True)
class Since:
    """Every partition from (or to) the first record that is not older than this time, in ms since 1970."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class SinceEach:
    """As `Since`, with a time for each partition. Must name exactly the partitions read."""

    timestamps_ms: Mapping[TopicPartition, int]


Bound: TypeAlias = Everywhere | Each | Since | SinceEach


@dataclass(frozen=True, slots=True)
class Topics:
    """``subscribe``: whole topics by name."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pattern:
    """``subscribePattern``: all topics whose whole name matches, in Java's syntax, also those made later.
    Never internal ones.
    """

    regex: str


@dataclass(frozen=True, slots=True)
class Assigned:
    """``assign``: exactly these partitions."""

    partitions: tuple[TopicPartition, ...]


Choice: TypeAlias = Topics | Pattern | Assigned


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asked for. Picklable, and the same in every process that Spark starts.

    `given` are the documented names of the options that were set, so that a mode can refuse what it can't do.
    """

    bootstrap_servers: str
    client: Mapping[str, object]
    given: frozenset[str]
    access: Access = PLAINTEXT
    choice: Choice | None = None
    starting: Bound | None = None
    ending: Bound | None = None
    starting_without_match: Literal["error", "latest"] = "error"
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 15 * 60_000
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    fail_on_data_loss: bool = True
    include_headers: bool = False
    # Spark's own default is spark.network.timeout, which a Python source is not told: 120 s is its default.
    poll_timeout_ms: int = 120_000
    fetch_offset_retries: int = 3
    fetch_offset_retry_interval_ms: int = 1_000
    commit_group_id: str | None = None
    topic: str | None = None
    formats: tuple[decoding.Asked, ...] = ()

    @property
    def key(self) -> tuple[object, ...]:
        """What tells the connections of one query from those of another in the same process."""
        return (os.getpid(), self.bootstrap_servers, self.access, *sorted(self.client.items()))

    def text(self, name: str, default: str) -> str:
        """A ``kafka.*`` option that is text, by Kafka's name."""
        return str(self.client.get(name, default))

    def number(self, name: str, default: int) -> int:
        """A ``kafka.*`` option that is a whole number, by Kafka's name."""
        value = self.client.get(name, default)
        assert isinstance(value, int)
        return value

    def for_batch(self) -> Options:
        """These options, checked for ``spark.read``."""
        self.for_reading()
        self._refuse("commitGroupId", "it is for streams (spark.readStream)")
        for name in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"):
            if name in self.given:
                log.warning("%s is ignored: it is for streams (spark.readStream), and this is a batch", name)
        if isinstance(self.starting, Everywhere) and self.starting.edge == "latest":
            raise ConfigError(
                "startingOffsets", "latest", 'a batch would read nothing; use "earliest" or JSON'
            )
        if isinstance(self.ending, Everywhere) and self.ending.edge == "earliest":
            raise ConfigError("endingOffsets", "earliest", 'a batch would read nothing; use "latest" or JSON')
        _refuse_edge("startingOffsets", self.starting, "latest", -1)
        _refuse_edge("endingOffsets", self.ending, "earliest", -2)
        return self

    def for_stream(self) -> Options:
        """These options, checked for ``spark.readStream``."""
        self.for_reading()
        for name in ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets"):
            self._refuse(name, "a stream has no end; it is for batches (spark.read)")
        least, most = self.min_offsets_per_trigger, self.max_offsets_per_trigger
        if least is not None and most is not None and least > most:
            raise ConfigError("minOffsetsPerTrigger", least, f"at most maxOffsetsPerTrigger, which is {most}")
        return self

    def for_sink(self) -> Options:
        """These options, checked for ``df.write`` and ``df.writeStream``."""
        for name in sorted(self.given):
            if name in _SOURCE_ONLY:
                self._refuse(name, "it is for reading, not for writing")
        return self

    def for_reading(self) -> None:
        """Check what a batch and a stream have in common."""
        if self.choice is None:
            raise ConfigError(
                "subscribe", None, "one of subscribe, subscribePattern and assign must be given"
            )
        self._refuse("topic", "it is for writing; topics to read are given with subscribe")
        decoded = {one.where for one in self.formats}
        for name in sorted(self.given & decoding.NAMES):
            column = name.partition(".")[0]
            if column in decoding.COLUMNS and column not in decoded:
                raise ConfigError(name, "(given)", f"it says how to decode: give {column}.format, too")

    def _refuse(self, name: str, why: str) -> None:
        if name in self.given:
            raise ConfigError(name, "(given)", why)


def parse(options: Mapping[str, str]) -> Options:
    """Read the options that Spark hands over. Raises ConfigError for the first one that is wrong."""
    given: dict[str, str] = {}
    client: dict[str, str] = {}
    for key, value in options.items():
        lower = key.lower()
        if lower.startswith("kafka."):
            client[lower[len("kafka.") :]] = value
        elif lower in _NAMES:
            given[_NAMES[lower]] = value
        elif lower not in _SPARKS_OWN and not lower.startswith(("spark.", "__")):
            near = difflib.get_close_matches(lower, _NAMES, n=1)
            hint = (
                f"did you mean {_NAMES[near[0]]}?"
                if near
                else f"allowed: {', '.join(sorted(_NAMES.values()))}"
            )
            raise ConfigError(key, shown(key, value), f"there is no such option; {hint}")
    servers = client.pop("bootstrap.servers", "")
    if not servers.strip():
        raise ConfigError(
            "kafka.bootstrap.servers", servers, "give HOST:PORT, or several with commas between"
        )

    values: dict[str, Any] = {
        attribute: read(name, given[name]) for name, (attribute, read) in _PLAIN.items() if name in given
    }
    access = {name: client.pop(name) for name in list(client) if name.startswith(PREFIXES)}
    choice = _choice(given)
    return Options(
        bootstrap_servers=servers.strip(),
        client=_client(client),
        access=Access.read(access),
        given=frozenset(given),
        choice=choice,
        formats=decoding.asked(given, choice.names if isinstance(choice, Topics) else ()),
        starting=_bound(given, "starting"),
        ending=_bound(given, "ending"),
        **values,
    )


# What the values look like ---------------------------------------------------------------------------


def _boolean(name: str, value: str) -> bool:
    if value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    raise ConfigError(name, value, 'allowed: "true" or "false"')


def _whole(least: int, most: int = (1 << 63) - 1) -> Callable[[str, str], int]:
    def read(name: str, value: str) -> int:
        if re.fullmatch(r"[+-]?[0-9]+", value.strip()) and least <= int(value) <= most:
            return int(value)
        limit = f"from {least} to {most}" if most < (1 << 63) - 1 else f"of at least {least}"
        raise ConfigError(name, value, f"allowed: a whole number {limit}")

    return read


def _one_of(*allowed: str) -> Callable[[str, str], str]:
    def read(name: str, value: str) -> str:
        if value.strip().lower() in allowed:
            return value.strip().lower()
        raise ConfigError(name, value, f"allowed: {', '.join(allowed)}")

    return read


def _text(name: str, value: str) -> str:
    if value.strip():
        return value.strip()
    raise ConfigError(name, value, "it must not be empty")


_UNITS_MS = {
    "": 1, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000,
}  # fmt: skip


def _duration_ms(name: str, value: str) -> int:
    """A time as Spark writes it: ``500ms``, ``30s``, ``15m``, ``2h``, ``1d``; a bare number is ms."""
    match = re.fullmatch(r"([0-9]+)\s*([a-z]*)", value.strip().lower())
    if match and match[2] in _UNITS_MS:
        return int(match[1]) * _UNITS_MS[match[2]]
    raise ConfigError(name, value, "allowed: a time such as 500ms, 30s, 15m, 2h or 1d")


def _json_object(name: str, value: str, shape: str) -> dict[str, object]:
    try:
        read: object = json.loads(value, object_pairs_hook=_no_twice)
    except ValueError as e:
        raise ConfigError(name, value, f"allowed: JSON such as {shape} ({e})") from None
    if not isinstance(read, dict):
        raise ConfigError(name, value, f"allowed: JSON such as {shape}")
    return cast("dict[str, object]", read)


def _no_twice(pairs: list[tuple[str, object]]) -> dict[str, object]:
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{name!r} is there twice")
    return dict(pairs)


def _each_partition(name: str, value: str, shape: str) -> dict[TopicPartition, int]:
    """``{"flights": {"0": 5}}`` as a map of partitions. Offsets copied from a query's progress carry topic
    topics' ids and where newcomers began under keys that begin with ``@``: these are skipped.
    """
    found: dict[TopicPartition, int] = {}
    for topic, partitions in _json_object(name, value, shape).items():
        if topic.startswith("@"):
            continue
        if not isinstance(partitions, dict):
            raise ConfigError(name, value, f"allowed: JSON such as {shape}")
        for partition, number in cast("dict[str, object]", partitions).items():
            digits = partition.isascii() and partition.isdigit()
            if not digits or isinstance(number, bool) or not isinstance(number, int):
                raise ConfigError(name, value, f"allowed: JSON such as {shape}")
            found[TopicPartition(topic, int(partition))] = number
    return found


# Which partitions --------------------------------------------------------------------------------------


def _choice(given: Mapping[str, str]) -> Choice | None:
    chosen = [name for name in ("subscribe", "subscribePattern", "assign") if name in given]
    if len(chosen) > 1:
        raise ConfigError(chosen[1], given[chosen[1]], f"only one of {' and '.join(chosen)} may be given")
    if not chosen:
        return None
    name, value = chosen[0], given[chosen[0]]
    if name == "subscribe":
        names = tuple(dict.fromkeys(part.strip() for part in value.split(",") if part.strip()))
        if not names:
            raise ConfigError(name, value, "give at least one topic, several with commas between")
        return Topics(names)
    if name == "subscribePattern":
        _text(name, value)
        matcher(value)
        return Pattern(value)
    return Assigned(_assigned(name, value))


def _assigned(name: str, value: str) -> tuple[TopicPartition, ...]:
    shape = '{"flights": [0, 1]}'
    found: set[TopicPartition] = set()
    for topic, partitions in _json_object(name, value, shape).items():
        if not isinstance(partitions, list):
            raise ConfigError(name, value, f"allowed: JSON such as {shape}")
        for partition in cast("list[object]", partitions):
            if isinstance(partition, bool) or not isinstance(partition, int) or partition < 0:
                raise ConfigError(name, value, f"allowed: JSON such as {shape}")
            found.add(TopicPartition(topic, partition))
    if not found:
        raise ConfigError(name, value, f"give at least one partition, such as {shape}")
    return tuple(sorted(found))


# From where to where --------------------------------------------------------------------------------------


def _bound(given: Mapping[str, str], end: Literal["starting", "ending"]) -> Bound | None:
    """One time for all beats a time for each, and that beats offsets, as in Spark's own source. All are
    checked.
    """
    found: list[Bound] = []
    if (name := f"{end}Timestamp") in given:
        found.append(Since(_whole(0)(name, given[name])))
    if (name := f"{end}OffsetsByTimestamp") in given:
        times = _each_partition(name, given[name], '{"flights": {"0": 1700000000000}}')
        for time in times.values():
            _whole(0)(name, str(time))
        found.append(SinceEach(times))
    if (name := f"{end}Offsets") in given:
        found.append(_offsets(name, given[name]))
    return found[0] if found else None


def _offsets(name: str, value: str) -> Bound:
    edge = value.strip().lower()
    if edge in ("earliest", "latest"):
        return Everywhere("earliest" if edge == "earliest" else "latest")
    shape = '"earliest", "latest" or {"flights": {"0": 23, "1": -2}} (-2 is earliest, -1 latest)'
    offsets: dict[TopicPartition, int | Edge] = {}
    for partition, number in _each_partition(name, value, shape).items():
        if number < -2:
            raise ConfigError(name, value, f"allowed: {shape}; {number} is not an offset")
        offsets[partition] = "earliest" if number == -2 else "latest" if number == -1 else number
    return Each(offsets)


def _refuse_edge(name: str, bound: Bound | None, edge: Edge, number: int) -> None:
    if isinstance(bound, Each):
        for partition, where in bound.offsets.items():
            if where == edge:
                why = f"a batch can't {'start' if name.startswith('start') else 'end'} at {edge} ({number})"
                raise ConfigError(name, f"{partition.topic}-{partition.partition}: {number}", why)


# kafka.*: our own client -----------------------------------------------------------------------------


def _client(given: Mapping[str, str]) -> dict[str, object]:
    """The ``kafka.*`` options, read; the keys keep Kafka's dotted names. Says loudly what can't be
    honoured.
    """
    client: dict[str, object] = {}
    for key, value in given.items():
        name = f"kafka.{key}"
        if key in _REFUSED:
            raise ConfigError(name, value, _REFUSED[key])
        if key in _CLIENT:
            client[key] = _CLIENT[key](name, value)
        elif key not in _WITHOUT_EFFECT:
            near = difflib.get_close_matches(key, _CLIENT, n=1)
            hint = f"did you mean kafka.{near[0]}?" if near else f"allowed: {', '.join(sorted(_CLIENT))}"
            raise ConfigError(name, shown(name, value), f"kproto's client has no such option; {hint}")
    return client


_REFUSED = {
    "auto.offset.reset": "use startingOffsets and failOnDataLoss",
    "enable.auto.commit": "the checkpoint keeps the position; commitGroupId shows it to lag tools",
    "key.deserializer": "keys are read as binary; key.format decodes them",
    "value.deserializer": "values are read as binary; value.format decodes them",
    "key.serializer": "keys are written as they are, string or binary",
    "value.serializer": "values are written as they are, string or binary",
    "interceptor.classes": "there is no Java client here that could run them",
    "metric.reporters": "there is no Java client here that could run them",
    "config.providers": "there is no Java client here that could run them; put the value itself",
    "partitioner.class": "there is no Java here that could run it; give the rows a column partition",
    "partitioner.ignore.keys": "murmur2 of the key decides; give the rows a column partition",
    "transactional.id": "the sink writes at least once, without transactions, as Spark's own does",
    "transaction.timeout.ms": "the sink writes at least once, without transactions",
    "transaction.two.phase.commit.enable": "the sink writes at least once, without transactions",
}

# Membership of a group, which neither Spark's source nor this one uses, and the JVM client's own buffers,
# metrics and ways of finding brokers again.
_WITHOUT_EFFECT = frozenset(
    {
        "group.id", "group.instance.id", "group.protocol", "group.remote.assignor",
        "session.timeout.ms", "heartbeat.interval.ms", "max.poll.interval.ms", "max.poll.records",
        "partition.assignment.strategy", "auto.commit.interval.ms", "exclude.internal.topics",
        "share.acknowledgement.mode", "share.acquire.mode",
        "internal.throw.on.fetch.stable.offset.unsupported",
        "receive.buffer.bytes", "send.buffer.bytes", "client.dns.lookup", "connections.max.idle.ms",
        "socket.connection.setup.timeout.max.ms", "metadata.max.idle.ms",
        "metadata.recovery.strategy", "metadata.recovery.rebootstrap.trigger.ms",
        "metrics.recording.level", "metrics.num.samples", "metrics.sample.window.ms",
        "enable.metrics.push", "retries",
        "partitioner.adaptive.partitioning.enable", "partitioner.availability.timeout.ms",
    }
)  # fmt: skip


def _acks(name: str, value: str) -> str:
    if value.strip() in ("all", "-1", "1", "0"):
        return "all" if value.strip() == "-1" else value.strip()
    raise ConfigError(name, value, 'allowed: "all", "1" or "0"')


_INT32 = (1 << 31) - 1

_CLIENT: dict[str, Callable[[str, str], object]] = {
    "client.id": _text,
    "client.rack": _text,
    "isolation.level": _one_of("read_uncommitted", "read_committed"),
    "check.crcs": _boolean,
    "fetch.min.bytes": _whole(0, _INT32),
    "fetch.max.bytes": _whole(1, _INT32),
    "fetch.max.wait.ms": _whole(0, _INT32),
    "max.partition.fetch.bytes": _whole(1, _INT32),
    "request.timeout.ms": _whole(1, _INT32),
    "default.api.timeout.ms": _whole(1, _INT32),
    "retry.backoff.ms": _whole(1, _INT32),
    "retry.backoff.max.ms": _whole(1, _INT32),
    "reconnect.backoff.ms": _whole(1, _INT32),
    "reconnect.backoff.max.ms": _whole(1, _INT32),
    "socket.connection.setup.timeout.ms": _whole(1, _INT32),
    "allow.auto.create.topics": _boolean,
    "metadata.max.age.ms": _whole(1, _INT32),
    "acks": _acks,
    "compression.type": _one_of("none", "gzip", "snappy", "lz4", "zstd"),
    "compression.gzip.level": _whole(-1, 9),
    "compression.lz4.level": _whole(1, 17),
    "compression.zstd.level": _whole(-131072, 22),
    "linger.ms": _whole(0, _INT32),
    "batch.size": _whole(0, _INT32),
    "enable.idempotence": _boolean,
    "delivery.timeout.ms": _whole(1, _INT32),
    "max.request.size": _whole(1, _INT32),
    "max.block.ms": _whole(0, _INT32),
    "buffer.memory": _whole(1),
    "max.in.flight.requests.per.connection": _whole(1, _INT32),
}

# Our own options: documented name -> (attribute of Options, reader) ---------------------------------------

_PLAIN: dict[str, tuple[str, Callable[[str, str], object]]] = {
    "startingOffsetsByTimestampStrategy": ("starting_without_match", _one_of("error", "latest")),
    "maxOffsetsPerTrigger": ("max_offsets_per_trigger", _whole(1)),
    "minOffsetsPerTrigger": ("min_offsets_per_trigger", _whole(1)),
    "maxTriggerDelay": ("max_trigger_delay_ms", _duration_ms),
    "minPartitions": ("min_partitions", _whole(1, _INT32)),
    "maxRecordsPerPartition": ("max_records_per_partition", _whole(1)),
    "failOnDataLoss": ("fail_on_data_loss", _boolean),
    "includeHeaders": ("include_headers", _boolean),
    "kafkaConsumer.pollTimeoutMs": ("poll_timeout_ms", _whole(1)),
    "fetchOffset.numRetries": ("fetch_offset_retries", _whole(0, _INT32)),
    "fetchOffset.retryIntervalMs": ("fetch_offset_retry_interval_ms", _whole(0, _INT32)),
    "commitGroupId": ("commit_group_id", _text),
    "topic": ("topic", _text),
}

_SOURCE_ONLY = frozenset(_PLAIN) - {"topic", "includeHeaders"} | {
    "subscribe", "subscribePattern", "assign", "startingOffsets", "startingOffsetsByTimestamp",
    "startingTimestamp", "endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp",
    *decoding.NAMES,
}  # fmt: skip

# groupIdPrefix names the JVM source's throw-away groups: accepted, and without effect here.
_NAMES = {name.lower(): name for name in [*_PLAIN, *_SOURCE_ONLY, "groupIdPrefix"]}

# Spark puts these among a source's or sink's options by itself, or users set them for all formats.
_SPARKS_OWN = frozenset({"checkpointlocation", "queryname", "outputmode", "path", "mode", "header"})

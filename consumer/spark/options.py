"""Parses and checks the options of ``format("kproto")`` before a query is planned.

The option names are those of Spark's own Kafka source. To migrate a query, change only its format.

Rules:

* Spark passes option names in lower case. Names are compared without regard to case, and errors show the
  documented names.

* The data source calls `parse` in its constructor, so an invalid option fails at ``load()``. The error
  contains the option, the value and the allowed values. `Options.for_batch`, `Options.for_stream` and
  `Options.for_sink` check what is specific to a batch, a stream or a sink.

* An unknown option is rejected, and the error suggests the most similar known name. If a misspelt
  ``maxOffsetPerTrigger`` were ignored, the query would have no limit.

* Options that Spark's own source ignores are ignored with a warning, so that a program can be migrated
  unchanged. Examples are the limits of a stream in a batch query, and the options of a source in a sink.

* ``kafka.*`` options are passed to kproto's client. The module `security` parses those for TLS and SASL.

* ``kafka.*`` options that would change which records are read, or how they are decoded, are rejected:
  ``auto.offset.reset``, deserializers, ``enable.auto.commit``. Options for group membership are accepted and
  have no effect, because this source does not join a group.
"""

from __future__ import annotations

import difflib
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from kproto.errors import ConfigError

from ..addresses import addresses
from ..security.option_names import mask_secret
from . import values as decoding
from .option_values import boolean, duration_ms, integer, one_of, text
from .security import PLAINTEXT, PREFIXES, SecurityProperties, config_error_with_kafka_names
from .selection import (
    Bound,
    Choice,
    LogEdge,
    Topics,
    check_bound_edge,
    check_bound_order,
    read_bound,
    read_choice,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Options:
    """The parsed options. They can be pickled, and are the same in every process that Spark starts.

    `names` contains the documented names of the options that were set. `for_batch`, `for_stream` and
    `for_sink` use it to find options that they reject or ignore.
    """

    # The repr does not show the addresses: an address that was copied from a URL may contain a password.
    bootstrap_servers: str = field(repr=False)
    client: Mapping[str, object]
    names: frozenset[str]
    access: SecurityProperties = PLAINTEXT
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
    # The option kafkaConsumer.pollTimeoutMs. Its default is 120 s, the default of spark.network.timeout.
    # Spark's own source uses the current value of spark.network.timeout, which a Python source cannot read.
    poll_timeout_ms: int = 120_000
    fetch_offset_retries: int = 3
    fetch_offset_retry_interval_ms: int = 1_000
    commit_group_id: str | None = None
    topic: str | None = None
    transactional_id_prefix: str | None = None
    formats: tuple[decoding.ColumnFormat, ...] = ()

    @property
    def key(self) -> tuple[object, ...]:
        """The key under which the slices of a query share connections in a worker process."""
        return (os.getpid(), self.bootstrap_servers, self.access, *sorted(self.client.items()))

    def text(self, name: str, default: str) -> str:
        """Return the value of a ``kafka.*`` option as a string, or the default. `name` is Kafka's name."""
        return str(self.client.get(name, default))

    def number(self, name: str, default: int) -> int:
        """Return the value of a numeric ``kafka.*`` option, or the default. `name` is Kafka's name."""
        value = self.client.get(name, default)
        assert isinstance(value, int)
        return value

    def with_latest_schemas(self) -> Options:
        """Return a copy of these options, with the latest schema for each column without a schema.

        Raises NoSuchSchema if a subject has no schema, and RegistryFailed if a request fails.
        """
        return replace(
            self, formats=tuple(column_format.with_latest_schema() for column_format in self.formats)
        )

    def for_batch(self) -> Options:
        """Return these options, checked for ``spark.read``."""
        self.for_reading()
        self._reject_if_set("commitGroupId", "it is for streams (spark.readStream); remove it")
        for name in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"):
            if name in self.names:
                log.warning("%s is ignored: it is for streams (spark.readStream), and this is a batch", name)
        if isinstance(self.starting, LogEdge) and self.starting.edge == "latest":
            raise ConfigError(
                "startingOffsets",
                "latest",
                'a batch that starts at the end of the log reads no record; use "earliest" or JSON',
            )
        if isinstance(self.ending, LogEdge) and self.ending.edge == "earliest":
            raise ConfigError(
                "endingOffsets",
                "earliest",
                'a batch that ends at the start of the log reads no record; use "latest" or JSON',
            )
        check_bound_edge("startingOffsets", self.starting, "latest", -1)
        check_bound_edge("endingOffsets", self.ending, "earliest", -2)
        check_bound_order(self.starting, self.ending)
        return self

    def for_stream(self) -> Options:
        """Return these options, checked for ``spark.readStream``."""
        self.for_reading()
        for name in ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets"):
            self._reject_if_set(name, "a stream has no end; it is for batches (spark.read)")
        return self

    def for_sink(self) -> Options:
        """Return these options, checked for ``df.write`` and ``df.writeStream``."""
        for name in sorted(self.names & _SOURCE_ONLY):
            if name in _KPROTO_ONLY:
                self._reject_if_set(name, "it is for reading, not for writing; remove it")
            log.warning("%s is ignored: it is for reading, and this writes", name)
        if self.transactional_id_prefix is None and "transaction.timeout.ms" in self.client:
            timeout = self.client["transaction.timeout.ms"]
            raise ConfigError(
                "kafka.transaction.timeout.ms", timeout, "it works only with transactionalIdPrefix"
            )
        return self

    def for_reading(self) -> None:
        """Check the options that batches and streams have in common."""
        if self.choice is None:
            self._reject_if_set("topic", "it is for writing; set subscribe to the topics to read")
            self._reject_if_set("path", "load() takes no name; set subscribe to the topics to read")
            raise ConfigError("subscribe", None, "set one of subscribe, subscribePattern and assign")
        if self.topic is not None:
            log.warning("topic is ignored: it is for writing, and this reads")
        min_offsets, max_offsets = self.min_offsets_per_trigger, self.max_offsets_per_trigger
        if min_offsets is not None and max_offsets is not None and min_offsets > max_offsets:
            raise ConfigError(
                "minOffsetsPerTrigger",
                min_offsets,
                f"it must be at most maxOffsetsPerTrigger, which is {max_offsets}",
            )
        self._reject_if_set("transactionalIdPrefix", "it is for writing; remove it")
        decoded_columns = {column_format.column for column_format in self.formats}
        for name in sorted(self.names & decoding.NAMES):
            column = name.partition(".")[0]
            if column in decoding.COLUMNS and column not in decoded_columns:
                raise ConfigError(name, "(given)", f"it works only with {column}.format; set both")

    def _reject_if_set(self, name: str, reason: str) -> None:
        """Raise ConfigError with this reason if the option is set."""
        if name in self.names:
            raise ConfigError(name, "(given)", reason)


def parse(options: Mapping[str, str]) -> Options:
    """Parse the options that Spark passes. Raises ConfigError for the first invalid option."""
    if not options:
        raise ConfigError("kafka.bootstrap.servers", None, f"no options were passed. {_NO_TABLES}")
    values, client = _divide_options(options)
    servers = client.pop("bootstrap.servers", "")
    if not servers.strip():
        for key in difflib.get_close_matches("bootstrap.servers", client, n=1, cutoff=0.75):
            hint = "the option does not exist; did you mean kafka.bootstrap.servers?"
            raise ConfigError(f"kafka.{key}", client[key], hint)
        raise ConfigError(
            "kafka.bootstrap.servers", servers, "set it to HOST:PORT; separate several addresses by commas"
        )

    parsed: dict[str, Any] = {
        attribute: parser(name, values[name])
        for name, (attribute, parser) in _PARSERS.items()
        if name in values
    }
    security = SecurityProperties.read(
        {name: client.pop(name) for name in list(client) if name.startswith(PREFIXES)}
    )
    try:
        addresses(servers, security)
    except ConfigError as error:
        raise config_error_with_kafka_names(error, ("bootstrap_servers", "security_protocol")) from None
    choice = read_choice(values)
    return Options(
        bootstrap_servers=servers.strip(),
        client=_parse_client_options(client),
        access=security,
        names=frozenset([*values, *(["path"] if "path" in map(str.lower, options) else [])]),
        choice=choice,
        formats=decoding.read_formats(values, choice.names if isinstance(choice, Topics) else ()),
        starting=read_bound(values, "starting"),
        ending=read_bound(values, "ending"),
        **parsed,
    )


def _divide_options(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the options of the source and sink, and the ``kafka.*`` options without their prefix.

    The options of the source and sink have their documented names, and the ``kafka.*`` options are in lower
    case. Raises ConfigError for an option that does not exist.
    """
    values: dict[str, str] = {}
    client: dict[str, str] = {}
    for key, value in options.items():
        name = key.lower()
        if name == "provider":
            raise ConfigError(key, value, _NO_TABLES)
        if name.startswith("kafka."):
            client[name[len("kafka.") :]] = value
        elif name in _NAMES:
            values[_NAMES[name]] = value
        elif name not in _IGNORED_NAMES and not name.startswith(_IGNORED_PREFIXES):
            hint = f"the option does not exist; {_suggest_name(name)}"
            raise ConfigError(key, mask_secret(key, value), hint)
    return values, client


def _suggest_name(name: str) -> str:
    """Return a suggestion for an unknown option. `name` is its name in lower case."""
    dotted = name.replace("_", ".")
    if dotted in {"bootstrap.servers", *_CLIENT, *_REFUSED, *_WITHOUT_EFFECT}:
        return f"did you mean kafka.{dotted}?"
    if dotted.startswith(PREFIXES):
        names = "kafka.security.protocol, kafka.sasl.mechanism, kafka.sasl.jaas.config, kafka.ssl.*"
        return f"the names of security options are Java's: {names}"
    if similar := difflib.get_close_matches(dotted, ["bootstrap.servers"], n=1, cutoff=0.75):
        return f"did you mean kafka.{similar[0]}?"
    if name == "mode":
        return "for values that cannot be decoded, set value.onError"
    similar = difflib.get_close_matches(name, _NAMES, n=1)
    if similar:
        return f"did you mean {_NAMES[similar[0]]}?"
    return f"allowed: {', '.join(sorted(_NAMES.values()))}, and Kafka's own options with the prefix kafka."


# ---- kafka.*: options of kproto's client


def _parse_client_options(options: Mapping[str, str]) -> dict[str, object]:
    """Return the parsed values of the ``kafka.*`` options, by Kafka's dotted names.

    Both `options` and the result have the names without the prefix. Raises ConfigError for options that are
    unknown or not supported.
    """
    client: dict[str, object] = {}
    for key, value in options.items():
        name = f"kafka.{key}"
        if key in _REFUSED:
            raise ConfigError(name, value, _REFUSED[key])
        if key in _MAY_BE_EMPTY and not value.strip():
            continue  # As in Java.
        if key in _CLIENT:
            client[key] = _CLIENT[key](name, value)
        elif key not in _WITHOUT_EFFECT:
            similar = difflib.get_close_matches(key, _CLIENT, n=1)
            hint = (
                f"did you mean kafka.{similar[0]}?" if similar else f"allowed: {', '.join(sorted(_CLIENT))}"
            )
            raise ConfigError(
                name, mask_secret(key, value), f"neither the source nor the sink has the option; {hint}"
            )
    return client


# Options that are rejected, with the reason. Every option of kproto's clients is in _REFUSED, _WITHOUT_EFFECT
# or _CLIENT.
_REFUSED = {
    "auto.offset.reset": "use startingOffsets and failOnDataLoss",
    "enable.auto.commit": "the checkpoint stores the position; set commitGroupId to show it to lag tools",
    "key.deserializer": "keys are read as binary; key.format decodes them",
    "value.deserializer": "values are read as binary; value.format decodes them",
    "key.serializer": "keys are written as they are, string or binary",
    "value.serializer": "values are written as they are, string or binary",
    "partitioner": "a query calls no functions of the client; add a column partition to the rows",
    "interceptors": "a query calls no interceptors; change the rows in the query",
    "dialer": "a query calls no functions of the client",
    "enable.partition.eof": "a query reports no events; a batch ends at endingOffsets",
    "stall.report.ms": "a query reports no events; kafkaConsumer.pollTimeoutMs limits a read without records",
    "on.new.partition": "a stream reads new partitions from their start; remove it",
    "on.out.of.range": "use failOnDataLoss",
    "enable.auto.offset.store": "the checkpoint stores the position; remove it",
    "policy": "it is for the members of a group, and a query has no member; remove it",
    "max.decompressed.bytes": "a query has the consumer's default; remove it",
    "receive.message.max.bytes": "the source derives it from kafka.max.partition.fetch.bytes",
    "connections.per.broker": "the sink has the producer's default; remove it",
    "compression.level": "use kafka.compression.gzip.level, kafka.compression.lz4.level or "
    "kafka.compression.zstd.level",
    "interceptor.classes": "kproto has no Java client that could run them; remove it",
    "metric.reporters": "kproto has no Java client that could run them; remove it",
    "config.providers": "kproto has no Java client that could run them; set the values themselves",
    "partitioner.class": "kproto does not run Java classes; add a column partition to the rows",
    "partitioner.ignore.keys": "the partition is chosen by murmur2 of the key; add a column partition to "
    "the rows",
    "transactional.id": "each task needs its own id; set transactionalIdPrefix",
    "transaction.two.phase.commit.enable": "each task commits its own transaction; set transactionalIdPrefix",
}

# Options without effect: those for group membership, because this source does not join a group, and those
# that tune the Java client itself, such as its buffers, metrics and reconnection.
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
        "retries",
        "partitioner.adaptive.partitioning.enable", "partitioner.availability.timeout.ms",
    }
)  # fmt: skip


def _parse_acks(name: str, value: str) -> str:
    if value.strip() in ("all", "-1", "1", "0"):
        return "all" if value.strip() == "-1" else value.strip()
    raise ConfigError(name, value, 'allowed: "all", "1" or "0"')


_INT32 = (1 << 31) - 1
# The options for which an empty value selects the default.
_MAY_BE_EMPTY = ("client.id", "client.rack")


def _parse_zero_as_one(name: str, value: str) -> int:
    """Parse a number that may be 0 in Java's clients, and replace 0 with 1, which has the same effect."""
    return max(1, integer(0, _INT32)(name, value))


_CLIENT: dict[str, Callable[[str, str], object]] = {
    "client.id": text,
    "client.rack": text,
    "isolation.level": one_of("read_uncommitted", "read_committed"),
    "check.crcs": boolean,
    "fetch.min.bytes": integer(0, _INT32),
    "fetch.max.bytes": integer(1, _INT32),
    "fetch.max.wait.ms": integer(0, _INT32),
    "max.partition.fetch.bytes": integer(1, _INT32),
    "request.timeout.ms": integer(1, _INT32),
    "default.api.timeout.ms": integer(1, _INT32),
    "retry.backoff.ms": _parse_zero_as_one,
    "retry.backoff.max.ms": _parse_zero_as_one,
    "reconnect.backoff.ms": _parse_zero_as_one,
    "reconnect.backoff.max.ms": _parse_zero_as_one,
    "socket.connection.setup.timeout.ms": integer(1, _INT32),
    "allow.auto.create.topics": boolean,
    "enable.metrics.push": boolean,
    "metadata.max.age.ms": _parse_zero_as_one,
    "acks": _parse_acks,
    "compression.type": one_of("none", "gzip", "snappy", "lz4", "zstd"),
    "compression.gzip.level": integer(-1, 9),
    "compression.lz4.level": integer(1, 17),
    "compression.zstd.level": integer(-131072, 22),
    "linger.ms": integer(0, _INT32),
    "batch.size": _parse_zero_as_one,
    "enable.idempotence": boolean,
    "transaction.timeout.ms": integer(1, _INT32),
    "delivery.timeout.ms": integer(1, _INT32),
    "max.request.size": integer(1, _INT32),
    "max.block.ms": integer(0, _INT32),
    "buffer.memory": integer(1),
    "max.in.flight.requests.per.connection": integer(1, _INT32),
    "partitioner.rack.aware": boolean,
}

# The options of Spark's source and of kproto: each documented name with an attribute of Options and a parser.

_PARSERS: dict[str, tuple[str, Callable[[str, str], object]]] = {
    "startingOffsetsByTimestampStrategy": ("starting_without_match", one_of("error", "latest")),
    "maxOffsetsPerTrigger": ("max_offsets_per_trigger", integer(1)),
    "minOffsetsPerTrigger": ("min_offsets_per_trigger", integer(1)),
    "maxTriggerDelay": ("max_trigger_delay_ms", duration_ms),
    "minPartitions": ("min_partitions", integer(1, _INT32)),
    "maxRecordsPerPartition": ("max_records_per_partition", integer(1)),
    "failOnDataLoss": ("fail_on_data_loss", boolean),
    "includeHeaders": ("include_headers", boolean),
    "kafkaConsumer.pollTimeoutMs": ("poll_timeout_ms", integer(1)),
    "fetchOffset.numRetries": ("fetch_offset_retries", integer(0, _INT32)),
    "fetchOffset.retryIntervalMs": ("fetch_offset_retry_interval_ms", integer(0, _INT32)),
    "commitGroupId": ("commit_group_id", text),
    "topic": ("topic", text),
    "transactionalIdPrefix": ("transactional_id_prefix", text),
}

_SOURCE_ONLY = frozenset(_PARSERS) - {"topic", "transactionalIdPrefix", "includeHeaders"} | {
    "subscribe", "subscribePattern", "assign", "startingOffsets", "startingOffsetsByTimestamp",
    "startingTimestamp", "endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp",
    *decoding.NAMES,
}  # fmt: skip

# The option groupIdPrefix, which names the temporary groups of Spark's own source, is accepted and has no
# effect.
_NAMES = {name.lower(): name for name in [*_PARSERS, *_SOURCE_ONLY, "groupIdPrefix"]}

# Tables are rejected, because Spark 4.3.0 does not pass their options to the source. It passes only
# `provider` when it creates a table, and nothing when it reads one.
_NO_TABLES = (
    "Spark does not keep the options of a table; create a view: CREATE TEMPORARY VIEW ... USING kproto "
    "OPTIONS ..."
)

# Options that kproto's source has and Spark's own source lacks. A sink rejects these options. It ignores the
# other options of sources, because a program that was written for Spark's own sink may set them.
_KPROTO_ONLY = frozenset({"commitGroupId", *decoding.NAMES})

# The options that are ignored: Spark adds them, or users set them for all formats.
_IGNORED_NAMES = frozenset({"checkpointlocation", "queryname", "outputmode", "path"})
_IGNORED_PREFIXES = ("spark.", "_", "asyncprogresstracking")

"""The options of ``format("kproto")``, parsed and checked before anything is planned.

The names are those of Spark's own Kafka source, so that a query moves over by changing one word. Rules:

* Spark hands option names over in lower case; names are compared without case and shown as documented here.
* Everything is checked in `parse`, which the data source calls in its constructor: a wrong value surfaces
  at ``load()``, with the option, the value and what is allowed. What only makes sense for a batch, a
  stream or a sink is checked by `Options.for_batch`, `Options.for_stream` and `Options.for_sink`.
* An option that doesn't exist is refused, with the nearest name that does: a misspelt
  ``maxOffsetPerTrigger`` that is silently ignored is a query without a limit.
* What Spark's own source ignores, a stream's limits in a batch or options for reading in a sink, is ignored
  with a warning: a program moves over whole.
* ``kafka.*`` goes to our own client; what is about TLS and SASL to `security`. What would change the
  meaning of a read (``auto.offset.reset``, deserializers, ``enable.auto.commit``) is refused; what belongs to
  membership of a group, which this source doesn't use, is accepted and has no effect.
"""

from __future__ import annotations

import difflib
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from kproto.errors import ConfigError

from ..addresses import addresses
from ..security.option_names import shown
from . import values as decoding
from .option_values import boolean, duration_ms, one_of, text, whole
from .security import PLAINTEXT, PREFIXES, Access, in_kafkas_words
from .selection import Bound, Choice, Everywhere, Topics, bound_of, choice_of, refuse_backwards, refuse_edge

log = logging.getLogger(__name__)


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
    transactional_id_prefix: str | None = None
    formats: tuple[decoding.ColumnFormat, ...] = ()

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

    def with_latest_schemas(self) -> Options:
        """The same with the schemas of a registry as they are now. Raises RegistryFailed."""
        return replace(self, formats=tuple(format_.with_latest_schema() for format_ in self.formats))

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
        refuse_edge("startingOffsets", self.starting, "latest", -1)
        refuse_edge("endingOffsets", self.ending, "earliest", -2)
        refuse_backwards(self.starting, self.ending)
        return self

    def for_stream(self) -> Options:
        """These options, checked for ``spark.readStream``."""
        self.for_reading()
        for name in ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets"):
            self._refuse(name, "a stream has no end; it is for batches (spark.read)")
        return self

    def for_sink(self) -> Options:
        """These options, checked for ``df.write`` and ``df.writeStream``."""
        for name in sorted(self.given & _SOURCE_ONLY):
            if name in _OURS:
                self._refuse(name, "it is for reading, not for writing")
            log.warning("%s is ignored: it is for reading, and this writes", name)
        if self.transactional_id_prefix is None and "transaction.timeout.ms" in self.client:
            timeout = self.client["transaction.timeout.ms"]
            raise ConfigError("kafka.transaction.timeout.ms", timeout, "it needs transactionalIdPrefix")
        return self

    def for_reading(self) -> None:
        """Check what a batch and a stream have in common."""
        if self.choice is None:
            self._refuse("topic", "it is for writing; topics to read are given with subscribe")
            self._refuse("path", "load() takes no name; topics to read are given with subscribe")
            raise ConfigError(
                "subscribe", None, "one of subscribe, subscribePattern and assign must be given"
            )
        if self.topic is not None:
            log.warning("topic is ignored: it is for writing, and this reads")
        least, most = self.min_offsets_per_trigger, self.max_offsets_per_trigger
        if least is not None and most is not None and least > most:
            raise ConfigError("minOffsetsPerTrigger", least, f"at most maxOffsetsPerTrigger, which is {most}")
        self._refuse("transactionalIdPrefix", "it is for writing")
        decoded = {format_.column for format_ in self.formats}
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
    if not options:
        raise ConfigError("kafka.bootstrap.servers", None, f"no option came. {_NO_TABLES}")
    for key, value in options.items():
        lower = key.lower()
        if lower == "provider":
            raise ConfigError(key, value, _NO_TABLES)
        if lower.startswith("kafka."):
            client[lower[len("kafka.") :]] = value
        elif lower in _NAMES:
            given[_NAMES[lower]] = value
        elif lower not in _SPARKS_OWN and not lower.startswith(_SPARKS):
            raise ConfigError(key, shown(key, value), f"there is no such option; {_hint(lower)}")
    servers = client.pop("bootstrap.servers", "")
    if not servers.strip():
        raise ConfigError(
            "kafka.bootstrap.servers", servers, "give HOST:PORT, or several with commas between"
        )

    values: dict[str, Any] = {
        attribute: read(name, given[name]) for name, (attribute, read) in _PLAIN.items() if name in given
    }
    access = Access.read({name: client.pop(name) for name in list(client) if name.startswith(PREFIXES)})
    try:
        addresses(servers, access)
    except ConfigError as error:
        raise in_kafkas_words(error, ("bootstrap_servers", "security_protocol")) from None
    choice = choice_of(given)
    return Options(
        bootstrap_servers=servers.strip(),
        client=_client(client),
        access=access,
        given=frozenset([*given, *(["path"] if "path" in map(str.lower, options) else [])]),
        choice=choice,
        formats=decoding.read_formats(given, choice.names if isinstance(choice, Topics) else ()),
        starting=bound_of(given, "starting"),
        ending=bound_of(given, "ending"),
        **values,
    )


def _hint(name: str) -> str:
    """What may be meant by a name, in lower case, that no option has."""
    dotted = name.replace("_", ".")
    if dotted in {"bootstrap.servers", *_CLIENT, *_REFUSED, *_WITHOUT_EFFECT}:
        return f"did you mean kafka.{dotted}?"
    if dotted.startswith(PREFIXES):
        how = "kafka.security.protocol, kafka.sasl.mechanism, kafka.sasl.jaas.config, kafka.ssl.*"
        return f"how to get in is said as in Java: {how}"
    if name == "mode":
        return "value.onError says what becomes of a value that can't be decoded"
    near = difflib.get_close_matches(name, _NAMES, n=1)
    if near:
        return f"did you mean {_NAMES[near[0]]}?"
    return f"allowed: {', '.join(sorted(_NAMES.values()))}, and Kafka's own with kafka. before them"


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
        if key in _MAY_BE_EMPTY and not value.strip():
            continue  # Java's own default
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
    "transactional.id": "each task has an id of its own: give transactionalIdPrefix",
    "transaction.two.phase.commit.enable": "each task commits by itself; give transactionalIdPrefix",
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
_MAY_BE_EMPTY = ("client.id", "client.rack")


def _from_zero(name: str, value: str) -> int:
    """A number that Java's clients let be 0, and ours not: 1 does as well."""
    return max(1, whole(0, _INT32)(name, value))


_CLIENT: dict[str, Callable[[str, str], object]] = {
    "client.id": text,
    "client.rack": text,
    "isolation.level": one_of("read_uncommitted", "read_committed"),
    "check.crcs": boolean,
    "fetch.min.bytes": whole(0, _INT32),
    "fetch.max.bytes": whole(1, _INT32),
    "fetch.max.wait.ms": whole(0, _INT32),
    "max.partition.fetch.bytes": whole(1, _INT32),
    "request.timeout.ms": whole(1, _INT32),
    "default.api.timeout.ms": whole(1, _INT32),
    "retry.backoff.ms": _from_zero,
    "retry.backoff.max.ms": _from_zero,
    "reconnect.backoff.ms": _from_zero,
    "reconnect.backoff.max.ms": _from_zero,
    "socket.connection.setup.timeout.ms": whole(1, _INT32),
    "allow.auto.create.topics": boolean,
    "metadata.max.age.ms": _from_zero,
    "acks": _acks,
    "compression.type": one_of("none", "gzip", "snappy", "lz4", "zstd"),
    "compression.gzip.level": whole(-1, 9),
    "compression.lz4.level": whole(1, 17),
    "compression.zstd.level": whole(-131072, 22),
    "linger.ms": whole(0, _INT32),
    "batch.size": _from_zero,
    "enable.idempotence": boolean,
    "transaction.timeout.ms": whole(1, _INT32),
    "delivery.timeout.ms": whole(1, _INT32),
    "max.request.size": whole(1, _INT32),
    "max.block.ms": whole(0, _INT32),
    "buffer.memory": whole(1),
    "max.in.flight.requests.per.connection": whole(1, _INT32),
}

# Our own options: documented name -> (attribute of Options, reader) ---------------------------------------

_PLAIN: dict[str, tuple[str, Callable[[str, str], object]]] = {
    "startingOffsetsByTimestampStrategy": ("starting_without_match", one_of("error", "latest")),
    "maxOffsetsPerTrigger": ("max_offsets_per_trigger", whole(1)),
    "minOffsetsPerTrigger": ("min_offsets_per_trigger", whole(1)),
    "maxTriggerDelay": ("max_trigger_delay_ms", duration_ms),
    "minPartitions": ("min_partitions", whole(1, _INT32)),
    "maxRecordsPerPartition": ("max_records_per_partition", whole(1)),
    "failOnDataLoss": ("fail_on_data_loss", boolean),
    "includeHeaders": ("include_headers", boolean),
    "kafkaConsumer.pollTimeoutMs": ("poll_timeout_ms", whole(1)),
    "fetchOffset.numRetries": ("fetch_offset_retries", whole(0, _INT32)),
    "fetchOffset.retryIntervalMs": ("fetch_offset_retry_interval_ms", whole(0, _INT32)),
    "commitGroupId": ("commit_group_id", text),
    "topic": ("topic", text),
    "transactionalIdPrefix": ("transactional_id_prefix", text),
}

_SOURCE_ONLY = frozenset(_PLAIN) - {"topic", "transactionalIdPrefix", "includeHeaders"} | {
    "subscribe", "subscribePattern", "assign", "startingOffsets", "startingOffsetsByTimestamp",
    "startingTimestamp", "endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp",
    *decoding.NAMES,
}  # fmt: skip

# groupIdPrefix names the JVM source's throw-away groups: accepted, and without effect here.
_NAMES = {name.lower(): name for name in [*_PLAIN, *_SOURCE_ONLY, "groupIdPrefix"]}

# Spark names the provider when it makes a table, and hands over no option at all when that is read (4.3.0).
_NO_TABLES = (
    "Spark forgets the options of a table; make a view: CREATE TEMPORARY VIEW ... USING kproto OPTIONS ..."
)

# Those that Spark's own source and sink don't know: nobody moves over with them.
_OURS = frozenset({"commitGroupId", *decoding.NAMES})

# Spark puts these among a source's or sink's options by itself, or users set them for all formats.
_SPARKS_OWN = frozenset({"checkpointlocation", "queryname", "outputmode", "path"})
_SPARKS = ("spark.", "_", "asyncprogresstracking")

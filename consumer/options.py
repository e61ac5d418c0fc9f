"""The options of consumers and producers: Kafka's names in snake_case, checked before anything connects.

Every wrong option is a `ConfigError` that names the option, its value and what is allowed; an unknown name
comes with the nearest known one. What Java accepts silently and breaks later is refused here too: a heartbeat
that is not below the session timeout, auto commit without a group.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from kproto.errors import ConfigError
from kproto.group.assignors import ASSIGNORS, Assignor
from kproto.records.compression import codec_number, compress
from kproto.validation import encodable_text

from .other_clients import OPTIONS
from .security.option_names import NAMES, SecurityConfig, shown, unknown_hint

_DURATION = r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?"
_INSTANCE_ID = r"[a-zA-Z0-9._-]{1,249}"  # as Java's Topic.validate, which checks instance ids too

RESETS = ("earliest", "latest", "none")
_RESETS_ALLOWED = 'allowed: "earliest", "latest", "none" or "by_duration:PT1H" (any ISO 8601 duration)'
RECOVERIES = ("rebootstrap", "none")
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


class ConsumerConfig(SecurityConfig, total=False):
    """Keyword arguments of `Consumer` and `AsyncConsumer`; those of `SecurityConfig` are among them."""

    group_id: str | None
    group_instance_id: str | None
    client_id: str
    partition_assignment_strategy: str | Assignor | Iterable[str | Assignor]
    auto_offset_reset: str
    on_new_partition: str
    on_out_of_range: str
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    max_poll_records: int
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    metadata_max_age_ms: int
    fetch_min_bytes: int
    fetch_max_bytes: int
    max_partition_fetch_bytes: int
    fetch_max_wait_ms: int
    isolation_level: str
    check_crcs: bool
    max_decompressed_bytes: int | None
    client_rack: str
    request_timeout_ms: int
    default_api_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    socket_connection_setup_timeout_ms: int
    metadata_recovery_strategy: str
    metadata_recovery_rebootstrap_trigger_ms: int
    allow_auto_create_topics: bool
    exclude_internal_topics: bool
    policy: str


class ConsumerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """A consumer's options with their defaults: Java's, but for those that are explained here."""

    # The consumer group. Without it, the consumer can only use `assign`, and cannot commit.
    group_id: str | None = None
    # Makes this a static member (KIP-345), which can restart within the session timeout without a
    # rebalance.
    group_instance_id: str | None = None
    client_id: str = "kproto"  # The name of this client in the brokers' logs and quotas.
    # One or more of "cooperative-sticky", "range", "roundrobin" and "sticky", or your own
    # `kproto.group.assignors.Assignor`. Java's default has the same two in reverse order. Rebalances are
    # cooperative only if every assignor listed here is (as in Java): use "cooperative-sticky" alone once
    # no member of the group needs range.
    partition_assignment_strategy: tuple[str | Assignor, ...] = ("cooperative-sticky", "range")
    # Where to start without a committed offset: "latest", "earliest", "by_duration:PT1H" (the records of
    # the last hour), or "none" (poll raises).
    auto_offset_reset: str = "latest"
    # The same for a partition created after the first assignment of the group. "latest" would lose the
    # records written before the group noticed the partition.
    on_new_partition: str = "earliest"
    # The same for a position before the start or after the end of the log. "" means the value of
    # auto_offset_reset.
    on_out_of_range: str = ""
    # The coordinator removes the member after this time without a heartbeat.
    session_timeout_ms: int = 45_000
    # The interval of heartbeats: at most a third of the session timeout, so that a lost heartbeat has no
    # effect.
    heartbeat_interval_ms: int = 3_000
    # The member loses its partitions if the application does not call poll for longer than this.
    max_poll_interval_ms: int = 300_000
    # The maximum number of records of one poll. Other fetched records stay in memory for the next poll.
    max_poll_records: int = 500
    # Commit periodically. The records of a poll count as processed at the next poll.
    enable_auto_commit: bool = True
    auto_commit_interval_ms: int = 5_000  # The interval of auto commits.
    # A new partition, or a new topic that matches a pattern, is noticed within this time.
    metadata_max_age_ms: int = 300_000
    fetch_min_bytes: int = 1  # The broker responds when it has this many bytes, or after fetch_max_wait_ms.
    # The maximum size in bytes of a response from one broker. A larger first batch is returned all the
    # same. The consumer buffers up to two such responses, and one more of paused partitions.
    fetch_max_bytes: int = 50 * 1024 * 1024
    max_partition_fetch_bytes: int = 1024 * 1024  # The same for one partition.
    fetch_max_wait_ms: int = 500  # The broker waits at most this long for fetch_min_bytes.
    # With "read_committed", records of open and aborted transactions are not returned.
    isolation_level: str = "read_uncommitted"
    # A batch with a wrong checksum raises an error, and none of its records is returned.
    check_crcs: bool = True
    # The maximum decompressed size of a batch. None means 1 GiB if the bytes look like records. Java has
    # no limit.
    max_decompressed_bytes: int | None = None
    # The rack of this client. Brokers may then redirect it to a closer replica (KIP-392).
    client_rack: str = ""
    request_timeout_ms: int = 30_000  # A request fails if it has no response within this time.
    default_api_timeout_ms: int = 60_000  # The timeout of calls that are made without one.
    retry_backoff_ms: int = 100  # The first backoff before a request is retried. It doubles with each retry.
    retry_backoff_max_ms: int = 1_000  # The maximum retry backoff. Backoffs vary randomly by 20 %.
    # The first backoff before a client reconnects to a broker. It doubles with each attempt.
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1_000  # The maximum reconnect backoff.
    socket_connection_setup_timeout_ms: int = 10_000  # A connection attempt fails after this time.
    # If no known broker is reachable, "rebootstrap" connects to the bootstrap addresses again (KIP-899),
    # and "none" retries the known brokers.
    metadata_recovery_strategy: str = "rebootstrap"
    # With "rebootstrap", the client also starts again at the bootstrap addresses after this time without
    # metadata (KIP-1102).
    metadata_recovery_rebootstrap_trigger_ms: int = 300_000
    # Let the brokers create subscribed topics. Java's default is True, but a misspelt name should not
    # create a topic.
    allow_auto_create_topics: bool = False
    # A pattern does not match internal topics such as __consumer_offsets.
    exclude_internal_topics: bool = True
    # "java" restores Java's behaviour for commits and for a coordinator that does not respond: see
    # docs/differences.md.
    policy: str = "kproto"
    # All options of `SecurityConfig`. None means PLAINTEXT.
    security: Any = None  # a consumer.security.Security

    @property
    def recovers(self) -> bool:
        return self.metadata_recovery_strategy == "rebootstrap"

    @property
    def as_java(self) -> bool:
        return self.policy == "java"


class ProducerConfig(SecurityConfig, total=False):
    """Keyword arguments of `Producer` and `AsyncProducer`; those of `SecurityConfig` are among them."""

    client_id: str
    acks: str | int
    compression_type: str
    compression_level: int | None
    batch_size: int
    linger_ms: int
    buffer_memory: int
    max_block_ms: int
    delivery_timeout_ms: int
    request_timeout_ms: int
    max_request_size: int
    max_in_flight_requests_per_connection: int
    connections_per_broker: int
    enable_idempotence: bool
    transactional_id: str | None
    transaction_timeout_ms: int
    allow_auto_create_topics: bool
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    metadata_max_age_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    socket_connection_setup_timeout_ms: int
    metadata_recovery_strategy: str
    metadata_recovery_rebootstrap_trigger_ms: int


_BATCH = 512 * 1024


class ProducerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """A producer's options with their defaults: Java's, but for those that are explained here."""

    client_id: str = "kproto"  # The name of this client in the brokers' logs and quotas.
    # The replicas that must have a record before it counts as written: "all" in-sync replicas (-1), the
    # leader (1), or none (0).
    acks: int = -1
    compression_type: str = "none"  # none, gzip, snappy, lz4 or zstd. Each batch is compressed as a whole.
    compression_level: int | None = None  # None means the default of the codec.
    # The maximum size in bytes of a batch. Java's default of 16 KiB dates from one request per batch. A
    # larger maximum costs nothing until batches fill, and larger batches cost brokers less. Two of them
    # fit into a request, and into one fetch of a partition. If only buffer_memory is set, the default
    # does not exceed it.
    batch_size: int = _BATCH
    linger_ms: int = 5  # How long a batch that is not full waits for more records.
    # The maximum number of bytes buffered in this process. If the buffer is full, `send` waits.
    buffer_memory: int = 32 * 1024 * 1024
    max_block_ms: int = 60_000  # How long `send` may wait for buffer memory and for metadata.
    # A record (or `send_offsets`) fails if it is not written within this time. It must be at least
    # linger_ms + request_timeout_ms.
    delivery_timeout_ms: int = 120_000
    request_timeout_ms: int = 30_000  # A request fails if it has no response within this time.
    max_request_size: int = 1024 * 1024  # The maximum size in bytes of a request, and of a record.
    # The maximum number of pending requests of a connection. Their order is kept.
    max_in_flight_requests_per_connection: int = 5
    # The maximum number of connections. Another one is opened when all have the maximum number of pending
    # requests.
    connections_per_broker: int = 3
    enable_idempotence: bool = True  # A retried batch is written once, and in order. Requires acks="all".
    # The id for transactions. A producer fences the previous producer with the same id.
    transactional_id: str | None = None
    transaction_timeout_ms: int = 60_000  # The broker aborts a transaction that is open for longer than this.
    # Let the brokers create topics on send. Java's default is True, but a misspelt name should not create
    # a topic.
    allow_auto_create_topics: bool = False
    retry_backoff_ms: int = 100  # The first backoff before a request is retried. It doubles with each retry.
    retry_backoff_max_ms: int = 1_000  # The maximum retry backoff. Backoffs vary randomly by 20 %.
    metadata_max_age_ms: int = 300_000  # A new partition is noticed within this time.
    # The first backoff before a client reconnects to a broker. It doubles with each attempt.
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1_000  # The maximum reconnect backoff.
    socket_connection_setup_timeout_ms: int = 10_000  # A connection attempt fails after this time.
    # If no known broker is reachable, "rebootstrap" connects to the bootstrap addresses again (KIP-899),
    # and "none" retries the known brokers.
    metadata_recovery_strategy: str = "rebootstrap"
    # With "rebootstrap", the client also starts again at the bootstrap addresses after this time without
    # metadata (KIP-1102).
    metadata_recovery_rebootstrap_trigger_ms: int = 300_000
    # All options of `SecurityConfig`. None means PLAINTEXT.
    security: Any = None  # a consumer.security.Security

    @property
    def recovers(self) -> bool:
        return self.metadata_recovery_strategy == "rebootstrap"


def consumer_options(given: Mapping[str, Any]) -> ConsumerOptions:
    """Checks what the user gave; raises ConfigError for the first thing that is wrong."""
    values = _known(ConsumerOptions, given, "a consumer")
    _check(values, _CONSUMER_CHECKS)
    strategy = values.get("partition_assignment_strategy")
    if strategy is not None:
        values["partition_assignment_strategy"] = _assignors(strategy)
    if not values.get("group_id"):
        if values.get("enable_auto_commit"):
            raise ConfigError("enable_auto_commit", True, "committing needs a group_id")
        if values.get("group_instance_id") is not None:
            allowed = "a static member needs a group_id"
            raise ConfigError("group_instance_id", values["group_instance_id"], allowed)
        values["enable_auto_commit"] = False
    if values.get("policy") == "java":
        values.setdefault("on_new_partition", values.get("auto_offset_reset", "latest"))
    options = ConsumerOptions(**values)
    if options.heartbeat_interval_ms >= options.session_timeout_ms:
        if "heartbeat_interval_ms" not in values:
            allowed = f"milliseconds, above heartbeat_interval_ms ({options.heartbeat_interval_ms})"
            raise ConfigError("session_timeout_ms", options.session_timeout_ms, allowed)
        raise ConfigError(
            "heartbeat_interval_ms",
            options.heartbeat_interval_ms,
            f"it must be below session_timeout_ms ({options.session_timeout_ms}), usually a third of it",
        )
    if options.retry_backoff_ms > options.retry_backoff_max_ms:
        allowed = f"at most retry_backoff_max_ms ({options.retry_backoff_max_ms})"
        raise ConfigError("retry_backoff_ms", options.retry_backoff_ms, allowed)
    if options.request_timeout_ms <= options.fetch_max_wait_ms:
        allowed = f"above fetch_max_wait_ms ({options.fetch_max_wait_ms}), or quiet fetches time out"
        raise ConfigError("request_timeout_ms", options.request_timeout_ms, allowed)
    return options


def producer_options(given: Mapping[str, Any]) -> ProducerOptions:
    """Checks what the user gave; raises ConfigError for the first thing that is wrong.

    Raises MissingExtra for a codec whose package is not there.
    """
    values = _known(ProducerOptions, given, "a producer")
    _check(values, _PRODUCER_CHECKS)
    if "acks" in values:
        values["acks"] = {"all": -1, "-1": -1, "0": 0, "1": 1}[str(values["acks"])]
    asked = values.get("enable_idempotence")
    acks = values.get("acks", -1)
    if asked and acks != -1:
        raise ConfigError("acks", given["acks"], 'an idempotent producer needs acks="all"')
    if values.get("transactional_id") is not None and (acks != -1 or asked is False):
        name = "acks" if acks != -1 else "enable_idempotence"
        raise ConfigError(name, given[name], 'transactions need enable_idempotence and acks="all"')
    if acks != -1:
        values["enable_idempotence"] = False
    if values.get("buffer_memory", _BATCH) < _BATCH:
        values.setdefault("batch_size", values["buffer_memory"])
    options = ProducerOptions(**values)
    if "delivery_timeout_ms" not in values:  # as Java's producer does
        least = options.linger_ms + options.request_timeout_ms
        options = msgspec.structs.replace(
            options, delivery_timeout_ms=max(options.delivery_timeout_ms, least)
        )
    if options.enable_idempotence and options.max_in_flight_requests_per_connection > 5:
        raise ConfigError(
            "max_in_flight_requests_per_connection",
            options.max_in_flight_requests_per_connection,
            "at most 5 with enable_idempotence: brokers remember five batches",
        )
    if options.delivery_timeout_ms < options.linger_ms + options.request_timeout_ms:
        least = options.linger_ms + options.request_timeout_ms
        allowed = f"at least linger_ms + request_timeout_ms ({least})"
        raise ConfigError("delivery_timeout_ms", options.delivery_timeout_ms, allowed)
    if options.batch_size > options.buffer_memory:
        allowed = f"at most buffer_memory ({options.buffer_memory})"
        raise ConfigError("batch_size", options.batch_size, allowed)
    try:  # here, where the user sees what is missing, and not where the first batch is sent
        compress(codec_number(options.compression_type), b"", options.compression_level)
    except ConfigError as error:
        raise ConfigError("compression_level", error.value, error.allowed) from None
    return options


def duration_ms(spec: str) -> int | None:
    """The milliseconds of "by_duration:PT1H30M", None for another policy."""
    if not spec.startswith("by_duration:"):
        return None
    found = re.fullmatch(_DURATION, spec.removeprefix("by_duration:"))
    if found is None or not any(found.groups()):
        raise ConfigError("auto_offset_reset", spec, _RESETS_ALLOWED)
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    ms = (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000
    if ms >= 2**63:
        raise ConfigError("auto_offset_reset", spec, f"{_RESETS_ALLOWED}, of less than 2**63 ms")
    return int(ms)


# ---- checks: each raises ConfigError or returns


Check = Callable[[str, Any], None]
T = TypeVar("T")


def _known(options: type[Any], given: Mapping[str, Any], what: str) -> dict[str, Any]:
    names = [*(name for name in options.__struct_fields__ if name != "security"), *NAMES]
    for name, value in given.items():
        if name not in names:
            plain = name.replace(".", "_")
            if other := OPTIONS[what].get(plain) or unknown_hint(name):
                raise ConfigError(name, shown(name, value), f"{what} has no such option; {other}")
            from difflib import get_close_matches

            near = get_close_matches(plain, names, n=1, cutoff=0.6)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(names))}"
            raise ConfigError(name, shown(name, value), f"{what} has no such option; {hint}")
    own = {name: value for name, value in given.items() if name not in NAMES}
    secured = {name: value for name, value in given.items() if name in NAMES}
    if not secured:
        return own
    from .security.options import security_options

    return {**own, "security": security_options(secured)}


def _check(values: Mapping[str, Any], checks: Mapping[str, Check]) -> None:
    for name, value in values.items():
        if name != "security":  # checked already
            checks[name](name, value)


def _number(least: int, most: int = 2**31 - 1) -> Check:
    def check(name: str, value: Any) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ConfigError(name, value, f"a whole number from {least} to {most}")

    return check


def _optional(inner: Check) -> Check:
    def check(name: str, value: Any) -> None:
        if value is not None:
            inner(name, value)

    return check


def _flag(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise ConfigError(name, value, "True or False")


def _text(name: str, value: Any) -> None:
    if not isinstance(value, str):
        raise ConfigError(name, value, "a text")
    encodable_text(name, value)


def _group_id(name: str, value: Any) -> None:
    if value is not None and (not isinstance(value, str) or not value):
        raise ConfigError(name, value, "a text that is not empty, or None for a consumer without a group")
    encodable_text(name, value or "")


def _one_of(allowed: Iterable[Any]) -> Check:
    choices = tuple(allowed)

    def check(name: str, value: Any) -> None:
        if isinstance(value, bool) or value not in choices:
            raise ConfigError(name, value, f"allowed: {', '.join(repr(choice) for choice in choices)}")

    return check


def _reset(name: str, value: Any) -> None:
    if value in RESETS or (name == "on_out_of_range" and value == ""):
        return
    if not isinstance(value, str) or not value.startswith("by_duration:"):
        raise ConfigError(name, value, _RESETS_ALLOWED)
    try:
        duration_ms(value)
    except ConfigError:
        raise ConfigError(name, value, _RESETS_ALLOWED) from None


def _transactional_id(name: str, value: Any) -> None:
    if value is not None and (not isinstance(value, str) or not value):
        raise ConfigError(
            name, value, "a text that is not empty, or None for a producer without transactions"
        )
    encodable_text(name, value or "")


def _instance_id(name: str, value: Any) -> None:
    if value is None:
        return
    if not isinstance(value, str) or value in (".", "..") or not re.fullmatch(_INSTANCE_ID, value):
        raise ConfigError(name, value, "1 to 249 of the characters a-z A-Z 0-9 . _ -, and neither . nor ..")


def _strategy(name: str, value: Any) -> None:
    _assignors(value)


def _assignors(value: Any) -> tuple[str | Assignor, ...]:
    several: Any = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
    alone = callable(value) or not hasattr(several, "__iter__")
    given: list[Any] = [value] if alone else list(several)
    names = [one.name if isinstance(one, Assignor) else one for one in given]
    allowed = (
        f"allowed: {', '.join(sorted(ASSIGNORS))}, or a kproto.group.assignors.Assignor; one or several, "
        "each once"
    )
    if any(callable(one) for one in given):
        allowed = "a function needs a name for the group: kproto.group.assignors.Assignor(NAME, FUNCTION)"
    known = all(isinstance(one, Assignor) or (isinstance(one, str) and one in ASSIGNORS) for one in given)
    if not given or not known or len(set(names)) != len(names):
        raise ConfigError("partition_assignment_strategy", value, allowed)
    return tuple(given)


_CONSUMER_CHECKS: dict[str, Check] = {
    "group_id": _group_id,
    "group_instance_id": _instance_id,
    "client_id": _text,
    "partition_assignment_strategy": _strategy,
    "auto_offset_reset": _reset,
    "on_new_partition": _reset,
    "on_out_of_range": _reset,
    "session_timeout_ms": _number(1),
    "heartbeat_interval_ms": _number(1),
    "max_poll_interval_ms": _number(1),
    "max_poll_records": _number(1),
    "enable_auto_commit": _flag,
    "auto_commit_interval_ms": _number(0),
    "metadata_max_age_ms": _number(1),
    "fetch_min_bytes": _number(0),
    "fetch_max_bytes": _number(1),
    "max_partition_fetch_bytes": _number(1),
    "fetch_max_wait_ms": _number(0),
    "isolation_level": _one_of(("read_uncommitted", "read_committed")),
    "check_crcs": _flag,
    "max_decompressed_bytes": _optional(_number(1)),
    "client_rack": _text,
    "request_timeout_ms": _number(1),
    "default_api_timeout_ms": _number(1),
    "retry_backoff_ms": _number(1),
    "retry_backoff_max_ms": _number(1),
    "reconnect_backoff_ms": _number(1),
    "reconnect_backoff_max_ms": _number(1),
    "socket_connection_setup_timeout_ms": _number(1),
    "metadata_recovery_strategy": _one_of(RECOVERIES),
    "metadata_recovery_rebootstrap_trigger_ms": _number(0),
    "allow_auto_create_topics": _flag,
    "exclude_internal_topics": _flag,
    "policy": _one_of(("kproto", "java")),
}
_PRODUCER_CHECKS: dict[str, Check] = {
    "client_id": _text,
    "acks": _one_of(("all", "-1", "0", "1", -1, 0, 1)),
    "compression_type": _one_of(COMPRESSIONS),
    "compression_level": _optional(_number(-(2**17), 22)),
    "batch_size": _number(1),
    "linger_ms": _number(0),
    "buffer_memory": _number(1),
    "max_block_ms": _number(0),
    "delivery_timeout_ms": _number(1),
    "request_timeout_ms": _number(1),
    "max_request_size": _number(1),
    "max_in_flight_requests_per_connection": _number(1),
    "connections_per_broker": _number(1),
    "enable_idempotence": _flag,
    "transactional_id": _transactional_id,
    "transaction_timeout_ms": _number(1),
    "allow_auto_create_topics": _flag,
    "retry_backoff_ms": _number(1),
    "retry_backoff_max_ms": _number(1),
    "metadata_max_age_ms": _number(1),
    "reconnect_backoff_ms": _number(1),
    "reconnect_backoff_max_ms": _number(1),
    "socket_connection_setup_timeout_ms": _number(1),
    "metadata_recovery_strategy": _one_of(RECOVERIES),
    "metadata_recovery_rebootstrap_trigger_ms": _number(0),
}

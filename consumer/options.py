"""The options of consumers and producers.

The options have Kafka's names in snake_case, and are checked before a client connects.

A new option needs a line in the config class (the keyword arguments of users), in the options class (its
default), and in the table (its check, its description, and its section on the page of options). `help` of the
clients and `docs/reference/client-options.md` are generated from these three places.

An invalid option raises a `ConfigError` that names the option, its value and the allowed values. For an
unknown option the error suggests the most similar name. Values that Java accepts, although they cause
failures later, are rejected as well: for example a heartbeat interval that is not below the session timeout,
and auto commit without a group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Generic, NamedTuple

import msgspec

from kproto.errors import ConfigError
from kproto.group.assignors import ASSIGNORS, Assignor
from kproto.records.compression import codec_number, compress
from kproto.validation import flag

from .dialers import Dialer
from .engine.network.transport import RECEIVE_MESSAGE_MAX_BYTES
from .interceptors import ConsumerInterceptor, ProducerInterceptor, interceptors
from .option_checks import (
    Check,
    assignors,
    choice,
    dialer,
    function_or_object,
    group_id,
    group_protocol,
    instance_id,
    or_none,
    reset,
    text,
    transactional_id,
    whole_number_from,
)
from .other_options import option_hint
from .security.option_names import LIKENESS, NAMES, SecurityConfig, mask_secret
from .serializers import AnyDeserializer, AnyPartitioner, AnySerializer, K, SentK, SentV, V


class Option(NamedTuple):
    """One option: a row of the tables `CONSUMER` and `PRODUCER`."""

    section: str  # The section in docs/reference/client-options.md.
    check: Check
    description: str


def consumer_interceptors(name: str, value: Any) -> tuple[ConsumerInterceptor, ...]:
    """Check the interceptors of a consumer."""
    return interceptors(name, value, ConsumerInterceptor, ("on_consume", "on_commit"))


def producer_interceptors(name: str, value: Any) -> tuple[ProducerInterceptor, ...]:
    """Check the interceptors of a producer."""
    return interceptors(name, value, ProducerInterceptor, ("on_send", "on_acknowledgement"))


class ConsumerConfig(SecurityConfig, Generic[K, V], total=False):
    """The keyword arguments of `Consumer` and `AsyncConsumer`. They include those of `SecurityConfig`.

    `K` and `V` are the types of the keys and values that poll returns.
    """

    group_id: str | None
    group_instance_id: str | None
    group_protocol: str
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
    enable_auto_offset_store: bool
    auto_commit_interval_ms: int
    metadata_max_age_ms: int
    fetch_min_bytes: int
    fetch_max_bytes: int
    receive_message_max_bytes: int
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
    key_deserializer: AnyDeserializer[K] | None
    value_deserializer: AnyDeserializer[V] | None
    interceptors: Iterable[ConsumerInterceptor]
    dialer: Dialer | None
    enable_partition_eof: bool
    stall_report_ms: int | None
    policy: str


class ConsumerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """A consumer's options with their defaults.

    The defaults are those of Java's consumer, except where the option's description in `CONSUMER` gives a
    reason.
    """

    group_id: str | None = None
    group_instance_id: str | None = None
    group_protocol: str = "classic"
    client_id: str = "kproto"
    partition_assignment_strategy: tuple[str | Assignor, ...] = ("cooperative-sticky", "range")
    auto_offset_reset: str = "latest"
    on_new_partition: str = "earliest"
    on_out_of_range: str = ""
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    max_poll_records: int = 500
    enable_auto_commit: bool = True
    enable_auto_offset_store: bool = True
    auto_commit_interval_ms: int = 5_000
    metadata_max_age_ms: int = 300_000
    fetch_min_bytes: int = 1
    fetch_max_bytes: int = 50 * 1024 * 1024
    receive_message_max_bytes: int = RECEIVE_MESSAGE_MAX_BYTES
    max_partition_fetch_bytes: int = 1024 * 1024
    fetch_max_wait_ms: int = 500
    isolation_level: str = "read_uncommitted"
    check_crcs: bool = True
    max_decompressed_bytes: int | None = None
    client_rack: str = ""
    request_timeout_ms: int = 30_000
    default_api_timeout_ms: int = 60_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1_000
    socket_connection_setup_timeout_ms: int = 10_000
    metadata_recovery_strategy: str = "rebootstrap"
    metadata_recovery_rebootstrap_trigger_ms: int = 300_000
    allow_auto_create_topics: bool = False
    exclude_internal_topics: bool = True
    key_deserializer: Any = None
    value_deserializer: Any = None
    interceptors: tuple[ConsumerInterceptor, ...] = ()
    dialer: Any = None
    enable_partition_eof: bool = False
    stall_report_ms: int | None = 60_000
    policy: str = "kproto"
    security: Any = None  # A consumer.security.Security.

    @property
    def recovers(self) -> bool:
        return self.metadata_recovery_strategy == "rebootstrap"

    @property
    def as_java(self) -> bool:
        return self.policy == "java"


CONSUMER: Final[Mapping[str, Option]] = {
    "group_id": Option(
        "Group",
        group_id,
        "The consumer group. A consumer without a group can only use `assign`, and cannot commit.",
    ),
    "group_instance_id": Option(
        "Group",
        instance_id,
        "Makes the consumer a static member (KIP-345), which can restart within the session timeout "
        "without a rebalance.",
    ),
    "group_protocol": Option(
        "Group",
        group_protocol,
        "The protocol of group membership: a name in `kproto.group.members.MEMBERS`. Every broker supports "
        'the protocol "classic".',
    ),
    "client_id": Option(
        "Group",
        text,
        "The name of this client in the brokers' logs and quotas.",
    ),
    "partition_assignment_strategy": Option(
        "Group",
        assignors,
        "One or more of " + ", ".join(f'"{name}"' for name in sorted(ASSIGNORS)) + ", or your own "
        '`kproto.group.assignors.Assignor`. Java\'s default, and that of `policy="java"`, has the same two '
        "assignors in reverse order. "
        "As in Java, rebalances are cooperative only if all listed assignors are cooperative. If no "
        'member of the group needs "range", use "cooperative-sticky" alone.',
    ),
    "session_timeout_ms": Option(
        "Group",
        whole_number_from(1),
        "The coordinator removes the member after this time without a heartbeat.",
    ),
    "heartbeat_interval_ms": Option(
        "Group",
        whole_number_from(1),
        "The interval of heartbeats. It should be at most a third of the session timeout, so that a lost "
        "heartbeat has no effect.",
    ),
    "max_poll_interval_ms": Option(
        "Group",
        whole_number_from(1),
        "The member loses its partitions if the application does not call poll for longer than this.",
    ),
    "auto_offset_reset": Option(
        "Start position",
        reset,
        'Where a partition without a committed offset starts: "latest", "earliest", "by_duration:PT1H" '
        '(the records of the last hour), or "none" (poll raises an error).',
    ),
    "on_new_partition": Option(
        "Start position",
        reset,
        "Where a partition without a committed offset starts if it was created after the first assignment "
        'of the group. The values are those of auto_offset_reset. "latest" would lose the records written '
        "before the group noticed the partition.",
    ),
    "on_out_of_range": Option(
        "Start position",
        reset,
        "Where a partition continues if its position is before the start or after the end of the log. The "
        'values are those of auto_offset_reset; "" means the value of that option.',
    ),
    "max_poll_records": Option(
        "Poll and commit",
        whole_number_from(1),
        "The maximum number of records that a poll returns. Further fetched records stay in memory for "
        "the next poll.",
    ),
    "enable_auto_commit": Option(
        "Poll and commit",
        flag,
        "Commit offsets periodically. The records of a poll count as processed at the next poll.",
    ),
    "enable_auto_offset_store": Option(
        "Poll and commit",
        flag,
        "Store the offsets of processed records for the next commit. If false, auto commits and `commit()` "
        "contain only the offsets that the application passes to `store_offsets`, as with librdkafka.",
    ),
    "auto_commit_interval_ms": Option(
        "Poll and commit",
        whole_number_from(0),
        "The interval of auto commits.",
    ),
    "isolation_level": Option(
        "Poll and commit",
        choice("read_uncommitted", "read_committed"),
        'With "read_committed", records of open and aborted transactions are not returned.',
    ),
    "check_crcs": Option(
        "Poll and commit",
        flag,
        "Check the checksum of each batch. A batch with a wrong checksum raises an error, and none of its "
        "records is returned.",
    ),
    "max_decompressed_bytes": Option(
        "Poll and commit",
        or_none(whole_number_from(1)),
        "The maximum decompressed size in bytes of a batch. None means 1 GiB for data that begins as "
        "records do, and less for other data. Java has no limit.",
    ),
    "key_deserializer": Option(
        "Poll and commit",
        function_or_object("deserialize", "topic, data, headers"),
        "Converts the key of each record that a poll returns: a function of (topic, data, headers), or an "
        "object with such a method `deserialize`. `data` is bytes; a key that is None stays None. For an "
        "AsyncConsumer the function may be a coroutine. If it raises an exception, the records before are "
        "returned, and then poll raises DeserializationError. `poll_columns` still returns bytes.",
    ),
    "value_deserializer": Option(
        "Poll and commit",
        function_or_object("deserialize", "topic, data, headers"),
        "Converts the value of each record that a poll returns, as key_deserializer does for keys.",
    ),
    "interceptors": Option(
        "Poll and commit",
        consumer_interceptors,
        "Objects of classes that extend `consumer.interceptors.ConsumerInterceptor` (KIP-42). They see, and "
        "may change, the records that poll returns, and see the committed offsets. Exceptions are logged.",
    ),
    "enable_partition_eof": Option(
        "Poll and commit",
        flag,
        'Report the event "end" when the application has read a partition to its end: once for each end that '
        "is reached, in the poll after the last record. The name is librdkafka's.",
    ),
    "stall_report_ms": Option(
        "Poll and commit",
        or_none(whole_number_from(1)),
        "If a partition has records, and none of them was returned for this time, the consumer reports the "
        'event "stalled" and logs a warning, with the reason that `Consumer.why` returns. None disables the '
        "report.",
    ),
    "metadata_max_age_ms": Option(
        "Topics",
        whole_number_from(1),
        "The maximum age of metadata. A new partition, or a new topic that matches a pattern, is noticed "
        "within this time.",
    ),
    "allow_auto_create_topics": Option(
        "Topics",
        flag,
        "Let the brokers create subscribed topics. Java's default is True, but a misspelt name should "
        "not create a topic.",
    ),
    "exclude_internal_topics": Option(
        "Topics",
        flag,
        "Keep a pattern from matching internal topics such as __consumer_offsets.",
    ),
    "fetch_min_bytes": Option(
        "Fetch",
        whole_number_from(0),
        "The broker responds to a fetch when it has this many bytes, or after fetch_max_wait_ms.",
    ),
    "fetch_max_wait_ms": Option(
        "Fetch",
        whole_number_from(0),
        "The broker waits at most this long for fetch_min_bytes.",
    ),
    "fetch_max_bytes": Option(
        "Fetch",
        whole_number_from(1),
        "The maximum size in bytes of a fetch response. If the first batch is larger, it is returned "
        "nevertheless. For each broker, the consumer buffers up to two such responses, and one more for "
        "paused partitions.",
    ),
    "receive_message_max_bytes": Option(
        "Fetch",
        whole_number_from(1000),
        "A broker's response of more bytes ends the connection, with an error that names its size. "
        "Responses of fetch_max_bytes plus 512 bytes are always allowed. A larger first batch needs a larger "
        "value. The name and the default are librdkafka's; Java has no limit.",
    ),
    "max_partition_fetch_bytes": Option(
        "Fetch",
        whole_number_from(1),
        "The maximum number of bytes that a fetch response contains for one partition. If the first batch "
        "is larger, it is returned nevertheless.",
    ),
    "client_rack": Option(
        "Fetch",
        text,
        "The rack of this client. Brokers may then direct its fetches to a closer replica (KIP-392).",
    ),
    "request_timeout_ms": Option(
        "Timeouts and retries",
        whole_number_from(1),
        "A request fails if it has no response within this time.",
    ),
    "default_api_timeout_ms": Option(
        "Timeouts and retries",
        whole_number_from(1),
        "The timeout of methods that are called without a timeout.",
    ),
    "retry_backoff_ms": Option(
        "Timeouts and retries",
        whole_number_from(1),
        "The first backoff before a request is retried. It doubles with each retry.",
    ),
    "retry_backoff_max_ms": Option(
        "Timeouts and retries",
        whole_number_from(1),
        "The maximum retry backoff. Backoffs vary randomly by 20 %.",
    ),
    "reconnect_backoff_ms": Option(
        "Timeouts and retries",
        whole_number_from(1),
        "The first backoff before a client reconnects to a broker. It doubles with each attempt.",
    ),
    "reconnect_backoff_max_ms": Option(
        "Timeouts and retries",
        whole_number_from(1),
        "The maximum reconnect backoff.",
    ),
    "socket_connection_setup_timeout_ms": Option(
        "Timeouts and retries",
        whole_number_from(1),
        "A connection attempt fails after this time.",
    ),
    "dialer": Option(
        "Timeouts and retries",
        dialer,
        "A function of (host, port) that opens the connection to a broker and returns a connected socket, "
        "for example through a proxy. TLS and the login run over the socket. The function runs in a thread; "
        "for an asyncio client it may be a coroutine function. A failure is an error of the connection.",
    ),
    "metadata_recovery_strategy": Option(
        "Timeouts and retries",
        choice("rebootstrap", "none"),
        'If no known broker is reachable, "rebootstrap" connects to the bootstrap addresses again '
        '(KIP-899), and "none" retries the known brokers. With "rebootstrap" the client also names the '
        "cluster and node that it expects, so that Kafka 4.4 can reject a misrouted connection (KIP-1242).",
    ),
    "metadata_recovery_rebootstrap_trigger_ms": Option(
        "Timeouts and retries",
        whole_number_from(0),
        'With "rebootstrap", the client also starts again at the bootstrap addresses after this time '
        "without metadata (KIP-1102).",
    ),
    "policy": Option(
        "Group",
        choice("kproto", "java"),
        '"java" selects the behaviour of Java\'s consumer for commits, for errors in rebalances and for a '
        "coordinator that does not respond, and Java's default assignors: see docs/differences.md.",
    ),
}


class ProducerConfig(SecurityConfig, Generic[SentK, SentV], total=False):
    """The keyword arguments of `Producer` and `AsyncProducer`. They include those of `SecurityConfig`.

    `SentK` and `SentV` are the types of the keys and values that `send` accepts.
    """

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
    receive_message_max_bytes: int
    max_request_size: int
    max_in_flight_requests_per_connection: int
    connections_per_broker: int
    enable_idempotence: bool
    transactional_id: str | None
    transaction_timeout_ms: int
    key_serializer: AnySerializer[SentK] | None
    value_serializer: AnySerializer[SentV] | None
    partitioner: AnyPartitioner | None
    interceptors: Iterable[ProducerInterceptor]
    dialer: Dialer | None
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
    """A producer's options with their defaults.

    The defaults are those of Java's producer, except where the option's description in `PRODUCER` gives a
    reason.
    """

    client_id: str = "kproto"
    acks: int = -1
    compression_type: str = "none"
    compression_level: int | None = None
    batch_size: int = _BATCH
    linger_ms: int = 5
    buffer_memory: int = 32 * 1024 * 1024
    max_block_ms: int = 60_000
    delivery_timeout_ms: int = 120_000
    request_timeout_ms: int = 30_000
    receive_message_max_bytes: int = RECEIVE_MESSAGE_MAX_BYTES
    max_request_size: int = 1024 * 1024
    max_in_flight_requests_per_connection: int = 5
    connections_per_broker: int = 3
    enable_idempotence: bool = True
    transactional_id: str | None = None
    transaction_timeout_ms: int = 60_000
    key_serializer: Any = None
    value_serializer: Any = None
    partitioner: Any = None
    interceptors: tuple[ProducerInterceptor, ...] = ()
    dialer: Any = None
    allow_auto_create_topics: bool = False
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    metadata_max_age_ms: int = 300_000
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1_000
    socket_connection_setup_timeout_ms: int = 10_000
    metadata_recovery_strategy: str = "rebootstrap"
    metadata_recovery_rebootstrap_trigger_ms: int = 300_000
    security: Any = None  # A consumer.security.Security.

    @property
    def recovers(self) -> bool:
        return self.metadata_recovery_strategy == "rebootstrap"


PRODUCER: Final[Mapping[str, Option]] = {
    "acks": Option(
        "Delivery guarantees",
        choice("all", "-1", "0", "1", -1, 0, 1),
        'The replicas that must have a record before it counts as written: all in-sync replicas ("all" or '
        "-1), the leader (1), or none (0).",
    ),
    "enable_idempotence": Option(
        "Delivery guarantees",
        flag,
        'Write each batch only once and in order, even if it is retried. Requires acks="all".',
    ),
    "delivery_timeout_ms": Option(
        "Delivery guarantees",
        whole_number_from(1),
        "A record (or `send_offsets`) fails if it is not written within this time. It must be at least "
        "linger_ms + request_timeout_ms.",
    ),
    "transactional_id": Option(
        "Delivery guarantees",
        transactional_id,
        "The id for transactions. A producer fences the previous producer with the same id.",
    ),
    "transaction_timeout_ms": Option(
        "Delivery guarantees",
        whole_number_from(1),
        "The broker aborts a transaction that is open for longer than this.",
    ),
    "client_id": Option(
        "Delivery guarantees",
        text,
        "The name of this client in the brokers' logs and quotas.",
    ),
    "linger_ms": Option(
        "Batches and requests",
        whole_number_from(0),
        "How long a batch that is not full waits for more records.",
    ),
    "batch_size": Option(
        "Batches and requests",
        whole_number_from(1),
        "The maximum size in bytes of a batch. Java's default is 16 KiB. A larger maximum costs nothing "
        "as long as batches are not full, and brokers handle larger batches faster. Two batches of the "
        "default size fit into a request, and into one fetch of a partition. If only buffer_memory is "
        "set, the default does not exceed it.",
    ),
    "compression_type": Option(
        "Batches and requests",
        choice("none", "gzip", "snappy", "lz4", "zstd"),
        "none, gzip, snappy, lz4 or zstd. Each batch is compressed as a whole.",
    ),
    "compression_level": Option(
        "Batches and requests",
        or_none(whole_number_from(-(2**17), 22)),
        "The compression level, on the codec's own scale. None means the default of the codec.",
    ),
    "buffer_memory": Option(
        "Batches and requests",
        whole_number_from(1),
        "The maximum number of bytes that the producer buffers. If the buffer is full, `send` waits.",
    ),
    "max_block_ms": Option(
        "Batches and requests",
        whole_number_from(0),
        "How long `send` may wait for buffer memory and for metadata.",
    ),
    "max_request_size": Option(
        "Batches and requests",
        whole_number_from(1),
        "The maximum size in bytes of a request, and of a record.",
    ),
    "max_in_flight_requests_per_connection": Option(
        "Batches and requests",
        whole_number_from(1),
        "The maximum number of requests in flight on a connection. Records are written in order "
        "nevertheless.",
    ),
    "connections_per_broker": Option(
        "Batches and requests",
        whole_number_from(1),
        "The maximum number of connections to a broker. The client uses more than one if the first has "
        "the maximum number of requests in flight.",
    ),
    "key_serializer": Option(
        "Records",
        function_or_object("serialize", "topic, value, headers"),
        "Converts the key of each record to bytes in `send`: a function of (topic, key, headers) that "
        "returns bytes or None, or an object with such a method `serialize`. A key that is None stays None. "
        "For an AsyncProducer the function may be a coroutine. If it fails, `send` raises "
        "SerializationError. `send_columns` expects bytes.",
    ),
    "value_serializer": Option(
        "Records",
        function_or_object("serialize", "topic, value, headers"),
        "Converts the value of each record to bytes, as key_serializer does for keys.",
    ),
    "partitioner": Option(
        "Records",
        function_or_object("partition", "topic, key, value, partitions, available"),
        "Selects the partition of each record that `send` gets without one: a function of (topic, key, "
        "value, partitions, available) that returns one of `partitions`, or an object with such a method "
        "`partition`. Key and value are bytes or None, and `available` are the partitions that have a "
        "leader. If it fails, `send` raises PartitionerError. By default the hash of the key selects the "
        "partition, as in Java.",
    ),
    "interceptors": Option(
        "Records",
        producer_interceptors,
        "Objects of classes that extend `consumer.interceptors.ProducerInterceptor` (KIP-42). They see, and "
        "may change, the records that `send` gets, and see where they were written. Exceptions are logged.",
    ),
    "allow_auto_create_topics": Option(
        "Metadata",
        flag,
        "Let the brokers create topics on send. Java's default is True, but a misspelt name should not "
        "create a topic.",
    ),
    "metadata_max_age_ms": Option(
        "Metadata",
        whole_number_from(1),
        "The maximum age of metadata. A new partition is noticed within this time.",
    ),
    "receive_message_max_bytes": Option(
        "Options shared with the consumer",
        whole_number_from(1000),
        "A broker's response of more bytes ends the connection, with an error that names its size. "
        "The name and the default are librdkafka's; Java has no limit.",
    ),
    "request_timeout_ms": Option(
        "Options shared with the consumer",
        whole_number_from(1),
        "A request fails if it has no response within this time.",
    ),
    "retry_backoff_ms": Option(
        "Options shared with the consumer",
        whole_number_from(1),
        "The first backoff before a request is retried. It doubles with each retry.",
    ),
    "retry_backoff_max_ms": Option(
        "Options shared with the consumer",
        whole_number_from(1),
        "The maximum retry backoff. Backoffs vary randomly by 20 %.",
    ),
    "reconnect_backoff_ms": Option(
        "Options shared with the consumer",
        whole_number_from(1),
        "The first backoff before a client reconnects to a broker. It doubles with each attempt.",
    ),
    "reconnect_backoff_max_ms": Option(
        "Options shared with the consumer",
        whole_number_from(1),
        "The maximum reconnect backoff.",
    ),
    "socket_connection_setup_timeout_ms": Option(
        "Options shared with the consumer",
        whole_number_from(1),
        "A connection attempt fails after this time.",
    ),
    "dialer": Option(
        "Options shared with the consumer",
        dialer,
        "A function of (host, port) that opens the connection to a broker and returns a connected socket, "
        "for example through a proxy. TLS and the login run over the socket. The function runs in a thread; "
        "for an asyncio client it may be a coroutine function. A failure is an error of the connection.",
    ),
    "metadata_recovery_strategy": Option(
        "Options shared with the consumer",
        choice("rebootstrap", "none"),
        'If no known broker is reachable, "rebootstrap" connects to the bootstrap addresses again '
        '(KIP-899), and "none" retries the known brokers. With "rebootstrap" the client also names the '
        "cluster and node that it expects, so that Kafka 4.4 can reject a misrouted connection (KIP-1242).",
    ),
    "metadata_recovery_rebootstrap_trigger_ms": Option(
        "Options shared with the consumer",
        whole_number_from(0),
        'With "rebootstrap", the client also starts again at the bootstrap addresses after this time without '
        "metadata (KIP-1102).",
    ),
}


# Java's default of partition.assignment.strategy.
JAVA_ASSIGNORS: Final = ("range", "cooperative-sticky")


def consumer_options(config: Mapping[str, Any]) -> ConsumerOptions:
    """Check the options of a consumer. Raise ConfigError for the first invalid option."""
    values = _checked(CONSUMER, config, "a consumer")
    strategy = values.get("partition_assignment_strategy")
    if strategy is not None:
        values["partition_assignment_strategy"] = assignors("partition_assignment_strategy", strategy)
    if "interceptors" in values:
        values["interceptors"] = consumer_interceptors("interceptors", values["interceptors"])
    if not values.get("group_id"):
        if values.get("enable_auto_commit"):
            raise ConfigError("enable_auto_commit", True, "committing needs a group_id")
        if values.get("group_instance_id") is not None:
            allowed = "a static member needs a group_id"
            raise ConfigError("group_instance_id", values["group_instance_id"], allowed)
        values["enable_auto_commit"] = False
    if values.get("policy") == "java":
        if values.get("enable_auto_offset_store") is False:
            allowed = 'True with policy="java": Java\'s consumer commits its positions'
            raise ConfigError("enable_auto_offset_store", False, allowed)
        values.setdefault("on_new_partition", values.get("auto_offset_reset", "latest"))
        values.setdefault("partition_assignment_strategy", JAVA_ASSIGNORS)
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


def producer_options(config: Mapping[str, Any]) -> ProducerOptions:
    """Check the options of a producer. Raise ConfigError for the first invalid option.

    Raises MissingExtra for a codec whose package is missing.
    """
    values = _checked(PRODUCER, config, "a producer")
    if "acks" in values:
        values["acks"] = {"all": -1, "-1": -1, "0": 0, "1": 1}[str(values["acks"])]
    if "interceptors" in values:
        values["interceptors"] = producer_interceptors("interceptors", values["interceptors"])
    idempotence = values.get("enable_idempotence")
    acks = values.get("acks", -1)
    if idempotence and acks != -1:
        raise ConfigError("acks", config["acks"], 'an idempotent producer needs acks="all"')
    if values.get("transactional_id") is not None and (acks != -1 or idempotence is False):
        name = "acks" if acks != -1 else "enable_idempotence"
        raise ConfigError(name, config[name], 'transactions need enable_idempotence and acks="all"')
    if acks != -1:
        values["enable_idempotence"] = False
    if values.get("buffer_memory", _BATCH) < _BATCH:
        values.setdefault("batch_size", values["buffer_memory"])
    options = ProducerOptions(**values)
    # As in Java's producer, the default of delivery_timeout_ms is raised to at least linger_ms +
    # request_timeout_ms.
    if "delivery_timeout_ms" not in values:
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
    # Compress an empty input, so that a missing package raises now and not when the first batch is sent.
    try:
        compress(codec_number(options.compression_type), b"", options.compression_level)
    except ConfigError as error:
        raise ConfigError("compression_level", error.value, error.allowed) from None
    return options


def _checked(table: Mapping[str, Option], config: Mapping[str, Any], client: str) -> dict[str, Any]:
    """Check a client's options and return them. Those of TLS and SASL are combined in `security`."""
    names = [*table, *NAMES]
    for name, value in config.items():
        if name not in names:
            raise unknown_option(name, value, client, names)
    security = {name: value for name, value in config.items() if name in NAMES}
    values = {name: value for name, value in config.items() if name not in NAMES}
    if security:
        from .security.options import security_options

        values["security"] = security_options(security)
    for name, value in values.items():
        if name != "security":
            table[name].check(name, value)
    return values


def unknown_option(name: str, value: Any, client: str, names: Iterable[str]) -> ConfigError:
    """Return the error for an unknown option. It suggests the option that the user may have meant.

    `client` is "a consumer", "a producer" or "an admin client", and `names` are the options that it has.
    """
    plain = name.replace(".", "_")
    hint = option_hint(name, client)
    for kind, table in (("a consumer", CONSUMER), ("a producer", PRODUCER)):
        if hint is None and kind != client and plain in table:
            hint = f"it is an option of {kind}"
    if hint is None:
        from difflib import get_close_matches

        near = get_close_matches(plain, names, n=1, cutoff=LIKENESS)
        own = [*sorted(set(names) - NAMES), "the options of TLS and SASL"]
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(own)}"
    return ConfigError(name, mask_secret(name, value), f"{client} has no such option; {hint}")

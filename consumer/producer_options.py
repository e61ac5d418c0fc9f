"""The options of producers, with the type, default, check and description of each option.

A new option needs a line in each of `ProducerConfig`, `ProducerOptions` and `PRODUCER`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Generic

import msgspec

from kproto.validation import flag

from .dialers import Dialer
from .engine.network.transport import RECEIVE_MESSAGE_MAX_BYTES
from .interceptors import ProducerInterceptor, interceptors
from .option_checks import (
    Option,
    choice,
    dialer,
    function_or_object,
    or_none,
    text,
    transactional_id,
    whole_number_from,
)
from .security.option_names import SecurityConfig
from .serializers import AnyPartitioner, AnySerializer, SentK, SentV


def producer_interceptors(name: str, value: Any) -> tuple[ProducerInterceptor, ...]:
    """Check the interceptors of a producer."""
    return interceptors(name, value, ProducerInterceptor, ("on_send", "on_acknowledgement"))


class ProducerConfig(SecurityConfig, Generic[SentK, SentV], total=False):
    """Keyword arguments of `Producer` and `AsyncProducer`, including all of `SecurityConfig`.

    `SentK` and `SentV` are the types of the keys and values that `send` accepts.
    """

    client_id: str
    client_rack: str
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
    partitioner_rack_aware: bool
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
    enable_metrics_push: bool


# The default of batch_size in bytes. The option's description in `PRODUCER` gives the reasons.
BATCH_SIZE = 512 * 1024


class ProducerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """A producer's options with their defaults.

    The defaults are Java's defaults, except where the option's description in `PRODUCER` gives the
    reason for another default.
    """

    client_id: str = "kproto"
    client_rack: str = ""
    acks: int = -1
    compression_type: str = "none"
    compression_level: int | None = None
    batch_size: int = BATCH_SIZE
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
    partitioner_rack_aware: bool = False
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
    enable_metrics_push: bool = True
    security: Any = None  # A consumer.security.Security.

    @property
    def recovers(self) -> bool:
        """Whether the client may connect to the bootstrap addresses again (KIP-899, KIP-1102)."""
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
        "The maximum size in bytes of a request, of a batch before compression, and of a record.",
    ),
    "max_in_flight_requests_per_connection": Option(
        "Batches and requests",
        whole_number_from(1),
        "The maximum number of requests in flight on a connection. With enable_idempotence, records are "
        "written in order nevertheless.",
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
        "For an AsyncProducer the function may return an awaitable. If it fails, `send` raises "
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
    "partitioner_rack_aware": Option(
        "Records",
        flag,
        "Send records without a key to partitions whose leader is in the rack of this client, if there are "
        "any, and otherwise to all partitions (KIP-1123). Requires client_rack. Has no effect if partitioner "
        "is set.",
    ),
    "client_rack": Option(
        "Records",
        text,
        "The rack of this client, which partitioner_rack_aware compares with the brokers' broker.rack.",
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
    "enable_metrics_push": Option(
        "Options shared with the consumer",
        flag,
        "Whether the client pushes its metrics to brokers that request them (KIP-714). A broker "
        "that requests none is asked again after five minutes, and one without a receiver for metrics never.",
    ),
}

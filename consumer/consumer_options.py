"""The options of consumers: the types and defaults of their values, their checks, and their descriptions.

A new option needs an entry in three places: `ConsumerConfig` (its keyword argument), `ConsumerOptions` (its
default), and `CONSUMER` (its check, its description, and its section on the options page). The import of the
client fails if one of the entries is missing. Spark's source also needs the name of the option, in
`consumer/spark/options.py`.

`help` of the clients and `docs/reference/client-options.md` are generated from `ConsumerConfig`,
`ConsumerOptions` and `CONSUMER`.

`consumer.options` applies the checks of `CONSUMER` when a client is created.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Generic

import msgspec

from kproto.group.assignors import ASSIGNORS, Assignor
from kproto.validation import flag

from .dialers import Dialer
from .engine.network.transport import RECEIVE_MESSAGE_MAX_BYTES, RESPONSE_OVERHEAD_BYTES
from .interceptors import ConsumerInterceptor, interceptors
from .option_checks import (
    Option,
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
    whole_number_from,
)
from .security.option_names import SecurityConfig
from .serializers import AnyDeserializer, K, V


def consumer_interceptors(name: str, value: Any) -> tuple[ConsumerInterceptor, ...]:
    """Check the interceptors of a consumer."""
    return interceptors(name, value, ConsumerInterceptor, ("on_consume", "on_commit"))


class ConsumerConfig(SecurityConfig, Generic[K, V], total=False):
    """Keyword arguments of `Consumer` and `AsyncConsumer`, including all of `SecurityConfig`.

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
    enable_metrics_push: bool
    policy: str


class ConsumerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """A consumer's options with their defaults.

    The defaults are Java's defaults, except where the option's description in `CONSUMER` gives a
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
    enable_metrics_push: bool = True
    policy: str = "kproto"
    security: Any = None  # A consumer.security.Security.

    @property
    def recovers(self) -> bool:
        """Whether the client connects to the bootstrap addresses again if no known broker is reachable."""
        return self.metadata_recovery_strategy == "rebootstrap"

    @property
    def max_response_bytes(self) -> int:
        """The size (bytes) of the largest response that a connection accepts."""
        return max(self.receive_message_max_bytes, self.fetch_max_bytes + RESPONSE_OVERHEAD_BYTES)

    @property
    def as_java(self) -> bool:
        """Whether the consumer uses Java's behaviour where kproto by default deviates from it."""
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
        "The member loses its partitions if the application does not call poll for longer than this. In an "
        "iteration, each record that the application asks for counts as a poll.",
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
        'With "read_committed", records of aborted transactions, and all records from the first open '
        "transaction on, are not returned.",
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
        "AsyncConsumer the function may return an awaitable. If it raises an exception, the records before "
        "the failed one are returned, and then poll raises DeserializationError. `poll_columns` still "
        "returns bytes.",
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
        "nevertheless. For each broker, the consumer buffers up to two such responses. For all paused "
        "partitions together, it buffers at most as much as one more response.",
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
        "A request fails if it has no response within this time. A JoinGroup has max_poll_interval_ms plus "
        "5 s, if that is longer.",
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
    "enable_metrics_push": Option(
        "Timeouts and retries",
        flag,
        "Whether the client pushes its metrics to brokers that request them (KIP-714). A broker "
        "that requests none is asked again after five minutes, and one without a receiver for metrics never.",
    ),
    "policy": Option(
        "Group",
        choice("kproto", "java"),
        '"java" selects the behaviour of Java\'s consumer for commits, for errors in rebalances and for a '
        "coordinator that does not respond, and Java's default assignors: see docs/differences.md.",
    ),
}

"""The option names of other libraries, with kproto's option for each, or why kproto has none.

The names in this module are used only in errors: an error about another library's option suggests the
option of kproto.

All names are in snake_case: `fetch.max.bytes` of librdkafka and Java is listed as `fetch_max_bytes`. The
names of TLS and SASL options are in `consumer/security/option_names.py`.

`tests/conformance/test_other_libraries.py` checks that this module covers every option of the installed
libraries.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .security.option_names import unknown_hint


def _same_advice(names: str, advice: str) -> dict[str, str]:
    """Map several names, separated by spaces, to the same advice."""
    return dict.fromkeys(names.split(), advice)


# Other libraries' options for every kind of client.
_ALL_CLIENTS_OPTIONS: Final[Mapping[str, str]] = {
    "api_version": "not needed: each broker reports its versions",
    "api_version_auto_timeout_ms": "not needed: each broker reports its versions",
    "broker_version_fallback": "not needed: each broker reports its versions",
    "loop": "not needed: the clients for asyncio use the running loop",
    "client_dns_lookup": "not needed: the addresses of a name are tried in turn",
    **_same_advice(
        "bootstrap_server broker_list brokers hosts kafka_bootstrap_server "
        "kafka_bootstrap_servers metadata_broker_list seed_brokers",
        "the addresses of brokers are the first argument",
    ),
    "connections_max_idle_ms": "not needed: brokers close idle connections, and the client reopens them",
    "socket_timeout_ms": "use request_timeout_ms",
    "proxy_url": "use dialer; consumer.proxies has one for proxies",
    "socks5_proxy": "use dialer; consumer.proxies has one for proxies",
    **_same_advice(
        "connect_cb socket_cb resolve_cb",
        "use dialer, a function of (host, port) that returns a connected socket",
    ),
    **_same_advice(
        "receive_buffer_bytes send_buffer_bytes socket_options socket_keepalive_enable "
        "socket_receive_buffer_bytes socket_send_buffer_bytes broker_address_family",
        "use dialer, which can set the options of a socket before it returns the socket",
    ),
    "socket_nagle_disable": "not needed: TCP_NODELAY is set on every socket",
    "bootstrap_timeout_ms": "not needed: each call has a timeout, and the client connects until then",
    "broker_address_ttl": "not needed: addresses are looked up at each connection",
    **_same_advice(
        "api_version_request api_version_request_timeout_ms api_version_fallback_ms",
        "not needed: each broker reports its versions",
    ),
    "topic_metadata_refresh_sparse": "not needed: only the topics in use are requested",
    "topic_metadata_propagation_max_ms": "not needed: a call waits for a new topic until its own timeout",
    "metadata_request_timeout_ms": "use request_timeout_ms",
    "metadata_cluster_check_enable": "not needed: ApiVersions v5 names the cluster and the broker",
    "topic_blacklist": "subscribe with a pattern that excludes the topics",
    "reconnect_backoff_jitter_ms": "not needed: each backoff is varied by 20 %",
    **_same_advice(
        "metric_reporters statistics_interval_ms stats_cb",
        "call metrics()",
    ),
    **_same_advice(
        "metrics_enabled metrics_num_samples metrics_sample_window_ms metrics_recording_level "
        "metric_group_prefix auto_include_jmx_reporter",
        "call metrics(): metrics are always measured, with Java's default windows",
    ),
    **_same_advice(
        "client_software_name client_software_version",
        "no such option: ApiVersions contains the name and version of kproto",
    ),
    **_same_advice(
        "debug log_level log_cb log_queue log_thread_name log_connection_close",
        "not needed: the client logs to the logger kproto.consumer of Python's logging",
    ),
    "config_providers": "not supported: read the secrets before the client is created",
    **_same_advice(
        "kafka_client selector opaque default_topic_conf plugin_library_paths "
        "builtin_features closesocket_cb open_cb enable_random_seed message_copy_max_bytes "
        "enable_sparse_connections socket_max_fails socket_blocking_max_ms "
        "internal_termination_signal internal_throw_on_fetch_stable_offset_unsupported "
        "test_mock_num_brokers test_mock_broker_rtt",
        "no counterpart: it concerns how the other library is built",
    ),
    "ssl_certificate": "use ssl_certfile, which may be the PEM text itself",
    "ssl_key": "use ssl_keyfile, which may be the PEM text itself",
    **_same_advice(
        "ssl_certificate_verify_cb ssl_engine_id ssl_engine_callback_data security_providers "
        "https_ca_location https_ca_pem",
        "use ssl_context, your own",
    ),
    **_same_advice(
        "sasl_login_refresh_buffer_seconds sasl_login_refresh_min_period_seconds "
        "sasl_login_refresh_window_factor sasl_login_refresh_window_jitter",
        "not needed: a token is renewed after 80 % of its lifetime",
    ),
    **_same_advice(
        "sasl_login_connect_timeout_ms sasl_login_read_timeout_ms sasl_login_retry_backoff_ms "
        "sasl_login_retry_backoff_max_ms",
        "no such option: requests for a token have fixed timeouts and backoffs",
    ),
    **_same_advice(
        "oauthbearer_token_refresh_cb sasl_login_class sasl_client_callback_handler_class "
        "enable_sasl_queue sasl_oauthbearer_metadata_authentication_type",
        "use sasl_oauth_token_provider, a function that returns a token",
    ),
    **_same_advice(
        "sasl_oauthbearer_allow_unverified_audience sasl_oauthbearer_allow_unverified_issuer "
        "sasl_oauthbearer_clock_skew_seconds sasl_oauthbearer_expected_audience "
        "sasl_oauthbearer_expected_issuer sasl_oauthbearer_jwks_endpoint_refresh_ms "
        "sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms "
        "sasl_oauthbearer_jwks_endpoint_retry_backoff_ms sasl_oauthbearer_jwks_endpoint_url "
        "sasl_oauthbearer_jwt_validator_class sasl_oauthbearer_scope_claim_name "
        "sasl_oauthbearer_sub_claim_name",
        "not needed: brokers verify tokens, and a client only sends them",
    ),
    **_same_advice(
        "sasl_kerberos_kinit_cmd sasl_kerberos_min_time_before_relogin "
        "sasl_kerberos_ticket_renew_jitter sasl_kerberos_ticket_renew_window_factor",
        "not needed: kinit and the Kerberos library manage tickets",
    ),
    **_same_advice(
        "share_acknowledgement_mode share_acquire_mode",
        "not supported: kproto has no consumers of share groups",
    ),
}

# Other libraries' options for consumers and producers.
_CONSUMER_AND_PRODUCER_OPTIONS: Final[Mapping[str, str]] = {
    "topic_metadata_refresh_interval_ms": "use metadata_max_age_ms",
    "socket_connection_setup_timeout_max_ms": "use socket_connection_setup_timeout_ms, which does not grow",
    "bootstrap_resolve_timeout_ms": "use socket_connection_setup_timeout_ms, which includes the lookup",
    **_same_advice(
        "topic_metadata_refresh_fast_interval_ms topic_metadata_refresh_fast_cnt",
        "use retry_backoff_ms, the first wait between two requests for the metadata of a topic",
    ),
    **_same_advice(
        "throttle_cb background_event_cb enabled_events",
        "use events(function), which reports throttling and other events",
    ),
    "interceptor_classes": "use interceptors",
}

_CONSUMER_OPTIONS: Final[Mapping[str, str]] = {
    "consumer_timeout_ms": "poll(seconds) returns an empty list if there are no records",
    "topics": "subscribe([topic, ...])",
    "topic": "subscribe([topic, ...])",
    "on_assign": "subscribe(topics, listener) with a RebalanceListener",
    "on_revoke": "subscribe(topics, listener) with a RebalanceListener",
    "rebalance_cb": "subscribe(topics, listener) with a RebalanceListener",
    "on_commit": "commit() raises errors, and commit_async() returns a future",
    "error_cb": "calls raise errors, and events(function) reports others",
    "default_offset_commit_callback": "commit() raises errors, and commit_async() returns a future",
    "offset_commit_cb": "commit() raises errors, and commit_async() returns a future",
    "enable_incremental_fetch_sessions": "not needed: fetch sessions are always used (KIP-227)",
    "fetch_error_backoff_ms": "use retry_backoff_ms",
    "fetch_queue_backoff_ms": "use fetch_max_bytes, which limits the records that are fetched ahead",
    "queued_min_messages": "use fetch_max_bytes, which limits the records that are fetched ahead",
    "coordinator_query_interval_ms": "use retry_backoff_ms, the first wait between two requests",
    "group_protocol_type": "not needed: it is always consumer",
    "group_remote_assignor": "not supported: it is an option of the consumer groups of KIP-848",
    **_same_advice(
        "offset_store_method offset_store_path offset_store_sync_interval_ms",
        "store offsets in your own file, and call seek(partition, offset) in the assigned callback",
    ),
    **_same_advice(
        "consume_cb consume_callback_max_messages",
        "call poll(seconds), which returns at most max_poll_records records",
    ),
    "queued_max_messages_kbytes": "use fetch_max_bytes",
    "fetch_message_max_bytes": "use max_partition_fetch_bytes",
    "fetch_wait_max_ms": "use fetch_max_wait_ms",
    "rebalance_timeout_ms": "use max_poll_interval_ms, which is the rebalance timeout as well, as in Java",
    "auto_commit_enable": "use enable_auto_commit",
}

_PRODUCER_OPTIONS: Final[Mapping[str, str]] = {
    "max_in_flight": "use max_in_flight_requests_per_connection",
    "on_delivery": "send(...).add_done_callback(function)",
    "dr_cb": "send(...).add_done_callback(function)",
    "error_cb": "calls raise errors, send(...).exception() returns them, and events(function) reports others",
    "dr_msg_cb": "send(...).add_done_callback(function)",
    "delivery_report_only_error": "send(...).add_done_callback(function), which gets every result",
    "produce_offset_report": "not needed: the result of send(...) has the offset",
    "partitioner_class": "use partitioner",
    "partitioner_cb": "use partitioner",
    "partitioner_ignore_keys": "use partitioner, a function of the topic, key, value and partitions",
    **_same_advice(
        "partitioner_adaptive_partitioning_enable partitioner_availability_timeout_ms "
        "sticky_partitioning_linger_ms",
        "not needed: records without a key are spread as Java's producer does (KIP-794)",
    ),
    **_same_advice(
        "compression_gzip_level compression_lz4_level compression_zstd_level",
        "use compression_level",
    ),
    **_same_advice(
        "enable_gapless_guarantee queuing_strategy msg_order_cmp",
        "not needed: with enable_idempotence the records of a partition are written in order and once",
    ),
    "queue_buffering_backpressure_threshold": "not needed: while requests are in flight, batches fill up",
    "buffer_memory_allocation_strategy": "not needed: memory is allocated as records arrive",
    "metadata_max_idle_ms": "not supported: the producer keeps the metadata of all its topics",
    "transaction_two_phase_commit_enable": "not supported: KIP-939",
    "retries": "use delivery_timeout_ms: a record is retried until then",
    "message_send_max_retries": "use delivery_timeout_ms: a record is retried until then",
    "message_timeout_ms": "use delivery_timeout_ms",
    "request_required_acks": "use acks",
    "compression_codec": "use compression_type",
    "queue_buffering_max_ms": "use linger_ms",
    "queue_buffering_max_kbytes": "use buffer_memory, in bytes",
    "queue_buffering_max_messages": "use buffer_memory, in bytes",
    "batch_num_messages": "use batch_size, in bytes",
    "message_max_bytes": "use max_request_size",
    "max_batch_size": "use batch_size",
}

# Kind of client -> another library's option -> this library's option, or what to use instead.
OPTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "a consumer": {**_ALL_CLIENTS_OPTIONS, **_CONSUMER_AND_PRODUCER_OPTIONS, **_CONSUMER_OPTIONS},
    "a producer": {**_ALL_CLIENTS_OPTIONS, **_CONSUMER_AND_PRODUCER_OPTIONS, **_PRODUCER_OPTIONS},
    "an admin client": {
        **_ALL_CLIENTS_OPTIONS,
        "bootstrap_controllers": "not supported: brokers forward requests to the controller",
    },
}
# Kind of client -> other kind of client -> the entries of `OPTIONS` that only the other kind has.
OTHER_KINDS: Final[Mapping[str, Mapping[str, Mapping[str, str]]]] = {
    "a consumer": {"a producer": _PRODUCER_OPTIONS},
    "a producer": {"a consumer": _CONSUMER_OPTIONS},
    "an admin client": {
        "a consumer or a producer": _CONSUMER_AND_PRODUCER_OPTIONS,
        "a consumer": _CONSUMER_OPTIONS,
        "a producer": _PRODUCER_OPTIONS,
    },
}


def option_hint(name: str, client: str) -> str | None:
    """Return what to use for another library's option, or None if no library has the option.

    `client` is "a consumer", "a producer" or "an admin client".
    """
    snake_case_name = name.replace(".", "_")
    if hint := OPTIONS[client].get(snake_case_name) or unknown_hint(name):
        return hint
    for kind, options in OTHER_KINDS[client].items():
        if snake_case_name in options:
            return f"of {kind}: {options[snake_case_name]}"
    return None

"""Checks the options of a new consumer or producer, before it connects.

The options have Kafka's names in snake_case. The tables `CONSUMER` in `consumer.consumer_options` and
`PRODUCER` in `consumer.producer_options` contain the check of each option.

An invalid option raises a `ConfigError` with the option, its value and the allowed values. For an unknown
option, the error suggests the most similar name.

Some options are also checked against others: the heartbeat interval must be below the session timeout, and
auto commit needs a group. Java makes these two checks as well, but accepts other combinations that are
rejected here. With a request timeout that is not above `fetch_max_wait_ms`, for example, fetches without new
records would time out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec

from kproto.errors import ConfigError
from kproto.records.compression import codec_number, compress

from .consumer_options import CONSUMER, ConsumerOptions, consumer_interceptors
from .option_checks import Option, assignors
from .other_options import option_hint
from .producer_options import BATCH_SIZE, PRODUCER, ProducerOptions, producer_interceptors
from .security.option_names import LIKENESS, NAMES, mask_secret

# Java's default of partition.assignment.strategy.
JAVA_ASSIGNORS: Final = ("range", "cooperative-sticky")


def consumer_options(config: Mapping[str, Any]) -> ConsumerOptions:
    """Check the options of a consumer. Raise ConfigError for the first invalid option."""
    values = _check_options(CONSUMER, config, "a consumer")
    strategy = values.get("partition_assignment_strategy")
    if strategy is not None:
        values["partition_assignment_strategy"] = assignors("partition_assignment_strategy", strategy)
    if "interceptors" in values:
        values["interceptors"] = consumer_interceptors("interceptors", values["interceptors"])
    if not values.get("group_id"):
        _disable_group_options(values)
    if values.get("policy") == "java":
        _set_java_defaults(values)
    options = ConsumerOptions(**values)
    _check_consumer_times(options, is_heartbeat_given="heartbeat_interval_ms" in values)
    return options


def _disable_group_options(values: dict[str, Any]) -> None:
    """Disable auto commit in a consumer without a group. Raise ConfigError for options that need a group."""
    if values.get("enable_auto_commit"):
        raise ConfigError("enable_auto_commit", True, "committing needs a group_id")
    if values.get("group_instance_id") is not None:
        allowed = "a static member needs a group_id"
        raise ConfigError("group_instance_id", values["group_instance_id"], allowed)
    values["enable_auto_commit"] = False


def _set_java_defaults(values: dict[str, Any]) -> None:
    """Set the defaults of policy="java". Raise ConfigError for a value that Java does not support."""
    if values.get("enable_auto_offset_store") is False:
        allowed = 'True with policy="java": Java\'s consumer commits its positions'
        raise ConfigError("enable_auto_offset_store", False, allowed)
    values.setdefault("on_new_partition", values.get("auto_offset_reset", "latest"))
    values.setdefault("partition_assignment_strategy", JAVA_ASSIGNORS)


def _check_consumer_times(options: ConsumerOptions, *, is_heartbeat_given: bool) -> None:
    """Check the intervals, timeouts and backoffs against each other.

    `is_heartbeat_given` says whether the user has set heartbeat_interval_ms, so that an error names the
    option that the user has set.
    """
    if options.heartbeat_interval_ms >= options.session_timeout_ms:
        if not is_heartbeat_given:
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


def producer_options(config: Mapping[str, Any]) -> ProducerOptions:
    """Check the options of a producer. Raise ConfigError for the first invalid option.

    Raises MissingExtra for a codec whose package is missing.
    """
    values = _check_options(PRODUCER, config, "a producer")
    if "acks" in values:
        values["acks"] = {"all": -1, "-1": -1, "0": 0, "1": 1}[str(values["acks"])]
    if "interceptors" in values:
        values["interceptors"] = producer_interceptors("interceptors", values["interceptors"])
    _check_idempotence(values, config)
    if values.get("partitioner_rack_aware") and not values.get("client_rack", "").strip():
        raise ConfigError("partitioner_rack_aware", True, "set client_rack to the rack of this client")
    if values.get("buffer_memory", BATCH_SIZE) < BATCH_SIZE:
        values.setdefault("batch_size", values["buffer_memory"])
    options = ProducerOptions(**values)
    min_delivery_timeout_ms = options.linger_ms + options.request_timeout_ms
    # As in Java's producer, the default of delivery_timeout_ms is raised to this minimum.
    if "delivery_timeout_ms" not in values:
        delivery_timeout_ms = max(options.delivery_timeout_ms, min_delivery_timeout_ms)
        options = msgspec.structs.replace(options, delivery_timeout_ms=delivery_timeout_ms)
    if options.enable_idempotence and options.max_in_flight_requests_per_connection > 5:
        raise ConfigError(
            "max_in_flight_requests_per_connection",
            options.max_in_flight_requests_per_connection,
            "at most 5 with enable_idempotence: brokers remember five batches",
        )
    if options.delivery_timeout_ms < min_delivery_timeout_ms:
        allowed = f"at least linger_ms + request_timeout_ms ({min_delivery_timeout_ms})"
        raise ConfigError("delivery_timeout_ms", options.delivery_timeout_ms, allowed)
    if options.batch_size > options.buffer_memory:
        allowed = f"at most buffer_memory ({options.buffer_memory})"
        raise ConfigError("batch_size", options.batch_size, allowed)
    # Compress an empty input, so that the error for a missing package is raised now, and not when the first
    # batch is sent.
    try:
        compress(codec_number(options.compression_type), b"", options.compression_level)
    except ConfigError as error:
        raise ConfigError("compression_level", error.value, error.allowed) from None
    return options


def _check_idempotence(values: dict[str, Any], config: Mapping[str, Any]) -> None:
    """Check `acks` against idempotence and transactions. Disable idempotence if `acks` excludes it.

    `config` contains the options as the user gave them, for error messages.
    """
    is_idempotent = values.get("enable_idempotence")  # None if the user has not set the option.
    acks = values.get("acks", -1)
    if is_idempotent and acks != -1:
        raise ConfigError("acks", config["acks"], 'an idempotent producer needs acks="all"')
    if values.get("transactional_id") is not None and (acks != -1 or is_idempotent is False):
        name = "acks" if acks != -1 else "enable_idempotence"
        raise ConfigError(name, config[name], 'transactions need enable_idempotence and acks="all"')
    if acks != -1:
        values["enable_idempotence"] = False


def _check_options(table: Mapping[str, Option], config: Mapping[str, Any], client: str) -> dict[str, Any]:
    """Check a client's options and return them, with its TLS and SASL options combined in `security`."""
    names = [*table, *NAMES]
    for name, value in config.items():
        if name not in names:
            raise unknown_option(name, value, client, names)
    security = {name: value for name, value in config.items() if name in NAMES}
    values = {name: value for name, value in config.items() if name not in NAMES}
    if security:
        from .security.options import security_options

        values["security"] = security_options(security)
    # A check raises errors, but does not convert values. The caller converts the values of `interceptors` and
    # `partition_assignment_strategy`.
    for name, value in values.items():
        if name != "security":
            table[name].check(name, value)
    return values


def unknown_option(name: str, value: Any, client: str, names: Collection[str]) -> ConfigError:
    """Return the error for an unknown option. It suggests the option that the user may have meant.

    `client` is "a consumer", "a producer" or "an admin client", and `names` are the options that it has.
    """
    snake_case_name = name.replace(".", "_")
    # The user may have spelled an option of this client as in a properties file, with dots.
    hint = f"use {snake_case_name}" if snake_case_name in names else option_hint(name, client)
    for kind, table in (("a consumer", CONSUMER), ("a producer", PRODUCER)):
        if hint is None and kind != client and snake_case_name in table:
            hint = f"it is an option of {kind}"
    if hint is None:
        from difflib import get_close_matches

        similar_names = get_close_matches(snake_case_name, names, n=1, cutoff=LIKENESS)
        known = [*sorted(set(names) - NAMES), "the options of TLS and SASL"]
        hint = f"did you mean {similar_names[0]}?" if similar_names else f"known are {', '.join(known)}"
    return ConfigError(name, mask_secret(name, value), f"{client} has no such option; {hint}")

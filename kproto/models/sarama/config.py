"""sarama's Config: the option names and defaults (config.go, NewConfig), set from `contract.ModelConfig`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from ...errors import ConfigError
from ..contract import ModelConfig
from .versions import INSTANCES_SINCE, MAX_VERSION, RELEASES, VERSIONS, KafkaVersion, api_key, parse_version

__all__ = ["NEWEST", "OLDEST", "VERSIONS", "SaramaSettings", "api_key", "settings"]


# sarama's OffsetNewest and OffsetOldest, which are also the timestamps in ListOffsets.
NEWEST, OLDEST = -1, -2
# The max_bytes of a Fetch in the releases without Consumer.Fetch.MaxBytes.
MAX_RESPONSE_SIZE = 100 * 1024 * 1024

STRATEGIES = ("range", "roundrobin", "sticky", "cooperative-sticky")


class Dialect(NamedTuple):
    """How sarama's releases differ in broker connections, metadata and fetching."""

    # Whether several requests may be in flight on a connection. sarama allowed this until 2020.
    pipelines: bool
    # Whether metadata and coordinator requests go to a bootstrap address until all bootstrap addresses have
    # failed, even if metadata has named other brokers.
    asks_bootstrap: bool
    # How long the subscription manager collects partitions, in milliseconds.
    gather_ms: int


# IBM/sarama 1.61.1
SARAMA_1_61 = Dialect(pipelines=False, asks_bootstrap=False, gather_ms=100)
# Shopify/sarama 1.17.0, which sarama-cluster 2.1.15 was built with.
SARAMA_1_17 = Dialect(pipelines=True, asks_bootstrap=True, gather_ms=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SaramaSettings:
    """The options of sarama's Config, with sarama's names in snake_case. Times are in milliseconds."""

    version: KafkaVersion
    # The release of sarama that is modelled. It selects the request versions, the default of Fetch.MaxBytes,
    # and which members check the partition counts.
    release: str
    client_id: str
    group_id: str
    instance_id: str | None
    rack_id: str
    strategies: tuple[str, ...]
    random: Callable[[], float]
    group_session_timeout: int
    group_heartbeat_interval: int
    group_rebalance_timeout: int
    group_rebalance_retry_max: int
    group_rebalance_retry_backoff: int
    group_reset_invalid_offsets: bool
    offsets_auto_commit: bool
    offsets_auto_commit_interval: int
    offsets_initial: int
    offsets_retention: int
    offsets_retry_max: int
    metadata_refresh_frequency: int
    metadata_retry_max: int
    metadata_retry_backoff: int
    metadata_full: bool
    consumer_retry_backoff: int
    consumer_retry_max: int
    consumer_return_errors: bool
    consumer_max_wait_time: int
    consumer_max_processing_time: int
    consumer_isolation: int
    fetch_min: int
    fetch_default: int
    fetch_max: int
    fetch_max_bytes: int
    channel_buffer_size: int
    # Whether the application calls Consume a single time. This is not an option of sarama.
    once: bool
    # Group.Offsets.Synchronization.DwellTime, an option of sarama-cluster.
    dwell_time: int

    @property
    def cooperative(self) -> bool:
        """Return whether all strategies are cooperative (selectRebalanceProtocol)."""
        return all(name == "cooperative-sticky" for name in self.strategies)


def settings(config: ModelConfig) -> SaramaSettings:
    """Return sarama's options for `config`.

    `extra` contains options under sarama's own names, such as "Offsets.Retry.Max" and "Fetch.Max". Raises
    ConfigError for a strategy or a reset policy that sarama does not have.
    """
    strategies = config.assignors or ("range",)
    for name in strategies:
        if name not in STRATEGIES:
            raise ConfigError("assignors", name, f"allowed: {', '.join(STRATEGIES)}")
    reset_offsets = {None: NEWEST, "latest": NEWEST, "earliest": OLDEST}
    if config.reset not in reset_offsets:
        raise ConfigError("reset", config.reset, "allowed: earliest, latest")

    def integer_option(name: str, default: int) -> int:
        value = config.extra.get(name, default)
        if not isinstance(value, int):
            raise ConfigError(name, value, "allowed: a whole number")
        return value

    def or_default(value: int | None, default: int) -> int:
        return default if value is None else value

    version_text = config.extra.get("Version")
    version = MAX_VERSION if version_text is None else parse_version(str(version_text))
    release = config.extra.get("Release", RELEASES[-1])
    if release not in RELEASES:
        raise ConfigError("Release", release, f"allowed: {', '.join(RELEASES)}")
    return SaramaSettings(
        version=version,
        release=str(release),
        client_id=config.client_id,
        group_id=config.group_id,
        instance_id=(config.instance or None) if version >= INSTANCES_SINCE else None,
        rack_id=config.rack or "",
        strategies=strategies,
        random=config.random,
        group_session_timeout=or_default(config.session_ms, 10_000),
        group_heartbeat_interval=or_default(config.heartbeat_ms, 3_000),
        group_rebalance_timeout=or_default(config.max_poll_ms, 60_000),
        group_rebalance_retry_max=integer_option("Group.Rebalance.Retry.Max", 4),
        group_rebalance_retry_backoff=integer_option("Group.Rebalance.Retry.Backoff", 2_000),
        group_reset_invalid_offsets=bool(integer_option("Group.ResetInvalidOffsets", True)),
        offsets_auto_commit=config.auto_commit is not False,
        offsets_auto_commit_interval=or_default(config.auto_commit_ms, 1_000),
        offsets_initial=reset_offsets[config.reset],
        offsets_retention=integer_option("Offsets.Retention", 0),
        offsets_retry_max=integer_option("Offsets.Retry.Max", 3),
        metadata_refresh_frequency=or_default(config.metadata_ms, 600_000),
        metadata_retry_max=integer_option("Metadata.Retry.Max", 3),
        metadata_retry_backoff=integer_option("Metadata.Retry.Backoff", 250),
        metadata_full=bool(integer_option("Metadata.Full", True)),
        consumer_retry_backoff=integer_option("Consumer.Retry.Backoff", 2_000),
        consumer_retry_max=integer_option("Consumer.Retry.Max", 0),
        consumer_return_errors=bool(integer_option("Consumer.Return.Errors", True)),
        consumer_max_wait_time=or_default(config.fetch_wait_ms, 500),
        consumer_max_processing_time=integer_option("Consumer.MaxProcessingTime", 100),
        consumer_isolation=1 if config.isolation == "read_committed" else 0,
        fetch_min=integer_option("Fetch.Min", 1),
        fetch_default=integer_option("Fetch.Default", 1024 * 1024),
        fetch_max=integer_option("Fetch.Max", 0),
        fetch_max_bytes=integer_option(
            "Fetch.MaxBytes", 50 * 1024 * 1024 if release == RELEASES[-1] else MAX_RESPONSE_SIZE
        ),
        channel_buffer_size=integer_option("ChannelBufferSize", 256),
        once=bool(integer_option("Once", False)),
        dwell_time=integer_option("Group.Offsets.Synchronization.DwellTime", 100),
    )

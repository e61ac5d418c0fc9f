"""The table of topic configs, with Kafka 4.3.1's defaults and allowed values.

Every topic config of Kafka is accepted and described, because some clients set configs such as flush.ms on
every topic. `TopicConfig.acts` says whether a config has an effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from ..java_numbers import trimmed
from .config_values import (
    Boolean,
    CleanupPolicy,
    Integer,
    Ratio,
    ThrottledReplicas,
    ValueType,
    choice,
    invalid_value,
)


class TopicConfig(NamedTuple):
    """One config of topics."""

    default: str
    type: ValueType
    # Whether the config has the same effect on this broker as in Kafka.
    acts: bool = False
    # The broker config that provides the default in Kafka (ServerTopicConfigSynonyms). Empty in three cases:
    # Kafka has no such broker config, the broker config's default is null, or `settings` has a row for the
    # broker config.
    broker_config: str = ""


_NO_TIERED_STORAGE: Final = "false: this broker has no tiered storage"
TIMESTAMP_TYPE: Final = choice("CreateTime", "LogAppendTime")

TOPIC_CONFIGS: Final[Mapping[str, TopicConfig]] = {
    "cleanup.policy": TopicConfig("delete", CleanupPolicy(), acts=True),
    "compression.gzip.level": TopicConfig(
        "-1", Integer(32, -1, 9, (0,), "-1, or from 1 to 9"), broker_config="compression.gzip.level"
    ),
    "compression.lz4.level": TopicConfig("9", Integer(32, 1, 17), broker_config="compression.lz4.level"),
    "compression.type": TopicConfig(
        "producer",
        choice("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        broker_config="compression.type",
    ),
    "compression.zstd.level": TopicConfig(
        "3", Integer(32, -(1 << 17), 22), broker_config="compression.zstd.level"
    ),
    "delete.retention.ms": TopicConfig(
        "86400000", Integer(64, 0), acts=True, broker_config="log.cleaner.delete.retention.ms"
    ),
    "file.delete.delay.ms": TopicConfig("60000", Integer(64, 0), broker_config="log.segment.delete.delay.ms"),
    "flush.messages": TopicConfig(
        "9223372036854775807", Integer(64, 1), broker_config="log.flush.interval.messages"
    ),
    "flush.ms": TopicConfig("9223372036854775807", Integer(64, 0)),
    "follower.replication.throttled.replicas": TopicConfig("", ThrottledReplicas()),
    "index.interval.bytes": TopicConfig("4096", Integer(32, 0), broker_config="log.index.interval.bytes"),
    "leader.replication.throttled.replicas": TopicConfig("", ThrottledReplicas()),
    "local.retention.bytes": TopicConfig("-2", Integer(64, -2), broker_config="log.local.retention.bytes"),
    "local.retention.ms": TopicConfig("-2", Integer(64, -2), broker_config="log.local.retention.ms"),
    "max.compaction.lag.ms": TopicConfig(
        "9223372036854775807", Integer(64, 1), acts=True, broker_config="log.cleaner.max.compaction.lag.ms"
    ),
    "max.message.bytes": TopicConfig("1048588", Integer(32, 0), acts=True),
    "message.timestamp.after.max.ms": TopicConfig("3600000", Integer(64, 0), acts=True),
    "message.timestamp.before.max.ms": TopicConfig("9223372036854775807", Integer(64, 0), acts=True),
    "message.timestamp.type": TopicConfig("CreateTime", TIMESTAMP_TYPE, acts=True),
    "min.cleanable.dirty.ratio": TopicConfig(
        "0.5", Ratio(), acts=True, broker_config="log.cleaner.min.cleanable.ratio"
    ),
    "min.compaction.lag.ms": TopicConfig(
        "0", Integer(64, 0), acts=True, broker_config="log.cleaner.min.compaction.lag.ms"
    ),
    "min.insync.replicas": TopicConfig("1", Integer(32, 1), broker_config="min.insync.replicas"),
    "preallocate": TopicConfig("false", Boolean(), broker_config="log.preallocate"),
    "remote.log.copy.disable": TopicConfig("false", Boolean()),
    "remote.log.delete.on.disable": TopicConfig("false", Boolean()),
    "remote.storage.enable": TopicConfig("false", Boolean(refused=_NO_TIERED_STORAGE)),
    "retention.bytes": TopicConfig("-1", Integer(64), acts=True),
    "retention.ms": TopicConfig("604800000", Integer(64, -1), acts=True),
    "segment.bytes": TopicConfig("1073741824", Integer(32, 1_048_576), acts=True),
    "segment.index.bytes": TopicConfig("10485760", Integer(32, 4), broker_config="log.index.size.max.bytes"),
    "segment.jitter.ms": TopicConfig("0", Integer(64, 0)),
    "segment.ms": TopicConfig("604800000", Integer(64, 1), acts=True),
    "unclean.leader.election.enable": TopicConfig(
        "false", Boolean(), broker_config="unclean.leader.election.enable"
    ),
}


def check_topic_config(name: str, value: str | None) -> str | None:
    """Return why a topic config is invalid, in Kafka's words where possible; None if it is valid."""
    if name not in TOPIC_CONFIGS:
        return f"Unknown topic config name: {name}"
    if value is None:
        return f"Null value not supported for topic configs: {name}"
    return invalid_value(name, value, TOPIC_CONFIGS[name].type)


def check_topic_configs(configs: Mapping[str, str]) -> str | None:
    """Return why a topic cannot have this combination of configs, or None if it can (LogConfig.validate)."""
    for name, value in configs.items():
        if (fault := check_topic_config(name, value)) is not None:
            return fault
    min_lag_ms, max_lag_ms = (
        int(trimmed(configs.get(name, TOPIC_CONFIGS[name].default)))
        for name in ("min.compaction.lag.ms", "max.compaction.lag.ms")
    )
    if min_lag_ms > max_lag_ms:
        return (
            f"conflict topic config setting min.compaction.lag.ms ({min_lag_ms}) > "
            f"max.compaction.lag.ms ({max_lag_ms})"
        )
    return None

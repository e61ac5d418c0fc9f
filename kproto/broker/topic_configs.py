"""What can be set on a topic, under Kafka's own names: the defaults, and which values are allowed.

Rules:
  * A topic config that Kafka has is accepted, shown by DescribeConfigs and CreateTopics, and acted on only
    where `ACTED_ON` says so: clients set flush intervals and the like on every topic they create.
  * Values are read as Kafka's ConfigDef reads them: blanks around them don't matter, words are written as
    Kafka writes them, but for true and false; numbers fit their type.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from ..java_numbers import double, double_text, trimmed, whole

# Kafka 4.3.1's topic configs with their defaults, as its DescribeConfigs answers them.
TOPIC_DEFAULTS: Final[Mapping[str, str]] = {
    "cleanup.policy": "delete",
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.type": "producer",
    "compression.zstd.level": "3",
    "delete.retention.ms": "86400000",
    "file.delete.delay.ms": "60000",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "follower.replication.throttled.replicas": "",
    "index.interval.bytes": "4096",
    "leader.replication.throttled.replicas": "",
    "local.retention.bytes": "-2",
    "local.retention.ms": "-2",
    "max.compaction.lag.ms": "9223372036854775807",
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "preallocate": "false",
    "remote.log.copy.disable": "false",
    "remote.log.delete.on.disable": "false",
    "remote.storage.enable": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}

ACTED_ON: Final = frozenset(
    {
        "cleanup.policy",
        "delete.retention.ms",
        "max.compaction.lag.ms",
        "max.message.bytes",
        "message.timestamp.after.max.ms",
        "message.timestamp.type",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "retention.bytes",
        "retention.ms",
        "segment.bytes",
        "segment.ms",
    }
)

INTS: Final = frozenset(
    {
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.zstd.level",
        "index.interval.bytes",
        "max.message.bytes",
        "min.insync.replicas",
        "segment.bytes",
        "segment.index.bytes",
    }
)
"""Those that are int32; the other whole numbers are int64."""

# The lowest and highest values that Kafka 4.3.1 allows, where it has a bound.
_LOWEST: Final[Mapping[str, int]] = {
    "compression.gzip.level": -1,
    "compression.lz4.level": 1,
    "compression.zstd.level": -(1 << 17),
    "delete.retention.ms": 0,
    "file.delete.delay.ms": 0,
    "flush.messages": 1,
    "flush.ms": 0,
    "index.interval.bytes": 0,
    "local.retention.bytes": -2,
    "local.retention.ms": -2,
    "max.compaction.lag.ms": 1,
    "max.message.bytes": 0,
    "message.timestamp.after.max.ms": 0,
    "message.timestamp.before.max.ms": 0,
    "min.compaction.lag.ms": 0,
    "min.insync.replicas": 1,
    "retention.ms": -1,
    "segment.bytes": 1_048_576,
    "segment.index.bytes": 4,
    "segment.jitter.ms": 0,
    "segment.ms": 1,
}
_HIGHEST: Final[Mapping[str, int]] = {
    "compression.gzip.level": 9,
    "compression.lz4.level": 17,
    "compression.zstd.level": 22,
}
_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "compression.type": ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    "message.timestamp.type": ("CreateTime", "LogAppendTime"),
}
_POLICIES: Final = frozenset({"compact", "delete"})
TIMESTAMP_TYPES: Final = _CHOICES["message.timestamp.type"]
_REPLICA: Final = re.compile(r"([0-9]+:[0-9]+)?")  # nothing between two commas is fine


def check_topic_config(name: str, value: str | None) -> str | None:
    """Why this topic config is not allowed, in Kafka's words where it has some; None when it is."""
    if name not in TOPIC_DEFAULTS:
        return f"Unknown topic config name: {name}"
    if value is None:
        return f"Null value not supported for topic configs: {name}"
    why = _fault(name, trimmed(value))
    return None if why is None else f"Invalid value {value:.60} for configuration {name}: {why}"


def check_topic_configs(configs: Mapping[str, str]) -> str | None:
    """Why a topic can't have all these together; None when it can (LogConfig.validate)."""
    for name, value in configs.items():
        if (why := check_topic_config(name, value)) is not None:
            return why
    least, most = (
        int(trimmed(configs.get(name, TOPIC_DEFAULTS[name])))
        for name in ("min.compaction.lag.ms", "max.compaction.lag.ms")
    )
    if least > most:
        return (
            f"conflict topic config setting min.compaction.lag.ms ({least}) > max.compaction.lag.ms ({most})"
        )
    return None


def shown(name: str, value: str) -> str:
    """A value as DescribeConfigs shows it: read, and written again (ConfigDef.convertToString)."""
    value, default = trimmed(value), TOPIC_DEFAULTS[name]
    if default in ("true", "false"):
        return value.lower()
    if name == "min.cleanable.dirty.ratio":
        return value if (number := double(value)) is None else double_text(number)
    if name in _CHOICES:
        return value
    if name == "cleanup.policy":
        return ",".join(dict.fromkeys(re.split(r"\s*,\s*", value)))
    if name.endswith(".throttled.replicas"):
        return ",".join(re.split(r"\s*,\s*", value))
    number = whole(value, 64)
    return value if number is None else str(number)


def _fault(name: str, value: str) -> str | None:
    default = TOPIC_DEFAULTS[name]
    if name in _CHOICES:
        return None if value in _CHOICES[name] else f"one of {', '.join(_CHOICES[name])}"
    if default in ("true", "false"):
        if name == "remote.storage.enable" and value.lower() == "true":
            return "this broker has no tiered storage"
        return None if value.lower() in ("true", "false") else "one of true, false"
    if name == "min.cleanable.dirty.ratio":
        ratio = double(value)
        # Kafka compares with both ends, and so takes NaN.
        return None if ratio is not None and not ratio < 0 and not ratio > 1 else "a number from 0 to 1"
    if name == "cleanup.policy":
        policies = re.split(r"\s*,\s*", value) if value else []
        return None if {*policies} <= _POLICIES else "compact, delete, or both"
    if name.endswith(".throttled.replicas"):
        items = re.split(r"\s*,\s*", value)
        fine = "".join(items) == "*" or all(_REPLICA.fullmatch(item) for item in items)
        return None if fine else "* or PARTITION:BROKER, with commas in between"
    return _fault_of_number(name, value)


def _fault_of_number(name: str, value: str) -> str | None:
    bits = 32 if name in INTS else 64
    number, lowest, highest = whole(value, bits), _LOWEST.get(name), _HIGHEST.get(name)
    if number is None:
        return f"a whole number of {bits} bits"
    if lowest is not None and number < lowest:
        return f"at least {lowest}"
    if highest is not None and number > highest:
        return f"at most {highest}"
    return "-1, or from 1 to 9" if name == "compression.gzip.level" and number == 0 else None

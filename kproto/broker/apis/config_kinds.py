"""What requests about configs speak of: where values come from, what is done to them, and their types."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from ...error_codes import ErrorCode
from ..topic_configs import INTS

Refusal = tuple[ErrorCode, str | None]


class Source(IntEnum):
    """Where a value comes from (DescribeConfigsResponse.ConfigSource)."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT = 3
    STATIC_BROKER = 4
    DEFAULT = 5


class Operation(IntEnum):
    """What IncrementalAlterConfigs does to a value (AlterConfigOp.OpType)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigType(IntEnum):
    """DescribeConfigsResponse.ConfigType, as far as it is needed."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


# The topic configs that hold lists, and so can be appended to.
LISTS: Final = frozenset(
    {"cleanup.policy", "follower.replication.throttled.replicas", "leader.replication.throttled.replicas"}
)


def config_type(name: str, value: str) -> ConfigType:
    if name in LISTS or name == "log.cleanup.policy":
        return ConfigType.LIST
    if value in ("true", "false"):
        return ConfigType.BOOLEAN
    if name in INTS:
        return ConfigType.INT
    if value.lstrip("-").isdigit():
        return ConfigType.LONG
    return ConfigType.DOUBLE if value.replace(".", "", 1).isdigit() else ConfigType.STRING

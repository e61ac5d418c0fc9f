"""The settings of a group coordinator, under Kafka's own names.

Every field is a broker setting of Kafka with underscores for dots, with Kafka's default and lowest allowed
value. Times are milliseconds unless the name says minutes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from ....errors import ConfigError
from ....java_numbers import trimmed, whole

# GroupCoordinatorConfig.CLASSIC_GROUP_NEW_MEMBER_JOIN_TIMEOUT_MS: a constant in Kafka too. A member that
# waits for its first generation has no id to send heartbeats with, so its session timeout can't count yet.
NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000

_MAX_INT32 = 2**31 - 1

_LOWEST = {
    "group_max_size": 1,
    "offsets_retention_minutes": 1,
    "offsets_retention_check_interval_ms": 1,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a coordinator may be told. Pass it to `Coordinator`; `from_properties` reads Kafka's spelling."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = _MAX_INT32
    # Characters (UTF-16 units, as Java counts them), despite the name.
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_minutes: int = 7 * 24 * 60
    offsets_retention_check_interval_ms: int = 600_000

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            lowest = _LOWEST.get(field.name, 0)
            if not lowest <= value <= _MAX_INT32:
                raise ConfigError(field.name.replace("_", "."), value, f"allowed: {lowest} to {_MAX_INT32}")

    @classmethod
    def from_properties(cls, properties: Mapping[str, str | int]) -> Settings:
        """Settings from Kafka's names, as in `{"group.min.session.timeout.ms": "6000"}`.

        Raises ConfigError for a name that is no group setting (`property_names` lists them) and for a value
        that is no number or out of range.
        """
        known = property_names()
        values: dict[str, int] = {}
        for name, value in properties.items():
            if name not in known:
                raise ConfigError(name, value, f"group settings are {', '.join(known)}")
            number = whole(trimmed(str(value)))
            if number is None:
                raise ConfigError(name, value, "it takes a whole number of 32 bits")
            values[known[name]] = number
        return cls(**values)


def property_names() -> dict[str, str]:
    """Kafka's name of every setting, with the name of its field here."""
    return {field.name.replace("_", "."): field.name for field in fields(Settings)}

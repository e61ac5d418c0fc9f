"""Settings of the group coordinator, with Kafka's names, defaults and lower bounds (GroupCoordinatorConfig).

Each field is a broker config, with underscores instead of dots. Times are in milliseconds, unless the name
says minutes. All values are whole numbers.

A coordinator never changes its settings, so none of these configs can be changed while the broker runs. To
add a setting, add a row to `GroupSettings`, and read the setting in the code that it affects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from ..errors import ConfigError
from ..java_numbers import trimmed, whole_number

# The session timeout in ms of a new member while its first JoinGroup waits. The member sends no heartbeats
# during that time. Kafka: GroupCoordinatorConfig.CLASSIC_GROUP_NEW_MEMBER_JOIN_TIMEOUT_MS.
NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000

# The maximum size in bytes of the metadata of all members of a classic group together. Kafka limits the size
# only at the leader's SyncGroup: the group must fit into one record of 1 MiB (message.max.bytes).
MAX_GROUP_METADATA_BYTES = 10 << 20

_MAX_INT32 = 2**31 - 1


def _setting(default: int, *, minimum: int = 0, bits: int = 32) -> int:
    """Declare one setting with its default and lower bound. Its upper bound is 2**(bits - 1) - 1."""
    setting: int = field(default=default, metadata={"minimum": minimum, "bits": bits})
    return setting


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Settings of a group coordinator. `from_properties` reads Kafka's property names."""

    group_min_session_timeout_ms: int = _setting(6_000)
    group_max_session_timeout_ms: int = _setting(1_800_000)
    group_initial_rebalance_delay_ms: int = _setting(3_000)
    group_max_size: int = _setting(_MAX_INT32, minimum=1)
    # The maximum length of offset metadata in UTF-16 code units. Kafka counts with String.length(), despite
    # the option's name.
    offset_metadata_max_bytes: int = _setting(4_096)
    offsets_retention_minutes: int = _setting(7 * 24 * 60, minimum=1)
    offsets_retention_check_interval_ms: int = _setting(600_000, minimum=1, bits=64)

    def __post_init__(self) -> None:
        """Raise ConfigError for a value that is out of range."""
        for row in fields(self):
            value, minimum = getattr(self, row.name), row.metadata["minimum"]
            magnitude_bits = row.metadata["bits"] - 1  # One bit holds the sign.
            maximum = (1 << magnitude_bits) - 1
            if not minimum <= value <= maximum:
                raise ConfigError(row.name.replace("_", "."), value, f"allowed: {minimum} to {maximum}")

    @classmethod
    def from_properties(cls, properties: Mapping[str, str | int]) -> GroupSettings:
        """Create the settings from Kafka's properties, such as `{"group.min.session.timeout.ms": "6000"}`.

        Raises ConfigError for a name that `property_names` does not list, for a value that is not a whole
        number, and for a number that is out of range.
        """
        field_names = property_names()
        bits = {row.name: row.metadata["bits"] for row in fields(cls)}
        values: dict[str, int] = {}
        for name, value in properties.items():
            if name not in field_names:
                raise ConfigError(name, value, f"the group settings are: {', '.join(field_names)}")
            field_name = field_names[name]
            number = whole_number(trimmed(str(value)), bits[field_name])
            if number is None:
                raise ConfigError(name, value, f"allowed: a {bits[field_name]}-bit integer")
            values[field_name] = number
        return cls(**values)


def property_names() -> dict[str, str]:
    """Return a mapping from Kafka's name for each setting to the name of its field."""
    return {row.name.replace("_", "."): row.name for row in fields(GroupSettings)}

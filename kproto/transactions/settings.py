"""Settings of the transaction coordinator, with Kafka's names (`_` for `.`) and defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from ..errors import ConfigError
from ..java_numbers import trimmed, whole_number

_MAX_INT32 = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSettings:
    """Settings of a transaction coordinator. `from_properties` reads them by Kafka's names."""

    # The partition count of `__consumer_offsets`. A transaction that commits a group's offsets includes the
    # partition that stores them.
    offsets_topic_num_partitions: int = 50
    # The partition count of `__transaction_state`, whose partition leaders coordinate the transactional ids.
    transaction_state_log_num_partitions: int = 50
    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 7 * 24 * 3_600_000

    def __post_init__(self) -> None:
        """Raise ConfigError for a value that is out of range."""
        for field in fields(self):
            value = getattr(self, field.name)
            if not 1 <= value <= _MAX_INT32:
                raise ConfigError(field.name.replace("_", "."), value, f"allowed: 1 to {_MAX_INT32}")

    @classmethod
    def from_properties(cls, properties: Mapping[str, str | int]) -> TransactionSettings:
        """Read the settings from a mapping such as `{"transaction.max.timeout.ms": "60000"}`.

        Raises ConfigError if a name is not a setting of transactions, or if a value is not a number or is out
        of range.
        """
        known = {field.name.replace("_", "."): field.name for field in fields(cls)}
        values: dict[str, int] = {}
        for name, value in properties.items():
            if name not in known:
                raise ConfigError(name, value, f"the settings of transactions are: {', '.join(known)}")
            number = whole_number(trimmed(str(value)))
            if number is None:
                raise ConfigError(name, value, "allowed: a 32-bit integer")
            values[known[name]] = number
        return cls(**values)

"""The settings of a transaction coordinator, under Kafka's own names with underscores for dots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from ..errors import ConfigError
from ..java_numbers import trimmed, whole

_MAX_INT32 = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a coordinator may be told. Pass it to `Coordinator`; `from_properties` reads Kafka's spelling."""

    # Of `__consumer_offsets`: the transactions that have a part there, and who coordinates a group.
    offsets_topic_num_partitions: int = 50
    # And of `__transaction_state`: who coordinates a transactional id.
    transaction_state_log_num_partitions: int = 50
    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 7 * 24 * 3_600_000

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not 1 <= value <= _MAX_INT32:
                raise ConfigError(field.name.replace("_", "."), value, f"allowed: 1 to {_MAX_INT32}")

    @classmethod
    def from_properties(cls, properties: Mapping[str, str | int]) -> Settings:
        """Settings from Kafka's names, as in `{"transaction.max.timeout.ms": "60000"}`.

        Raises ConfigError for a name that is no setting of transactions and for a value that is no number or
        out of range.
        """
        known = {field.name.replace("_", "."): field.name for field in fields(cls)}
        values: dict[str, int] = {}
        for name, value in properties.items():
            if name not in known:
                raise ConfigError(name, value, f"settings of transactions are {', '.join(known)}")
            number = whole(trimmed(str(value)))
            if number is None:
                raise ConfigError(name, value, "it takes a whole number of 32 bits")
            values[known[name]] = number
        return cls(**values)

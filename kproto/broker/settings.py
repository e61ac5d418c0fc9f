"""What can be set on the broker, under Kafka's own names; `topic_configs` has what can be set on topics.

A name that neither the broker nor one of its coordinators acts on is refused with ConfigError, which lists
the names there are: a setting that is silently ignored makes a test lie.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Final

from ..errors import ConfigError
from ..group.classic.coordinator.settings import GroupSettings
from ..java_numbers import trimmed, whole
from ..security.jwks import SKEW_S, signed
from ..security.oauthbearer import Check
from ..transactions.settings import Settings as TransactionSettings
from .topic_configs import TIMESTAMP_TYPES, check_topic_config, shown

AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_PARTS: Final[Mapping[str, type[GroupSettings | TransactionSettings]]] = {
    "group": GroupSettings,
    "transactions": TransactionSettings,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The broker's own settings; its coordinators' in `group` and `transactions`. Defaults are Kafka's."""

    allow_everyone_if_no_acl_found: bool = False
    # Kafka's StandardAuthorizer, with its package or without; empty: everybody may do everything.
    authorizer_class_name: str = ""
    auto_create_topics_enable: bool = True
    broker_rack: str = ""
    connection_failed_authentication_delay_ms: int = 100
    # A connection on which nothing was said for so long is closed; below 0 none ever is.
    connections_max_idle_ms: int = 600_000
    # 0: sessions end with their tokens, if they have one.
    connections_max_reauth_ms: int = 0
    delete_topic_enable: bool = True
    fetch_max_bytes: int = 57_671_680
    # When logs are looked over: see `cleaning`.
    log_cleaner_backoff_ms: int = 15_000
    log_cleanup_policy: str = "delete"
    log_initial_task_delay_ms: int = 30_000
    log_message_timestamp_type: str = "CreateTime"
    # How much, and how long, topics keep that don't say so themselves. Kafka keeps a week where nothing is
    # said, this broker everything (`cleaning`); of several, the one that comes first in `RETENTION` counts.
    log_retention_bytes: int = -1
    log_retention_check_interval_ms: int = 300_000
    log_retention_hours: int | None = None
    log_retention_minutes: int | None = None
    log_retention_ms: int | None = None
    max_incremental_fetch_session_cache_slots: int = 1000
    message_max_bytes: int = 1_048_588
    node_id: int = 1
    num_partitions: int = 1
    # Partitions forget producers without an open transaction that have not written for so long.
    producer_id_expiration_check_interval_ms: int = 600_000
    producer_id_expiration_ms: int = 86_400_000
    # Kafka's default is GSSAPI, which this broker does not have.
    sasl_enabled_mechanisms: str = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"
    # How signed tokens are looked at: see security.jwks. The URL is file:, http: or https:, and read once.
    sasl_oauthbearer_clock_skew_seconds: int = SKEW_S
    sasl_oauthbearer_expected_audience: str = ""
    sasl_oauthbearer_expected_issuer: str = ""
    sasl_oauthbearer_jwks_endpoint_url: str = ""
    sasl_oauthbearer_scope_claim_name: str = "scope"
    sasl_oauthbearer_sub_claim_name: str = "sub"
    # Kafka's 100 MiB. The listener closes a connection that announces a larger request.
    socket_request_max_bytes: int = 104_857_600
    # none, requested or required: whether listeners with TLS ask for a client's certificate.
    ssl_client_auth: str = "none"
    # Who may do everything, with semicolons between them: User:alice;User:bob
    super_users: str = ""
    group: GroupSettings
    transactions: TransactionSettings

    @classmethod
    def from_properties(cls, properties: Mapping[str, str | int]) -> Settings:
        """Read settings under Kafka's names; ConfigError for a name or a value that is not allowed."""
        own = {kafka_name(f.name): f.name for f in fields(cls) if f.name not in _PARTS}
        of_parts = {kafka_name(f.name): part for part, its in _PARTS.items() for f in fields(its)}
        values: dict[str, bool | int | str] = {}
        given: dict[str, dict[str, str]] = {part: {} for part in _PARTS}
        for name, text in properties.items():
            if name in own:
                values[own[name]] = _parsed(name, str(text), _DEFAULTS[own[name]])
            elif name in of_parts:
                given[of_parts[name]][name] = str(text)
            else:
                allowed = ", ".join(sorted({*own, *of_parts}))
                raise ConfigError(name, text, f"the broker's settings are: {allowed}")
        parts = {part: its.from_properties(given[part]) for part, its in _PARTS.items()}
        made = cls(**parts, **values)  # type: ignore[arg-type]
        if made.retention_ms == 0:
            name, text = made.retention[0]
            raise ConfigError(name, text, _NO_TIME)
        return made

    @property
    def retention(self) -> list[tuple[str, str]]:
        """What is said of how long topics keep their records, under Kafka's names; the first one counts."""
        found = {name: getattr(self, field_name(name)) for name in RETENTION}
        return [(name, str(value)) for name, value in found.items() if value is not None]

    @property
    def retention_ms(self) -> int | None:
        """For how long topics keep their records that don't say so themselves; -1 for ever, None where
        nothing is said."""
        if not self.retention:
            return None
        name, value = self.retention[0]
        return max(int(value) * RETENTION[name], -1)

    def signed_tokens(self, jwks: str, now_ms: Callable[[], int]) -> Check:
        """Looks at tokens as the settings of OAUTHBEARER say. Raises ConfigError, MissingExtra."""
        return signed(
            jwks,
            now_ms,
            issuer=self.sasl_oauthbearer_expected_issuer or None,
            audience=[
                one.strip() for one in self.sasl_oauthbearer_expected_audience.split(",") if one.strip()
            ],
            skew_s=self.sasl_oauthbearer_clock_skew_seconds,
            subject_claim=self.sasl_oauthbearer_sub_claim_name,
            scope_claim=self.sasl_oauthbearer_scope_claim_name,
        )

    def properties(self) -> dict[str, str]:
        """Every setting that has a value, under Kafka's names: what DescribeConfigs shows of the broker."""
        found = {
            kafka_name(f.name): kafka_text(getattr(whose, f.name))
            for whose in (self, self.group, self.transactions)
            for f in fields(whose)
            if f.name not in _PARTS and getattr(whose, f.name) is not None
        }
        return dict(sorted(found.items()))


def kafka_name(field_name: str) -> str:
    return field_name.replace("_", ".")


def field_name(kafka_name: str) -> str:
    return kafka_name.replace(".", "_")


def parsed(name: str, given: str) -> bool | int | str:
    """The value of one of the broker's own settings. Raises ConfigError for one that is not allowed."""
    return _parsed(name, given, _DEFAULTS[field_name(name)])


def kafka_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _parsed(name: str, given: str, default: object) -> bool | int | str:
    text = trimmed(given)
    if isinstance(default, bool):
        if text.lower() not in ("true", "false"):
            raise ConfigError(name, text, "it must be true or false")
        return text.lower() == "true"
    if isinstance(default, int) or name in RETENTION:
        bits = 64 if name in _LONGS else 32
        number = whole(text, bits)
        if number is None:
            raise ConfigError(name, text, f"it must be a whole number of {bits} bits")
        if name == "log.retention.ms" and not number:
            raise ConfigError(name, text, _NO_TIME)
        if name in RETENTION or name in _LONGS:
            return number  # below zero is for ever
        if number < (1 if name in _FROM_ONE else 0):
            raise ConfigError(name, text, "it must not be below its minimum")
        return number
    if name == "authorizer.class.name" and text not in ("", AUTHORIZER, AUTHORIZER.rpartition(".")[2]):
        raise ConfigError(name, text, f"it must be {AUTHORIZER}, the only one that this broker has")
    if name == "super.users":
        for one in text.split(";"):
            kind, _, who = one.strip().partition(":")
            if one.strip() and not (kind and who):
                allowed = "each must be TYPE:NAME, with semicolons in between, as in User:alice;User:bob"
                raise ConfigError(name, text, allowed)
    if name == "log.cleanup.policy" and check_topic_config("cleanup.policy", text) is not None:
        raise ConfigError(name, text, "it must be compact, delete, or both")
    if name == "log.message.timestamp.type" and text not in TIMESTAMP_TYPES:
        raise ConfigError(name, text, f"it must be one of {', '.join(TIMESTAMP_TYPES)}")
    return shown("cleanup.policy", text) if name == "log.cleanup.policy" else text


RETENTION: Final[Mapping[str, int]] = {
    "log.retention.ms": 1,
    "log.retention.minutes": 60_000,
    "log.retention.hours": 3_600_000,
}
"""How many milliseconds each is; of those that are given the first counts."""
_NO_TIME: Final = "it must be at least 1, or -1 for ever"
_LONGS: Final = {"connections.max.idle.ms", "log.retention.bytes", "log.retention.ms"}
_FROM_ONE: Final = {
    "log.retention.check.interval.ms",
    "num.partitions",
    "producer.id.expiration.check.interval.ms",
    "producer.id.expiration.ms",
}
_DEFAULTS: Final = {f.name: f.default for f in fields(Settings)}

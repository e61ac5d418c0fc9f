"""The table of broker configs: name, type, default, and whether it is dynamic.

To add a config, add a row to `Settings`, and read it in the code that it affects.

Configs of the coordinators belong to `GroupSettings` and `TransactionSettings`, and topic configs to
`topic_configs`.

An unknown config is rejected with ConfigError, which lists the known names. A test with a misspelled config
would otherwise test nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, NamedTuple

from ..errors import ConfigError
from ..group.settings import GroupSettings
from ..java_numbers import trimmed
from ..security.jwks import SKEW_S, signed
from ..security.oauthbearer import Check
from ..transactions.settings import TransactionSettings
from .config_values import Boolean, CleanupPolicy, ConfigType, Integer, Text, ValueType, choice
from .topic_configs import TIMESTAMP_TYPE

AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
# The values of ssl.client.auth, and the `verify_mode` of an ssl.SSLContext for each.
SSL_CLIENT_AUTH: Final = {"none": "CERT_NONE", "requested": "CERT_OPTIONAL", "required": "CERT_REQUIRED"}
_ALLOWED_RETENTION: Final = "at least 1, or -1 for no limit"
# Maps each field of `Settings` that holds the settings of a coordinator to the class of these settings.
_COORDINATOR_SETTINGS: Final[Mapping[str, type[GroupSettings | TransactionSettings]]] = {
    "group": GroupSettings,
    "transactions": TransactionSettings,
}


class Setting(NamedTuple):
    """One broker config, which is a row of the table."""

    name: str
    field: str
    type: ValueType
    # Kafka's default as DescribeConfigs shows it.
    default: str
    # Whether the config can be changed while the broker runs, with IncrementalAlterConfigs (KIP-226).
    dynamic: bool
    # The topic config whose default is the value of this broker config.
    topic_config: str | None


def _setting(
    default: object, value_type: ValueType, *, dynamic: bool = False, topic_config: str | None = None
) -> Any:
    """Declare one row of the table; the field's name is Kafka's name with underscores for dots."""
    metadata = {"type": value_type, "dynamic": dynamic, "topic_config": topic_config}
    is_secret = value_type.config_type is ConfigType.PASSWORD
    return field(default=default, metadata=metadata, repr=not is_secret)


def _authorizer_fault(text: str) -> str | None:
    """Return None if `text` is allowed, and otherwise the allowed values."""
    allowed = ("", AUTHORIZER, AUTHORIZER.rpartition(".")[2])
    return None if text in allowed else f"empty, or {AUTHORIZER}: this broker has no other authorizer"


def _super_users_fault(text: str) -> str | None:
    """Return None if `text` is valid, and otherwise the required format. Empty entries are ignored."""
    for user in text.split(";"):
        principal_type, _, name = user.strip().partition(":")
        if user.strip() and not (principal_type and name):
            return "TYPE:NAME for each user, with semicolons in between, as in User:alice;User:bob"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The configs of a broker. `group` and `transactions` hold the configs of its coordinators."""

    # Whether every user may use a resource that no ACL covers. By default only super users may use it.
    allow_everyone_if_no_acl_found: bool = _setting(False, Boolean(config_type=ConfigType.UNKNOWN))
    # The class name of Kafka's StandardAuthorizer, with or without its package. If empty, every request is
    # authorized.
    authorizer_class_name: str = _setting("", Text(_authorizer_fault))
    auto_create_topics_enable: bool = _setting(True, Boolean())
    broker_rack: str = _setting("", Text())
    connection_failed_authentication_delay_ms: int = _setting(100, Integer(32, 0))
    # The time in ms after which a connection without traffic is closed. With a negative value, idle
    # connections stay open.
    connections_max_idle_ms: int = _setting(600_000, Integer(64))
    # The maximum lifetime of a SASL session in ms. A session ends earlier if its token expires earlier. With
    # 0 or less, only tokens limit the lifetime.
    connections_max_reauth_ms: int = _setting(0, Integer(64))
    # The interval in ms at which expired delegation tokens are removed.
    delegation_token_expiry_check_interval_ms: int = _setting(3_600_000, Integer(64, 1))
    # The time in ms from the creation or last renewal of a delegation token to its expiration.
    delegation_token_expiry_time_ms: int = _setting(86_400_000, Integer(64, 1))
    # The maximum time in ms from the creation of a delegation token to its expiration.
    delegation_token_max_lifetime_ms: int = _setting(604_800_000, Integer(64, 1))
    # The key from which the passwords of delegation tokens are derived. If it is empty, all requests about
    # delegation tokens are rejected.
    delegation_token_secret_key: str = _setting("", Text(config_type=ConfigType.PASSWORD))
    delete_topic_enable: bool = _setting(True, Boolean())
    # 55 MiB, Kafka's default.
    fetch_max_bytes: int = _setting(57_671_680, Integer(32, 1024))
    # The interval of compaction in ms (see `log_manager`).
    log_cleaner_backoff_ms: int = _setting(15_000, Integer(64, 0), dynamic=True)
    log_cleanup_policy: str = _setting("delete", CleanupPolicy(), dynamic=True, topic_config="cleanup.policy")
    # The time in ms from the start of the broker to its first retention check.
    log_initial_task_delay_ms: int = _setting(30_000, Integer(64, 0))
    # The maximum time in ms by which the timestamp of a record may be after the broker's clock (KIP-937).
    log_message_timestamp_after_max_ms: int = _setting(
        3_600_000, Integer(64, 0), dynamic=True, topic_config="message.timestamp.after.max.ms"
    )
    # The maximum time in ms by which the timestamp of a record may be before the broker's clock (KIP-937).
    log_message_timestamp_before_max_ms: int = _setting(
        (1 << 63) - 1, Integer(64, 0), dynamic=True, topic_config="message.timestamp.before.max.ms"
    )
    log_message_timestamp_type: str = _setting(
        "CreateTime", TIMESTAMP_TYPE, dynamic=True, topic_config="message.timestamp.type"
    )
    log_retention_bytes: int = _setting(-1, Integer(64), dynamic=True, topic_config="retention.bytes")
    log_retention_check_interval_ms: int = _setting(300_000, Integer(64, 1))
    # The retention time is the first of these three configs that is set. If none is set, records are kept
    # forever, because tests often write old timestamps. Kafka's default of a week would delete such records.
    log_retention_ms: int | None = _setting(
        None,
        Integer(64, excluded=(0,), allowed=_ALLOWED_RETENTION),
        dynamic=True,
        topic_config="retention.ms",
    )
    log_retention_minutes: int | None = _setting(None, Integer(32), topic_config="retention.ms")
    log_retention_hours: int | None = _setting(None, Integer(32), topic_config="retention.ms")
    # The maximum size of a segment in bytes. As in Kafka, the default is 1 GiB and the minimum 1 MiB
    # (KIP-1030).
    log_segment_bytes: int = _setting(
        1_073_741_824, Integer(32, 1_048_576), dynamic=True, topic_config="segment.bytes"
    )
    max_incremental_fetch_session_cache_slots: int = _setting(1000, Integer(32, 0))
    # The maximum size of a batch in bytes: 1 MiB plus the 12 bytes of a batch's offset and length, as in
    # Kafka.
    message_max_bytes: int = _setting(
        1_048_588, Integer(32, 0), dynamic=True, topic_config="max.message.bytes"
    )
    node_id: int = _setting(1, Integer(32, 0))
    num_partitions: int = _setting(1, Integer(32, 1))
    # The interval in ms at which expired idempotent producers are removed.
    producer_id_expiration_check_interval_ms: int = _setting(600_000, Integer(32, 1))
    # The time in ms from the last batch of an idempotent producer to its expiration.
    producer_id_expiration_ms: int = _setting(86_400_000, Integer(32, 1), dynamic=True)
    # The enabled SASL mechanisms. Kafka's default is GSSAPI, which this broker does not support.
    sasl_enabled_mechanisms: str = _setting(
        "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER", Text(config_type=ConfigType.LIST)
    )
    # The configs for checking signed OAUTHBEARER tokens (`security.jwks`). The URL of the JWKS endpoint
    # begins with file:, http: or https:. The keys are read only when a `Server` is created, so that keys
    # which the issuer adds later are unknown to the broker.
    sasl_oauthbearer_clock_skew_seconds: int = _setting(SKEW_S, Integer(32, 0))
    sasl_oauthbearer_expected_audience: str = _setting("", Text(config_type=ConfigType.LIST))
    sasl_oauthbearer_expected_issuer: str = _setting("", Text())
    sasl_oauthbearer_jwks_endpoint_url: str = _setting("", Text())
    sasl_oauthbearer_scope_claim_name: str = _setting("scope", Text())
    sasl_oauthbearer_sub_claim_name: str = _setting("sub", Text())
    # The maximum size of a request: 100 MiB, Kafka's default. If a client announces a larger request, its
    # connection is closed.
    socket_request_max_bytes: int = _setting(104_857_600, Integer(32, 1))
    # Client certificates on TLS listeners: none, requested or required.
    ssl_client_auth: str = _setting("none", choice(*SSL_CLIENT_AUTH))
    # The largest payload of metrics that a client may push, in bytes after compression: 1 MiB by default.
    telemetry_max_bytes: int = _setting(1_048_576, Integer(32, 1))
    # Principals authorized for all operations, separated by semicolons, for example User:alice;User:bob.
    super_users: str = _setting("", Text(_super_users_fault, config_type=ConfigType.UNKNOWN))
    group: GroupSettings
    transactions: TransactionSettings

    @classmethod
    def from_properties(cls, properties: Mapping[str, str | int]) -> Settings:
        """Return the settings in `properties`, which maps Kafka's config names to values.

        Raises ConfigError for an unknown name or an invalid value.
        """
        coordinator_of = {
            kafka_name(row.name): coordinator
            for coordinator, table in _COORDINATOR_SETTINGS.items()
            for row in fields(table)
        }
        values: dict[str, bool | int | float | str] = {}
        coordinator_properties: dict[str, dict[str, str]] = {
            coordinator: {} for coordinator in _COORDINATOR_SETTINGS
        }
        for name, text in properties.items():
            if name in SETTINGS:
                values[SETTINGS[name].field] = parse(name, str(text))
            elif name in coordinator_of:
                coordinator_properties[coordinator_of[name]][name] = str(text)
            else:
                known = ", ".join(sorted({*SETTINGS, *coordinator_of}))
                raise ConfigError(name, text, f"the broker's settings are: {known}")
        coordinator_settings = {
            coordinator: table.from_properties(coordinator_properties[coordinator])
            for coordinator, table in _COORDINATOR_SETTINGS.items()
        }
        settings = cls(**coordinator_settings, **values)  # type: ignore[arg-type]
        if settings.retention_ms == 0:
            name, text = settings.retention[0]
            raise ConfigError(name, text, _ALLOWED_RETENTION)
        return settings

    @property
    def retention(self) -> list[tuple[str, str]]:
        """The retention configs that are set, as pairs of name and value. Only the first takes effect."""
        values = {
            "log.retention.ms": self.log_retention_ms,
            "log.retention.minutes": self.log_retention_minutes,
            "log.retention.hours": self.log_retention_hours,
        }
        return [(name, str(value)) for name, value in values.items() if value is not None]

    @property
    def retention_ms(self) -> int | None:
        """The default of the topic config retention.ms: -1 for no limit, None if `retention` is empty."""
        if not self.retention:
            return None
        name, value = self.retention[0]
        return max(int(value) * _MS_PER_UNIT[name], -1)

    def signed_tokens(self, jwks: str, now_ms: Callable[[], int]) -> Check:
        """Return a function that checks tokens signed with one of the keys in the JSON text `jwks`.

        Raises ConfigError if `jwks` is invalid, and MissingExtra if PyJWT is missing.
        """
        audiences = self.sasl_oauthbearer_expected_audience.split(",")
        return signed(
            jwks,
            now_ms,
            issuer=self.sasl_oauthbearer_expected_issuer or None,
            audience=[audience.strip() for audience in audiences if audience.strip()],
            skew_s=self.sasl_oauthbearer_clock_skew_seconds,
            subject_claim=self.sasl_oauthbearer_sub_claim_name,
            scope_claim=self.sasl_oauthbearer_scope_claim_name,
        )

    def properties(self) -> dict[str, str]:
        """Return the configs that are set: Kafka's name -> the value, as DescribeConfigs shows it."""
        values = {
            kafka_name(row.name): _kafka_text(getattr(table, row.name))
            for table in (self, self.group, self.transactions)
            for row in fields(table)
            if row.name not in _COORDINATOR_SETTINGS and getattr(table, row.name) is not None
        }
        return dict(sorted(values.items()))


def kafka_name(field_name: str) -> str:
    """Return Kafka's name for the config in the field `field_name`: dots replace underscores."""
    return field_name.replace("_", ".")


def _kafka_text(value: object) -> str:
    """Return a value as DescribeConfigs shows it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


# Kafka's name -> row, without the configs of the coordinators.
SETTINGS: Final[Mapping[str, Setting]] = {
    kafka_name(row.name): Setting(
        kafka_name(row.name),
        row.name,
        row.metadata["type"],
        "" if row.default is None else _kafka_text(row.default),
        row.metadata["dynamic"],
        row.metadata["topic_config"],
    )
    for row in fields(Settings)
    if row.name not in _COORDINATOR_SETTINGS
}

# Maps a config of the coordinators (Kafka's name) to the size in bits of its integer.
_COORDINATOR_INT_BITS: Final[Mapping[str, int]] = {
    kafka_name(row.name): row.metadata.get("bits", 32)
    for table in _COORDINATOR_SETTINGS.values()
    for row in fields(table)
}

_MS_PER_UNIT: Final[Mapping[str, int]] = {
    "log.retention.ms": 1,
    "log.retention.minutes": 60_000,
    "log.retention.hours": 3_600_000,
}


def broker_config_type(name: str) -> ConfigType:
    """Return the type that DescribeConfigs reports for a broker config. Raises KeyError for unknown names."""
    if name in SETTINGS:
        return SETTINGS[name].type.config_type
    return Integer(_COORDINATOR_INT_BITS[name]).config_type


def parse(name: str, value: str) -> bool | int | float | str:
    """Return the parsed value of one of `SETTINGS`. Raises ConfigError if the value is invalid."""
    text, value_type = trimmed(value), SETTINGS[name].type
    if (fault := value_type.fault(text)) is not None:
        raise ConfigError(name, text, f"allowed: {fault}")
    return value_type.value(text)

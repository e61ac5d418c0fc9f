"""librdkafka's configuration: its property names, aliases and allowed values.

Follows rdkafka_conf.c.

    conf = read({"metadata.broker.list": "localhost:9092", "group.id": "g", "enable.auto.commit": False})
    librdkafka.start(conf.config)

A property that the model uses becomes a field of `ModelConfig` or an entry of its `extra`. Properties of
features that the model lacks, such as security, are only checked and kept in `properties`. Unknown names are
rejected.

`PROPERTIES` lists the properties of consumers, without those that only producers use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, NamedTuple

from ...errors import ConfigError
from ..contract import ModelConfig

# The allowed contexts of the property "debug". librdkafka 2.5 added the context "telemetry".
DEBUG: Final = (
    "generic",
    "broker",
    "topic",
    "metadata",
    "feature",
    "queue",
    "msg",
    "protocol",
    "cgrp",
    "security",
    "fetch",
    "interceptor",
    "plugin",
    "consumer",
    "admin",
    "eos",
    "mock",
    "assignor",
    "conf",
    "telemetry",
    "all",
)

ALIASES: Final[Mapping[str, str]] = {
    "metadata.broker.list": "bootstrap.servers",
    "sasl.mechanism": "sasl.mechanisms",
}

# The interval (ms, about 25 days) that stands for a disabled timer, which is configured as 0 or -1.
NEVER_MS: Final = 2**31 - 1

# A function of a property's name and value. It returns the parsed value, or raises ConfigError.
Validator = Callable[[str, object], object]


class Property(NamedTuple):
    """The check of a property, and the field of `ModelConfig` that holds its value.

    `config_field` is the name of this field, or "extra" for an entry of `ModelConfig.extra`. If it is
    empty, the model does not use the property.
    """

    validator: Validator
    config_field: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conf:
    """A checked configuration. `properties` maps each property to its value, with aliases replaced by real
    names.
    """

    bootstrap: tuple[tuple[str, int], ...]
    config: ModelConfig
    properties: Mapping[str, object]


class PropertyRejected(ConfigError):
    """A property or value that librdkafka rejects. `errstr` is librdkafka's message (rd_kafka_conf_set)."""

    def __init__(self, name: str, value: object, allowed: str, errstr: str) -> None:
        super().__init__(name, value, allowed)
        self.args = (*self.args, errstr)  # Pickle passes `args` to `__init__`.
        self.errstr = errstr


def _read_boolean(name: str, value: object) -> bool:
    text = str(value).lower()
    if text not in ("true", "t", "1", "false", "f", "0"):
        errstr = f'Expected bool value for "{name}": true or false'
        raise PropertyRejected(name, value, "true or false", errstr)
    return text in ("true", "t", "1")


def _invalid_value_text(name: str, value: object) -> str:
    return f'Invalid value "{value}" for configuration property "{name}"'


def _read_string(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise ConfigError(name, value, "a string")
    return value


def _integer_between(minimum: int, maximum: int) -> Validator:
    def check(name: str, value: object) -> int:
        try:
            number = int(value) if isinstance(value, int | str) and not isinstance(value, bool) else None
        except ValueError:
            number = None
        if number is None or not minimum <= number <= maximum:
            errstr = f'Invalid value for configuration property "{name}"'
            if number is not None:
                limits = f"{minimum}..{maximum}"
                errstr = f'Configuration property "{name}" value {number} is outside allowed range {limits}'
            raise PropertyRejected(name, value, f"an integer from {minimum} to {maximum}", errstr)
        return number

    return check


def _read_refresh_interval(name: str, value: object) -> int:
    """Return the interval in ms; `NEVER_MS` for 0 or -1, which disable the refresh."""
    interval_ms = _integer_between(-1, 3_600_000)(name, value)
    assert isinstance(interval_ms, int)
    return interval_ms if interval_ms > 0 else NEVER_MS


def _one_of(*allowed: str) -> Validator:
    def check(name: str, value: object) -> str:
        choice = str(value).lower()
        if choice not in allowed:
            raise PropertyRejected(name, value, ", ".join(allowed), _invalid_value_text(name, value))
        return choice

    return check


def _list_of(*allowed: str) -> Validator:
    """Return a validator of comma-separated values, each of which is one of `allowed`."""

    def check(name: str, value: object) -> tuple[str, ...]:
        choices = tuple(choice.strip() for choice in str(value).split(",") if choice.strip())
        for choice in choices:
            if choice not in allowed:
                raise PropertyRejected(name, choice, ", ".join(allowed), _invalid_value_text(name, choice))
        return choices

    return check


def _read_addresses(name: str, value: object) -> tuple[tuple[str, int], ...]:
    """Return the (host, port) of each broker in a list such as "a:9092,b". The default port is 9092."""
    addresses: list[tuple[str, int]] = []
    for text in _read_string(name, value).split(","):
        address = text.strip().rpartition("://")[2]
        host, colon, port = address.rpartition(":")
        if not address or (colon and not port.isdigit()):
            raise ConfigError(name, value, "one or more addresses (host or host:port), separated by commas")
        addresses.append((host, int(port)) if colon else (address, 9092))
    return tuple(addresses)


PROPERTIES: Final[Mapping[str, Property]] = {
    "bootstrap.servers": Property(_read_addresses),
    "client.id": Property(_read_string, "client_id"),
    "client.rack": Property(_read_string, "rack"),
    "group.id": Property(_read_string, "group_id"),
    "group.instance.id": Property(_read_string, "instance"),
    "partition.assignment.strategy": Property(
        _list_of("range", "roundrobin", "cooperative-sticky"), "assignors"
    ),
    "session.timeout.ms": Property(_integer_between(1, 3_600_000), "session_ms"),
    "heartbeat.interval.ms": Property(_integer_between(1, 3_600_000), "heartbeat_ms"),
    "max.poll.interval.ms": Property(_integer_between(1, 86_400_000), "max_poll_ms"),
    "enable.auto.commit": Property(_read_boolean, "auto_commit"),
    "auto.commit.interval.ms": Property(_integer_between(0, 86_400_000), "auto_commit_ms"),
    "enable.auto.offset.store": Property(_read_boolean, "extra"),
    "enable.partition.eof": Property(_read_boolean, "extra"),
    "queued.min.messages": Property(_integer_between(1, 10_000_000), "extra"),
    "auto.offset.reset": Property(
        _one_of("smallest", "earliest", "beginning", "largest", "latest", "end", "error"), "reset"
    ),
    "isolation.level": Property(_one_of("read_uncommitted", "read_committed"), "isolation"),
    "fetch.wait.max.ms": Property(_integer_between(0, 300_000), "fetch_wait_ms"),
    "topic.metadata.refresh.interval.ms": Property(_read_refresh_interval, "metadata_ms"),
    "debug": Property(_list_of(*DEBUG)),
    "security.protocol": Property(_one_of("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")),
    "sasl.mechanisms": Property(_read_string),
    "sasl.username": Property(_read_string),
    "sasl.password": Property(_read_string),
}


def read(conf: Mapping[str, object]) -> Conf:
    """Check `conf`. Raises ConfigError for an unknown property or a value that is not allowed."""
    properties: dict[str, object] = {}
    options: dict[str, Any] = {"client_id": "rdkafka", "group_id": ""}
    extra: dict[str, object] = {}
    for name, value in conf.items():
        real_name = ALIASES.get(name, name)
        if real_name not in PROPERTIES:
            allowed = f"unknown property; allowed: {', '.join(PROPERTIES)}"
            raise PropertyRejected(name, value, allowed, f'No such configuration property: "{name}"')
        validator, config_field = PROPERTIES[real_name]
        parsed = validator(name, value)
        properties[real_name] = parsed
        if config_field == "extra":
            extra[real_name] = parsed
        elif config_field:
            options[config_field] = parsed
    bootstrap: Any = properties.get("bootstrap.servers", ())
    return Conf(bootstrap=bootstrap, config=ModelConfig(**options, extra=extra), properties=properties)


def as_options(conf: Conf) -> dict[str, Any]:
    """Return the options that differ from `ModelConfig`'s defaults, as arguments of `World.join`."""
    default_config = ModelConfig(client_id="", group_id="")
    options = {
        option.name: getattr(conf.config, option.name)
        for option in fields(ModelConfig)
        if option.name != "random"
    }
    return {name: value for name, value in options.items() if value != getattr(default_config, name)}
